-- `here` is the identity of the server and of its replication history: one that was restarted
-- or promoted has another one.  So has one after SWAPDB, which may have put another database in this
-- one's place.  If the server hides it, `here` is nil, and `hidden` says why.
-- Old servers refuse writes after TIME and INFO, which are unpredictable, without this call.
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
  local commands = redis.pcall('INFO', 'commandstats')
  local swaps = type(commands) == 'string' and fact(commands, 'cmdstat_swapdb')
  here = here and here .. (swaps and ' ' .. swaps:match('calls=(%d+)') or '')
  hidden = not here and 'INFO names no run_id, master_replid and role'
end
local demoted = here and role ~= 'master' and redis.error_reply('READONLY the server is a ' .. role)
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- Lua's own tostring writes 1e+14.
local function text(number)
  return string.format('%.0f', number)
end
