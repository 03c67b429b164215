"""Random sequences of commands and shipped scripts, run on the model and on a real server."""

from __future__ import annotations

import random
import re
import socket
from typing import Any, Final, Self, cast

import hiredis

from aiocosid.stores.redis import _backend, _sequence, _span
from aiocosid.stores.redis._backend import ADD, RAISE, CellCodec
from aiocosid.stores.redis._link import Script
from tests.simulation._redis_commands import RefusedError, Status
from tests.simulation._redis_server import RedisServer

Words = list[bytes]

LENGTH: Final = 10  # commands in a sequence, on average
AT_ONCE: Final = 50  # sequences that are sent before the first reply is read

COUNTER: Final = (b"cosid:{a.b}.adder",)
SPAN: Final = (b"aiocosid:{a.b}:span",)
CODEC: Final = CellCodec("a", is_cluster=False)
FENCE: Final = (b"order1700000000", b"orderfence")
KEYS: Final = (*COUNTER, *SPAN, *FENCE, *CODEC.keys)
UNORDERED: Final = (*SPAN, FENCE[1], *CODEC.keys[:5])
"""Hashes with long values, which a server orders as it likes."""
ALL_OF: Final = (b"HGETALL", b"HKEYS", b"HVALS")
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


def told_the_time(script: Script, seconds: bytes = b"1700000000") -> Script:
    """A script that is told what it would ask the server's clock."""
    asks = b"local time = redis.call('TIME')"
    assert asks in script.text
    return Script(script.text.replace(asks, b"local time = {%b, '0'}" % seconds))


READ: Final = told_the_time(_backend.READ)
COMMIT: Final = told_the_time(
    # The model and the server are called by different names.
    Script(_backend.COMMIT.text.replace(b"here == ARGV[1]", b"ARGV[1] == 'here'"))
)
SEQUENCE: Final = told_the_time(_sequence.GRANT)
LOOK: Final = told_the_time(_span.LOOK)
TAKE: Final = told_the_time(_span.TAKE, b"ARGV[6]")
OPEN: Final = told_the_time(_span.OPEN)
RELEASE: Final = told_the_time(_span.RELEASE)
SCRIPTS: Final = (*(ADD, RAISE, READ, COMMIT, SEQUENCE), *(LOOK, TAKE, OPEN, RELEASE))
WHO: Final = b"""
local about, data = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
return {
  about:match('run_id:(%x+)'), data:match('master_replid:(%x+)'), data:match('role:(%a+)'),
  data:match('connected_slaves:(%d+)'),
}
"""

