"""RESP: bytes in, bytes out."""

from __future__ import annotations

import logging
from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiocosid.abc import MAX_ID
from aiocosid.errors import StoreAuthenticationError, StoreUnavailableError, UnsupportedByStoreError
from aiocosid.integrations.metrics import BUCKETS
from aiocosid.server import Limits, Token, TokenScope, digest_of
from aiocosid.server._meters import COMMAND_DURATION, COMMANDS
from aiocosid.server._resp import Session
from aiocosid.server._resp_codec import Commands
from aiocosid.server._tokens import Access
from aiocosid.server.dialects.resp import commands
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.striped import StripedStore
from aiocosid.testing import FailingDistributor, GatedDistributor, ManualClock, WrappedDistributor

from ._wire import Around, Wire, command

KEY = "cosid:{shop.order}.adder"
SECRET = "aiocosid_of-nobody-else"  # noqa: S105 - to be looked for
NO_ACCESS = "NOAUTH Authentication required."
NOT_AN_INTEGER = "ERR value is not an integer or out of range"


def token(
    *scopes: TokenScope, names: tuple[str, ...] = ("*",), expires_ms: int | None = None
) -> Token:
    return Token(
        name="app", digest=digest_of(SECRET), scopes=scopes, names=names, expires_ms=expires_ms
    )


# Segments.


async def test_cosids_key_is_the_counter_of_that_namespace_and_name() -> None:
    """A Java client and a node of ours on the same store share it."""
    store = MemoryStore()
    wire = Wire(store)
    assert await wire.ask(f"INCRBY {KEY} 1000", f"INCR {KEY}") == [1000, 1001]
    counter = store.segment_distributor(namespace="shop", name="order")
    assert await counter.next_max_id(9) == 1010
    assert await wire.ask(f"GET {KEY}", "GET other") == [b"1010", None]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("cosid:{shop.order@2026.1}.adder", "shop.order@2026.1"),
        ("order", "redis.order"),
        ("cosid:{order}.adder", "redis.cosid:{order}.adder"),
        ("cosid:{shop}:adder", "redis.cosid:{shop}:adder"),
        ("größe", "redis.größe"),
    ],
)
async def test_a_key_names_a_counter(key: str, name: str) -> None:
    """Other keys than CosId's are counters of a namespace of their own."""
    store = MemoryStore()
    assert await Wire(store).ask(command("INCRBY", key.encode(), 7)) == [7]
    assert [each.namespaced_name for each in await store.counters()] == [name]


async def test_the_namespace_of_other_keys_can_be_chosen() -> None:
    store = MemoryStore()
    await Wire(store, table=commands(namespace="php")).ask("INCR order")
    assert [each.namespaced_name for each in await store.counters()] == ["php.order"]


RISES = "ERR a counter only rises: increment must be from 1 to"
OVERFLOW = "ERR increment or decrement would overflow"
READING = "GET a; EXISTS a b; TYPE a; MGET a b"


@pytest.mark.parametrize(
    ("asked", "replies"),
    [
        # Other commands between additions see what came before.
        ("INCRBY a 2; INCRBY b 5; INCRBY a 3; GET a; PING; INCR a", [2, 5, 5, b"5", b"PONG", 6]),
        # The last ids are not refused because more of one pipeline would pass the end.
        (f"SETNX a {MAX_ID - 3}; INCRBY a 2; INCRBY a 2", [1, MAX_ID - 1, OVERFLOW]),
        # A chain of CosId merges up to 10^8 segments into one, and owns all that it asked for.
        (f"INCRBY {KEY} {10**11}; INCRBY {KEY} {10**12 + 1}", [10**11, f"{RISES} 1000000000000"]),
        # As CosId on Java does before its first segment; it never changes what is there.
        ("SETNX a 100; SETNX a 5; INCRBY a 10; SETNX a 9; GET a", [1, 0, 110, 0, b"110"]),
        ("SET a 7 NX; SET a 9 nx; SET a 9 NX GET", [b"OK", None, b"7"]),
        ("SET a 9", ["ERR a counter only rises: SET needs NX, which creates a missing one"]),
        ("SET b 9 NX EX 10", ["ERR syntax error"]),
        ("SETNX c x; SETNX c -1", [NOT_AN_INTEGER] * 2),
        (f"INCR a; {READING}", [1, b"1", 1, b"string", [b"1", None]]),
        *((f"INCRBY a {n}; GET a", [f"{RISES} 67108864", None]) for n in (0, -1, 67108865, MAX_ID)),
        *((f"INCRBY a {n}", [NOT_AN_INTEGER]) for n in ("x", "1_0", "+1", "01", "1.5", "1e3")),
        *((f"INCRBY a {n}", [NOT_AN_INTEGER]) for n in ("9" * 20, "\xb2")),
    ],
)
async def test_a_pipeline_is_answered_in_order(asked: str, replies: list[object]) -> None:
    assert await Wire().ask(asked) == replies


