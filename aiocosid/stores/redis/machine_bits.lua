-- Look at the width of a namespace's machine ids, or change it while nobody holds one.
--
-- ARGV  1 new width in bits, '' to look only   2 safe guard in ms of a quarantine that begins
-- Reply {'bits', how many there are now, '' if none is noted}
--       or {'held', how many there are, up to five of those who hold one}; nothing was written
--       or {'quarantine', ms that are left of it, '' for ever}; nothing but that was written
local bits, has_bits = ARGV[1], read_width()
if damage then return damage end
local before = has_bits and text(has_bits) or ''
if bits == '' or bits == before then return {'bits', before} end

local held, state = read_entries(), read_marker()
if damage then return damage end
local left = quarantine(state, clock_of(nil), state.since and 0 or guard_of(ARGV[2]))
if left then return refusal(left) end
if #held > 0 then
  local reply = {'held', before}
  for i = 1, math.min(5, #held) do reply[i + 2] = held[i].instance end
  return reply
end
redis.call('SET', width, bits)
return {'bits', bits}
