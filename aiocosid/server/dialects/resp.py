"""Commands of Redis: any Redis client can take segments with ``INCRBY``.

A key ``cosid:{shop.order}.adder`` is CosId's counter ``order`` in the namespace ``shop``; any other
key is a counter with that name, in a separate namespace.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, NoReturn

from ...abc import MAX_ID
from .. import _store_api
from .._problems import Problem
from .._resp import NO_ACCESS, Adder, RespError
from .._service import COSID_STEP
from .._tokens import TokenScope
from ._cosid_scripts import NO_SCRIPTS, MachineScripts

if TYPE_CHECKING:
    from ...abc import IdSegmentDistributor
    from .._resp import Command, Session

__all__ = ("commands",)

_PREFIX, _SUFFIX = b"cosid:{", b"}.adder"
"""The parts of a key around ``{namespace}.{name}``; see `aiocosid.stores.redis`."""

_VERSION: Final = version("aiocosid").encode()

_AS_REDIS: Final = "7.2.0"
"""The Redis version with these commands; clients choose their commands by it."""

_ZERO: Final = ord("0")
_MOST_DIGITS: Final = 19
_WHOLE: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_PAIR: Final = 2  # two words: a key and a number, or a user and a token
_CLIENT_NAME: Final = re.compile(rb"[!-~]{0,256}")
_MOST_COUNTERS: Final = 1000  # counters that a session remembers

_NOT_AN_INTEGER: Final = "ERR value is not an integer or out of range"
_WRONG_PASSWORD: Final = "WRONGPASS invalid username-password pair or user is disabled."  # noqa: S105 - a message
_SYNTAX: Final = "ERR syntax error"
_PROTOCOLS: Final = (b"2", b"3")

_RISES: Final = "a counter only rises"
_NO_TRANSACTIONS: Final = "each command is atomic by itself; send a pipeline without a transaction"
_REFUSED: Final = {
    **dict.fromkeys(("DECR", "DECRBY", "INCRBYFLOAT", "GETSET", "MSET", "MSETNX"), _RISES),
    **dict.fromkeys(("DEL", "UNLINK", "GETDEL", "FLUSHDB", "FLUSHALL", "RENAME"), _RISES),
    **dict.fromkeys(("EXPIRE", "PEXPIRE", "EXPIREAT", "SETEX", "PSETEX", "GETEX"), _RISES),
    **dict.fromkeys(("MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"), _NO_TRANSACTIONS),
    **dict.fromkeys(("EVAL_RO", "EVALSHA_RO", "FCALL", "FUNCTION"), NO_SCRIPTS),
}
"""Why a command is refused, by its name."""


def commands(*, namespace: str = "redis") -> dict[bytes, Command | Adder]:
    """Return the commands by name.

    Args:
        namespace: the namespace of counters whose key is not CosId's.
    """
    keys, scripts = _Keys(namespace), MachineScripts()
    return {
        b"INCRBY": Adder(keys.incrby),
        b"INCR": Adder(keys.incr),
        b"GET": keys.get,
        b"MGET": keys.mget,
        b"EXISTS": keys.exists,
        b"TYPE": keys.type_of,
        b"SETNX": keys.setnx,
        b"SET": keys.set,
        b"EVAL": scripts.eval,
        b"EVALSHA": scripts.evalsha,
        b"SCRIPT": scripts.script,
        b"AUTH": _auth,
        b"HELLO": _hello,
        b"RESET": _reset,
        b"QUIT": _quit,
        b"PING": _ping,
        b"ECHO": _echo,
        b"SELECT": _select,
        b"CLIENT": _client,
        b"COMMAND": _command,
        b"CONFIG": _config,
        b"INFO": _info,
        b"AIOCOSID": _store_api.command,
        **{name.encode(): _refusal(name, reason) for name, reason in _REFUSED.items()},
    }


def _refusal(name: str, reason: str) -> Command:
    def refuse(_session: Session, _words: list[bytes]) -> NoReturn:
        raise RespError(f"ERR {name} is not served: {reason}")

    return refuse


def _check_words(command: str, is_right: bool) -> None:  # noqa: FBT001 - what is asked
    if not is_right:
        raise RespError(f"ERR wrong number of arguments for '{command}' command")


def _whole(word: bytes) -> int:
    """Return the number in a word, which must be written exactly as Redis writes it."""
    if word.isdigit() and word[0] != _ZERO and len(word) < _MOST_DIGITS:
        return int(word)
    if not _WHOLE.fullmatch(word):
        raise RespError(_NOT_AN_INTEGER)
    return int(word)


class _Keys:
    """Commands that name counters."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def _name(self, key: bytes) -> tuple[str, str]:
        """Return the namespace and the name of a key's counter."""
        try:
            text = key.decode()
        except UnicodeDecodeError:
            raise RespError("ERR a key must be UTF-8") from None
        if key.startswith(_PREFIX) and key.endswith(_SUFFIX):
            namespace, dot, name = text[len(_PREFIX) : -len(_SUFFIX)].partition(".")
            if dot:
                return namespace, name
        return self._namespace, text

    def _check(self, session: Session, key: bytes, *scopes: TokenScope) -> tuple[str, str]:
        """Return the key's namespace and name if the client may do one of these with the counter.

        Raises:
            RespError: the client has shown no token, or the key is not valid.
            Problem: the client may not do this, or the name is too long.
        """
        access = session.access
        if access is None:
            raise RespError(NO_ACCESS)
        namespace, name = self._name(key)
        full = f"{namespace}.{name}"
        wanted = next((each for each in scopes if access.allows(each, full)), scopes[0])
        session.service.check(access, wanted, full)
        return namespace, name

    # Segments.

    def incrby(self, session: Session, words: list[bytes]) -> tuple[IdSegmentDistributor, int]:
        """``INCRBY key n``: take n ids; the reply is the last one."""
        _check_words("incrby", len(words) == _PAIR)
        key, size = words
        return self._addition(session, key, _whole(size))

    def incr(self, session: Session, words: list[bytes]) -> tuple[IdSegmentDistributor, int]:
        """``INCR key``: take one id."""
        _check_words("incr", len(words) == 1)
        return self._addition(session, words[0], 1)

    def _addition(
        self, session: Session, key: bytes, step: int
    ) -> tuple[IdSegmentDistributor, int]:
        most = session.service.limits.step
        if key.startswith(_PREFIX) and key.endswith(_SUFFIX):
            most = max(most, COSID_STEP)
        if not 1 <= step <= most:
            raise RespError(f"ERR {_RISES}: increment must be from 1 to {most}")
        found = session.counters.get(key)
        if found is None:
            namespace, name = self._check(session, key, TokenScope.SEGMENTS)
            found = session.service.counter(name, namespace=namespace)
            if len(session.counters) >= _MOST_COUNTERS:
                session.counters.clear()
            session.counters[key] = found
        if session.access is not None:
            session.service.quotas.charge(session.access, found.namespaced_name, step)
        return found, step

    # Reading.

    async def _value(self, session: Session, key: bytes) -> int | None:
        namespace, name = self._check(session, key, TokenScope.READ, TokenScope.SEGMENTS)
        return await session.service.counter(name, namespace=namespace).peek()

    async def get(self, session: Session, words: list[bytes]) -> bytes | None:
        """``GET key``: the last id that was taken."""
        _check_words("get", len(words) == 1)
        return _as_text(await self._value(session, words[0]))

    async def mget(self, session: Session, words: list[bytes]) -> list[bytes | None]:
        """``MGET key ...``: the same as ``GET`` for each key, one after the other."""
        _check_words("mget", bool(words))
        return [_as_text(await self._value(session, key)) for key in words]

    async def exists(self, session: Session, words: list[bytes]) -> int:
        """``EXISTS key ...``: how many of the counters exist."""
        _check_words("exists", bool(words))
        return sum([await self._value(session, key) is not None for key in words])

    async def type_of(self, session: Session, words: list[bytes]) -> str:
        """``TYPE key``: in Redis a counter is a string."""
        _check_words("type", len(words) == 1)
        return "none" if await self._value(session, words[0]) is None else "string"

    # Creating.

    async def setnx(self, session: Session, words: list[bytes]) -> int:
        """``SETNX key n``: create a missing counter that begins at n."""
        _check_words("setnx", len(words) == _PAIR)
        found = await self._create(session, *words)
        return int(found is None)

    async def set(self, session: Session, words: list[bytes]) -> object:
        """``SET key n NX [GET]``: the same as ``SETNX``."""
        _check_words("set", len(words) >= _PAIR)
        key, value, *options = words
        chosen = {option.upper() for option in options}
        if b"NX" not in chosen:
            raise RespError(f"ERR {_RISES}: SET needs NX, which creates a missing one")
        if not chosen <= {b"NX", b"GET", b"KEEPTTL"}:
            raise RespError(_SYNTAX)
        found = await self._create(session, key, value)
        if b"GET" in chosen:
            return _as_text(found)
        return "OK" if found is None else None

    async def _create(self, session: Session, key: bytes, value: bytes) -> int | None:
        """Create a counter; return the value of an existing one."""
        first = _whole(value)
        if not 0 <= first <= MAX_ID:
            raise RespError(_NOT_AN_INTEGER)
        namespace, name = self._check(session, key, TokenScope.SEGMENTS)
        return await session.service.create_counter(name, namespace=namespace, offset=first)


