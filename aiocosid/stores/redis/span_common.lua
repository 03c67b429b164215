-- The beginning of every script about a span; see the module `_span`.
local span, root = KEYS[1], '@' .. ARGV[1]
local SERVER, CURSOR, LAST = 'server' .. root, 'cursor' .. root, 'last' .. root
local CLAIM, BY, UNTIL, CLAIMS = 'claim' .. root, 'by' .. root, 'until' .. root, 'claims' .. root
if hidden then return {'hidden', hidden} end
if demoted then return demoted end

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