async def test_additions_to_one_counter_are_one_on_the_store() -> None:
    """Also if those to another one are between them, but not across other commands."""
    store = Around(WrappedDistributor)
    wire = Wire(store)
    asked = (f"INCRBY {key} {1 + place}" for place, key in enumerate("aabab"))
    assert await wire.ask(*asked, "PING", "INCR a") == [1, 3, 3, 7, 8, b"PONG", 8]
    assert {name: each.steps for name, each in store.made.items()} == {"a": [7, 1], "b": [8]}
    assert wire.service.calls.count == 3
    wire = Wire()  # on a store in this process
    await wire.ask(*["INCR a"] * 5, "INCR b")
    assert wire.service.calls.count == 2


async def test_no_call_asks_for_more_than_the_store_grants_at_a_time() -> None:
    class Narrow(WrappedDistributor):
        @property
        def step_limit(self) -> int:  # type: ignore[override]  # the inner one's is a variable
            return 10

    class Local(Narrow):
        def next_max_id_nowait(self, step: int) -> int:
            self.steps.append(step)
            return self.inner.next_max_id_nowait(step)

    for wrap, expected in ((Narrow, [8, 8, 4]), (Local, [8, 8, 4])):
        store = Around(wrap)
        assert await Wire(store).ask(*["INCRBY a 4"] * 5) == [4, 8, 12, 16, 20]
        assert store.made["a"].steps == expected


async def test_different_counters_are_added_to_at_a_time() -> None:
    """One slow counter of a pipeline costs no more than all of them."""
    store = Around(GatedDistributor)
    wire = Wire(store)
    wire.feed(command("INCR", "a") + command("INCRBY", "b", 5) + command("INCR", "a"))
    for name in "ab":
        await store.made[name].arrived()
    store.made["b"].open()
    await wire.settle()
    assert wire.sent == b""
    store.made["a"].open()
    await wire.settle()
    assert wire.replies() == [1, 5, 2]


@pytest.mark.parametrize("step", ["", " 1"])
async def test_a_step_is_an_integer_as_redis_reads_it(step: str) -> None:
    assert await Wire().ask(command("INCRBY", "a", step)) == [NOT_AN_INTEGER]


async def test_a_bad_key_is_an_error() -> None:
    found = await Wire().ask(
        command("INCR", "a" * 300),
        command("INCR", b"\xff"),
        command("INCR", ""),
        command("INCR", b"a\0"),
        "INCR cosid:{.a}.adder",
    )
    assert [each.split()[0] for each in found] == ["ERR"] * 5
    assert "256" in found[0]


async def test_segments_with_gaps_are_refused() -> None:
    """A client of Redis takes all numbers below the answer for its own; some are another's."""
    store = StripedStore([MemoryStore(), MemoryStore()])
    wire = Wire(store)
    (refused,) = await wire.ask("INCRBY a 10")
    assert refused == "ERR segments of this store are not contiguous; take one id at a time"
    first, second = await wire.ask("INCR a", "INCR a")
    with pytest.raises(UnsupportedByStoreError, match="not contiguous"):
        await wire.service.next_max_id("a", namespace="b", step=2, access=Access())
    assert [first + 2, first + 4] == [second, *await wire.ask("INCR a")]


# Creating and reading.


