-- Take a segment from the span, or the right to open the next one.
--
-- ARGV  1 step   2 the highest max id that the caller has seen, 0 for none   3 nonce
--       4 how long a claim lasts, in ms
-- Reply {'taken', max id}
--       or {'claimed', why}: the caller has to open a span, because the present one is
--          'missing', of another 'server', 'damaged', 'behind' the caller, or has too little 'left'
--       or {'opening', ms}: somebody else is about to, for so long at most
local step, floor, nonce, lasts = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local kept = redis.call('HMGET', span, 'server', 'cursor', 'last', 'claim', 'by', 'until')
local server, cursor, last, claim, by, ends = unpack(kept)

local why = 'left'
if not server then
  why = 'missing'
elseif server ~= here then
  why = 'server'
elseif not (whole(cursor) and whole(last)) or lower(last, cursor) then
  why = 'damaged'
elseif lower(cursor, floor) then
  why = 'behind'
elseif type(redis.pcall('HINCRBY', span, 'cursor', step)) == 'number' then
  local max_id = redis.call('HGET', span, 'cursor')
  if not lower(last, max_id) then return {'taken', max_id} end
  redis.call('HINCRBY', span, 'cursor', '-' .. step)
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local left = (tonumber(ends or '') or 0) - now
-- More than `lasts` is left only if the clock was set back.
if claim and claim ~= nonce and by == here and left > 0 and left <= lasts then
  return {'opening', string.format('%.0f', left)}
end
redis.call('HSET', span, 'claim', nonce, 'by', here, 'until', string.format('%.0f', now + lasts))
return {'claimed', why}
