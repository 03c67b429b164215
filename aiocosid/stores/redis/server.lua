-- Who the server is, and of whose history: `here` is another one when it was started anew, or was
-- promoted; nil where it does not tell, and then `hidden` says why.
-- TIME and INFO make what is written after them unpredictable: old servers have to be told.
pcall(redis.replicate_commands)

-- By plain search: a pattern would be tried at every letter.
local function fact(text, name)
  local _, last = text:find('\n' .. name .. ':', 1, true)
  return last and text:match('^[^\r\n]+', last + 1)
end

local about, history = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
local hidden, here, role = about.err or history.err, nil, nil
if not hidden then
  local run_id, replid = fact(about, 'run_id'), fact(history, 'master_replid')
  role = fact(history, 'role')
  here = run_id and replid and role and run_id .. ' ' .. replid
  hidden = not here and 'INFO names no run_id, master_replid and role'
end
local demoted = here and role ~= 'master' and redis.error_reply('READONLY the server is a ' .. role)
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- Lua's own tostring writes 1e+14.
local function text(number)
  return string.format('%.0f', number)
end
