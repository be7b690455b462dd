-- $1 now in ms, then an array for each column. Locks the end of the journal until this is committed.
WITH ended AS (
    UPDATE journal_end SET last = last + cardinality($2::bigint[]) RETURNING last - cardinality($2::bigint[]) AS before
)
INSERT INTO journal (id, written_ms, at_ms, what, key, owner, reason, mode, fence, visit, us, ahead, by_whom, why)
SELECT before + nth, $1, at_ms, what, key, owner, reason, mode, fence, visit, us, ahead, by_whom, why
FROM ended, unnest($2::bigint[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::text[], $13::text[]) WITH ORDINALITY
    AS told (at_ms, what, key, owner, reason, mode, fence, visit, us, ahead, by_whom, why, nth)
