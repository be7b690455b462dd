-- ?1 name, ?2 boot, ?3 counter, ?4 ceiling
INSERT INTO store (one, name, boot, counter, ceiling) VALUES (1, ?1, ?2, ?3, ?4)