async def test_reading_creates_nothing() -> None:
    store = MemoryStore()
    assert await Wire(store).ask(READING) == [None, 0, b"none", [None, None]]
    assert await store.counters() == []


# The connection.


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        (("PING",), b"PONG"),
        (("ping", "x"), b"x"),
        (("ECHO", "x\r\ny"), b"x\r\ny"),
        (("SELECT", "0"), b"OK"),
        (("SELECT", "1"), "ERR DB index is out of range"),
        (("CLIENT", "SETINFO", "LIB-NAME", "x"), b"OK"),
        (("CLIENT", "GETNAME"), None),
        (("CLIENT", "SETNAME", "a b"), ("ERR Client names cannot contain spaces, "
         "newlines or special characters.")),
        (("CLIENT", "KILL", "x"),
         "ERR unknown subcommand or wrong number of arguments for 'client'"),
        (("COMMAND", "DOCS"), []),
        (("COMMAND", "COUNT"), 0),
        (("CONFIG", "GET", "save"), []),
        (("RESET",), b"RESET"),
        (("INCR",), "ERR wrong number of arguments for 'incr' command"),
        (("INCRBY", "a"), "ERR wrong number of arguments for 'incrby' command"),
        (("DECR", "a"), "ERR DECR is not served: a counter only rises"),
        (("NO\r\nPE", "x"), "ERR unknown command 'NO\\r\\nPE'"),
        (("HELLO", "4"), "NOPROTO unsupported protocol version"),
        (("HELLO", "3", "AUTH", "x"), "ERR syntax error in HELLO"),
        (("HELLO", "3", "SETNAME"), "ERR syntax error in HELLO"),
    ],
)  # fmt: skip
async def test_commands_of_a_connection(words: tuple[str, ...], reply: object) -> None:
    assert await Wire().ask(command(*words)) == [reply]


@pytest.mark.parametrize("name", ["MULTI", "EVAL", "FCALL", "DEL", "EXPIRE", "FLUSHALL"])
async def test_what_is_not_served_says_why(name: str) -> None:
    (reply,) = await Wire().ask(command(name, "x"))
    assert reply.startswith(f"ERR {name} is not served: ")


async def test_hello_chooses_the_protocol() -> None:
    wire = Wire()
    (hello,) = await wire.ask("HELLO 3 SETNAME me")
    assert (hello[b"server"], hello[b"proto"], hello[b"mode"]) == (b"aiocosid", 3, b"standalone")
    wire.feed(command("GET", "a") + command("CLIENT", "GETNAME"))
    await wire.settle()
    assert wire.sent == b"_\r\n$2\r\nme\r\n"


async def test_quit_ends_the_connection() -> None:
    wire = Wire()
    found = await wire.ask(command("PING") * 499, "QUIT", "INCR a")
    assert found[499:] == [b"OK"]
    assert wire.is_closed


async def test_a_command_that_fails_is_no_end() -> None:
    """What nobody has thought of is in the log, and not in the reply."""

    def bad(_session: Session, _words: list[bytes]) -> object:
        raise ZeroDivisionError(SECRET)

    async def worse(_session: Session, _words: list[bytes]) -> object:
        return object()

    wire = Wire(table={**commands(), b"BAD": bad, b"WORSE": worse})
    error = "ERR internal error"
    found = await wire.ask("BAD", "WORSE", "BAD", "PING")
    assert found == [error, error, error, b"PONG"]


# Tokens.


async def test_nothing_without_a_token() -> None:
    wire = Wire(tokens=[token(TokenScope.SEGMENTS)])
    asked = ["INCR a", "PING", "CLIENT ID", "NOPE"]
    assert await wire.ask(*asked) == [NO_ACCESS] * 4
    (hello,) = await wire.ask("HELLO 3")
    assert hello.startswith("NOAUTH HELLO must be called with the client already authenticated")
    wrong = "WRONGPASS invalid username-password pair or user is disabled."
    assert await wire.ask("AUTH x", command("AUTH", "a", b"\xff")) == [wrong] * 2
    assert await wire.ask("INCR a") == [NO_ACCESS]


