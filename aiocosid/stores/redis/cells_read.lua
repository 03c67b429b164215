-- Read all cells of a namespace of machine ids.
if ARGV[1] == '1' and demoted then return demoted end
for position, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' and kind ~= (position > 5 and 'string' or 'hash') then
    return {'damaged', key, kind}
  end
end
local reply = {here or '', hidden or '', text(now_ms)}
reply[4], reply[5] = unpack(redis.call('HMGET', KEYS[5], 'store', ARGV[2]))
reply[6], reply[7] = redis.call('GET', KEYS[6]), redis.call('GET', KEYS[7])
for position = 1, 4 do reply[7 + position] = redis.call('HGETALL', KEYS[position]) end
return reply
