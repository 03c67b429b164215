"""Runs a server's scripts in Lua 5.1, as Redis does."""

from __future__ import annotations

from hashlib import sha1
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiocosid.errors import MissingExtraError

from ._redis_commands import RefusedError, Reply, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("Call", "run_script")

Call: TypeAlias = "Callable[[Sequence[bytes]], Reply]"
"""Runs a command for a script."""

# Scripts see no Python, and neither make globals nor read ones that are not there.
PRELUDE: Final = b"""
local dispatch, sha1hex = ...
python = nil
redis = {pcall = dispatch, sha1hex = sha1hex, LOG_NOTICE = 2, LOG_WARNING = 3}
function redis.call(...)
  local reply = dispatch(...)
  if type(reply) == 'table' and reply.err then error(reply, 0) end
  return reply
end
function redis.error_reply(text)
  if text:sub(1, 1) == '-' then return {err = text:sub(2)} end
  return {err = text:find(' ') and text or 'ERR ' .. text}
end
function redis.status_reply(text) return {ok = text} end
function redis.replicate_commands() return true end
function redis.log() end
local compiled, rawset = {}, rawset
setmetatable(_G, {
  __newindex = function() error('Attempt to modify a readonly table', 2) end,
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
return function(text, keys, arguments)
  local script = compiled[text]
  if not script then
    local problem
    script, problem = loadstring(text, '@user_script')
    if not script then return false, 'ERR Error compiling script: ' .. problem end
    compiled[text] = script
  end
  rawset(_G, 'KEYS', keys)
  rawset(_G, 'ARGV', arguments)
  local is_well, reply = pcall(script)
  if not is_well and type(reply) == 'table' then reply = reply.err or 'ERR unknown error'
  elseif not is_well then reply = 'ERR ' .. tostring(reply) end
  return is_well, reply
end
"""


class Interpreter:
    """One Lua interpreter, which keeps what it has compiled; it serves one script at a time."""

    def __init__(self) -> None:
        try:
            lua51: Any = import_module("lupa.lua51")  # a package for tests
        except ModuleNotFoundError as exc:
            raise MissingExtraError("lupa", extra="test") from exc
        self._lua: Any = lua51.LuaRuntime(encoding=None, register_eval=False)
        self._call: Call | None = None
        self._bug: Exception | None = None
        self._run: Any = self._lua.execute(PRELUDE, self._dispatch, _sha1hex)

    def run(
        self, text: bytes, keys: Sequence[bytes], arguments: Sequence[bytes], call: Call
    ) -> Reply:
        """Run a script; see `run_script`."""
        self._call, self._bug = call, None
        table = self._lua.table_from
        is_well, reply = self._run(text, table(keys), table(arguments))
        self._call = None
        if self._bug is not None:
            raise self._bug
        if not is_well:
            raise RefusedError(reply.decode(errors="replace"))
        return self._from_lua(reply)

    def _dispatch(self, *words: object) -> object:
        try:
            assert self._call is not None
            reply = self._call([_word(each) for each in words])
        except RefusedError as refusal:
            return self._lua.table_from({b"err": str(refusal).encode()})
        except Exception as error:  # a mistake of ours, which Lua would make a text of
            self._bug = error
            raise
        return self._to_lua(reply)

    def _to_lua(self, reply: Reply) -> object:
        if reply is None:
            return False
        if isinstance(reply, Status):
            return self._lua.table_from({b"ok": bytes(reply)})
        if isinstance(reply, list):
            return self._lua.table_from([self._to_lua(each) for each in reply])
        return reply

    def _from_lua(self, value: Any) -> Reply:
        if value is None or value is False:
            return None
        if value is True:
            return 1
        if isinstance(value, (int, float)):
            # As a double becomes an integer on x86.
            return int(value) if -(2.0**63) <= value < 2.0**63 else -(2**63)
        if isinstance(value, bytes):
            return value
        if (error := value[b"err"]) is not None:
            raise RefusedError(error.decode(errors="replace"))
        if (status := value[b"ok"]) is not None:
            return Status(status)
        replies: list[Reply] = []
        while (each := value[len(replies) + 1]) is not None:
            replies.append(self._from_lua(each))
        return replies


def _word(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RefusedError("ERR Lua redis lib command arguments must be strings or integers")
    return b"%d" % value if value == int(value) else b"%.17g" % value


def _sha1hex(text: bytes) -> bytes:
    return sha1(text, usedforsecurity=False).hexdigest().encode()


_interpreters: Final[list[Interpreter]] = []


def run_script(text: bytes, keys: Sequence[bytes], arguments: Sequence[bytes], call: Call) -> Reply:
    """Run a script.

    Args:
        text: the script.
        keys: its KEYS.
        arguments: its ARGV.
        call: runs a command for it.

    Raises:
        RefusedError: what the script answers, or what is wrong with it.
        MissingExtraError: lupa is not installed.
    """
    if not _interpreters:
        _interpreters.append(Interpreter())
    return _interpreters[0].run(text, keys, arguments, call)
