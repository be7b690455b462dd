-- The number of the first entry that is kept, or that will be if there is none.
SELECT coalesce((SELECT min(id) FROM journal), (SELECT seq + 1 FROM sqlite_sequence WHERE name = 'journal'), 1)
