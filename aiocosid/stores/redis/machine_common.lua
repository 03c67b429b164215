-- What every script about machine ids begins with.  Each is one atomic step; all that is read is
-- checked before anything is written, and all keys are declared.
--
-- KEYS  1 entries  hash, CosId's itc_idx: instance -> machine id|last sign of life in ms
--       2 adder    string, CosId's: the last machine id that was new
--       3 pool     hash, CosId's revert: machine id given back -> last sign of life in ms
--       4 marks    hash, ours: machine id -> no id was issued with a later time, in ms
--       5 stables  hash, ours: machine id -> its owner, who said that it is stable
--       6 tokens   hash, ours: machine id -> token of the call that handed it out last
--       7 seen     hash, ours: machine id -> last sign of life in ms, by the server's clock
--       8 width    string, ours: how many bits all machine ids of the namespace have
--       9 marker   hash, ours: identity of the server for which nothing was forgotten; the longest
--                  safe guard that was ever named, in ms, '' for ever; in a quarantine since when,
--                  in ms by the server's clock; and whether numbers below the last new one were
--                  left out
--      10 claims   hash, ours: machine id -> ms when it was handed out|token|instance, of those who
--                  asserted theirs in this quarantine
--
-- Reply of all: {'damaged', key, field, value} where something is no state of a machine id, or
-- {'hidden', why} where the server does not tell who it is; nothing was written.  Numbers are
-- answered as text.
local entries, adder, pool, marks, stables, tokens, seen, width, marker, claims = unpack(KEYS)

-- TIME makes what is written after it unpredictable: old servers have to be told to replicate that.
pcall(redis.replicate_commands)

for position, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  local is_text = position == 2 or position == 8
  if kind ~= 'none' and kind ~= (is_text and 'string' or 'hash') then
    return {'damaged', key, '', 'a ' .. kind}
  end
end

local damage

-- Lua's own tostring writes 1e+14.
local function text(number)
  return string.format('%.0f', number)
end

-- Up to 2^53-1: a double is exact so far.
local function exact(digits)
  return digits:find('^%d+$') and #digits <= 16 and tonumber(digits) < 2 ^ 53
end

local function whole(key, field, value)
  if exact(value) then return tonumber(value) end
  damage = damage or {'damaged', key, field, value}
  return -1
end

local function read_entry(instance, value)
  local id, stamp = value:match('^(%d+)|(%d+)$')
  if id and exact(id) and exact(stamp) then return tonumber(id), tonumber(stamp) end
  damage = damage or {'damaged', entries, instance, value}
  return -1, -1
end

-- How many bits the machine ids have, nil if none was handed out by one of us yet.
local function read_width()
  local value = redis.call('GET', width)
  if not value then return nil end
  local bits = value:find('^[1-9]%d?$') and tonumber(value) or 32
  if bits > 31 then damage = damage or {'damaged', width, '', value} end
  return bits
end

-- Whether a machine id was not handed out again since it was with that token; '' is not compared.
-- A token stays when the id is given back: whoever comes with an older one is late.
local function is_latest(id, token)
  local found = redis.call('HGET', tokens, text(id))
  return token == '' or not found or found == token
end

-- What a hash says of a machine id, -1 if nothing.
local function noted(key, id)
  local value = redis.call('HGET', key, text(id))
  return value and whole(key, text(id), value) or -1
end

-- The stamp of an id that goes from an owner who may use it until its mark, as when the call that
-- takes another id instead comes late.  The next owner may be CosId's: it knows no mark, and issues
-- ids of the very millisecond of the stamp, or of its second.
local function next_floor(stamp, mark)
  return mark < 0 and stamp or math.max(stamp, math.min(mark + 1000, 2 ^ 53 - 1))
end

-- The server's clock in ms; tests give it.
local function clock_of(given)
  if given then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- All entries: a list of {instance, id, stamp}, in the order of the hash.
