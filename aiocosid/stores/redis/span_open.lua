-- Open a span that was leased under a claim, once: the claim is used up, so that a call which is
-- sent again, or comes late, does nothing.
--
-- ARGV  1 nonce of the claim   2 cursor: the caller's own segment is taken already   3 last
-- Reply {'opened', cursor, last of the span before it, each '' if unknown} or {'late'}
local claim, by, cursor, last = unpack(redis.call('HMGET', span, 'claim', 'by', 'cursor', 'last'))
if claim ~= ARGV[1] or by ~= here then return {'late'} end
redis.call('DEL', span)
redis.call('HSET', span, 'server', here, 'cursor', ARGV[2], 'last', ARGV[3])
return {'opened', cursor or '', last or ''}
