-- Leases are measured by a table from now on.
SET search_path = distlock;
CREATE TABLE test_clock AS SELECT now_us() AS us;
GRANT SELECT ON test_clock TO PUBLIC;
CREATE OR REPLACE FUNCTION now_us() RETURNS bigint LANGUAGE sql VOLATILE
AS 'SELECT us FROM distlock.test_clock';
