"""The commands of Redis that the library and its scripts use, on strings and hashes.  Pure."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ("COMMANDS", "OK", "Command", "Keyspace", "RefusedError", "Reply", "Status", "glob")

Reply: TypeAlias = "Status | bytes | int | list[Reply] | None"
"""What a server answers, as RESP2 knows it."""

Value: TypeAlias = "bytes | dict[bytes, bytes]"

LIMIT: Final = 2**63
INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
WRONG_TYPE: Final = "WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_INTEGER: Final = "ERR value is not an integer or out of range"
NOTHING: Final[dict[bytes, bytes]] = {}


class Status(bytes):
    """A reply of one word."""

    __slots__ = ()


OK: Final = Status(b"OK")


class RefusedError(Exception):
    """The server answers with an error; the text is the server's."""


class Keyspace:
    """What a server holds, and how it was after each write before.

    Attributes:
        values: by key.
        offset: how many writes there were.
    """

    __slots__ = ("_before", "_past", "offset", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, Value] = {}
        self.offset = 0
        self._before: dict[bytes, Value | None] = {}
        self._past: list[tuple[float, dict[bytes, Value | None]]] = []

    # For commands.

    def text(self, key: bytes) -> bytes | None:
        """Return a string, None if there is no such key."""
        value = self.values.get(key)
        if isinstance(value, dict):
            raise RefusedError(WRONG_TYPE)
        return value

    def hash(self, key: bytes) -> dict[bytes, bytes]:
        """Return a hash to read, an empty one if there is no such key."""
        value = self.values.get(key, NOTHING)
        if not isinstance(value, dict):
            raise RefusedError(WRONG_TYPE)
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Write a string."""
        self._note(key)
        self.values[key] = value

    def set_fields(self, key: bytes, fields: dict[bytes, bytes]) -> None:
        """Write fields of a hash, which there may be or not."""
        self.hash(key)
        self._note(key)
        self.values[key] = {**self.hash(key), **fields}

    def drop(self, key: bytes) -> bool:
        """Remove a key; tell whether it was there."""
        if key not in self.values:
            return False
        self._note(key)
        del self.values[key]
        return True

    def drop_field(self, key: bytes, field: bytes) -> bool:
        """Remove a field, and the hash with its last one."""
        fields = self.hash(key)
        if field not in fields:
            return False
        self._note(key)
        left = {name: value for name, value in fields.items() if name != field}
        if left:
            self.values[key] = left
        else:
            del self.values[key]
        return True

    def _note(self, key: bytes) -> None:
        # Values are replaced and never changed, so the old one may be kept as it is.
        self._before.setdefault(key, self.values.get(key))

    # For servers.

    def commit(self, now: float) -> bool:
        """End a command; tell whether it wrote anything."""
        if not self._before:
            return False
        self._past.append((now, self._before))
        self._before = {}
        self.offset += 1
        return True

    def as_of(self, when: float) -> Keyspace:
        """Return what there was at some time."""
        later = 0
        while later < len(self._past) and self._past[-1 - later][0] > when:
            later += 1
        return self.behind(later)

    def behind(self, writes: int) -> Keyspace:
        """Return what there was so many writes ago."""
        kept = max(0, len(self._past) - writes)
        old = Keyspace()
        old.values = dict(self.values)
        for _, before in reversed(self._past[kept:]):
            for key, value in before.items():
                if value is None:
                    old.values.pop(key, None)
                else:
                    old.values[key] = value
        old._past = self._past[:kept]
        old.offset = self.offset - (len(self._past) - kept)
        return old


class Command(NamedTuple):
    """One command.

    Attributes:
        run: does it.
        at_least: how many arguments it takes.
        at_most: the same; None for any number.
        writes: whether a replica refuses it.
    """

    run: Callable[[Keyspace, Sequence[bytes]], Reply]
    at_least: int
    at_most: int | None
    writes: bool


def integer(text: bytes, otherwise: str = NOT_INTEGER) -> int:
    """Return a number that a server takes for one."""
    if not INTEGER.fullmatch(text) or not -LIMIT <= (value := int(text)) < LIMIT:
        raise RefusedError(otherwise)
    return value


def glob(pattern: bytes) -> re.Pattern[bytes]:
    """Translate a pattern of SCAN's."""
    return re.compile(b"".join(_pieces(pattern)), re.DOTALL)


