"""Whatever Redis forgets, nothing repeats: spans of a root, handed out by a real server."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from aiocosid import connect
from aiocosid._life import fork
from aiocosid.abc import MAX_ID, IdSegmentDistributor
from aiocosid.abc.events import CacheFound, CacheLost, Event, SpanLeased
from aiocosid.errors import (
    CorruptCounterError,
    ForkedError,
    IdOverflowError,
    StoreAuthenticationError,
    StoreIdentityHiddenError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from aiocosid.segment import GroupBy
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.redis._span import Claimed, Opening, Span, SpanTaken
from aiocosid.stores.sqlite import SqliteStore
from aiocosid.stores.tiered import TieredStore
from tests.script import run_python
from tests.servers import PASSWORD, FaultProxy, ValkeyServer, free_port, wait_until

pytestmark = [pytest.mark.integration]

# What a user of Redis needs for it, as docs/howto/tiered-store.md has it.
RIGHTS = "~aiocosid:* +eval +evalsha +info +time +hget +hmget +hset +hincrby +hdel +del"

CURSOR = "cursor@root"
QUICK = ("--repl-diskless-sync-delay", "0")


class TaskRoot(IdSegmentDistributor):
    """A counter that counts its calls, and can be out of reach."""

    store = "root"

    def __init__(self, memory: MemoryStore, **described: Any) -> None:
        super().__init__(**described)
        self._counter = memory.segment_distributor(**described)
        self.calls = 0
        self.is_down = False
        self.asked = asyncio.Event()
        self.gate: asyncio.Event | None = None

    async def next_max_id(self, step: int) -> int:
        self.calls += 1
        self.asked.set()
        await asyncio.sleep(0)
        if self.gate is not None:
            await self.gate.wait()
        if self.is_down:
            raise StoreUnavailableError("root", "unplugged")
        return await self._counter.next_max_id(step)


class RootStore(MemoryStore):
    """A store of such counters, in a memory that several share."""

    def __init__(self, memory: MemoryStore) -> None:
        super().__init__()
        self.memory = memory
        self.roots: list[TaskRoot] = []

    def segment_distributor(self, **described: Any) -> Any:
        self.roots.append(TaskRoot(self.memory, **described))
        return self.roots[-1]


class Heard(list[Event]):
    """An instrument that keeps what it hears."""

    def on_event(self, event: Event, /) -> None:
        self.append(event)


class Bench:
    """Distributors on one root and one cache; all that they hand out is compared."""

    def __init__(self, namespace: str, **options: Any) -> None:
        self.memory = MemoryStore()
        self.described: dict[str, Any] = {"namespace": namespace, "name": "n"}
        self.key = f"aiocosid:{{{namespace}.n}}:span"
        self.options: dict[str, Any] = {
            "span": 100,
            "cache_timeout": 5.0,
            "pause": 0.0,
            "root_name": "root",
            **options,
        }
        self.taken: list[tuple[int, int]] = []
        self.made: list[IdSegmentDistributor] = []
        self.roots: list[TaskRoot] = []
        self.caches: list[RedisStore] = []

    def on(self, url_or_client: Any, *, step: int = 10, offset: int = 0, **options: Any) -> Any:
        """One more, as if in another process."""
        is_url = isinstance(url_or_client, str)
        cache = (RedisStore.from_url if is_url else RedisStore)(url_or_client)
        root = RootStore(self.memory)
        store = TieredStore(root, cache, **{**self.options, **options})
        made = store.segment_distributor(**self.described, step=step, offset=offset)
        self.roots += root.roots
        self.made.append(made)
        self.caches.append(cache)
        return made

    async def take(self, distributor: IdSegmentDistributor, n: int = 1, step: int = 10) -> int:
        for _ in range(n):
            max_id = await distributor.next_max_id(step)
            self.note(max_id, step)
        return self.taken[-1][1]

    def note(self, max_id: int, step: int = 10) -> None:
        """Compare a segment with all before it."""
        for first, last in self.taken:
            assert max_id <= first or last <= max_id - step, f"{max_id} was granted already"
        self.taken.append((max_id - step, max_id))

    @property
    def trips(self) -> int:
        return sum(root.calls for root in self.roots)

    async def aclose(self) -> None:
        for made in self.made:
            await made.aclose()
        for cache in self.caches:
            await cache.aclose()


@pytest_asyncio.fixture
async def bench(namespace: str) -> AsyncIterator[Bench]:
    made = Bench(namespace)
    yield made
    await made.aclose()


@pytest_asyncio.fixture
async def proxy(valkey: ValkeyServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(valkey.host, valkey.port) as proxy:
        yield proxy


def url_of(proxy: FaultProxy) -> str:
    return f"redis://{proxy.host}:{proxy.port}/0"


async def test_one_trip_to_the_root_a_span(
    request: pytest.FixtureRequest, bench: Bench, namespace: str
) -> None:
    """Also with several at once; on one server, Cluster and Sentinel; CosId's key is not there."""
    for kind in ("valkey", "valkey_cluster", "valkey_sentinel"):
        server = request.getfixturevalue(kind)
        several = Bench(f"{namespace}.{kind}")
        many = [several.on(server.url) for _ in range(4)]
        for each in many:
            await each.aopen()
        await asyncio.gather(*(several.take(each, 10) for each in many))
        assert several.trips == 4, kind
        assert max(several.taken)[1] == 400, "no gap either"
        told = [each.statistics() for each in many]
        assert sum(each.spans for each in told) == 4
        assert sum(each.segments_from_cache for each in told) == 36
        assert (sum(each.spans_missing for each in told), told[0].is_cache_up) == (1, True)
        await several.aclose()
    assert valkey_keys(request.getfixturevalue("valkey"), namespace) == []


