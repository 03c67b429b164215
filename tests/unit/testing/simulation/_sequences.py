"""Random sequences of commands and shipped scripts, run on the model and on a real server."""

from __future__ import annotations

import random
import re
import socket
from typing import Any, Final, Self, cast

import hiredis

from aiocosid.stores.redis._machine_scripts import (
    BITS,
    DISTRIBUTE,
    GUARD,
    LIST,
    REVERT,
    MachineKeys,
)
from aiocosid.stores.redis._scripts import ADVANCE, RAISE, Script
from aiocosid.testing.simulation._redis_commands import RefusedError, Status
from aiocosid.testing.simulation._redis_server import RedisServer

Words = list[bytes]

LENGTH: Final = 10  # commands in a sequence, on average
AT_ONCE: Final = 50  # sequences that are sent before the first reply is read

KEYS: Final = (b"cosid:{a.b}.adder", *MachineKeys("a").names)
NUMBERS: Final = tuple(
    str(number).encode()
    for number in (-(2**63), -(2**53), -10, -1, 0, 1, 2, 3, 7, 100, 2**31, 2**53 + 1, 2**63 - 1)
)
NO_NUMBERS: Final = (
    b"",
    b"x",
    b"1.5",
    b"007",
    b"+1",
    b" 1",
    b"-0",
    b"\xff\x00",
    str(2**63).encode(),
)
FIELDS: Final = (b"0", b"1", b"2", b"3", b"i1", b"i2", b"i3", b"", b"12")
STAMPS: Final = (b"1700000000000", b"1700000003000", b"1700000009000", b"0", b"-1")

SMALL: Final = {
    b"GET": "k",
    b"SET": "kv",
    b"SETNX": "kv",
    b"APPEND": "kv",
    b"STRLEN": "k",
    b"MGET": "kkk",
    b"INCR": "k",
    b"DECR": "k",
    b"INCRBY": "kn",
    b"DECRBY": "kn",
    b"DEL": "kk",
    b"UNLINK": "k",
    b"EXISTS": "kkk",
    b"TYPE": "k",
    b"HGET": "kf",
    b"HSET": "kfv",
    b"HSETNX": "kfv",
    b"HMGET": "kff",
    b"HGETALL": "k",
    b"HKEYS": "k",
    b"HVALS": "k",
    b"HLEN": "k",
    b"HEXISTS": "kf",
    b"HDEL": "kff",
    b"HINCRBY": "kfn",
    b"DBSIZE": "",
    b"PING": "",
    b"ECHOES": "",
}
"""What each takes: keys, values, numbers, fields."""


