"""The scripts that run on the server: each one atomic step, on declared keys only.

They answer with text: a Lua number is a double and loses what is above 2^53.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any, Final

__all__ = ("ADVANCE", "GIVE_BACK", "GRANT", "RAISE", "UNDECODED", "Script")

UNDECODED: Final = {"NEVER_DECODE": True}
"""The drivers' option for a reply in bytes, whatever the user's client makes of others: it may hold
what somebody else wrote, and no text in the client's encoding."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script, known to servers by its digest."""

    text: bytes  # not str, which a user's client may encode in its own way
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        digest = sha1(self.text, usedforsecurity=False).hexdigest()
        object.__setattr__(self, "digest", digest.encode())

    async def run(self, client: Any, key: bytes, *arguments: bytes | int) -> Any:  # noqa: ANN401 - the driver's
        """Run it on one key."""
        return await self.run_on(client, (key,), *arguments)

    async def run_on(
        self,
        client: Any,  # noqa: ANN401 - the driver's
        keys: tuple[bytes, ...],
        *arguments: bytes | int,
    ) -> Any:  # noqa: ANN401 - the driver's
        """Run it; a server that does not know it yet is sent the text."""
        given = (len(keys), *keys, *arguments)
        try:
            return await client.execute_command("EVALSHA", self.digest, *given, **UNDECODED)
        except Exception as exc:
            # By name: valkey-py has a class of its own.
            if type(exc).__name__ != "NoScriptError":
                raise
        return await client.execute_command("EVAL", self.text, *given, **UNDECODED)


ADVANCE: Final = Script(b"""\
local made = redis.call('SETNX', KEYS[1], ARGV[1])
local reply = redis.pcall('INCRBY', KEYS[1], ARGV[2])
if type(reply) == 'table' then
  if made == 1 then redis.call('DEL', KEYS[1]) end
  return reply
end
return redis.call('GET', KEYS[1])
""")
"""Create at ARGV[1] if missing, add ARGV[2], return the sum; an overflow leaves nothing behind."""

_SERVER: Final = b"""\
-- TIME and INFO make what is written after them unpredictable, and old servers have to be told.
pcall(redis.replicate_commands)

-- Which server this is, and whose data it has: one that was restarted, or was promoted, is another.
local function server()
  local about, data = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
  if type(about) ~= 'string' or type(data) ~= 'string' then return nil end
  local run, lineage = about:match('run_id:(%x+)'), data:match('master_replid:(%x+)')
  return run and lineage and '@' .. run .. '@' .. lineage
end

"""

GRANT: Final = Script(
    _SERVER
    + b"""\
local made = redis.call('SETNX', KEYS[1], ARGV[1])
local base = redis.pcall('GET', KEYS[1])
local reply = redis.pcall('INCRBY', KEYS[1], ARGV[2])
if type(reply) == 'table' then
  if made == 1 then redis.call('DEL', KEYS[1]) end
  return reply
end
local max_id, where = redis.call('GET', KEYS[1]), server()
local before = redis.pcall('HMGET', KEYS[2], 'nonce', 'top', 'base')
redis.call('DEL', KEYS[2])  -- whatever somebody has put there
if not where then return {max_id, ''} end
if before[1] == ARGV[4] .. where and before[2] == base then base = before[3] end
redis.call('HSET', KEYS[2], 'nonce', ARGV[3] .. where, 'top', max_id, 'base', base)
return {max_id, base}
"""
)
"""As `ADVANCE`, and note it with the nonce ARGV[3]; ARGV[4] is that of the grant before.

Answers also where the run of grants began, or '' if nothing can be noted here."""

GIVE_BACK: Final = Script(
    _SERVER
    + b"""\
local where = server()
if not where or redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local nonce, top, base = unpack(redis.call('HMGET', KEYS[2], 'nonce', 'top', 'base'))
if nonce ~= ARGV[3] .. where or top ~= ARGV[1] or not base then return 0 end
-- As texts: a Lua number loses what is above 2^53.
if #base > #ARGV[2] or (#base == #ARGV[2] and base > ARGV[2]) then return 0 end
redis.call('INCRBY', KEYS[1], '-' .. ARGV[4])
redis.call('DEL', KEYS[2])
return 1
"""
)
"""Lower the counter from ARGV[1] to ARGV[2], which is by ARGV[4], if that is noted with the nonce
ARGV[3]; and remove the note."""

RAISE: Final = Script(b"""\
redis.call('INCRBY', KEYS[1], 0)
redis.call('DEL', KEYS[2])
local value, floor = redis.call('GET', KEYS[1]), ARGV[1]
local lower = #value < #floor or (#value == #floor and value < floor)
if lower or value:sub(1, 1) == '-' then
  redis.call('SET', KEYS[1], floor)
  return floor
end
return value
""")
"""Raise to ARGV[1], or leave what is higher, and remove the note: the counter must not go below.

INCRBY by 0 refuses whatever is no integer."""