def valkey_keys(server: ValkeyServer, namespace: str) -> object:
    return server.call("KEYS", f"cosid:*{namespace}*")


async def test_a_server_that_forgets(
    valkey_factory: Callable[..., ValkeyServer], bench: Bench
) -> None:
    """Emptied, restarted empty, put back to a snapshot: a new span each time, for everybody."""
    server = valkey_factory()
    one, other = bench.on(server.url), bench.on(server.url)

    async def goes_on(spans: int) -> None:
        before = bench.trips
        for _ in range(3):
            await bench.take(one)
            await bench.take(other)
        assert bench.trips - before == spans

    await goes_on(1)
    server.call("DEL", bench.key)
    await goes_on(1)
    server.call("FLUSHALL")
    await goes_on(1)
    server.call("SAVE")
    snapshot = Path(server.directory) / "dump.rdb"
    kept = snapshot.with_name("kept.rdb")
    shutil.copy2(snapshot, kept)
    await bench.take(one)
    await bench.take(other)
    server.kill()
    shutil.copy2(kept, snapshot)
    server.start()
    assert server.call("EXISTS", bench.key) == 1, "the snapshot has the span"
    await bench.take(one)  # may find its connection closed, and be served by the root
    # Others come from a process that has seen nothing: its floor protects nobody.
    fresh = bench.on(server.url)
    await bench.take(fresh, 3)
    await bench.take(one, 3)
    snapshot.unlink()
    server.kill()
    server.start()
    fresh = bench.on(server.url)
    await bench.take(fresh, 3)
    await bench.take(other, 3)


def follows(server: ValkeyServer) -> bool:
    return "master_link_status:up" in str(server.call("INFO", "replication"))


async def test_failed_over_to_a_lagging_replica_and_back(
    valkey_factory: Callable[..., ValkeyServer], bench: Bench
) -> None:
    """The first master has its old run_id again, and what the replica knew: the past."""
    first = valkey_factory(*QUICK)
    second = valkey_factory(*QUICK, "--replicaof", f"{first.host} {first.port}")
    wait_until(lambda: follows(second), "it has another master_replid from its first replica on")
    await bench.take(bench.on(first.url), 4)
    wait_until(lambda: second.call("HGET", bench.key, CURSOR) == "40", "it has followed")
    second.call("REPLICAOF", "127.0.0.1", free_port())  # cut off
    await bench.take(bench.on(first.url), 3)
    second.call("REPLICAOF", "NO", "ONE")
    first.call("REPLICAOF", second.host, second.port)
    wait_until(lambda: follows(first), "it follows")
    first.call("CONFIG", "SET", "replica-read-only", "no")
    fresh = bench.on(first.url)
    await bench.take(fresh)  # of a replica: the root serves
    assert fresh.statistics().cache_failures == 1
    first.call("REPLICAOF", "NO", "ONE")
    assert first.call("HGET", bench.key, CURSOR) == "40", "what came after it is forgotten"
    fresh = bench.on(first.url)
    await bench.take(fresh, 4)
    assert fresh.statistics().spans_of_another_server == 1
    await bench.take(bench.on(second.url), 2)


