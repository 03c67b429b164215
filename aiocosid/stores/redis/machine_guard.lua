-- A sign of life: raise the stamp and the mark, lower neither.  In a quarantine an owner whose lease
-- is good asserts its id: all is written that the server may have forgotten.
--
-- ARGV  1 instance   2 machine id   3 now in ms   4 mark in ms
--       5 token with which it was handed out, '' if the caller does not know
--       6 safe guard in ms, '' for ever
--       7 when it was handed out in ms, '' if the caller may not assert it
--       8 width of the namespace in bits   9 '1' if the instance is stable
--      10 the server's clock in ms instead of TIME, for tests
-- Reply {'kept'} or {'lost', who holds the id instead, '' if nobody}; then nothing was written
--       or {'quarantine', ms that are left of it, '' for ever}; nothing but that was written
local instance, id, token = ARGV[1], tonumber(ARGV[2]), ARGV[5]
local now, mark, born = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[7])

-- Changes nothing, but a replica refuses it: what it knows may be old.
redis.call('HDEL', tokens, '')

local held, stamp
local entry = redis.call('HGET', entries, instance)
if entry then held, stamp = read_entry(instance, entry) end
local before = noted(marks, id)
local floor = held and next_floor(stamp, noted(marks, held))
local state, clock, guard = read_marker(), clock_of(ARGV[10]), guard_of(ARGV[6])

-- What matters in a quarantine alone.
local others, last, returned, claimed = {}, -1, -1, {}
if state.since or not state.is_ours then
  others = read_entries()
  local noted_last = redis.call('GET', adder)
  if noted_last and noted_last ~= '-1' then last = whole(adder, '', noted_last) end
  returned = noted(pool, id)
  local flat = state.is_ours and redis.call('HGETALL', claims) or {}
  for i = 1, #flat, 2 do
    local since, by, who = flat[i + 1]:match('^(%d+)|(%x+)|(.*)$')
    if not since or not exact(since) then
      return {'damaged', claims, flat[i], flat[i + 1]}
    end
    claimed[whole(claims, flat[i], flat[i])] = {born = tonumber(since), token = by, instance = who}
  end
end
if damage then return damage end

local left = quarantine(state, clock, guard)

local function keep()
  remember(state, guard)
  redis.call('HSET', seen, text(id), text(clock))
  if mark > before then redis.call('HSET', marks, text(id), text(mark)) end
end

if not left then
  if held ~= id or not is_latest(id, token) then
    for _, each in ipairs(read_entries()) do
      if each.id == id then return {'lost', each.instance} end
    end
    return {'lost', ''}
  end
  keep()
  if now > stamp then redis.call('HSET', entries, instance, text(id) .. '|' .. text(now)) end
  return {'kept'}
end

if not born or token == '' then return refusal(left) end

-- By bytes: the server's own order depends on its locale.
local function is_before(one, other)
  for i = 1, math.min(#one, #other) do
    if one:byte(i) ~= other:byte(i) then return one:byte(i) < other:byte(i) end
  end
  return #one < #other
end

-- Whether somebody who has asserted it already keeps it: of two instances the earlier, of two lives
-- of one instance the later.
local function keeps_it(claim)
  if claim.instance == instance then return claim.token ~= token and claim.born >= born end
  if claim.born ~= born then return claim.born < born end
  return is_before(claim.instance, instance)
end

for number, claim in pairs(claimed) do
  if (number == id or claim.instance == instance) and keeps_it(claim) then
    return {'lost', claim.instance}
  end
end

-- CosId's sees no quarantine, takes what it finds, and would not yield.
local is_unknown = not redis.call('HGET', tokens, text(id))
local highest, dropped = math.max(now, returned), {}
for _, each in ipairs(others) do
  if each.id == id then
    if each.instance ~= instance then
      local claim = claimed[id]
      local is_claim = claim and claim.instance == each.instance
      if not is_claim and (is_unknown or each.stamp >= state.since) then
        return {'lost', each.instance}
      end
      dropped[#dropped + 1] = each.instance
    end
    highest = math.max(highest, each.stamp)
  end
end

for _, each in ipairs(dropped) do redis.call('HDEL', entries, each) end
if held and held ~= id then  -- of an earlier life, from which the server was restored
  local is_held = false
  for _, each in ipairs(others) do
    is_held = is_held or (each.id == held and each.instance ~= instance)
  end
  redis.call('HDEL', stables, text(held))
  redis.call('HDEL', seen, text(held))
  redis.call('HDEL', claims, text(held))
  if not is_held then redis.call('HSET', pool, text(held), text(floor)) end
end
redis.call('HDEL', pool, text(id))
if id > last then  -- as CosId would not know that it is held
  redis.call('SET', adder, text(id))
  redis.call('HSET', marker, 'gaps', '1')
end
redis.call('SET', width, ARGV[8])
redis.call('HSET', entries, instance, text(id) .. '|' .. text(highest))
redis.call('HSET', tokens, text(id), token)
redis.call('HSET', claims, text(id), text(born) .. '|' .. token .. '|' .. instance)
if ARGV[9] == '1' then
  redis.call('HSET', stables, text(id), instance)
else
  redis.call('HDEL', stables, text(id))
end
keep()
return {'kept'}
