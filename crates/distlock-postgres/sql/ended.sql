-- $1 the key after which to go on, $2 the last key to look at, $3 how many: keys with a holder or a
-- client past its time
SELECT DISTINCT key FROM (
    SELECT key, until_us FROM holders WHERE key > $1 AND key <= $2
    UNION ALL
    SELECT key, until_us FROM clients WHERE key > $1 AND key <= $2
) AS ends
WHERE until_us <= (SELECT now_us())
LIMIT $3
