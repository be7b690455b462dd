-- Up to where the log has to be on a replica for all that this connection has committed to be there.
SELECT (CASE current_setting('synchronous_commit')
    WHEN 'off' THEN pg_current_wal_insert_lsn() ELSE pg_current_wal_flush_lsn() END)::text
