-- $1 key. The clock is read after the latch was taken: what others decided before is not later.
SELECT counter, holders, sharers, shared_weight, exclusive_waiters, shared_waiters, tombstones_until_us,
       now_us()
FROM keys WHERE key = $1
