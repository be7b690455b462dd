-- Keeps a hold alive and writes its main key once more as it is, so that a replica which has this
-- write has the hold. A server may count only what a connection really wrote: a lease that is
-- extended by nothing is not written.
--
-- ARGV  3 span in ms.
-- Returns, after the claim id, {'held', fence} | {'gone'}
local span = number(ARGV[3])
local fence

settle()
if held and held.id == id then
  extend_main(span)
  fence = held.fence
else
  local sharer = sharer_of(id)
  if sharer then
    extend_sharer(id, span)
    fence = held.kind == 'exclusive' and held.fence or sharer.fence
  end
end
if fence then
  call('SET', main, call('GET', main), 'KEEPTTL')
end
finish()
return fence and reply('held', whole(fence)) or reply('gone')
