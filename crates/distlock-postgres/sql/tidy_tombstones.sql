DELETE FROM tombstones WHERE until_us <= (SELECT now_us())