async def test_another_token_allows_something_else() -> None:
    both = [token(TokenScope.SEGMENTS), token(TokenScope.SEGMENTS, names=("b.*",))]
    both[1] = replace(both[1], digest=digest_of("narrow"))
    wire = Wire(tokens=both)
    # What follows a token is its holder's, though it came together with it.
    long = command("ECHO", "x" * 20_000)
    assert (await wire.ask(f"auth {SECRET}", "INCR a", long))[:2] == [b"OK", 1]
    (_, refused) = await wire.ask("AUTH narrow", "INCR a")
    assert refused.startswith("NOPERM")


@pytest.mark.parametrize(
    "words", [("AUTH", SECRET), ("AUTH", "default", SECRET), ("HELLO", "2", "AUTH", "x", SECRET)]
)
async def test_the_token_is_the_password(words: tuple[str, ...]) -> None:
    wire = Wire(tokens=[token(TokenScope.SEGMENTS, names=("shop.*",))])
    await wire.ask(command(*words))
    allowed, refused = await wire.ask(f"INCR {KEY}", "INCR a")
    assert allowed == 1
    assert refused == "NOPERM this token has the scope 'segments', but not for 'redis.a'"
    assert await wire.ask(f"GET {KEY}", "RESET") == [b"1", b"RESET"]
    assert await wire.ask(f"INCR {KEY}") == [NO_ACCESS]


async def test_who_may_read_takes_nothing() -> None:
    wire = Wire(tokens=[token(TokenScope.READ)])
    await wire.ask(f"AUTH {SECRET}")
    found = await wire.ask("GET a", "INCR a", "SETNX a 1")
    assert found == [None, *["NOPERM this token lacks the scope 'segments'"] * 2]


async def test_a_token_that_expires_ends_what_it_allowed() -> None:
    clock = ManualClock()
    wire = Wire(tokens=[token(TokenScope.SEGMENTS, expires_ms=clock.now_ms() + 1000)], clock=clock)
    assert await wire.ask(f"AUTH {SECRET}", "INCR a") == [b"OK", 1]
    await clock.advance(1)
    assert await wire.ask("INCR a") == [NO_ACCESS]
    (again,) = await wire.ask(f"AUTH {SECRET}")
    assert again.startswith("WRONGPASS")


async def test_a_token_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wire = Wire(tokens=[token(TokenScope.READ)])
    sent = b""
    for words in [("AUTH", SECRET + "x"), ("AUTH", SECRET), ("AUHT", SECRET), ("INCR", SECRET)]:
        wire.feed(command(*words))
        await wire.settle()
        sent += wire.sent
    assert SECRET not in caplog.text + sent.decode()


# Failures.


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        (
            StoreUnavailableError("redis", "db-7.internal refuses"),
            "LOADING no id just now (StoreUnavailableError); try again",
        ),
        (
            StoreAuthenticationError("redis", "db-7.internal: user app"),
            "ERR the store refuses (StoreAuthenticationError)",
        ),
    ],
)
async def test_a_failing_store_is_an_error_of_redis(error: Exception, reply: str) -> None:
    """Clients try LOADING again; nobody is told hosts and users."""
    store = Around(FailingDistributor)
    wire = Wire(store)
    assert await wire.ask("INCR a") == [1]
    store.made["a"].fail(error)
    assert await wire.ask("INCR a", "INCR a") == [reply] * 2
    store.made["a"].recover()
    assert await wire.ask("INCR a") == [2]


async def test_a_client_that_goes_away_leaves_a_gap() -> None:
    """The addition under way ends; nobody is answered, and nothing else is done."""
    store = Around(GatedDistributor)
    wire = Wire(store)
    wire.feed(command("INCRBY", "a", 5) + command("PING") + command("INCRBY", "a", 5))
    gate = store.made["a"]
    await gate.arrived()
    wire.close()
    gate.open()
    await wire.settle()
    assert (wire.sent, gate.steps) == (b"", [5])
    assert await gate.peek() == 5


async def test_nothing_more_is_read_while_the_store_is_awaited() -> None:
    store = Around(GatedDistributor)
    wire = Wire(store)
    wire.feed(command("INCR", "a"))
    await store.made["a"].arrived()
    before = wire.takes_more
    wire.feed(command("INCR", "a"))
    assert (before, wire.takes_more) == (True, False)
    store.made["a"].open()
    await wire.settle()
    assert wire.replies() == [1, 2]
    assert wire.takes_more


