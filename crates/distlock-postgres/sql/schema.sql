-- The tables of distlock. Give this to psql, as a role that may create a schema. Then let the role of the
-- programs use them:
--
--   GRANT USAGE ON SCHEMA {schema} TO app;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO app;

BEGIN;

CREATE SCHEMA IF NOT EXISTS {schema};
SET LOCAL search_path = {schema};

{tables}
INSERT INTO meta (version, name) VALUES ({version}, gen_random_uuid());

COMMIT;