def _pieces(pattern: bytes) -> Iterator[bytes]:
    for match in re.finditer(rb"\\(.)|\[(\^?)([^\]]*)\]|(.)", pattern, re.DOTALL):
        escaped, negated, several, single = match.groups()
        if several is not None:
            inner = re.escape(several).replace(rb"\-", b"-")
            yield b"[" + negated + inner + b"]" if inner else b"(?!)"
        elif single in {b"*", b"?"}:
            yield {b"*": b".*", b"?": b"."}[single]
        else:
            yield re.escape(escaped or single)


# Strings


def _get(space: Keyspace, args: Sequence[bytes]) -> Reply:
    return space.text(args[0])


def _set(space: Keyspace, args: Sequence[bytes]) -> Reply:
    key, value, *options = args
    words = {option.upper() for option in options}
    if not words <= {b"NX", b"XX", b"GET"} or {b"NX", b"XX"} <= words:
        raise RefusedError("ERR syntax error")
    before = space.text(key) if b"GET" in words else None
    is_there = key in space.values
    if (b"NX" in words and is_there) or (b"XX" in words and not is_there):
        return before
    space.put(key, value)
    return before if b"GET" in words else OK


def _setnx(space: Keyspace, args: Sequence[bytes]) -> Reply:
    if args[0] in space.values:
        return 0
    space.put(*args)
    return 1


def _strlen(space: Keyspace, args: Sequence[bytes]) -> Reply:
    return len(space.text(args[0]) or b"")


def _mget(space: Keyspace, args: Sequence[bytes]) -> Reply:
    found = [space.values.get(key) for key in args]
    return [value if isinstance(value, bytes) else None for value in found]


def _append(space: Keyspace, args: Sequence[bytes]) -> Reply:
    key, more = args
    value = (space.text(key) or b"") + more
    space.put(key, value)
    return len(value)


def _add(space: Keyspace, key: bytes, by: int) -> int:
    before = space.text(key)
    value = integer(b"0" if before is None else before) + by
    if not -LIMIT <= value < LIMIT:
        raise RefusedError("ERR increment or decrement would overflow")
    space.put(key, b"%d" % value)
    return value


def _incr(space: Keyspace, args: Sequence[bytes], by: int = 1) -> Reply:
    return _add(space, args[0], by)


def _incrby(space: Keyspace, args: Sequence[bytes]) -> Reply:
    return _add(space, args[0], integer(args[1]))


def _decrby(space: Keyspace, args: Sequence[bytes]) -> Reply:
    by = integer(args[1])
    if by == -LIMIT:
        raise RefusedError("ERR decrement would overflow")
    return _add(space, args[0], -by)


# Hashes


def _hget(space: Keyspace, args: Sequence[bytes]) -> Reply:
    return space.hash(args[0]).get(args[1])


def _hmget(space: Keyspace, args: Sequence[bytes]) -> Reply:
    fields = space.hash(args[0])
    return [fields.get(name) for name in args[1:]]


def _hgetall(space: Keyspace, args: Sequence[bytes]) -> Reply:
    return [each for pair in space.hash(args[0]).items() for each in pair]


def _hkeys(space: Keyspace, args: Sequence[bytes]) -> Reply:
    return list(space.hash(args[0]))


def _hvals(space: Keyspace, args: Sequence[bytes]) -> Reply:
    return list(space.hash(args[0]).values())


def _hlen(space: Keyspace, args: Sequence[bytes]) -> Reply:
    return len(space.hash(args[0]))


def _hexists(space: Keyspace, args: Sequence[bytes]) -> Reply:
    return int(args[1] in space.hash(args[0]))


def _hset(space: Keyspace, args: Sequence[bytes]) -> Reply:
    key, *rest = args
    if len(rest) % 2:
        raise RefusedError("ERR wrong number of arguments for 'hset' command")
    fields = dict(zip(rest[::2], rest[1::2], strict=True))
    new = len(fields.keys() - space.hash(key).keys())
    space.set_fields(key, fields)
    return new


def _hsetnx(space: Keyspace, args: Sequence[bytes]) -> Reply:
    key, field, value = args
    if field in space.hash(key):
        return 0
    space.set_fields(key, {field: value})
    return 1


def _hdel(space: Keyspace, args: Sequence[bytes]) -> Reply:
    space.hash(args[0])
    return sum(space.drop_field(args[0], field) for field in args[1:])