OURS: Final = b"""
local about, data = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
local here = about:match('run_id:(%x+)') .. ' ' .. data:match('master_replid:(%x+)')
return redis.call('HSET', KEYS[1], ARGV[1], here)
"""

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
        if choice < 0.5:
            return self._sent(self._script())
        if choice < 0.53:
            role = self._told(rng.choice((b"call", b"pcall")), [b"ROLE"])
            return rng.choice(([b"EVAL", WHO, b"0"], [b"EVALSHA", b"0" * 40, b"0"], role))
        if choice < 0.56:
            return self._told(rng.choice((b"call", b"pcall")), self._small())
        if choice < 0.66:
            return self._damage()
        return self._small()

    def _sent(self, words: Words) -> Words:
        """As it is, or by the digest of a script that the server was told of."""
        if self.rng.random() < 0.5:
            return words
        return [b"EVALSHA", Script(words[1]).digest, *words[2:]]

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
        entries, pool, notes, seen, marker, adder, space = CODEC.keys
        return rng.choice(
            (
                [
                    b"HSET",
                    entries,
                    rng.choice(FIELDS),
                    rng.choice((b"1|2", b"x", b"3|1700000000000")),
                ],
                [b"SET", rng.choice((adder, space)), rng.choice((*NUMBERS, *NO_NUMBERS))],
                [b"HSET", rng.choice((pool, seen)), rng.choice(FIELDS), rng.choice(STAMPS)],
                [b"HSET", notes, rng.choice(FIELDS), b"t1"],
                [b"HSET", marker, rng.choice((b"store", CODEC.count_field)), b"1" * 40],
                [b"SET", rng.choice(CODEC.keys), b"1"],
                [b"EVAL", OURS, b"1", FENCE[1], b"server"],
                [
                    b"HSET",
                    FENCE[1],
                    rng.choice((b"opens", b"seen", b"reach", b"granted:1700000000")),
                    rng.choice((*NUMBERS, b"1700000000")),
                ],
                [b"EVAL", OURS, b"1", *SPAN, b"server@r"],
                [
                    b"HSET",
                    *SPAN,
                    rng.choice((b"cursor@r", b"last@r", b"until@r", b"server@r")),
                    rng.choice((*NUMBERS, b"x")),
                ],
            )
        )

    def _script(self) -> Words:
        rng = self.rng
        return rng.choice((self._counting, self._spans, self._machines, self._machines))()

    def _counting(self) -> Words:
        rng = self.rng
        if rng.random() < 1 / 3:
            return _eval(RAISE, COUNTER, rng.choice(NUMBERS[4:]), rng.choice((b"", b"1")))
        step = rng.choice((b"1", b"3", b"3", self._drawn("n")))
        return _eval(ADD, COUNTER, step, rng.choice((b"", b"3", self._drawn("n"))))

    def _spans(self) -> Words:
        rng = self.rng
        root, nonce = rng.choice((b"r", b"r", b"q")), rng.choice((b"n1", b"n2"))
        first, last = rng.choice(((b"10", b"20"), (b"90", b"101"), NUMBERS[-2:]))
        match rng.randrange(6):
            case 0:
                return _eval(LOOK, SPAN, root)
            case 1 | 2:
                return _eval(OPEN, SPAN, root, nonce, first, last)
            case 3:
                return _eval(RELEASE, SPAN, root, nonce)
            case _:
                step, floor = rng.choice((b"1", b"4", b"50")), rng.choice((b"0", b"0", b"30"))
                clock = rng.choice((b"1700000000", b"1700000003", b"1700000009"))
                lasts = rng.choice((b"4000", b"500"))
                return _eval(TAKE, SPAN, root, step, floor, nonce, lasts, clock)

    def _machines(self) -> Words:
        rng = self.rng
        match rng.randrange(4):
            case 0:
                strict, count = rng.choice((b"0", b"1")), CODEC.count_field
                instance, sample = rng.choice(FIELDS[:6]), rng.choice((b"0", b"1", b"8"))
                return _eval(READ, CODEC.keys, strict, count, instance, sample)
            case 1:
                second, size = rng.choice((b"1699999999", b"1700000000")), rng.choice((b"1", b"9"))
                most = rng.choice((b"5", b"524287"))
                return _eval(SEQUENCE, FENCE, second, size, most, b"2", b"1", b"600")
            case _:
                cells: Words = []
                for _ in range(rng.randrange(4)):
                    key = rng.choice((b"1", b"2", b"3", b"5", b"6", b"7"))
                    field = b"" if key in {b"6", b"7"} else rng.choice(FIELDS[:6])
                    before = rng.choice((b"", b"", b"=1|2", b"=t1", b"=" + rng.choice(NUMBERS)))
                    after = rng.choice((b"", b"-", b"=1|2", b"=t1", b"=" + rng.choice(STAMPS)))
                    cells += [key, field, before, b"" if field == after[:1] == b"-" else after]
                here = rng.choice((b"here", b"here", b"another"))
                return _eval(COMMIT, CODEC.keys, here, *cells)


def _eval(script: Script, keys: tuple[bytes, ...], *arguments: bytes) -> Words:
    return [b"EVAL", script.text, b"%d" % len(keys), *keys, *arguments]


def shown(words: Words) -> str:
    """A command for a message: of a script its last line."""
    return " ".join(repr(each.strip().rpartition(b"\n")[2][:60]) for each in words)


class OnModel:
    """Runs commands on the model."""

    def __init__(self) -> None:
        self.server = RedisServer("model", lambda: 1_700_000_000.0, lambda: "0" * 40)
        self.run([[b"SCRIPT", b"LOAD", script.text] for script in SCRIPTS])

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
        self.identity = re.compile(b"no identity yet")

    def __enter__(self) -> Self:
        (told,) = self.run([[b"EVAL", WHO, b"0"]])
        self.identity = re.compile(b"|".join(told[:2]))
        self.run([[b"SCRIPT", b"LOAD", script.text] for script in SCRIPTS])
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
            _error(str(reply))
            if isinstance(reply, hiredis.ReplyError)
            else _plain(self._as_model(reply), words)
            for reply, words in zip(replies, commands, strict=True)
        ]

    def _as_model(self, reply: Any) -> Any:
        """A reply in which the server goes by the model's name."""
        if isinstance(reply, list):
            return [self._as_model(each) for each in reply]
        return self.identity.sub(b"0" * 40, reply) if isinstance(reply, bytes) else reply


def _plain(reply: Any, words: Words) -> Any:
    if words[0] == b"EVAL" and words[1].endswith(b"(unpack(ARGV))"):
        words = words[3:]
    if isinstance(reply, Status):
        return bytes(reply)
    if isinstance(reply, list) and words[0] == b"KEYS":
        return sorted(reply)
    if isinstance(reply, list) and words[0] in ALL_OF and words[1] in UNORDERED:
        pairs = words[0] == b"HGETALL"
        return sorted(zip(reply[::2], reply[1::2], strict=True)) if pairs else sorted(reply)
    return reply


def _error(text: str) -> str:
    """An error without what tells where in the script, and in whose words."""
    text = text.removesuffix(" Please use EVAL.")
    text = re.sub(r" script: (\w+, )?on @.*", "", text)
    text = (
        text.replace("Redis command", "command")
        .replace("Valkey command", "command")
        .replace(" called from script", "")
    )
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