def _as_text(value: int | None) -> bytes | None:
    return None if value is None else b"%d" % value


# The connection.


def _authenticate(session: Session, secret: bytes) -> None:
    try:
        access = session.service.access(secret.decode(), session.clock.now_ms())
    except (Problem, UnicodeDecodeError):
        raise RespError(_WRONG_PASSWORD) from None
    session.set_access(access)


def _auth(session: Session, words: list[bytes]) -> str:
    """``AUTH [user] token``; the user is ignored."""
    _check_words("auth", len(words) in {1, 2})
    _authenticate(session, words[-1])
    return "OK"


def _hello(session: Session, words: list[bytes]) -> dict[bytes, object]:
    """``HELLO [2|3 [AUTH user token] [SETNAME name]]``."""
    protocol, options = words[:1], words[1:]
    if protocol and protocol[0] not in _PROTOCOLS:
        raise RespError("NOPROTO unsupported protocol version")
    name: bytes | None = None
    while options:
        option = options.pop(0).upper()
        if option == b"AUTH" and len(options) >= _PAIR:
            _authenticate(session, options[1])
            del options[:2]
        elif option == b"SETNAME" and options:
            name = _checked_name(options.pop(0))
        else:
            raise RespError(f"{_SYNTAX} in HELLO")
    if session.access is None:
        raise RespError(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the "
            "HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and "
            "select the RESP protocol version at the same time"
        )
    if protocol:
        session.protocol = int(protocol[0])
    if name is not None:
        session.name = name
    return {
        b"server": b"aiocosid",
        b"version": _VERSION,
        b"proto": session.protocol,
        b"id": session.number,
        b"mode": b"standalone",
        b"role": b"master",
        b"modules": [],
    }


