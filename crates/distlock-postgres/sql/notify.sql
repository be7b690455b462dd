-- $1 channels, $2 messages
SELECT pg_notify(channel, message) FROM unnest($1::text[], $2::text[]) AS told (channel, message)