async def test_nothing_is_served_to_a_client_that_does_not_read() -> None:
    wire = Wire()
    wire.protocol.pause_writing()
    wire.feed(command("INCR", "a"))
    await wire.settle()
    wire.feed(command("INCR", "a"))
    await wire.settle()
    assert wire.replies() == [1]
    assert not wire.takes_more
    wire.protocol.resume_writing()
    await wire.settle()
    assert wire.replies() == [2]


async def test_long_replies_are_written_in_parts() -> None:
    """So a client that does not read them costs one part."""
    wire = Wire()
    wire.protocol.pause_writing()
    wire.feed(command("ECHO", "x" * 1000) * 400)
    await wire.settle()
    assert len(wire.replies()) < 100
    wire.protocol.resume_writing()
    await wire.settle()
    assert len(wire.replies()) > 300


async def test_a_long_pipeline_lets_others_have_their_turn() -> None:
    """Replies come in parts, so neither the loop nor the memory is one client's."""
    wire = Wire()
    wire.feed(command("PING") * 1200)
    assert wire.replies() == [b"PONG"] * 500
    await wire.settle()
    assert wire.replies() == [b"PONG"] * 700


async def test_shutdown_answers_what_has_arrived() -> None:
    store = Around(GatedDistributor)
    wire = Wire(store)
    wire.feed(command("INCR", "a"))
    await store.made["a"].arrived()
    wire.feed(command("INCR", "b"))
    wire.protocol.shutdown()
    await wire.settle()
    assert not wire.is_closed
    store.made["a"].open()
    await wire.settle()
    store.made["b"].open()
    await wire.settle()
    assert wire.replies() == [1, 1]
    assert wire.is_closed


async def test_shutdown_ends_an_idle_connection() -> None:
    wire = Wire()
    await wire.ask("PING")
    wire.protocol.shutdown()
    assert wire.is_closed


async def test_a_command_has_a_minute_to_arrive() -> None:
    """However slowly its bytes drip, up to its last word; an idle connection stays."""
    clock = ManualClock()
    wire, other = Wire(clock=clock), Wire(clock=clock)
    await wire.ask("PING")
    await clock.advance(1000)
    other.feed(b"*2\r\n$4\r\nINCR\r\n")
    for byte in command("INCR", "a")[:3]:
        wire.feed(bytes([byte]))
        await clock.advance(19)
    assert [wire.is_closed, other.is_closed] == [False, False]
    wire.feed(b"\n$4")
    await clock.advance(19)
    assert [wire.is_closed, other.is_closed] == [True, True]


async def test_a_command_without_its_last_word_has_a_minute_too() -> None:
    clock = ManualClock()
    wire = Wire(clock=clock)
    wire.feed(b"*2\r\n$4\r\nINCR\r\n")
    await clock.advance(60)
    assert wire.is_closed


async def test_a_command_that_arrives_in_time_is_no_end() -> None:
    clock = ManualClock()
    wire = Wire(clock=clock)
    for _ in range(3):
        for part in (command("PING")[:6], command("PING")[6:]):
            wire.feed(part)
            await clock.advance(40)
    assert wire.replies() == [b"PONG"] * 3
    assert not wire.is_closed


# Figures.


def counted(wire: Wire) -> dict[tuple[str, ...], int]:
    return dict(wire.service.meters.figures()[COMMANDS])


def times(wire: Wire, name: str) -> list[float]:
    found: list[float] = wire.service.meters.figures()[COMMAND_DURATION][name,]
    return found


