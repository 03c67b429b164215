"""The scripts that run on the server: each one atomic step, on declared keys only.

They answer with text: a Lua number is a double and loses what is above 2^53.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any, Final

__all__ = ("ADVANCE", "RAISE", "UNDECODED", "Script")

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

    async def run(self, client: Any, key: bytes, *arguments: int) -> Any:  # noqa: ANN401 - the driver's
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

RAISE: Final = Script(b"""\
redis.call('INCRBY', KEYS[1], 0)
local value, floor = redis.call('GET', KEYS[1]), ARGV[1]
local lower = #value < #floor or (#value == #floor and value < floor)
if lower or value:sub(1, 1) == '-' then
  redis.call('SET', KEYS[1], floor)
  return floor
end
return value
""")
"""Raise to ARGV[1], or leave what is higher; INCRBY by 0 refuses whatever is no integer."""
