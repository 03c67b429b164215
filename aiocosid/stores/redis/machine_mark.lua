-- Look at the marker of a namespace, or write it.
--
-- ARGV  1 'look' to write nothing, 'mark' to write it if it is missing, 'new' to write it in any case
--       2 the longest safe guard in ms that is known, '' for ever, '0' if none is: remembered, and
--         counts in a quarantine that begins, because the marker is of another server; 'new' alone
--         forgets a longer one
--       3 the server's clock in ms instead of TIME, for tests
-- Reply {'marker', 'none', 'there' or 'new' if it was written, ms that are left of a quarantine, ''
--       for ever, '0' if there is none}
local clock = clock_of(ARGV[3])

if ARGV[1] == 'look' then  -- of a replica too, and without a right to INFO
  if not redis.call('HGET', marker, 'identity') then return {'marker', 'none', '0'} end
  local since = redis.call('HGET', marker, 'since')
  if not since then return {'marker', 'there', '0'} end
  local guard = guard_of(redis.call('HGET', marker, 'guard') or '0', 'guard')
  local left = whole(marker, 'since', since) + length_of(guard) - clock
  return damage or {'marker', 'there', refusal(math.max(left, 0))[2]}
end

-- Changes nothing, but a replica refuses it: what it knows may be old.
redis.call('HDEL', tokens, '')

local state, guard = read_marker(), guard_of(ARGV[2])
if damage then return damage end
if ARGV[1] == 'new' or not state.is_there then
  redis.call('HDEL', marker, 'guard')
  state.guard = 0
  mark_as_sound(state)
  remember(state, guard)
  return {'marker', 'new', '0'}
end
local left = quarantine(state, clock, state.since and 0 or guard)
if left then return {'marker', 'there', refusal(left)[2]} end
remember(state, guard)
return {'marker', 'there', '0'}
