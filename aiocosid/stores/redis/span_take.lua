-- Take a segment from the span, or the right to open the next one.
local step, floor, nonce, lasts = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local kept = redis.call('HMGET', span, SERVER, CURSOR, LAST, CLAIM, BY, UNTIL, CLAIMS)
local server, cursor, last, claim, by, ends, claims = unpack(kept)

local why = 'left'
if not server then
  why = 'missing'
elseif server ~= here then
  why = 'server'
elseif not (whole(cursor) and whole(last)) then
  why = 'damaged'
elseif lower(cursor, floor) then
  why = 'behind'
else
  local sum = redis.pcall('HINCRBY', span, CURSOR, step)
  if type(sum) == 'number' then
    local max_id = redis.call('HGET', span, CURSOR)
    if not lower(last, max_id) then return {'taken', max_id} end
    redis.call('HINCRBY', span, CURSOR, '-' .. step)
  elseif not sum.err:find('overflow', 1, true) then
    return sum
  end
end

local left = (tonumber(ends or '') or 0) - now_ms
-- More than `lasts` is left only if the clock was set back.
if claim and by == here and left > 0 and left <= lasts then
  if is_of(claim, nonce) then return {'claimed', why, claim} end  -- sent again
  return {'opening', text(left)}
end
-- Never the same twice, also for one nonce: else a late copy of this call would claim again, and a
-- late copy of the opening then begin a span anew that was handed out.  The count tells claims of
-- one microsecond apart, and those of a clock that was set back; the time those before a DEL; the
-- server those of two masters with one history, which count alike.
if not (whole(claims) and #claims < 16) then redis.call('HSET', span, CLAIMS, 0) end
local count = redis.call('HINCRBY', span, CLAIMS, 1)
local made = string.format('%s %s %s.%s %.0f', nonce, here, time[1], time[2], count)
redis.call('HSET', span, CLAIM, made, BY, here, UNTIL, text(now_ms + lasts))
return {'claimed', why, made}