async def test_commands_are_counted_by_name_token_and_status() -> None:
    """Names that the server does not have are one series, however many a client thinks of."""
    wire = Wire(tokens=[token(TokenScope.SEGMENTS, names=("redis.*",))])
    asked = ["INCR a", "nonsense", "auth x", "GET"]
    await wire.ask(*asked, f"AUTH {SECRET}", "incrby a 5", f"INCR {KEY}")
    await wire.ask("GeT a", "FIRST", "SECOND", "DEL a")
    await wire.ask("INCRBY a x", command(""))
    await wire.ask(b"?\r\n")
    assert wire.is_closed
    assert counted(wire) == {
        ("INCR", "", "NOAUTH"): 1,
        ("other", "", "NOAUTH"): 1,
        ("AUTH", "", "WRONGPASS"): 1,
        ("GET", "", "NOAUTH"): 1,
        ("AUTH", "", "OK"): 1,
        ("INCRBY", "app", "OK"): 1,
        ("INCR", "app", "NOPERM"): 1,
        ("GET", "app", "OK"): 1,
        ("other", "app", "ERR"): 4,
        ("DEL", "app", "ERR"): 1,
        ("INCRBY", "app", "ERR"): 1,
    }


async def test_joined_additions_are_counted_each_by_its_own_name() -> None:
    """Whether their call to the store succeeds, fails, or is cut where the counter ends."""
    store = Around(FailingDistributor)
    wire = Wire(store)
    mixed = ["INCRBY a 5"] * 3 + ["INCR a"] * 2
    mixed += ["INCR b", "INCRBY a 6"]
    await wire.ask(*mixed)
    assert counted(wire) == {("INCRBY", "", "OK"): 4, ("INCR", "", "OK"): 3}
    store.made["a"].fail(StoreUnavailableError("redis", "down"))
    await wire.ask(*mixed)
    assert counted(wire) == {
        ("INCRBY", "", "OK"): 4,
        ("INCR", "", "OK"): 4,
        ("INCRBY", "", "LOADING"): 4,
        ("INCR", "", "LOADING"): 2,
    }
    ended = Wire()
    await ended.ask(command("SETNX", "a", MAX_ID - 3))
    replies = await ended.ask("INCRBY a 2", *["INCR a"] * 3)
    assert replies == [MAX_ID - 1, MAX_ID, *["ERR increment or decrement would overflow"] * 2]
    assert counted(ended) == {
        ("SETNX", "", "OK"): 1,
        ("INCRBY", "", "OK"): 1,
        ("INCR", "", "OK"): 1,
        ("INCR", "", "ERR"): 2,
    }


async def test_segments_with_gaps_count_as_refused() -> None:
    wire = Wire(StripedStore([MemoryStore(), MemoryStore()]))
    await wire.ask("INCRBY a 10", "INCRBY a 1", "INCR a")
    assert counted(wire) == {
        ("INCRBY", "", "ERR"): 1,
        ("INCRBY", "", "OK"): 1,
        ("INCR", "", "OK"): 1,
    }


async def test_time_is_from_the_arrival_to_the_answer() -> None:
    """Joined additions share one call to the store, which each of them waits for."""
    clock, store = ManualClock(), Around(GatedDistributor)
    wire = Wire(store, clock=clock)
    wire.feed(command("PING") + command("INCR", "a") * 2 + command("INCRBY", "a", 3))
    await wire.settle()
    await clock.advance(0.03)
    store.made["a"].open()
    await wire.settle()
    assert wire.replies() == [b"PONG", 1, 2, 5]
    late = bisect_left(BUCKETS, 0.03)
    for name, count in (("INCR", 2), ("INCRBY", 1)):
        *buckets, total = times(wire, name)
        assert (buckets[late], sum(buckets)) == (count, count)
        assert total == pytest.approx(0.03 * count)
    assert times(wire, "PING")[0] == 1


# Bytes.

TALK = b"".join(
    (
        command("HELLO", "2"),
        command("INCRBY", KEY, 100),
        command("INCRBY", KEY, 100),
        b"*0\r\n*-1\r\n",
        command("INCR", "a" * 300),
        command("ECHO", b"\r\n*1\r\n$" + b"x" * 300),
        command("MGET", *"abcdefghijklmno", KEY),
        command("get", KEY),
        command("ECHO", ""),
    )
)


def told(found: list[list[bytes]]) -> list[tuple[bytes, ...]]:
    return [tuple(words) for words in found]