class Sequences:
    """Draws commands; the same ones for a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - it has to be repeatable

    def sequence(self) -> list[Words]:
        """Draw a sequence, beginning with an empty server, and a look at all it holds."""
        made = [self._command() for _ in range(self.rng.randrange(1, 2 * LENGTH))]
        looks = [[b"TYPE", key] for key in KEYS]
        looks += [[each, key] for key in KEYS for each in (b"GET", b"HGETALL")]
        return [[b"FLUSHALL"], *made, *looks, [b"KEYS", b"*"]]

    def _command(self) -> Words:
        rng = self.rng
        choice = rng.random()
        if choice < 0.45:
            return self._script()
        if choice < 0.5:
            return self._told(rng.choice((b"call", b"pcall")), self._small())
        if choice < 0.6:
            return self._damage()
        return self._small()

    def _small(self) -> Words:
        name = self.rng.choice(tuple(SMALL))
        words = [name, *(self._drawn(kind) for kind in SMALL[name])]
        if name == b"SET" and self.rng.random() < 0.3:
            words.append(self.rng.choice((b"NX", b"xx", b"GET", b"nonsense")))
        if self.rng.random() < 0.03:
            words = words[:-1] or words
        return words

    def _drawn(self, kind: str) -> bytes:
        rng = self.rng
        match kind:
            case "k":
                return rng.choice(KEYS)
            case "f":
                return rng.choice(FIELDS)
            case "n":
                return rng.choice(NUMBERS) if rng.random() < 0.9 else rng.choice(NO_NUMBERS)
            case _:
                return rng.choice((*NUMBERS, *NO_NUMBERS, b"2|1700000000000", *STAMPS))

    def _told(self, how: bytes, words: Words) -> Words:
        text = b"return redis.%b(unpack(ARGV))" % how
        return [b"EVAL", text, b"0", *words]

    def _damage(self) -> Words:
        """Plant something where the scripts look."""
        rng = self.rng
        entries, adder, pool, marks, _, tokens, seen, width = MachineKeys("a").names
        return rng.choice(
            (
                [
                    b"HSET",
                    entries,
                    rng.choice(FIELDS),
                    rng.choice((b"1|2", b"x", b"3|1700000000000")),
                ],
                [b"SET", adder, rng.choice((*NUMBERS, *NO_NUMBERS))],
                [b"HSET", rng.choice((pool, marks, seen)), rng.choice(FIELDS), rng.choice(STAMPS)],
                [b"HSET", tokens, rng.choice(FIELDS), b"t1"],
                [b"SET", width, rng.choice((b"2", b"3", b"x", b"0", b"40"))],
            )
        )

    def _script(self) -> Words:  # noqa: PLR0911 - one for each script
        rng = self.rng
        who, stamp = rng.choice((b"i1", b"i2", b"i3", b"i4", b"")), rng.choice(STAMPS)
        machine, later = rng.choice((b"0", b"1", b"2", b"7", b"99")), rng.choice(STAMPS)
        token, flag = rng.choice((b"", b"t1", b"t2")), rng.choice((b"0", b"1"))
        keys = MachineKeys("a").names
        match rng.randrange(8):
            case 0:
                return _eval(ADVANCE, KEYS[:1], self._drawn("n"), self._drawn("n"))
            case 1:
                return _eval(RAISE, KEYS[:1], rng.choice(NUMBERS[4:]))
            case 2:
                return _eval(GUARD, keys, who, machine, stamp, later, token, rng.choice(STAMPS[:3]))
            case 3:
                return _eval(REVERT, keys, who, machine, later, flag, token)
            case 4:
                return _eval(LIST, keys)
            case 5:
                return _eval(BITS, keys, rng.choice((b"", b"2", b"3")))
            case _:
                size, guard = (
                    rng.choice((b"3", b"3", b"1", b"7")),
                    rng.choice((b"", b"2000", b"6000")),
                )
                facts = (who, flag, size, stamp, later, guard, token, rng.choice(STAMPS[:3]))
                return _eval(DISTRIBUTE, keys, *facts)


def _eval(script: Script, keys: tuple[bytes, ...], *arguments: bytes) -> Words:
    return [b"EVAL", script.text, b"%d" % len(keys), *keys, *arguments]


def shown(words: Words) -> str:
    """A command for a message: of a script its last line."""
    return " ".join(repr(each.strip().rpartition(b"\n")[2][:60]) for each in words)


class OnModel:
    """Runs commands on the model."""

    def __init__(self) -> None:
        self.server = RedisServer("model", lambda: 1_700_000_000.0, lambda: "0" * 40)

    def run(self, commands: list[Words]) -> list[Any]:
        """Return all replies, errors as their texts."""
        return [self._one(words) for words in commands]

    def _one(self, words: Words) -> Any:
        try:
            return _plain(self.server.execute(words), words)
        except RefusedError as refusal:
            return _error(str(refusal))


class OnServer:
    """Runs commands on a real server, many at once."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=20)
        self.reader = hiredis.Reader()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def run(self, commands: list[Words]) -> list[Any]:
        """Return all replies, errors as their texts."""
        self.socket.sendall(
            b"".join(hiredis.pack_command(cast("Any", tuple(words))) for words in commands)
        )
        replies: list[Any] = []
        while len(replies) < len(commands):
            self.reader.feed(self.socket.recv(1 << 20))
            while (reply := self.reader.gets()) is not False:
                replies.append(reply)
        return [
            _error(str(reply)) if isinstance(reply, hiredis.ReplyError) else _plain(reply, words)
            for reply, words in zip(replies, commands, strict=True)
        ]


def _plain(reply: Any, words: Words) -> Any:
    if isinstance(reply, Status):
        return bytes(reply)
    if isinstance(reply, list) and words[0] == b"KEYS":
        return sorted(reply)
    return reply


def _error(text: str) -> str:
    """An error without what tells where in the script, and in whose words."""
    text = re.sub(r" script: (\w+, )?on @.*", "", text)
    text = text.replace("Redis command", "command").replace(" called from script", "")
    return re.sub(r"^(ERR unknown command).*", r"\1", text, flags=re.IGNORECASE)


def first_difference(seeds: range, servers: list[OnServer]) -> str | None:
    """Run sequences on the model and on servers, and tell where the first one differs."""
    model = OnModel()
    for start in range(seeds.start, seeds.stop, AT_ONCE):
        batch = range(start, min(start + AT_ONCE, seeds.stop))
        drawn = [(seed, words) for seed in batch for words in Sequences(seed).sequence()]
        commands = [words for _, words in drawn]
        expected = model.run(commands)
        for server in servers:
            for (seed, words), ours, theirs in zip(
                drawn, expected, server.run(commands), strict=True
            ):
                if ours != theirs:
                    return f"seed {seed}: {shown(words)}: {ours!r}, the server says {theirs!r}"
    return None
