-- What every script about a span begins with.  A span is a range of ids that some client leased
-- from the durable store; it is good only on the server that opened it, and while that server is
-- the same life of the same history: run_id alone comes back with a demoted and promoted master,
-- master_replid alone with a restart.
--
-- KEYS  1 span  hash, ours, with these fields, each with an @ and the root's name behind it: spans
--       of two roots must not be mixed, and those of one root under two names do no harm
--         server  who opened it, as below
--         cursor  the last id handed out         last   the last id there is
--         claim   who leases the next span just now: nonce, when in s by TIME, count of claims
--         claims  the same count, which stays
--         by      who took the claim down        until  when it ends, in ms by TIME
--         note    nonce of the last grant, of one who may give it back
--         top     the cursor after it            base   where that one's grants began
-- ARGV  1 the root's name
--
-- Reply of all: {'hidden', why} where the server does not tell who it is; nothing was written.
-- Numbers are text, up to 2^63-1: as a Lua number they would lose what is above 2^53.
local span, root = KEYS[1], '@' .. ARGV[1]
local SERVER, CURSOR, LAST = 'server' .. root, 'cursor' .. root, 'last' .. root
local CLAIM, BY, UNTIL = 'claim' .. root, 'by' .. root, 'until' .. root
local NOTE, TOP, BASE = 'note' .. root, 'top' .. root, 'base' .. root
local CLAIMS = 'claims' .. root

-- INFO and TIME make what is written after them unpredictable: old servers have to be told.
pcall(redis.replicate_commands)

local refusal
local function told(section)
  local text = redis.pcall('INFO', section)
  if type(text) == 'string' then return text end
  refusal = refusal or text.err
  return ''
end

-- By plain search: a pattern would be tried at every letter.
local function fact(text, name)
  local _, last = text:find('\n' .. name .. ':', 1, true)
  return last and text:match('^[^\r\n]+', last + 1)
end

local server_text, replication_text = told('server'), told('replication')
local run_id, role = fact(server_text, 'run_id'), fact(replication_text, 'role')
local replid = fact(replication_text, 'master_replid')
if not (run_id and replid and role) then
  return {'hidden', refusal or 'INFO names no run_id, master_replid and role'}
end
if role ~= 'master' then return redis.error_reply('READONLY the server is a ' .. role) end

local here = run_id .. ' ' .. replid

-- Of two positive integers as text.
local function lower(one, other)
  return #one < #other or (#one == #other and one < other)
end

local function whole(value)
  return value and value:find('^[1-9]%d*$') and not lower('9223372036854775807', value)
end

local function is_of(claim, nonce)
  return claim and claim:sub(1, #nonce + 1) == nonce .. ' '
end
