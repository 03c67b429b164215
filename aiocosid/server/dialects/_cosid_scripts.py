"""CosId's scripts for machine ids on Redis: recognised, but not run.

Each script is treated as one operation of CosId's proxy, with the same rules; clients cannot write
the cells themselves.
"""

from __future__ import annotations

import hashlib
from math import inf
from typing import TYPE_CHECKING, Final

from ..._life.clock import SYSTEM_CLOCK
from ...abc import DEFAULT_SAFE_GUARD, InstanceId
from ...errors import MachineIdLostError, MachineIdOverflowError
from .._instances import UNKNOWN, InstanceMachines
from .._problems import Problem
from .._resp import NO_ACCESS, RespError
from .._tokens import TokenScope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from .._resp import Session
    from .._service import Service
    from .._tokens import Access

    Run: TypeAlias = Callable[[InstanceMachines, Access, str, list[str]], Awaitable[object]]

__all__ = ("NO_SCRIPTS", "MachineScripts")

NO_SCRIPTS: Final = "only CosId's scripts run here; INCRBY takes a segment"
_NO_SCRIPT: Final = "NOSCRIPT No matching script. Please use EVAL."
_WRONG: Final = "ERR wrong arguments of CosId's script"

_KEPT: Final = 64
"""How many scripts' digests are remembered; if one is forgotten, its client sends the text again.
"""

_LEAST_WORDS: Final = 3
"""The minimum words: a script or its digest, the number of keys, and the key."""


class MachineScripts:
    """``EVAL``, ``EVALSHA`` and ``SCRIPT`` of a server."""

    def __init__(self) -> None:
        self._known: dict[bytes, Run] = {}
        self._machines: InstanceMachines | None = None
        self._service: Service | None = None

    async def eval(self, session: Session, words: list[bytes]) -> object:
        """``EVAL script 1 {namespace} arg ...``."""
        return await self._run(session, self._known[self._learnt(words[:1], "EVAL")], words)

    async def evalsha(self, session: Session, words: list[bytes]) -> object:
        """``EVALSHA sha 1 {namespace} arg ...``."""
        run = self._known.get(b"".join(words[:1]).lower())
        if run is None:
            raise RespError(_NO_SCRIPT)
        return await self._run(session, run, words)

    def script(self, _session: Session, words: list[bytes]) -> object:
        """``SCRIPT LOAD script`` and ``SCRIPT EXISTS sha ...``."""
        match [words[0].upper(), *words[1:]] if words else []:
            case [b"LOAD", text]:
                return self._learnt([text], "SCRIPT LOAD")
            case [b"EXISTS", *digests] if digests:
                return [int(digest.lower() in self._known) for digest in digests]
            case _:
                raise RespError("ERR unknown subcommand or wrong number of arguments for 'script'")

    def _learnt(self, words: list[bytes], command: str) -> bytes:
        """Remember a script, and return its digest."""
        text = b"".join(words)
        run = _meaning(text)
        if run is None:
            raise RespError(f"ERR {command} is not served: {NO_SCRIPTS}")
        digest = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[digest] = run
        return digest

    async def _run(self, session: Session, run: Run, words: list[bytes]) -> object:
        access, service = session.access, session.service
        if access is None:
            raise RespError(NO_ACCESS)
        if len(words) < _LEAST_WORDS or words[1] != b"1":
            raise RespError(_WRONG)
        try:
            key, *arguments = [word.decode() for word in words[2:]]
        except UnicodeDecodeError:
            raise RespError("ERR a key must be UTF-8") from None
        if not (key.startswith("{") and key.endswith("}")):
            raise RespError(_WRONG)
        namespace = key[1:-1]
        service.check(access, TokenScope.MACHINES, namespace)
        if self._machines is None or self._service is not service:
            self._machines, self._service = InstanceMachines(service), service
        return await run(self._machines, access, namespace, arguments)


def _meaning(text: bytes) -> Run | None:
    """Return what a CosId script does to a namespace's index of instances.

    Versions differ in the rest of the text.  The script that releases a stable instance's id does
    the same as the script that renews: it writes the stamp.
    """
    if not all(each in text for each in (b":itc_idx", b"KEYS[1]", b"ARGV[1]")):
        return None
    commands = ((b"'incr'", _distribute), (b"'hdel'", _revert), (b"'hset'", _guard))
    return next((run for command, run in commands if command in text), None)


async def _distribute(
    machines: InstanceMachines, access: Access, namespace: str, arguments: list[str]
) -> object:
    """``instance, highest machine id, now, safe guard at``: the id and its last time."""
    instance, highest, now_ms, safe_at_ms = _arguments(arguments, 4)
    size = _number(highest) + 1
    guard_ms = _number(now_ms) - _number(safe_at_ms)
    if size.bit_count() != 1 or guard_ms <= 0:
        raise RespError(_WRONG)
    # For a stable instance it is endless too, and nothing else says that the instance is stable.
    safe_guard = guard_ms / 1000 if _number(safe_at_ms) else inf
    bits = size.bit_length() - 1
    try:
        grant = await machines.take(
            access, namespace, InstanceId(instance), bits=bits, safe_guard=safe_guard
        )
    except MachineIdOverflowError:
        return [-1, -1]
    return [grant.machine_id, SYSTEM_CLOCK.now_ms()]


async def _guard(
    machines: InstanceMachines, access: Access, namespace: str, arguments: list[str]
) -> object:
    """``instance, stamp``: 1, or 0 if the instance holds no id."""
    instance, _ = _arguments(arguments, 2)
    # The script does not state a safe guard; the namespace has recorded it at the start.
    return await _is_done(
        machines.renew(access, namespace, InstanceId(instance), safe_guard=DEFAULT_SAFE_GUARD)
    )


async def _revert(
    machines: InstanceMachines, access: Access, namespace: str, arguments: list[str]
) -> object:
    """``instance, stamp``: 1, or 0 if the instance holds no id."""
    instance, _ = _arguments(arguments, 2)
    return await _is_done(machines.release(access, namespace, InstanceId(instance)))


async def _is_done(change: Awaitable[object]) -> int:
    try:
        await change
    except MachineIdLostError:
        return 0
    except Problem as error:
        if error.kind != UNKNOWN:
            raise
        return 0
    return 1


def _arguments(arguments: list[str], number: int) -> list[str]:
    if len(arguments) != number:
        raise RespError(_WRONG)
    return arguments


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):  # noqa: PLR2004 - digits of int64
        raise RespError(_WRONG)
    return int(text)
