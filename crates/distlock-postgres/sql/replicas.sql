-- $1 a position in the log, $2 how many replicas are wanted, $3 how long to pause in seconds. How many
-- replicas have the log up to there on their disk, and whether this user may know. Pauses here, and only
-- if it is worth while asking again.
SELECT have, allowed,
       CASE WHEN allowed AND have < $2 AND $3 > 0 THEN pg_sleep($3) END
FROM (
    SELECT count(*) FILTER (WHERE flush_lsn >= $1::text::pg_lsn) AS have,
           (SELECT pg_has_role('pg_read_all_stats', 'usage')) AS allowed
    FROM pg_stat_replication
) AS replicas
