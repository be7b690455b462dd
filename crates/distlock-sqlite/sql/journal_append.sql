INSERT INTO journal (written_ms, at_ms, what, key, owner, reason, mode, fence, visit, us, ahead, by_whom, why)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
