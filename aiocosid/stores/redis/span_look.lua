-- Check that the server shows its identity, and allows what the other scripts do; leave nothing.
local LOOK = 'look' .. root
redis.call('HGET', span, LOOK)
redis.call('HMGET', span, LOOK)
redis.call('HDEL', span, LOOK)
for _, command in ipairs({'HSET', 'HINCRBY'}) do
  local reply = redis.pcall(command, span, LOOK, 0)
  redis.call('HDEL', span, LOOK)
  if type(reply) == 'table' then return reply end
end
return {'seen'}
