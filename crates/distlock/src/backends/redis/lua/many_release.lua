-- Those who let go, and nobody waits.
if releases > 0 then
  local texts, mine = call('MGET', unpack(keys, 2, 1 + releases)), {}
  for i = 1, releases do
    local text = texts[i]
    local ours = text and string.find(text, args[4 + i], 1, true) == 1
    if ours and (string.byte(text, -1) ~= MORE or call('EXISTS', keys[1 + i] .. ':d') == 0) then
      mine[#mine + 1] = keys[1 + i]
    else
      left_alone[#left_alone + 1] = i
    end
  end
  if mine[1] and call('DEL', unpack(mine)) < #mine then
    -- Who is released twice is released by the first.
    local done, others = {}, {}
    for _, i in ipairs(left_alone) do
      others[i] = true
    end
    for i = 1, releases do
      local main = keys[1 + i]
      if not others[i] and done[main] then
        left_alone[#left_alone + 1] = i
      end
      done[main] = done[main] or not others[i]
    end
  end
end

local function answer_with(fence)
  return table.concat({ args[5] .. args[1], fence, unpack(left_alone) }, ' ')
end

if asks == 0 then
  return answer_with('0')
end
