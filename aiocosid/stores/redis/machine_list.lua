-- Look at all machine ids of a namespace.  Writes nothing.
--
-- Reply {'machines', then five texts for each: machine id, instance or '' if it was given back,
--       last sign of life in ms, mark in ms or -1, '1' if its owner said that it is stable}
local reply, held = {'machines'}, {}

local function add(id, instance, stamp)
  local is_stable = instance ~= '' and redis.call('HGET', stables, text(id)) == instance
  local row = {text(id), instance, text(stamp), text(noted(marks, id)), is_stable and '1' or '0'}
  for _, each in ipairs(row) do reply[#reply + 1] = each end
end

for _, each in ipairs(read_entries()) do
  held[each.id] = true
  add(each.id, each.instance, each.stamp)
end
for _, each in ipairs(read_pool()) do
  if not held[each.id] then add(each.id, '', each.stamp) end
end
return damage or reply
