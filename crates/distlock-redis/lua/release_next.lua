-- The usual hand-over: an exclusive holder lets go, and somebody is next. Leaves wanted.
if next_claim then
  wanted = next_floor == '' or next_floor
end