def _checked_name(name: bytes) -> bytes:
    if not _CLIENT_NAME.fullmatch(name):
        raise RespError("ERR Client names cannot contain spaces, newlines or special characters.")
    return name


def _reset(session: Session, _words: list[bytes]) -> str:
    session.reset()
    return "RESET"


def _quit(session: Session, _words: list[bytes]) -> str:
    session.is_closing = True
    return "OK"


def _ping(_session: Session, words: list[bytes]) -> object:
    _check_words("ping", len(words) <= 1)
    return words[0] if words else "PONG"


def _echo(_session: Session, words: list[bytes]) -> bytes:
    _check_words("echo", len(words) == 1)
    return words[0]


def _select(_session: Session, words: list[bytes]) -> str:
    _check_words("select", len(words) == 1)
    if _whole(words[0]) != 0:
        raise RespError("ERR DB index is out of range")
    return "OK"


def _client(session: Session, words: list[bytes]) -> object:
    """``CLIENT SETINFO``, ``SETNAME``, ``GETNAME``, ``ID``, ``NO-EVICT`` and ``NO-TOUCH``."""
    match [words[0].upper(), *words[1:]] if words else []:
        case [b"SETINFO", _, _] | [b"NO-EVICT" | b"NO-TOUCH", _]:
            return "OK"
        case [b"SETNAME", name]:
            session.name = _checked_name(name)
            return "OK"
        case [b"GETNAME"]:
            return session.name or None
        case [b"ID"]:
            return session.number
        case _:
            raise RespError("ERR unknown subcommand or wrong number of arguments for 'client'")


def _command(_session: Session, words: list[bytes]) -> object:
    """``COMMAND``: an empty table, without which clients can work."""
    asked = words[0].upper() if words else b""
    if asked == b"COUNT":
        return 0
    return {} if asked == b"DOCS" else []


def _config(_session: Session, words: list[bytes]) -> dict[bytes, object]:
    """``CONFIG GET``: an empty result, because nothing is configured this way."""
    if not words or words[0].upper() != b"GET":
        raise RespError("ERR CONFIG is not served: the server has a file of settings")
    return {}


def _info(_session: Session, _words: list[bytes]) -> bytes:
    """``INFO``: the facts that clients ask for."""
    lines = (
        "# Server",
        f"redis_version:{_AS_REDIS}",
        "redis_mode:standalone",
        "server_name:aiocosid",
        f"aiocosid_version:{_VERSION.decode()}",
        "# Persistence",
        "loading:0",
        "# Replication",
        "role:master",
        "connected_slaves:0",
        "",
    )
    return "\r\n".join(lines).encode()