async def test_split_in_two(valkey_factory: Callable[..., ValkeyServer], bench: Bench) -> None:
    """Both halves serve for a while; each its own spans."""
    first = valkey_factory(*QUICK)
    second = valkey_factory(*QUICK, "--replicaof", f"{first.host} {first.port}")
    wait_until(lambda: follows(second), "it has another master_replid from its first replica on")
    one = bench.on(first.url)
    await bench.take(one, 4)
    wait_until(lambda: second.call("HGET", bench.key, CURSOR) == "40", "it has followed")
    second.call("REPLICAOF", "NO", "ONE")
    other = bench.on(second.url)
    for _ in range(5):
        await bench.take(one)
        await bench.take(other)
    assert bench.trips == 2


async def test_a_claim_is_good_once(valkey: ValkeyServer, bench: Bench, namespace: str) -> None:
    """Not for who comes late, twice, or after the span was ended."""
    store = RedisStore.from_url(valkey.url)
    span = Span(store._backend.link, f"{namespace}.n", "x")
    a = await claimed(span, 10, 0, b"a", "missing")
    assert await claimed(span, 10, 0, b"a", "missing") == a, "sent again"
    opening = await span.take(10, 0, b"b")
    assert isinstance(opening, Opening)
    assert 0 < opening.left <= 2.5
    assert await span.open(a[:-1] + b"2", 10, 100) == (False, 0)
    assert await span.open(a, 10, 100) == (True, 0)
    assert await span.take(20, 0, b"c") == SpanTaken(30)
    assert await span.open(a, 10, 100) == (False, 0), "sent again"
    assert await span.take(10, 0, b"d") == SpanTaken(40)
    # Too large for the rest: who needs less goes on until the next one is there.
    await claimed(span, 61, 0, b"e", "left")
    assert await span.take(60, 0, b"f") == SpanTaken(100)
    assert isinstance(await span.take(1, 0, b"f"), Opening)
    await span.release(b"f")  # not its own
    assert isinstance(await span.take(1, 0, b"f"), Opening)
    await span.release(b"e")
    f = await claimed(span, 1, 0, b"f", "left")
    # Expired, and taken by another one.
    valkey.call("HSET", bench.key, "until@x", 1)
    g = await claimed(span, 1, 0, b"g", "left")
    assert await span.open(f, 201, 300) == (False, 0)
    assert await span.open(g, 301, 400) == (True, 0)
    # A clock that was set back makes nobody wait for long.
    await claimed(span, 1, 350, b"h", "behind")
    valkey.call("HSET", bench.key, "until@x", 10**15)
    i = await claimed(span, 1, 350, b"i", "behind")
    await span.void()
    assert await span.open(i, 401, 500) == (False, 0)
    # A claim of another life of the server.
    j = await claimed(span, 1, 0, b"j", "missing")
    valkey.call("HSET", bench.key, "by@x", "somebody else")
    assert await span.open(j, 401, 500) == (False, 0)
    await claimed(span, 1, 0, b"k", "missing")  # and nobody waits for it
    await store.aclose()


async def test_copies_of_a_whole_call_that_come_late(
    valkey: ValkeyServer, bench: Bench, namespace: str
) -> None:
    """A copy of the claim claims anew; the copy of the opening is of the claim before."""
    store = RedisStore.from_url(valkey.url)
    span = Span(store._backend.link, f"{namespace}.n", "x")
    for forgets in (False, True):
        valkey.call("DEL", bench.key)
        first = await claimed(span, 10, 0, b"a", "missing")
        assert await span.open(first, 10, 100) == (True, 0)
        for n in range(2, 11):
            assert await span.take(10, 0, b"b") == SpanTaken(n * 10)
        if forgets:
            valkey.call("DEL", bench.key)
        again = await claimed(span, 10, 0, b"a", "missing" if forgets else "left")
        assert await span.open(first, 10, 100) == (False, 0)
        # Also in one microsecond, or after the clock was set back to it.
        assert forgets or again.split()[-1] != first.split()[-1]
        await span.release(b"a")
        await claimed(span, 10, 0, b"b", "missing" if forgets else "left")
    await store.aclose()


