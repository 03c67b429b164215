-- Take back the last ids that were handed out, if their caller noted them and has not used them.
local kept = redis.call('HMGET', span, SERVER, CURSOR, NOTE, TOP, BASE)
local server, cursor, note, top, base = unpack(kept)
if server ~= here or cursor ~= ARGV[2] or note ~= ARGV[4] or top ~= ARGV[2] then return {'kept'} end
if not base or lower(ARGV[3], base) then return {'kept'} end
redis.call('HINCRBY', span, CURSOR, '-' .. ARGV[5])
redis.call('HDEL', span, NOTE, TOP, BASE)
return {'returned'}
