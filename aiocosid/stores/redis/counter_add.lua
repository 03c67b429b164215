local before = redis.call('GET', KEYS[1])
if not before and ARGV[2] == '' then return false end
if not before and KEYS[2] and redis.call('HEXISTS', KEYS[2], 'store') == 0 then return '' end
redis.call('INCRBY', KEYS[1], before and ARGV[1] or ARGV[2])
return redis.call('GET', KEYS[1])