async def claimed(span: Span, step: int, floor: int, nonce: bytes, why: str) -> bytes:
    reply = await span.take(step, floor, nonce)
    assert isinstance(reply, Claimed)
    assert reply.why == why
    assert reply.claim.startswith(nonce + b" ")
    return reply.claim


async def test_a_slow_root(valkey: ValkeyServer, bench: Bench) -> None:
    """As slow as a generator has patience for: its span is opened, and the others do not wait."""
    one, other = bench.on(valkey.url), bench.on(valkey.url, cache_timeout=0.1)
    bench.roots[0].gate = asyncio.Event()
    fetch = asyncio.create_task(bench.take(one))
    await bench.roots[0].asked.wait()
    until = int(str(valkey.call("HGET", bench.key, "until@root")))
    valkey.call("HSET", bench.key, "until@root", until - 2000)  # two seconds later
    await bench.take(other)
    told = other.statistics()
    assert (told.spans, told.segments_from_root) == (0, 1), "it neither leased nor waited for long"
    bench.roots[0].gate.set()
    await fetch
    await bench.take(one, 3)
    assert one.statistics().segments_from_cache == 3
    assert one.statistics().spans == 1


async def test_an_opening_that_is_sent_again(
    valkey: ValkeyServer, proxy: FaultProxy, bench: Bench
) -> None:
    """Its reply lost, others served meanwhile: the second one must not begin the span anew."""
    client = Redis(
        host=proxy.host, port=proxy.port, socket_timeout=0.3, retry=Retry(NoBackoff(), 3)
    )
    one, other = bench.on(client), bench.on(valkey.url)
    await one.aopen()
    proxy.swallow_replies(1, matching=b"opened", reset=False)
    lost = proxy.next_reply(b"opened")
    fetch = asyncio.create_task(bench.take(one))
    await lost
    late = proxy.next_reply(b"late")
    await bench.take(other, 3)
    assert b"late" in await late
    assert await fetch == 10
    await bench.take(other, 3)
    await bench.take(one, 3)
    assert bench.trips == 1
    await client.aclose()


async def test_a_take_that_is_sent_again(
    valkey: ValkeyServer, proxy: FaultProxy, bench: Bench
) -> None:
    """A segment is lost, and none is shared."""
    client = Redis(
        host=proxy.host, port=proxy.port, socket_timeout=0.3, retry=Retry(NoBackoff(), 3)
    )
    one, other = bench.on(client), bench.on(valkey.url)
    await bench.take(one)
    proxy.swallow_replies(1, matching=b"taken")
    assert await bench.take(one) == 30
    await bench.take(other, 2)
    assert (proxy.swallowed, bench.trips) == (1, 1)
    await client.aclose()


async def test_replies_that_are_lost(valkey: ValkeyServer, proxy: FaultProxy, bench: Bench) -> None:
    """Of each call: it is asked once more, the caller is served, and nothing is shared."""
    one, other = bench.on(url_of(proxy)), bench.on(valkey.url)
    for reply in (b"claimed", b"opened", b"taken"):
        valkey.call("DEL", bench.key)
        proxy.swallow_replies(1, matching=reply)
        await bench.take(one, 3)
        await bench.take(other, 3)
        await bench.take(one, 3)
    assert proxy.swallowed == 3
    told = one.statistics()
    assert (told.cache_failures, told.spans, other.statistics().spans) == (0, 3, 0)


async def test_a_connection_that_is_cut_while_it_is_idle(
    valkey: ValkeyServer, proxy: FaultProxy, bench: Bench
) -> None:
    """Costs nobody a span; a second one is no idle connection."""
    one = bench.on(url_of(proxy))
    for _ in range(4):
        await bench.take(one)
        proxy.cut()
    told = one.statistics()
    assert (told.cache_failures, told.spans, bench.trips) == (0, 1, 1)


