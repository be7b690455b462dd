-- Those who let go, and nobody waits. Behind the text of whoever holds alone there is no '+', see
-- texts.lua.
if releases > 0 then
  local texts, plain = call('MGET', unpack(keys, 2, 1 + releases)), true
  for i = 1, releases do
    local text = texts[i]
    plain = plain and text and find(text, args[1 + i], 1, true) == 1
      and not find(text, '+', -1, true)
  end
  if not plain or call('DEL', unpack(keys, 2, 1 + releases)) < releases then
    -- One after the other. Who is released twice is released by the first.
    local done = {}
    for i = 1, releases do
      local text, main = texts[i], keys[1 + i]
      local ours = text and find(text, args[1 + i], 1, true) == 1 and not done[main]
      if ours and (not find(text, '+', -1, true) or call('EXISTS', main .. ':d') == 0) then
        call('DEL', main)
        done[main] = true
      else
        left_alone[#left_alone + 1] = i
      end
    end
  end
end

if asks == 0 then
  return table.concat({ args[2] .. args[1], '0', unpack(left_alone) }, ' ')
end
