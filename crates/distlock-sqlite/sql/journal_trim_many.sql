-- ?1 how many entries are kept
DELETE FROM journal WHERE id <= (SELECT max(id) FROM journal) - ?1