async def test_a_server_that_hides_who_it_is(valkey: ValkeyServer, bench: Bench) -> None:
    """Refused at start, with what to allow; the rights of the page are enough."""
    valkey.call("ACL", "SETUSER", "hides", "reset", "on", f">{PASSWORD}", "~*", "+@all", "-info")
    valkey.call(
        "ACL", "SETUSER", "mute", "reset", "on", f">{PASSWORD}", "~*", "+@all", "-evalsha", "-eval"
    )
    valkey.call("ACL", "SETUSER", "app", "reset", "on", f">{PASSWORD}", *RIGHTS.split())
    hidden = bench.on(valkey.url_for(username="hides", password=PASSWORD))
    for attempt in (hidden.aopen(), hidden.next_max_id(10)):
        with pytest.raises(StoreIdentityHiddenError, match=r"ACL SETUSER <user> \+info") as caught:
            await attempt
        assert not caught.value.retryable
    with pytest.raises(StoreAuthenticationError):
        await bench.on(valkey.url_for(username="mute", password=PASSWORD)).aopen()
    for right in RIGHTS.split()[1:-1]:  # all but del, which is for set_floor
        rights = RIGHTS.replace(f"{right} ", "").split()
        valkey.call("ACL", "SETUSER", "few", "reset", "on", f">{PASSWORD}", *rights)
        few = bench.on(valkey.url_for(username="few", password=PASSWORD))
        if right in {"+eval", "+info"}:  # the script is known; and see above
            continue
        with pytest.raises(StoreAuthenticationError):
            await few.aopen()
    assert (bench.trips, valkey.call("EXISTS", bench.key)) == (0, 0)
    app = bench.on(valkey.url_for(username="app", password=PASSWORD))
    await app.aopen()
    await bench.take(app, 30)
    # Taken away later it is an outage: the root serves.
    for right in ("info", "hincrby"):
        valkey.call("ACL", "SETUSER", "app", f"-{right}")
        before = app.statistics()
        await bench.take(app, 3)
        told = app.statistics()
        assert told.cache_failures - before.cache_failures == 3
        assert told.spans == before.spans, "no span is wasted"
        valkey.call("ACL", "SETUSER", "app", f"+{right}")
        await bench.take(app, 1)
    for user in ("hides", "mute", "few", "app"):
        valkey.call("ACL", "DELUSER", user)


async def test_what_somebody_has_planted(valkey: ValkeyServer, bench: Bench) -> None:
    """A new span, or a clear error; never a repeat."""
    one = bench.on(valkey.url)
    await bench.take(one, 2)
    for field, value in (
        ("cursor", "many"),
        ("cursor", "-5"),
        ("cursor", "5"),
        ("cursor", "1e3"),
        ("cursor", "05"),
        ("cursor", ""),
        ("cursor", 2**63),
        ("last", "-1"),
        ("last", "x"),
        ("last", "12"),
        ("last", 2**64),
        ("server", "somebody else"),
        ("until", "nan"),
        ("until", "x"),
        ("claims", "x"),
        ("claims", "9" * 5000),
        ("cursor", "9" * 5000),
        ("last", "9" * 5000),
        ("cursor", "1\u0663"),
    ):
        valkey.call("HSET", bench.key, f"{field}@root", value)
        if field in {"until", "claims"}:
            valkey.call("HSET", bench.key, "claim@root", "x", "server@root", "x")
        trips = bench.trips
        await bench.take(one, 2)
        assert bench.trips == trips + 1, (field, value)
    assert one.statistics().ids_abandoned <= one.statistics().spans * 100
    for field in ("cursor", "last", "server"):
        valkey.call("HDEL", bench.key, f"{field}@root")
        await bench.take(one, 2)
    valkey.call("DEL", bench.key)
    valkey.call("SET", bench.key, "5")
    with pytest.raises(CorruptCounterError, match=r"aiocosid:.*another type"):
        await bench.on(valkey.url).next_max_id(10)
    await bench.take(one, 2)
    assert one.statistics().segments_from_root == 2
    assert valkey.call("GET", bench.key) == "5", "it is somebody else's"


