local is_there = redis.call('GET', KEYS[1])
if not is_there and ARGV[2] == '' then return false end
redis.call('INCRBY', KEYS[1], 0)
local value, floor = redis.call('GET', KEYS[1]), ARGV[1]
local lower = #value < #floor or (#value == #floor and value < floor)
if lower or value:sub(1, 1) == '-' then
  redis.call('SET', KEYS[1], floor)
  return floor
end
return value