local function read_entries()
  local found, flat = {}, redis.call('HGETALL', entries)
  for i = 1, #flat, 2 do
    local id, stamp = read_entry(flat[i], flat[i + 1])
    found[#found + 1] = {instance = flat[i], id = id, stamp = stamp}
  end
  return found
end

-- The pool: a list of {id, stamp}, in the order of the hash.
local function read_pool()
  local found, flat = {}, redis.call('HGETALL', pool)
  for i = 1, #flat, 2 do
    local id, stamp = whole(pool, flat[i], flat[i]), whole(pool, flat[i], flat[i + 1])
    found[#found + 1] = {id = id, stamp = stamp}
  end
  return found
end


-- Who the server is: another one when it was started anew, and in what was copied from it; and
-- another one when it was a replica in between.
local function identity()
  local texts = {}
  for i, section in ipairs({'server', 'replication'}) do
    local found = redis.pcall('INFO', section)
    if type(found) ~= 'string' then
      damage = damage or {'hidden', found.err or ''}
      return ''
    end
    texts[i] = found
  end
  local run_id, replid = texts[1]:match('run_id:(%x+)'), texts[2]:match('master_replid:(%x+)')
  if run_id and replid and texts[2]:find('role:master', 1, true) then
    return run_id .. ' ' .. replid
  end
  damage = damage or {'hidden', 'INFO tells no run_id and master_replid of a master'}
  return ''
end

local MARGIN = 5000  -- ms that a quarantine is longer than the longest safe guard
local UNNAMED = 300000  -- ms for which the default counts, as long as nobody has named one

-- A safe guard in ms as it was told or noted, '' for ever.
local function guard_of(value, field)
  if value == '' then return math.huge end
  return field and whole(marker, field, value) or tonumber(value)
end

-- How long a quarantine is; a guard of 0 is none.
local function length_of(guard)
  return (guard > 0 and guard or UNNAMED) + MARGIN
end

-- The marker: whether it is there, whether it is of this server, the longest safe guard that was
-- ever named, 0 if none was, and its quarantine.
local function read_marker()
  local found = {identity = identity()}
  local noted_identity = redis.call('HGET', marker, 'identity')
  found.is_there = noted_identity and true
  found.is_ours = noted_identity == found.identity
  found.guard = guard_of(redis.call('HGET', marker, 'guard') or '0', 'guard')
  local since = found.is_ours and redis.call('HGET', marker, 'since')
  if since then found.since = whole(marker, 'since', since) end
  return found
end

local function mark_as_sound(found)
  redis.call('DEL', claims)
  redis.call('HDEL', marker, 'since')
  redis.call('HSET', marker, 'identity', found.identity)
end

-- Have the quarantines last as long, if they would not anyway.
local function remember(found, guard)
  if guard <= found.guard then return end
  redis.call('HSET', marker, 'guard', guard == math.huge and '' or text(guard))
  found.guard = guard
end

-- Begin a quarantine if the marker is not of this server, and end one that is over.  One that began
-- when the clock was ahead begins now; a smaller step back is no reason, for the clock may be right
-- again soon, and it would be shorter by that.  Returns how many ms it has left, nil if there is none:
-- then what is named here is remembered only by `remember`, when it is known that an id is held.
local function quarantine(found, clock, guard)
  if not found.is_ours then
    redis.call('DEL', claims)
    redis.call('HSET', marker, 'identity', found.identity)
    redis.call('HSET', marker, 'since', text(clock))
    found.since = clock
  elseif not found.since then
    return nil
  elseif found.since - clock > length_of(found.guard) then
    redis.call('HSET', marker, 'since', text(clock))
    found.since = clock
  end
  remember(found, guard)
  local left = found.since + length_of(found.guard) - clock
  if left > 0 then return left end
  mark_as_sound(found)
end

-- The reply that nobody is handed a machine id for so long; '' for ever.
local function refusal(left)
  return {'quarantine', left == math.huge and '' or text(left)}
end
