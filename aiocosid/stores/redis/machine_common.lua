-- What every script about machine ids begins with.  Each is one atomic step; all that is read is
-- checked before anything is written, and all keys are declared.
--
-- KEYS  1 entries  hash, CosId's itc_idx: instance -> machine id|last sign of life in ms
--       2 adder    string, CosId's: the last machine id that was new
--       3 pool     hash, CosId's revert: machine id given back -> last sign of life in ms
--       4 marks    hash, ours: machine id -> no id was issued with a later time, in ms
--       5 stables  hash, ours: machine id -> its owner, who said that it is stable
--       6 tokens   hash, ours: machine id -> who was handed it out last, as a token of its own
--
-- Reply of all: {'damaged', key, field, value} where something is no state of a machine id; nothing
-- was written.  Numbers are answered as text.
local entries, adder, pool, marks, stables, tokens = unpack(KEYS)

for position, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' and kind ~= (position == 2 and 'string' or 'hash') then
    return {'damaged', key, '', 'a ' .. kind}
  end
end

local damage

-- Lua's own tostring writes 1e+14.
local function text(number)
  return string.format('%.0f', number)
end

-- 15 digits are exact in a double, and reach to the year 33658.
local function whole(key, field, value)
  if #value <= 15 and value:find('^%d+$') then return tonumber(value) end
  damage = damage or {'damaged', key, field, value}
  return -1
end

local function read_entry(instance, value)
  local id, stamp = value:match('^(%d+)|(%d+)$')
  if id and #id <= 15 and #stamp <= 15 then return tonumber(id), tonumber(stamp) end
  damage = damage or {'damaged', entries, instance, value}
  return -1, -1
end

local function mark_of(id)
  local mark = redis.call('HGET', marks, text(id))
  return mark and whole(marks, text(id), mark) or -1
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

