-- Returns the claim id, and what the next one has to be told if it belongs to the same client.
if next_claim then
  return id .. '\n' .. news
end