@settings(max_examples=300, deadline=None)
@pytest.mark.asyncio
@given(st.lists(st.integers(0, len(TALK)), max_size=12))
async def test_commands_are_split_alike_wherever_the_network_cuts(cuts: list[int]) -> None:
    whole, parts = Commands(most=1000), Commands(most=1000)
    whole.feed(TALK)
    expected = whole.take(99)
    assert len(expected) == 8
    found: list[list[bytes]] = []
    edges = [0, *sorted(cuts), len(TALK)]
    for start, stop in pairwise(edges):
        parts.feed(TALK[start:stop])
        found += parts.take(99)
    assert told(found) == told(expected)
    assert (parts.error, parts.is_partial) == ("", False)


async def test_a_byte_at_a_time_is_enough() -> None:
    wire, other = Wire(), Wire()
    for byte in TALK:
        wire.feed(bytes([byte]))
    await wire.settle()
    assert wire.replies()[1:] == (await other.ask(TALK))[1:]


GARBAGE: list[Any] = [
    (b"PING\r\n", "expected '*', got 'P'"),
    (b"\0", "expected '*', got '\\x00'"),
    (b"*1\r\n:5\r\n", "expected '$', got ':'"),
    (b"*1\r\n*1\r\n", "expected '$', got '*'"),
    (b"*1\r\n$-1\r\n", "invalid bulk length"),
    (b"*1\r\n$-5\r\n", "invalid bulk length"),
    (b"*-5\r\n", "invalid multibulk length"),
    (b"*1025\r\n", "invalid multibulk length"),
    (b"*2147483647\r\n$1\r\na\r\n", "invalid multibulk length"),
    (b"*1\r\n$65537\r\n", "invalid bulk length"),
    (b"*1\r\n$536870912\r\n", "invalid bulk length"),
    (b"*1\r\n$99999999999999999999999999\r\n", "invalid bulk length"),
    (b"*" + b"1" * 40, "invalid multibulk length"),
    (b"*1\r\n$" + b"1" * 40, "invalid bulk length"),
    (b"*+1\r\n", "invalid multibulk length"),
    (b"* 1\r\n", "invalid multibulk length"),
    (b"*\r\n", "invalid multibulk length"),
    (b"*1\n$4\nPING\n" + b" " * 40, "invalid multibulk length"),
    (b"*1\r\n$4\r\nPINGS\r\n", "a bulk string does not end where it should"),
    (b"%1\r\n+a\r\n+b\r\n", "expected '*', got '%'"),
]


@pytest.mark.parametrize(("data", "error"), GARBAGE)
async def test_garbage_ends_the_connection(data: bytes, error: str) -> None:
    """What came before it is answered."""
    wire = Wire()
    found = await wire.ask("PING", data, "INCR a")
    assert found == [b"PONG", f"ERR Protocol error: {error}"]
    assert wire.is_closed


async def test_a_command_is_bounded_however_it_is_cut() -> None:
    """Many words of a size that is allowed are too much together."""
    wire = Wire(limits=Limits(body=10_000))
    wire.feed(b"*1000\r\n")
    for _ in range(10):
        wire.feed(b"$1000\r\n" + b"x" * 1000 + b"\r\n")
    await wire.settle()
    assert wire.replies() == ["ERR Protocol error: invalid bulk length"]
    assert wire.is_closed


async def test_no_command_begins_inside_another() -> None:
    wire = Wire()
    wire.feed(b"*2\r\n$4\r\nECHO\r\n")
    assert await wire.ask("PING") == ["ERR Protocol error: expected '$', got '*'"]


@pytest.mark.parametrize("data", [b"*11\r\n", b"*1\r\n$16385\r\n"])
async def test_a_stranger_sends_little(data: bytes) -> None:
    wire = Wire(tokens=[token(TokenScope.SEGMENTS)])
    (error,) = await wire.ask(data)
    assert error.startswith("ERR Protocol error: invalid")
    assert wire.is_closed


@pytest.mark.asyncio
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([TALK, *(g for g, _ in GARBAGE)])))
)
async def test_any_bytes_are_answered_or_end_the_connection(parts: list[bytes]) -> None:
    wire = Wire()
    for part in parts:
        wire.feed(part)
    await wire.settle()
    wire.replies()
