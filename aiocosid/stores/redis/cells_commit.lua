-- Write cells if this is still the same server, and all have the value that was read.
if hidden then return {'hidden', hidden} end
if demoted then return demoted end
local problem
local function value_of(key, field)
  local found = field == '' and redis.pcall('GET', key) or redis.pcall('HGET', key, field)
  if type(found) ~= 'table' then return found and '=' .. found or '' end
  problem = problem or not found.err:find('WRONGTYPE', 1, true) and found
end
local is_same = here == ARGV[1] and value_of(KEYS[4], 'none') == ''
for i = 2, #ARGV, 4 do
  local found, read = value_of(KEYS[tonumber(ARGV[i])], ARGV[i + 1]), ARGV[i + 2]
  if found and ARGV[i + 3] == '+' then found, read = found:match('^.*:'), read:match('^.*:') end
  is_same = is_same and found == read
end
if problem then return problem end
if not is_same then return 0 end
for i = 2, #ARGV, 4 do
  local key, field, value = KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 3]
  if value == '-' then
    redis.call('HDEL', key, field)
  elseif value == '+' then
    local epoch, ids = redis.call('HGET', key, field):match('^(.*:)(%d+)')
    redis.call('HSET', key, field, epoch .. text(ids + 1) .. '}')
  elseif field == '' and value ~= '' then
    redis.call('SET', key, value:sub(2))
  elseif value ~= '' then
    redis.call('HSET', key, field, value:sub(2))
    if key == KEYS[3] then redis.call('HSET', KEYS[4], field, text(now_ms)) end
  end
end
return 1
