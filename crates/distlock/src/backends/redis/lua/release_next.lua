-- The usual hand-over: an exclusive holder lets go, and somebody is next.
--
-- Returns the claim id, and what the next one has to be told if it belongs to the same client.
if mine then
  local claim, ask, to, floor, ticket, ends = next_in_line()
  if claim then
    leave_line(claim, to, summand(to, claim, ticket))
    local fence = next_number(floor ~= '' and floor or now_us_text)
    return id .. '\n' .. tell(to, enter(claim, ask, ticket, ends, fence))
  end
end
