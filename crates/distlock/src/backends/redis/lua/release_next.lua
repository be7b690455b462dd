-- The usual hand-over: an exclusive holder lets go, and somebody is next. Leaves wanted,
-- leaving_sum and leaving_worth.
if next_claim then
  wanted = next_floor == '' or next_floor
  leaving_sum, leaving_worth = summand(next_client, next_claim, next_ticket)
end
