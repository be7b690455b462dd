-- The number of the first entry that is kept, or that will be if there is none; and of the last one.
SELECT coalesce((SELECT min(id) FROM journal), last + 1), last FROM journal_end
