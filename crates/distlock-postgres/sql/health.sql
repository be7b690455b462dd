SELECT now_us(),
       current_setting('server_version'),
       pg_is_in_recovery(),
       current_setting('synchronous_commit'),
       current_setting('synchronous_standby_names'),
       current_setting('fsync'),
       current_setting('autovacuum'),
       (SELECT count(*) FROM pg_stat_replication)