async def test_black_holed_and_back(
    valkey: ValkeyServer, proxy: FaultProxy, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The root serves meanwhile, in rising order; it is told once, and Redis is asked again."""
    caplog.set_level(logging.INFO, "aiocosid")
    heard = Heard()
    one = bench.on(url_of(proxy), instrument=heard, cache_timeout=0.2)
    other = bench.on(valkey.url)
    await bench.take(one, 2)
    proxy.blackhole(requests=True, replies=True)
    assert await bench.take(one, 2) == 120
    await bench.take(other, 2)
    told = one.statistics()
    assert (told.is_cache_up, told.cache_failures, told.segments_from_root) == (False, 2, 2)
    proxy.heal()
    await bench.take(one, 2)
    await bench.take(other, 2)
    assert one.statistics().is_cache_up
    assert one.statistics().spans_behind == 1, "the span in Redis is behind what the root gave"
    assert [type(each) for each in heard] == [SpanLeased, CacheLost, CacheFound, SpanLeased]
    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warned) == 1
    assert "no answer within 0.2 s" in warned[0].getMessage()
    assert sum("answers again" in each.getMessage() for each in caplog.records) == 1


async def test_a_pause_in_which_it_is_not_asked(bench: Bench, proxy: FaultProxy) -> None:
    """And an unreachable Redis keeps nobody from opening."""
    proxy.refuse()
    one = bench.on(url_of(proxy), pause=1000.0)
    await one.aopen()
    await bench.take(one, 3)
    told = one.statistics()
    assert (told.cache_failures, told.segments_from_root, told.root_trips) == (1, 3, 3)


async def test_closed_under_a_call(proxy: FaultProxy, bench: Bench, tmp_path: Path) -> None:
    """The call ends, as with plain Redis, and opens nothing again; what comes later may."""
    (tmp_path / "ids.db").touch()
    root = SqliteStore.from_url(f"sqlite:///{tmp_path}/ids.db")
    cache = RedisStore.from_url(url_of(proxy))
    store = TieredStore(root, cache, span=1000, owns_stores=True, pause=0, cache_timeout=5)
    by_hand = bench.on(url_of(proxy))
    for closed, counter in (
        (store, store.segment_distributor(**bench.described)),
        (by_hand, by_hand),
    ):
        before = await counter.next_max_id(10)
        proxy.blackhole(requests=True)
        fetch = asyncio.create_task(counter.next_max_id(10))
        await asyncio.sleep(0)
        await closed.aclose()
        with pytest.raises(StoreUnavailableError, match="closed while the call was under way"):
            await fetch
        assert counter.statistics().root_trips == 1
        assert counter.statistics().cache_failures == 0
        assert root._backend.link._connection._client is None  # type: ignore[attr-defined]  # of its own one
        proxy.heal()
        assert await counter.next_max_id(10) > before
        await closed.aclose()


async def test_the_root_is_down(valkey: ValkeyServer, bench: Bench) -> None:
    """The span in hand lasts; then it is the root's error, and nobody has to wait for the claim."""
    one, other = bench.on(valkey.url), bench.on(valkey.url)
    await bench.take(one)
    bench.roots[0].is_down = True
    await bench.take(one, 9)
    for step in (10, 1000):
        with pytest.raises(StoreUnavailableError, match="root: unplugged"):
            await one.next_max_id(step)
    assert valkey.call("HGET", bench.key, "claim@root") is None
    await bench.take(other)
    await bench.take(one)
    assert bench.taken[-1][1] == 120


async def test_a_life_is_known_by_its_run_too(valkey: ValkeyServer, bench: Bench) -> None:
    """A server that was restarted may go on with its master_replid."""
    one = bench.on(valkey.url)
    await bench.take(one)
    run, replid = str(valkey.call("HGET", bench.key, "server@root")).split()
    for planted in (f"{run[::-1]} {replid}", f"{run} {replid[::-1]}"):
        valkey.call("HSET", bench.key, "server@root", planted)
        before = one.statistics().spans_of_another_server
        await bench.take(one)
        assert one.statistics().spans_of_another_server == before + 1


async def test_thrown_away(valkey: ValkeyServer, bench: Bench) -> None:
    """A call that nobody drives on ends at once; the claim ends by itself."""
    one = bench.on(valkey.url)
    bench.roots[0].gate = asyncio.Event()
    call = one.next_max_id(10)
    waits = call.send(None)
    while not bench.roots[0].calls:
        if waits is not None:
            waits._asyncio_future_blocking = False
            await asyncio.wait((waits,))
        else:
            await asyncio.sleep(0)
        waits = call.send(None)
    call.close()


async def test_a_call_that_was_suspended_across_a_fork(
    valkey: ValkeyServer, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its segment is the parent's."""
    one = bench.on(valkey.url)
    bench.roots[0].gate = asyncio.Event()
    fetch = asyncio.create_task(one.next_max_id(1000))
    await bench.roots[0].asked.wait()
    monkeypatch.setattr(fork, "generation", fork.generation + 1)
    monkeypatch.setattr(
        bench.memory._backend, "_fork_generation", fork.generation
    )  # it can be reached by both
    bench.roots[0].gate.set()
    with pytest.raises(ForkedError):
        await fetch
    monkeypatch.undo()


async def test_more_than_a_span(valkey: ValkeyServer, bench: Bench) -> None:
    """Comes from the root; the span is behind then."""
    one = bench.on(valkey.url)
    await bench.take(one)
    assert await bench.take(one, step=101) == 201
    assert await bench.take(one) == 211
    assert await bench.take(one, step=100) == 401, "what does not fit the rest abandons it"
    assert one.statistics().ids_abandoned == 90 + 90


async def test_a_generator_that_is_made_anew(valkey: ValkeyServer, namespace: str) -> None:
    """By its provider, which knows how far it came: the span is behind, and nothing was lost."""
    cache = RedisStore.from_url(valkey.url)
    store = TieredStore(MemoryStore(), cache, owns_stores=True, span=1000, root_name="root")
    taken: list[int] = []
    async with store, connect(store, namespace=namespace) as ids:
        for _ in range(3):
            chain = await ids.segment_chain("n", step=100)
            taken += [await chain.next_id(), *await chain.next_ids(3000)]
            await chain.aclose()
    assert taken == sorted(set(taken))


async def test_a_group_that_is_opened_anew(
    valkey: ValkeyServer, proxy: FaultProxy, namespace: str
) -> None:
    """After an outage in which its segments came from the root."""
    cache, groups = RedisStore.from_url(url_of(proxy)), ["a"]
    store = TieredStore(
        MemoryStore(), cache, owns_stores=True, span=1000, pause=0.0, root_name="root"
    )
    taken: dict[str, list[int]] = {}
    async with store, connect(store, namespace=namespace) as ids:
        by = GroupBy.key(lambda: groups[-1])
        grouped = await ids.grouped("n", group_by=by, step=10, max_groups=1)

        async def take(group: str, n: int) -> None:
            groups.append(group)
            taken.setdefault(group, []).extend(await grouped.next_ids(n))

        await take("a", 5)
        proxy.refuse()
        proxy.cut()
        await take("a", 40)
        await proxy.accept()
        for group in "bab":
            await take(group, 5)
    assert all(each == sorted(set(each)) for each in taken.values())


async def test_a_root_that_went_back(valkey: ValkeyServer, bench: Bench, namespace: str) -> None:
    """Its span is opened for nobody, not even for those who do not know."""
    one = bench.on(valkey.url)
    await bench.take(one, 15)
    bench.memory._backend._counters[f"{namespace}.n"] = 0
    valkey.call("DEL", bench.key)
    with pytest.raises(StoreRolledBackError):
        await one.next_max_id(10)
    assert valkey.call("HGET", bench.key, CURSOR) is None


async def test_two_roots_on_one_redis(valkey: ValkeyServer, namespace: str) -> None:
    """Counters of one name in two databases are two, and their spans are not mixed."""
    benches = [Bench(namespace, root_name=name) for name in ("db1/shop", "db2/shop")]
    both = [each.on(valkey.url) for each in benches]
    for _ in range(15):
        for each, one in zip(benches, both, strict=True):
            await each.take(one)
    assert [each.taken[-1][1] for each in benches] == [150, 150]
    assert [each.trips for each in benches] == [2, 2]
    for each in benches:
        await each.aclose()


async def test_near_the_last_id(valkey: ValkeyServer, bench: Bench) -> None:
    """Beyond 2^53 nothing is rounded; where no span fits, the root hands out the rest."""
    one = bench.on(valkey.url, offset=MAX_ID - 245)
    due = MAX_ID - 245
    for _ in range(24):
        due += 10
        assert await bench.take(one) == due
    with pytest.raises(IdOverflowError):
        await one.next_max_id(10)
    assert await bench.take(one, step=5) == MAX_ID
    with pytest.raises(IdOverflowError):
        await one.next_max_id(1)


async def test_a_raised_floor(valkey: ValkeyServer, proxy: FaultProxy, namespace: str) -> None:
    """Root and span; while Redis cannot be asked, it is an error, and to be repeated."""
    described: dict[str, Any] = {"namespace": namespace, "name": "n"}
    root = MemoryStore()
    async with TieredStore(root, RedisStore.from_url(url_of(proxy)), owns_stores=True) as store:
        counter = store.segment_distributor(**described)
        assert await counter.next_max_id(10) == 10
        assert (await store.set_floor(**described, above=2_000_000)).last_max_id == 2_000_000
        assert await counter.next_max_id(10) == 2_000_010
        [seen] = await store.counters(namespace=namespace)
        assert seen.last_max_id == 3_000_000
        proxy.refuse()
        proxy.cut()
        with pytest.raises(StoreUnavailableError):
            await store.set_floor(**described, above=5_000_000)
        await proxy.accept()
        assert (await store.set_floor(**described, above=5_000_000)).last_max_id == 5_000_000
        assert await counter.next_max_id(10) == 5_000_010


async def test_cancelled_at_each_turn(valkey: ValkeyServer, bench: Bench) -> None:
    """Whatever was under way: nothing is shared, and nobody waits for a claim left behind."""
    one, other = bench.on(valkey.url), bench.on(valkey.url, cache_timeout=30)
    for turns in range(40):
        if turns % 2:
            valkey.call("DEL", bench.key)
        fetch = asyncio.create_task(one.next_max_id(10))
        for _ in range(turns):
            await asyncio.sleep(0)
        fetch.cancel()
        with suppress(asyncio.CancelledError):
            bench.note(await fetch)
        assert valkey.call("HGET", bench.key, "claim@root") is None
        await bench.take(other)
    await bench.take(one)


def test_a_forked_child(valkey: ValkeyServer, namespace: str, tmp_path: Path) -> None:
    """Is refused the parent's, and shares nothing when it opens it anew."""
    (tmp_path / "ids.db").touch()
    url = f"tiered:?root=sqlite:///{tmp_path}/ids.db&cache={valkey.url}&span=5000"
    told = run_python(FORK, url, namespace)
    assert told == {"parent": [10, 20, 40], "child": ["ForkedError", 30]}


FORK = """
import asyncio, json, os, sys, warnings
from aiocosid import store_from_url
from aiocosid.errors import CosIdError

warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: a fork beside threads
url, namespace = sys.argv[1:]

async def child(store, counter):
    try:
        told = [await counter.next_max_id(10)]
    except CosIdError as error:
        told = [type(error).__name__]
    await store.aopen()
    await counter.aopen()
    told.append(await counter.next_max_id(10))
    await store.aclose()
    return told

store = store_from_url(url)
counter = store.segment_distributor(namespace=namespace, name="n")
runner = asyncio.Runner()
told = [runner.run(counter.next_max_id(10)), runner.run(counter.next_max_id(10))]
reading, writing = os.pipe()
if os.fork() == 0:
    with asyncio.Runner() as inner:
        os.write(writing, json.dumps(inner.run(child(store, counter))).encode())
    os._exit(0)
os.wait()
in_child = json.loads(os.read(reading, 1000))
told.append(runner.run(counter.next_max_id(10)))
runner.run(store.aclose())
runner.close()
print(json.dumps({"parent": told, "child": in_child}))
"""
