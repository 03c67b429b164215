-- Hand a machine id to an instance: its own, else one given back, else a new one, else an expired
-- one.  An id whose floor is later than `latest` is taken only if there is no other, and then the
-- one with the lowest floor; the instance's own is given back for it, unless the owner is stable.
-- No id above the maximum is handed out, and none that an entry of somebody else names.  None at
-- all in a quarantine.
--
-- ARGV  1 instance   2 '1' if it is stable   3 highest machine id   4 now in ms   5 latest in ms
--       6 safe guard in ms, '' for ever   7 token
--       8 the server's clock in ms instead of TIME, for tests
-- Reply {'taken', machine id, floor in ms: the highest of stamp and mark, -1 if there is neither}
--       or {'full', up to five of those who hold one}
--       or {'width', how many bits the namespace's machine ids have instead}; nothing was written
--       or {'quarantine', ms that are left of it, '' for ever}; nothing but that was written
local instance, is_stable, token = ARGV[1], ARGV[2] == '1', ARGV[7]
local max_id, now, latest = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

-- Changes nothing, but a replica refuses it: what it knows may be old.
redis.call('HDEL', tokens, '')

local bits, has_bits = 0, read_width()
while 2 ^ bits <= max_id do bits = bits + 1 end
local state, clock, guard = read_marker(), clock_of(ARGV[8]), guard_of(ARGV[6])
if damage then return damage end
local left = quarantine(state, clock, guard)
if left then return refusal(left) end
if has_bits and has_bits ~= bits then return {'width', text(has_bits)} end

local expires = ARGV[6] == '' and -1 or clock - tonumber(ARGV[6])

local best  -- what is taken, or would be if there is nothing earlier

-- Whether the search is over.
local function consider(kind, id, stamp)
  local floor = math.max(stamp, noted(marks, id))
  local is_early = floor <= latest
  if is_early or not best or floor < best.floor then
    best = {kind = kind, id = id, stamp = stamp, floor = floor}
  end
  return is_early
end

local function take()
  local id = text(best.id)
  remember(state, guard)
  if not has_bits then redis.call('SET', width, text(bits)) end
  redis.call('HSET', entries, instance, id .. '|' .. text(math.max(best.stamp, now)))
  redis.call('HSET', tokens, id, token)
  redis.call('HSET', seen, id, text(clock))
  if is_stable then
    redis.call('HSET', stables, id, instance)
  else
    redis.call('HDEL', stables, id)
  end
  return {'taken', id, text(best.floor)}
end

local own
local entry = redis.call('HGET', entries, instance)
if entry then
  local id, stamp = read_entry(instance, entry)
  own = {id = id, stamp = stamp, floor = next_floor(stamp, noted(marks, id))}
  local is_chosen = id <= max_id and (consider('own', id, stamp) or is_stable)
  if damage then return damage end
  if is_chosen then return take() end
end

local held, others, returned = {}, {}, {}
for _, each in ipairs(read_entries()) do
  if each.instance ~= instance then
    others[#others + 1] = each
    held[each.id] = true
  end
end

local function look()
  for _, each in ipairs(read_pool()) do
    returned[each.id] = true
    if each.id <= max_id and not held[each.id] and consider('pool', each.id, each.stamp) then
      return
    end
  end
  local last = redis.call('GET', adder)
  local new = (last and last ~= '-1') and whole(adder, '', last) + 1 or 0
  while held[new] or returned[new] or (own and own.id == new) do new = new + 1 end
  if new > max_id and redis.call('HEXISTS', marker, 'gaps') == 1 then
    new = 0
    while held[new] or returned[new] or (own and own.id == new) do new = new + 1 end
  end
  if new <= max_id and consider('new', new, -1) then
    return
  end
  local alive = {}
  for _, each in ipairs(others) do
    -- By the owner's clock, which may be slow, and by ours, of which CosId's owners know nothing.
    local is_alive = each.stamp > expires or noted(seen, each.id) > expires
    if is_alive or redis.call('HGET', stables, text(each.id)) == each.instance then
      alive[each.id] = true
    end
  end
  for _, each in ipairs(others) do
    if each.id <= max_id and not alive[each.id] and consider('expired', each.id, each.stamp) then
      return
    end
  end
end

look()
if damage then return damage end
if not best then
  local reply = {'full'}
  for i = 1, math.min(5, #others) do reply[i + 1] = others[i].instance end
  return reply
end

if own and best.kind ~= 'own' then
  redis.call('HDEL', entries, instance)
  redis.call('HDEL', stables, text(own.id))
  redis.call('HDEL', seen, text(own.id))
  if not held[own.id] then redis.call('HSET', pool, text(own.id), text(own.floor)) end
end
if best.kind == 'pool' then
  redis.call('HDEL', pool, text(best.id))
elseif best.kind == 'new' then
  local last = tonumber(redis.call('GET', adder) or -1)
  if best.id > last then redis.call('SET', adder, text(best.id)) end
elseif best.kind == 'expired' then
  for _, each in ipairs(others) do
    if each.id == best.id then redis.call('HDEL', entries, each.instance) end
  end
end
return take()