def _hincrby(space: Keyspace, args: Sequence[bytes]) -> Reply:
    key, field, by = args
    step = integer(by)
    value = integer(space.hash(key).get(field, b"0"), "ERR hash value is not an integer") + step
    if not -LIMIT <= value < LIMIT:
        raise RefusedError("ERR increment or decrement would overflow")
    space.set_fields(key, {field: b"%d" % value})
    return value


# Keys


def _del(space: Keyspace, args: Sequence[bytes]) -> Reply:
    return sum(space.drop(key) for key in args)


def _exists(space: Keyspace, args: Sequence[bytes]) -> Reply:
    return sum(key in space.values for key in args)


def _type(space: Keyspace, args: Sequence[bytes]) -> Reply:
    value = space.values.get(args[0])
    return Status(b"none" if value is None else b"hash" if isinstance(value, dict) else b"string")


def _dbsize(space: Keyspace, _: Sequence[bytes]) -> Reply:
    return len(space.values)


def _flush(space: Keyspace, _: Sequence[bytes]) -> Reply:
    for key in tuple(space.values):
        space.drop(key)
    return OK


def _keys(space: Keyspace, args: Sequence[bytes]) -> Reply:
    matches = glob(args[0]).fullmatch
    return [key for key in space.values if matches(key)]


def _scan(space: Keyspace, args: Sequence[bytes]) -> Reply:
    """Answer everything at once, which is a server's right."""
    cursor, *options = args
    if not cursor.isdigit():
        raise RefusedError("ERR invalid cursor")
    named = dict(zip((word.upper() for word in options[::2]), options[1::2], strict=False))
    if len(options) % 2 or not named.keys() <= {b"MATCH", b"COUNT", b"TYPE"}:
        raise RefusedError("ERR syntax error")
    if integer(named.get(b"COUNT", b"10")) < 1:
        raise RefusedError("ERR syntax error")
    found = _keys(space, [named.get(b"MATCH", b"*")])
    kind = named.get(b"TYPE")
    keys = found if isinstance(found, list) else []
    return [b"0", [key for key in keys if kind is None or _type(space, [bytes(key)]) == kind]]  # type: ignore[arg-type]  # keys


def _ping(_: Keyspace, args: Sequence[bytes]) -> Reply:
    return args[0] if args else Status(b"PONG")


COMMANDS: Final[dict[bytes, Command]] = {
    b"APPEND": Command(_append, 2, 2, writes=True),
    b"DBSIZE": Command(_dbsize, 0, 0, writes=False),
    b"DECR": Command(partial(_incr, by=-1), 1, 1, writes=True),
    b"DECRBY": Command(_decrby, 2, 2, writes=True),
    b"DEL": Command(_del, 1, None, writes=True),
    b"EXPIRE": Command(_exists, 2, 2, writes=True),  # nothing does, in the time there is
    b"EXISTS": Command(_exists, 1, None, writes=False),
    b"FLUSHALL": Command(_flush, 0, 1, writes=True),
    b"FLUSHDB": Command(_flush, 0, 1, writes=True),
    b"GET": Command(_get, 1, 1, writes=False),
    b"HDEL": Command(_hdel, 2, None, writes=True),
    b"HEXISTS": Command(_hexists, 2, 2, writes=False),
    b"HGET": Command(_hget, 2, 2, writes=False),
    b"HGETALL": Command(_hgetall, 1, 1, writes=False),
    b"HINCRBY": Command(_hincrby, 3, 3, writes=True),
    b"HKEYS": Command(_hkeys, 1, 1, writes=False),
    b"HLEN": Command(_hlen, 1, 1, writes=False),
    b"HMGET": Command(_hmget, 2, None, writes=False),
    b"HSET": Command(_hset, 3, None, writes=True),
    b"HSETNX": Command(_hsetnx, 3, 3, writes=True),
    b"HVALS": Command(_hvals, 1, 1, writes=False),
    b"INCR": Command(_incr, 1, 1, writes=True),
    b"INCRBY": Command(_incrby, 2, 2, writes=True),
    b"KEYS": Command(_keys, 1, 1, writes=False),
    b"MGET": Command(_mget, 1, None, writes=False),
    b"PING": Command(_ping, 0, 1, writes=False),
    b"SCAN": Command(_scan, 1, None, writes=False),
    b"SET": Command(_set, 2, None, writes=True),
    b"SETNX": Command(_setnx, 2, 2, writes=True),
    b"STRLEN": Command(_strlen, 1, 1, writes=False),
    b"TYPE": Command(_type, 1, 1, writes=False),
    b"UNLINK": Command(_del, 1, None, writes=True),
}
