-- Open a span that was leased under a claim, once: the claim is used up, so that a call which is
-- sent again, or comes late, does nothing.
local claim, by, cursor, last = unpack(redis.call('HMGET', span, CLAIM, BY, CURSOR, LAST))
if claim ~= ARGV[2] or by ~= here then return {'late'} end
redis.call('HDEL', span, CLAIM, BY, UNTIL)
redis.call('HSET', span, SERVER, here, CURSOR, ARGV[3], LAST, ARGV[4])
return {'opened', whole(cursor) and cursor or '', whole(last) and last or ''}
