-- Read the cells of a namespace of machine ids: all; or those of an instance, and of as many ids as
-- are to be sampled: the first given back, in CosId's order, else new ones.
local taker, count, instance, sample = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if taker == '1' and demoted then return demoted end
for position, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' and kind ~= (position > 5 and 'string' or 'hash') then
    return {'damaged', key, kind}
  end
end
local adder = redis.call('GET', KEYS[6])
local reply = {here or '', hidden or '', text(now_ms)}
reply[4], reply[5] = unpack(redis.call('HMGET', KEYS[5], 'store', count))
reply[6], reply[7] = adder, redis.call('GET', KEYS[7])
if sample == 0 then
  for position = 1, 4 do reply[7 + position] = redis.call('HGETALL', KEYS[position]) end
  return reply
end
local own, pool, numbers = redis.call('HGET', KEYS[1], instance), redis.call('HGETALL', KEYS[2]), {}
for i = 1, #pool, 2 do
  if #numbers < sample and pool[i]:find('^%d+$') then numbers[#numbers + 1] = pool[i] end
end
local last = tonumber(adder or -1)
if not (last and last >= -1 and last < 2 ^ 31) then last = -1 end  -- damaged, as the reader finds
for number = last + 1, last + math.max(1, sample - #numbers) do
  numbers[#numbers + 1] = text(number)
end
reply[12] = {unpack(numbers)}
numbers[#numbers + 1] = own and own:match('^%d+') or nil
reply[8] = own and {instance, own} or {}
for position = 2, 4 do
  local flat, values = {}, redis.call('HMGET', KEYS[position], unpack(numbers))
  for i, number in ipairs(numbers) do
    if values[i] then flat[#flat + 1], flat[#flat + 2] = number, values[i] end
  end
  reply[7 + position] = flat
end
reply[13] = redis.call('HLEN', KEYS[1]) + #pool / 2
reply[14] = redis.call('HLEN', KEYS[3])
return reply
