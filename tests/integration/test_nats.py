"""Counters and machine ids on NATS: what fails, what was changed, whose connection it is."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from unittest.mock import AsyncMock
from urllib.parse import quote

import anyio
import nkeys
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.errors import Error as NatsError

from aiocosid import SegmentId, SnowflakeId
from aiocosid.abc import MAX_ID
from aiocosid.errors import (
    CorruptMachineStateError,
    CounterNotCreatedError,
    IdOverflowError,
    InvalidArgumentError,
    MachineIdLostError,
    MachineIdQuarantineError,
    MissingExtraError,
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreNotInitializedError,
    StoreRolledBackError,
    StoreUnavailableError,
    UnsupportedByStoreError,
)
from aiocosid.machine.cells import Changes, ReadRequest
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.stores import nats as stores_nats
from aiocosid.stores.nats import BIAS, NatsBackend, NatsStore
from aiocosid.testing import settle
from tests.servers import PASSWORD, FaultProxy, NatsCluster, NatsServer, eventually, free_port

from ._snowflakes import until

pytestmark = [pytest.mark.integration]

T: Final = 1_700_000_000_000  # some time in the past, in ms
FAR: Final = 2**62  # no floor is too late

SHORT: Final = "x"  # a password


CREDENTIALS: Final = """\
-----BEGIN NATS USER JWT-----
{}
------END NATS USER JWT------

************************* IMPORTANT *************************
NKEY Seed printed below can be used to sign and prove identity.

-----BEGIN USER NKEY SEED-----
{}
------END USER NKEY SEED------
"""


class Nkey(NamedTuple):
    """A key pair: its seed, the file of the seed, and the public key."""

    seed: str
    file: Path
    public: str

    def token(self, subject: str, kind: str, **claims: Any) -> str:
        """Sign what a key may do."""
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        body = {
            "iat": 1_700_000_000,
            "iss": self.public,
            "sub": subject,
            "name": kind,
            "nats": {**claims, "type": kind, "version": 2},
        }
        parts = [_base64(json.dumps(each).encode()) for each in (head, body)]
        signed = nkeys.from_seed(bytearray(self.seed.encode())).sign(".".join(parts).encode())
        return ".".join((*parts, _base64(signed)))


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _nkey(folder: Path, name: str, kind: str = "U") -> Nkey:
    """Make a key of a user, an account or an operator."""
    prefix = {"U": 20 << 3, "A": 0, "O": 14 << 3}[kind]
    seed = nkeys.encode_seed(os.urandom(32), prefix)
    (file := folder / f"{name}.nk").write_bytes(bytes(seed) + b"\n")
    pair: Any = nkeys.from_seed(bytearray(seed))
    return Nkey(seed.decode(), file, pair.public_key.decode())


def _accepts(server: NatsServer) -> bool:
    try:
        socket.create_connection((server.host, server.port), 1.0).close()
    except OSError:
        return False
    return True


@pytest.fixture
def url(nats: NatsServer, namespace: str) -> Iterator[str]:
    """Streams of the test's own on the session's NATS; they are not there yet."""
    yield f"{nats.url}/{namespace}?timeout=10"
    for stream in (f"{namespace}_counters", f"{namespace}_cells"):
        nats.call(f"STREAM.DELETE.{stream}")


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[NatsStore]:
    """A store on them, which are there, and initialised."""
    async with NatsStore.from_url(url) as store:
        await store.create_schema(disposable=True)
        yield store


@asynccontextmanager
async def behind_proxy(
    server: NatsServer, prefix: str, *others: str, seconds: float = 1.0
) -> AsyncGenerator[tuple[FaultProxy, NatsStore]]:
    """A store on the streams, and the proxy on the way to it."""
    async with FaultProxy(server.host, server.port) as proxy:
        hosts = ",".join((f"{proxy.host}:{proxy.port}", *others))
        async with NatsStore.from_url(f"nats://{hosts}/{prefix}?timeout={seconds}") as store:
            yield proxy, store


def backend_of(store: NatsStore) -> NatsBackend:
    backend = store._backend
    assert isinstance(backend, NatsBackend)
    return backend


def machine_of(store: NatsStore, text: str, safe_guard: float = 300) -> CellMachineIdDistributor:
    interval = safe_guard / 4 if safe_guard < inf else 60.0
    return store.machine_id_distributor(
        namespace="n", instance_id=text, safe_guard=safe_guard, interval=interval
    )


async def take(machine: CellMachineIdDistributor, bits: int = 3) -> int:
    return (await machine.distribute(bits, now_ms=T, latest_ms=FAR)).machine_id


def value_of(server: NatsServer, prefix: str, name: str = "cosid.order") -> int:
    """What a counter's message says, without the bias."""
    found = server.get(f"{prefix}_counters", f"{prefix}.counter.{quote(name).replace('.', '%2E')}")
    return int(json.loads(found)["val"]) - BIAS if found else 0


@contextmanager
def old_server(version: str) -> Generator[str]:
    """A server that says of itself what one of that version does."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    facts = {"server_id": "x", "version": version, "headers": True, "max_payload": 1 << 20}

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb", buffering=0) as line:
            line.write(f"INFO {json.dumps(facts)}\r\n".encode())
            for words in line:
                if words.startswith(b"PING"):
                    line.write(b"PONG\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"nats://127.0.0.1:{port}"
    finally:
        thread.join(10)
        listener.close()


class TestServers:
    """Which are served, and what has to be there."""

    @pytest.mark.parametrize("version", ["2.9.25", "2.11.11", "2.12.1", "2.12.0", "1.14.2"])
    async def test_an_old_server_is_refused(self, version: str) -> None:
        """By name, whatever is asked."""
        with old_server(version) as url:
            async with NatsStore.from_url(url) as store:
                for call in (
                    store.create_schema(disposable=True),
                    store.segment_distributor(name="order").next_max_id(1),
                    store.is_initialized(),
                ):
                    with pytest.raises(UnsupportedByStoreError, match=rf"v{version}.*2\.12\.2"):
                        await call

    async def test_a_version_that_is_none(self) -> None:
        with old_server("main") as url:
            async with NatsStore.from_url(url) as store:
                with pytest.raises(StoreError, match="main is not a valid"):
                    await store.counters()

    async def test_without_streams(self, nats: NatsServer, url: str, namespace: str) -> None:
        """What creates them is named; one that goes away later is missed as well."""
        async with NatsStore.from_url(url) as store:
            counter = store.segment_distributor(name="order")
            machine = machine_of(store, "a")
            for call in (
                *(counter.next_max_id(1), store.counters(), take(machine), store.machines()),
                *(store.set_floor(name="order", above=1), store.initialize()),
            ):
                with pytest.raises(SchemaMissingError, match=r"stream .*aiocosid init --store"):
                    await call
            await store.create_schema(disposable=True)
            assert await counter.next_max_id(10) == 10
            nats.call(f"STREAM.DELETE.{namespace}_counters")
            with pytest.raises(SchemaMissingError, match=f"stream '{namespace}_counters'"):
                await counter.next_max_id(10)
            await store.create_schema()
            with pytest.raises(StoreRolledBackError):
                await counter.next_max_id(10)
            with pytest.raises(CounterNotCreatedError):  # nor for a process that starts now
                await store.segment_distributor(name="order").next_max_id(10)
            assert await store.counters() == []

    async def test_creating_them_does_not_vouch(self, url: str) -> None:
        """The server does not remember what was deleted: no call marks the store, nor any later."""
        stores = [NatsStore.from_url(url) for _ in range(8)]
        created = await asyncio.gather(*(backend_of(each).create_schema() for each in stores))
        assert created == [False] * 8
        assert not await stores[0].is_initialized()
        await stores[0].create_schema()
        assert not await stores[0].is_initialized()
        with pytest.raises(StoreNotInitializedError):
            await take(machine_of(stores[0], "a"))
        for each in stores:
            await each.aclose()

    async def test_streams_of_somebody_else(
        self, nats: NatsServer, url: str, namespace: str
    ) -> None:
        """Cells whose sequences might come again are refused."""
        subjects = [f"{namespace}.cell.>", f"{namespace}.compared"]
        stream = f"{namespace}_cells"
        nats.call(
            f"STREAM.CREATE.{stream}",
            name=stream,
            subjects=subjects,
            allow_atomic=True,
            allow_direct=True,
            max_msgs_per_subject=1,
        )
        async with NatsStore.from_url(url) as store:
            await store.create_schema()
            with pytest.raises(StoreError, match="not created by 'aiocosid init"):
                await store.initialize()

    async def test_replicas(self, url: str) -> None:
        """More than one server can hold are refused."""
        async with NatsStore.from_url(f"{url}&replicas=3") as store:
            with pytest.raises(StoreError, match="replicas"):
                await store.create_schema(disposable=True)

    async def test_a_prefix_of_ones_own(self, nats: NatsServer, url: str, namespace: str) -> None:
        async with NatsStore.from_url(url) as store, NatsStore.from_url(nats.url) as other:
            await store.create_schema(disposable=True)
            await other.create_schema(disposable=True)
            assert await store.segment_distributor(namespace=namespace, name="x").next_max_id(5)
            assert await other.counters(namespace=namespace) == []
            assert namespace in repr(store)
            assert "aiocosid" in repr(other)


class TestCounters:
    """One message each, which the server adds to."""

    @pytest.mark.parametrize("offset", [0, 10**6])
    async def test_thirty_two_begin_at_once(self, url: str, offset: int) -> None:
        """The counter is created once, at its offset."""
        stores = [NatsStore.from_url(url) for _ in range(32)]
        await stores[0].create_schema(disposable=True)
        counters = [each.segment_distributor(name="order", offset=offset) for each in stores]
        found = await asyncio.gather(*(each.next_max_id(100) for each in counters))
        assert sorted(found) == [offset + 100 * n for n in range(1, 33)]
        for each in stores:
            await each.aclose()

    async def test_a_counter_deleted_under_a_generator(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """It ends, and leaves no counter below what it has issued."""
        counter = store.segment_distributor(name="order", step=10)
        async with SegmentId(counter) as generator:
            assert await generator.next_id() == 1
            nats.purge(f"{namespace}_counters")
            with pytest.raises(StoreRolledBackError):
                await generator.next_ids(1000)
        assert await store.counters() == []
        # What its increment has left counts for nobody, and a new one is no lower for it.
        fresh = store.segment_distributor(name="order", offset=500, step=10)
        first = await fresh.next_max_id(10)
        assert first >= 510
        assert await fresh.next_max_id(10) == first + 10

    async def test_those_who_create_it_anew_share_nothing(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """Whatever the increments of those who missed it leave between."""
        late = store.segment_distributor(name="order", step=7)
        for _ in range(20):
            await late.next_max_id(7)
            nats.purge(f"{namespace}_counters")
            fresh = [store.segment_distributor(name="order") for _ in range(6)]

            async def miss(late: Any = late) -> None:
                with pytest.raises(StoreRolledBackError):
                    await late.next_max_id(3)

            *found, _ = await asyncio.gather(*(each.next_max_id(50) for each in fresh), miss())
            ends = sorted(each for each in found if each is not None)
            assert all(b - a >= 50 for a, b in pairwise([0, *ends]))
            late = store.segment_distributor(name="order", step=7)

    async def test_floors(self, store: NatsStore) -> None:
        """Many at once raise it exactly, none lowers it, and a missing one is made if wished."""
        floors = await asyncio.gather(
            *(store.set_floor(name="order", above=10**12) for _ in range(16))
        )
        assert {each.last_max_id for each in floors} == {10**12}
        assert (await store.set_floor(name="order", above=5)).last_max_id == 10**12
        assert await backend_of(store).raise_to("cosid.none", 5, create=False) is None
        assert [each.namespaced_name for each in await store.counters()] == ["cosid.order"]
        assert await store.segment_distributor(name="order").peek() == 10**12
        assert await store.segment_distributor(name="none").peek() is None

    async def test_the_last_ids(self, nats: NatsServer, store: NatsStore, namespace: str) -> None:
        """The highest id is handed out; what would pass it writes nothing."""
        await store.set_floor(name="order", above=MAX_ID - 20)
        counter = store.segment_distributor(name="order")
        assert [await counter.next_max_id(10) for _ in range(2)] == [MAX_ID - 10, MAX_ID]
        with pytest.raises(IdOverflowError):
            await counter.next_max_id(10)
        assert value_of(nats, namespace) == MAX_ID

    async def test_a_floor_under_many_increments(self, store: NatsStore) -> None:
        """Nobody is given what is below, and no range twice."""
        counters = [store.segment_distributor(name="order") for _ in range(8)]
        ranges: list[int] = []

        async def draw(counter: Any) -> None:
            ranges.extend([await counter.next_max_id(10) for _ in range(20)])

        async def lift() -> None:
            for above in range(1000, 6000, 1000):
                floor = await store.set_floor(name="order", above=above)
                assert floor.last_max_id >= above

        await asyncio.gather(*map(draw, counters), lift())
        ends = sorted(ranges)
        assert all(b - a >= 10 for a, b in pairwise(ends))

    async def test_a_segment_is_one_trip(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """But for the first."""
        async with behind_proxy(nats, namespace) as (proxy, near):
            counter = near.segment_distributor(name="order")
            await counter.next_max_id(10)
            for _ in range(3):
                before = proxy.requests
                await counter.next_max_id(10)
                assert proxy.requests == before + 1

    async def test_no_counter_is_listed_by_a_replica_that_lags(
        self, store: NatsStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is asked again until it has what the leader has."""
        await store.set_floor(name="order", above=7)
        asked = 0
        last = stores_nats._last

        async def ahead(client: Client, stream: str, subject: str) -> Any:
            nonlocal asked
            asked += 1
            found = await last(client, stream, subject)
            return found._replace(sequence=found.sequence + 1)

        monkeypatch.setattr(stores_nats, "_last", ahead)
        reading = asyncio.create_task(store.counters())
        await settle()
        assert not reading.done()
        monkeypatch.undo()
        await store.set_floor(name="order", above=9)
        assert [each.last_max_id for each in await reading] == [9]
        assert asked == 1


async def test_a_reply_without_its_place_is_refused() -> None:
    """Seen once while a leader was killed: the server had left out the sequence."""

    class Torn:
        """One message lies there, and comes without all of its headers."""

        def new_inbox(self) -> str:
            return "inbox"

        async def request(self, *_: Any, **__: Any) -> Any:
            message = {"seq": 7, "time": "2026-01-02T03:04:05.678901234Z"}
            return SimpleNamespace(data=json.dumps({"message": message}).encode())

        async def subscribe(self, inbox: str, cb: Callable[[Any], Any]) -> Any:
            self.tell = cb
            return SimpleNamespace(unsubscribe=AsyncMock())

        async def publish(self, *_: Any) -> None:
            await self.tell(SimpleNamespace(headers={"Nats-Subject": "a.b"}, data=b"x"))

    client: Any = Torn()
    with pytest.raises(NatsError, match=r"incomplete reply: .*a\.b"):
        await stores_nats._scan(client, "stream", "a.>")


class TestFaults:
    """A lost reply costs a range; nothing is granted twice."""

    async def test_a_lost_reply(self, nats: NatsServer, store: NatsStore, namespace: str) -> None:
        """The server has acted, and the connection is reset: the range is lost, and no other."""
        async with behind_proxy(nats, namespace) as (proxy, near):
            counter = near.segment_distributor(name="order")
            granted = await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
            proxy.swallow_replies(1, matching=b'"val"')
            with pytest.raises(StoreUnavailableError):
                await counter.next_max_id(10)
            assert proxy.swallowed == 1
            assert value_of(nats, namespace) == granted + 10
            assert await counter.next_max_id(10) == granted + 20

    async def test_a_lost_first_reply(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """The counter that was created is there, at its offset; no range is lost with it."""
        async with behind_proxy(nats, namespace) as (proxy, near):
            await eventually(near.counters, StoreUnavailableError)
            counter = near.segment_distributor(name="order", offset=100)
            proxy.swallow_replies(1, matching=b'"val"')
            with pytest.raises(StoreUnavailableError):
                await counter.next_max_id(10)
            assert await counter.next_max_id(10) == 110

    async def test_a_black_hole(self, nats: NatsServer, store: NatsStore, namespace: str) -> None:
        """It ends in time, and nothing that was sent into it comes late as another's reply."""
        async with behind_proxy(nats, namespace, seconds=0.5) as (proxy, near):
            counter = near.segment_distributor(name="order")
            granted = await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
            for way in ({"requests": True}, {"replies": True}):
                proxy.blackhole(**way)
                with pytest.raises(StoreUnavailableError, match="no answer in time"):
                    await counter.next_max_id(10)
                proxy.heal()
                later = await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
                assert later >= granted + 10
                granted = later

    async def test_a_silent_connection_is_given_up(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """Though nobody has closed it; then another server is asked."""
        async with behind_proxy(nats, namespace, nats.address, seconds=0.5) as (proxy, near):
            counter = near.segment_distributor(name="order")
            await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
            proxy.blackhole(requests=True, replies=True)
            for _ in range(3):
                again = lambda: counter.next_max_id(10)  # noqa: E731 - for a moment
                assert await eventually(again, StoreUnavailableError, deadline=10)

    async def test_one_of_several_is_down(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """Within the same call."""
        for _ in range(8):
            url = f"nats://127.0.0.1:{free_port()},{nats.address}/{namespace}?timeout=10"
            async with NatsStore.from_url(url) as near:
                assert await near.segment_distributor(name="order").next_max_id(1)

    async def test_nobody_listens(self) -> None:
        """The reason is told."""
        async with NatsStore.from_url(f"nats://127.0.0.1:{free_port()}") as store:
            with pytest.raises(StoreUnavailableError, match=r"(?i)connect"):
                await store.counters()

    async def test_a_cancelled_call(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """Whether the server has acted or not, the next one gets a reply of its own."""
        async with behind_proxy(nats, namespace, seconds=10) as (proxy, near):
            counter = near.segment_distributor(name="order")
            other = near.segment_distributor(name="far", offset=10**12)
            await asyncio.gather(counter.next_max_id(10), other.next_max_id(10))
            for watch in (proxy.next_request, proxy.next_reply):
                seen = watch()
                call = asyncio.create_task(counter.next_max_id(10))
                await seen
                call.cancel()
                before = value_of(nats, namespace) - 10  # it may be under way
                granted = await asyncio.gather(other.next_max_id(10), counter.next_max_id(10))
                assert call.cancelled()
                assert granted[0] > 10**12 > granted[1] > before

    async def test_a_cancel_scope_while_connecting(self, nats: NatsServer, namespace: str) -> None:
        """No socket stays open."""
        async with behind_proxy(nats, namespace, seconds=10) as (proxy, near):
            proxy.blackhole(replies=True)
            with anyio.move_on_after(0.1) as scope:
                await near.counters()
            assert scope.cancelled_caught
            proxy.heal()

            await until(lambda: proxy.open_connections == 0)

    async def test_closing_under_a_call(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """Who waits is told at once; then it connects anew."""
        async with behind_proxy(nats, namespace, seconds=30) as (proxy, near):
            counter = near.segment_distributor(name="order")
            await counter.next_max_id(10)
            proxy.blackhole(replies=True)
            seen = proxy.next_request()
            calls = [asyncio.create_task(counter.next_max_id(10)) for _ in range(3)]
            await seen
            await near.aclose()
            for call in calls:
                with pytest.raises(StoreUnavailableError, match="closed"):
                    await call
            proxy.heal()
            assert await counter.next_max_id(10) > 10

    async def test_a_server_that_dies_and_comes_back(
        self, nats_factory: Callable[..., NatsServer]
    ) -> None:
        """With all that it had; emptied, it is noticed."""
        server = nats_factory()
        async with NatsStore.from_url(server.url) as store:
            await store.create_schema(disposable=True)
            counter, machine = store.segment_distributor(name="order"), machine_of(store, "a")
            assert await counter.next_max_id(10) == 10
            number = await take(machine)
            server.kill()
            for _ in range(3):
                with pytest.raises(StoreUnavailableError):
                    await counter.next_max_id(10)
            server.start()
            assert await eventually(lambda: counter.next_max_id(10), StoreUnavailableError) == 20
            await machine.renew(number, now_ms=T + 1, fence_ms=T + 1)
            assert await store.is_initialized()
            server.wipe()
            with pytest.raises(SchemaMissingError):
                await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
            await store.create_schema()
            with pytest.raises(StoreRolledBackError):
                await counter.next_max_id(10)
            with pytest.raises(CounterNotCreatedError):  # nor for a process that starts now
                await store.segment_distributor(name="order").next_max_id(10)


class WithoutJetStream(NatsServer):
    """A server, or an account of it, that has JetStream switched off."""

    def __init__(self, accounts: str = "") -> None:
        super().__init__(member="plain")
        self.accounts = accounts

    def prepare(self) -> None:
        (self.directory / "accounts.conf").write_text(self.accounts)

    def argv(self) -> Sequence[str | Path]:
        words = [each for each in super().argv() if self.accounts or each != "--jetstream"]
        return [*words, "-c", self.directory / "accounts.conf"]

    def is_ready(self) -> bool:
        with suppress(OSError):
            socket.create_connection((self.host, self.port), 1).close()
            return True
        return False


ACCOUNTS: Final = """accounts {
    A { users = [{user: a, password: b}] }
    B { jetstream: enabled, users = [{user: c, password: d}] }
}
"""


@pytest.mark.parametrize(("accounts", "login"), [("", ""), (ACCOUNTS, "a:b@")])
async def test_jetstream_is_off(accounts: str, login: str) -> None:
    """It is not retried: somebody has to switch it on."""
    with WithoutJetStream(accounts) as server:
        url = server.url.replace("://", f"://{login}")
        async with NatsStore.from_url(url) as store:
            for call in (
                store.create_schema,
                store.counters,
                partial(store.segment_distributor(name="order").next_max_id, 1),
            ):
                with pytest.raises(UnsupportedByStoreError, match="JetStream is off") as caught:
                    await call()
                assert not caught.value.retryable
                assert caught.value.remedy.startswith("switch JetStream on")


class TestLogin:
    """Who may, and by which certificate."""

    async def test_password_and_tls(self, nats_factory: Callable[..., NatsServer]) -> None:
        server = nats_factory(password=PASSWORD, tls=True)
        assert server.certificates is not None
        trust = f"?timeout=5&ssl_ca_certs={server.certificates.ca}"
        async with NatsStore.from_url(server.url + trust) as store:
            await store.create_schema(disposable=True)
            assert await store.segment_distributor(name="order").next_max_id(10) == 10
            for secret in (PASSWORD, server.quoted_password):
                assert secret not in repr(store)
        for wrong in ("x", ""):
            login = server.url.replace(server.quoted_password, wrong or "y") + trust
            async with NatsStore.from_url(login) as store:
                with pytest.raises(StoreAuthenticationError, match=r"(?i)authorization"):
                    await store.counters()
        stranger = f"{server.url}?timeout=5&ssl_ca_certs={server.certificates.stranger_ca}"
        async with NatsStore.from_url(stranger) as store:
            with pytest.raises(StoreError, match="not trusted"):
                await store.counters()
        with pytest.raises(InvalidArgumentError, match="certificates"):
            NatsStore.from_url(f"{server.url}?ssl_ca_certs={server.certificates.key}")

    async def test_nkeys(self, nats_factory: Callable[..., NatsServer], tmp_path: Path) -> None:
        """A login is signed; a refused one is not tried again; a damaged file is no outage."""
        user, stranger, config = _nkey(tmp_path, "user"), _nkey(tmp_path, "x"), tmp_path / "conf"
        users = [{"nkey": user.public}, {"user": "app", "password": SHORT}]
        config.write_text(f"authorization: {json.dumps({'users': users})}\n")
        server = nats_factory("--config", str(config), password=SHORT)
        url = f"nats://{server.address}?timeout=5&nkey="
        async with NatsStore.from_url(f"{url}{user.file}") as store:
            await store.create_schema(disposable=True)
            assert await store.segment_distributor(name="order").next_max_id(10) == 10
            assert user.seed not in f"{store!r}{store._backend!r}"
        async with NatsStore.from_url(f"{url}{stranger.file}") as store:
            with pytest.raises(StoreAuthenticationError, match=r"(?i)authorization"):
                await store.counters()

    async def test_credentials(
        self,
        nats_factory: Callable[..., NatsServer],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A user's token of an account, as `nsc` writes it."""
        operator, account = _nkey(tmp_path, "o", "O"), _nkey(tmp_path, "a", "A")
        user, config = _nkey(tmp_path, "u"), tmp_path / "conf"
        kinds = ("subs", "data", "payload", "conn", "imports", "disk_storage", "streams")
        unlimited = dict.fromkeys(kinds, -1)
        of_account = operator.token(account.public, "account", limits=unlimited)
        system = _nkey(tmp_path, "s", "A").public
        of_system = operator.token(system, "account", limits={"conn": -1})
        config.write_text(
            f"operator: {operator.token(operator.public, 'operator')}\nresolver: MEMORY\n"
            f"resolver_preload: {{ {account.public}: {of_account}, {system}: {of_system} }}\n"
            f"system_account: {system}\n"
        )
        monkeypatch.setattr(NatsServer, "is_ready", _accepts)  # the fixture cannot log in
        server = nats_factory("--config", str(config))
        limits = dict.fromkeys(("subs", "data", "payload"), -1)
        for signer, newline in ((account, "\n"), (account, "\r\n"), (operator, "\n")):
            token = signer.token(user.public, "user", pub={}, sub={}, **limits)
            text = CREDENTIALS.format(token, user.seed).replace("\n", newline)
            (tmp_path / "user.creds").write_text(text, newline="")
            url = f"nats://{server.address}?timeout=5&creds={tmp_path}/user.creds"
            async with NatsStore.from_url(url) as store:
                if signer is account:
                    await store.create_schema(disposable=True)
                    await store.segment_distributor(name="order").next_max_id(10)
                else:
                    with pytest.raises(StoreAuthenticationError, match=r"(?i)authorization"):
                        await store.counters()

    def test_files_of_keys(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A damaged one is refused at once; the driver would wait without end."""
        user, operator = _nkey(tmp_path, "u"), _nkey(tmp_path, "o", "O")
        (damaged := tmp_path / "damaged").write_text(
            user.seed[:9] + "AB"[user.seed[9] == "A"] + user.seed[10:]
        )
        (empty := tmp_path / "empty").touch()
        (binary := tmp_path / "binary").write_bytes(b"\xff\x00")
        for path in (damaged, empty, binary, operator.file, tmp_path / "missing", tmp_path, ""):
            for option in ("nkey", "creds"):
                with pytest.raises(InvalidArgumentError, match=f"a readable file .* for {option}"):
                    NatsStore.from_url(f"nats://host?{option}={path}")
        with pytest.raises(InvalidArgumentError, match="JWT"):
            NatsStore.from_url(f"nats://host?creds={user.file}")
        with pytest.raises(InvalidArgumentError, match="only one of"):
            NatsStore.from_url(f"nats://app:x@host?nkey={user.file}")
        monkeypatch.setattr(stores_nats, "find_spec", {}.get)
        with pytest.raises(MissingExtraError, match="nkeys"):
            NatsStore.from_url(f"nats://host?nkey={user.file}")

    async def test_a_server_without_tls_hears_no_password(self) -> None:
        """Who asks for TLS does not go on in plain text."""
        heard: list[bytes] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b'INFO {"version":"2.15.1","headers":true}\r\n')
            while data := await reader.read(1000):
                heard.append(data)
                writer.write(b"PONG\r\n")
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            for login in (f"app:{quote(PASSWORD, safe='')}@", ""):
                url = f"nats+tls://{login}127.0.0.1:{port}?timeout=5"
                async with NatsStore.from_url(url) as store:
                    with pytest.raises(StoreError, match="secure connection") as told:
                        await store.counters()
                    assert not told.value.retryable
        assert PASSWORD.encode() not in b"".join(heard)

    async def test_rights(
        self,
        nats_factory: Callable[..., NatsServer],
        tmp_path: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Those of the documentation are enough; what is denied is an error that says so."""
        config = tmp_path / "nats.conf"
        calls = ("STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET")
        rights = {
            "publish": [
                "aiocosid.>",
                *(f"$JS.API.{call}.aiocosid_counters" for call in calls),
                *(f"$JS.API.{call}.aiocosid_cells" for call in calls),
                "$JS.API.INFO",  # asked by the fixture
            ],
            "subscribe": ["_INBOX.>"],
        }
        few = {"publish": ["$JS.API.>"], "subscribe": ["_INBOX.>"]}
        users = [
            {"user": "init", "password": SHORT},
            {"user": "app", "password": SHORT, "permissions": rights},
            {"user": "few", "password": SHORT, "permissions": few},
        ]
        config.write_text(f"authorization: {json.dumps({'users': users})}\n")
        server = nats_factory("--config", str(config), password=SHORT)
        server_url = server.url.replace("app:x@", "{}:x@")
        async with NatsStore.from_url(server_url.format("init")) as store:
            await store.create_schema(disposable=True)
        async with NatsStore.from_url(server_url.format("app")) as store:
            assert await store.segment_distributor(name="order").next_max_id(10) == 10
            machine = machine_of(store, "a")
            await machine.renew(await take(machine), now_ms=T + 1, fence_ms=T)
            assert len(await store.counters()) == len(await store.machines()) == 1
            monkeypatch.setattr("aiocosid.stores.nats.CREATE_TIMEOUT", 0.5)
            with pytest.raises(StoreAuthenticationError, match=r"(?i)permissions violation"):
                await store.create_schema(disposable=True)
        async with NatsStore.from_url(server_url.format("few")) as store:
            with pytest.raises(StoreAuthenticationError, match=r"(?i)permissions violation"):
                await store.segment_distributor(name="order").next_max_id(10)


class TestClients:
    """A user's own client."""

    async def test_it_stays_open(self, nats: NatsServer, url: str, namespace: str) -> None:
        client = Client()
        await client.connect(nats.url)
        async with NatsStore(client, prefix=namespace) as store:
            await store.create_schema(disposable=True)
            counter = store.segment_distributor(name="order")
            assert await counter.next_max_id(10) == 10
            machine = machine_of(store, "a")
            await machine.renew(await take(machine), now_ms=T + 1, fence_ms=T)
        assert client.is_connected
        assert await counter.next_max_id(10) == 20
        await client.close()
        with pytest.raises(StoreUnavailableError, match="interrupted"):
            await counter.next_max_id(10)

    async def test_what_is_no_client(self) -> None:
        for wrong in (None, "nats://localhost", 5):
            with pytest.raises(InvalidArgumentError, match=r"nats\.aio\.client\.Client"):
                NatsStore(wrong)  # type: ignore[arg-type]  # that is the point
        for prefix in ("", "a.b", "a/b", "*", "x" * 65, "a b", "é"):
            with pytest.raises(InvalidArgumentError, match="letters, digits"):
                NatsStore(Client(), prefix=prefix)
        for replicas in (0, 6):
            with pytest.raises(InvalidArgumentError, match="replicas"):
                NatsStore(Client(), replicas=replicas)

    async def test_nothing_is_sent_on_an_interrupted_one(self, nats: NatsServer, url: str) -> None:
        """The driver would send it later."""
        async with NatsStore.from_url(url) as own, FaultProxy(nats.host, nats.port) as proxy:
            await own.create_schema(disposable=True)
            client = Client()
            await client.connect(f"nats://{proxy.host}:{proxy.port}", reconnect_time_wait=1)
            prefix = url.rpartition("/")[2].partition("?")[0]
            counter = NatsStore(client, prefix=prefix).segment_distributor(name="order")
            assert await counter.next_max_id(10) == 10
            proxy.refuse()
            proxy.cut()

            async def is_refused() -> bool:
                with pytest.raises(StoreUnavailableError, match="interrupted"):
                    await counter.next_max_id(10)
                return True

            await eventually(is_refused, BaseException)  # type: ignore[arg-type]  # pytest's own
            before = value_of(nats, prefix)
            for _ in range(5):
                await is_refused()
            await proxy.accept()
            again = await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
            assert again == before + 10
            await client.close()


class TestCells:
    """Machine ids: one subject each, compared by their last sequences."""

    async def test_a_renewal_is_one_trip(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """And conflicts with nobody's hand-out, renewal or release."""
        async with behind_proxy(nats, namespace, seconds=10) as (proxy, near):
            owner = machine_of(near, "a")
            number = await take(owner)
            for turn in range(4):
                before = proxy.requests
                reply = proxy.next_reply()
                await owner.renew(number, now_ms=T + turn, fence_ms=T + turn)
                await reply
                assert proxy.requests == before + 1
                other = machine_of(store, f"b{turn}")
                theirs = await take(other)
                await other.renew(theirs, now_ms=T, fence_ms=T)
                if turn % 2:
                    await other.release(theirs, last_ms=T)

    async def test_a_lost_reply_of_a_commit(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """The hand-out is repeated and finds its own id; a renewal is repeated."""
        async with behind_proxy(nats, namespace, seconds=10) as (proxy, near):
            await eventually(near.counters, StoreUnavailableError)
            owner = machine_of(near, "a")
            proxy.swallow_replies(1, matching=b'"batch"')
            with pytest.raises(StoreUnavailableError):
                await take(owner)
            assert await take(owner) == 0
            assert len(await store.machines()) == 1
            proxy.swallow_replies(1, matching=b'"batch"')
            with pytest.raises(StoreUnavailableError):
                await owner.renew(0, now_ms=T + 5, fence_ms=T + 5)
            await owner.renew(0, now_ms=T + 6, fence_ms=T + 4)
            assert [each.fence_ms for each in await store.machines()] == [T + 5]
            assert proxy.swallowed == 2

    async def test_the_clock_is_the_servers(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """A renewal is as late as its message; what else is written leaves that as it was."""
        backend = backend_of(store)
        owner = machine_of(store, "a")
        number = await take(owner)
        snapshot = await backend.read("n", ReadRequest("a", number))
        seen_ms = snapshot.slots[number].seen_ms
        assert 0 <= snapshot.now_ms - seen_ms < 60_000
        slot = snapshot.slots[number]
        while (await backend.read("n", ReadRequest("a", number))).now_ms <= seen_ms:
            assert await backend.commit(snapshot, Changes(slots={number: slot}))
        assert (await backend.read("n", ReadRequest("a", number))).slots[number].seen_ms == seen_ms
        await owner.renew(number, now_ms=1, fence_ms=1)
        assert (await backend.read("n", ReadRequest("a", number))).slots[number].seen_ms > seen_ms

    async def test_what_is_removed_goes_away_by_itself(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """An hour later: others may still compare it."""
        owner = machine_of(store, "a")
        number = await take(owner)
        await owner.release(number, last_ms=T)
        subject = f"{namespace}.cell.ns.n.own.a"
        assert nats.request(f"$JS.API.DIRECT.GET.{namespace}_cells.{subject}").headers[
            "Nats-TTL"
        ] in {"1h", "3600"}
        assert nats.get(f"{namespace}_cells", f"{namespace}.cell.ns.n.id.00000000")

    @pytest.mark.parametrize("bad", ["x", "{}", "\n", "x\n5", '{"instance":5}\n5'])
    async def test_a_damaged_cell(
        self, nats: NatsServer, store: NatsStore, namespace: str, bad: str
    ) -> None:
        """It is named, and left as it is."""
        owner = machine_of(store, "a")
        await take(owner)
        for key in ("ns.n.id.00000000", "ns.n.space", "store.marker", "store.count.n.0"):
            subject = f"{namespace}.cell.{key}"
            sound = nats.get(f"{namespace}_cells", subject)
            assert sound is not None
            nats.put(subject, bad.encode())
            with pytest.raises(CorruptMachineStateError, match=key.replace(".", r"\.")):
                await take(machine_of(store, "b"))
            assert nats.get(f"{namespace}_cells", subject) == bad.encode()
            nats.put(subject, sound)
        assert await take(machine_of(store, "b")) == 1

    async def test_many_seats_and_another_width(
        self, store: NatsStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """More than a batch holds are compared as a whole: who takes one meanwhile is found out."""
        monkeypatch.setattr("aiocosid.stores.nats.MOST_SEATS", 2)
        owners = [machine_of(store, text) for text in "abcd"]
        for number, each in enumerate(owners):
            assert await take(each) == number
        for number, each in enumerate(owners):
            await each.release(number, last_ms=T)
        read, calls = NatsBackend.read, 0

        async def interrupted(backend: NatsBackend, name: str, need: ReadRequest) -> Any:
            nonlocal calls
            found = await read(backend, name, need)
            calls += 1
            if calls == 1:
                monkeypatch.setattr(NatsBackend, "read", read)
                assert await take(owners[0]) == 0
                await owners[0].release(0, last_ms=T)
                monkeypatch.setattr(NatsBackend, "read", interrupted)
            return found

        monkeypatch.setattr(NatsBackend, "read", interrupted)
        await store.set_machine_bits(namespace="n", bits=4)
        assert calls == 2
        assert await store.machine_bits(namespace="n") == 4


class TestLosses:
    """What a store that forgot, or was changed underneath, leads to."""

    @pytest.mark.parametrize("below", ["ns.n.>", "ns.n.id.*", "ns.n.id.00000000"])
    async def test_cells_that_vanish_under_the_marker(
        self, nats: NatsServer, store: NatsStore, namespace: str, below: str
    ) -> None:
        """A quarantine begins; the owner asserts its id, and nobody new has it."""
        owner = machine_of(store, "a")
        number = await take(owner)
        nats.purge(f"{namespace}_cells", f"{namespace}.cell.{below}")
        with pytest.raises(MachineIdQuarantineError):
            await take(machine_of(store, "b"))
        await owner.reassert(number, now_ms=T + 1, fence_ms=T + 1)
        with pytest.raises(MachineIdQuarantineError):
            await take(machine_of(store, "b"))
        held = [each.instance_id for each in await store.machines()]
        assert held == ["a"]

    @pytest.mark.parametrize("way", ["purged", "recreated"])
    async def test_a_stream_that_was_emptied(
        self, nats: NatsServer, store: NatsStore, namespace: str, way: str
    ) -> None:
        """By a purge, or deleted and made anew: the old owner's renewal hits nobody else's cell."""
        owner = machine_of(store, "a")
        number = await take(owner)
        if way == "purged":
            nats.purge(f"{namespace}_cells")
        else:
            nats.call(f"STREAM.DELETE.{namespace}_cells")
            with pytest.raises(SchemaMissingError):
                await owner.renew(number, now_ms=T, fence_ms=T)
            assert not await backend_of(store).create_schema()
        with pytest.raises(MachineIdQuarantineError):
            await owner.renew(number, now_ms=T + 1, fence_ms=T + 1)
        await owner.reassert(number, now_ms=T + 2, fence_ms=T + 2)
        with pytest.raises(MachineIdQuarantineError):
            await take(machine_of(store, "b"))
        await store.initialize(confirm_no_holders=True)
        assert await take(machine_of(store, "b")) == 1

    async def test_initialised_anew_under_an_owner(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """A stream that was made anew, where another has the id by now: the old owner is told."""
        owner = machine_of(store, "a")
        number = await take(owner)
        nats.call(f"STREAM.DELETE.{namespace}_cells")
        await store.create_schema(disposable=True)
        assert await take(machine_of(store, "b")) == number
        with pytest.raises(MachineIdLostError, match="b holds it"):
            await owner.renew(number, now_ms=T + 1, fence_ms=T + 1)

    async def test_a_generator_on_an_emptied_stream(
        self, nats: NatsServer, store: NatsStore, namespace: str
    ) -> None:
        """It keeps its id, for which nobody else is a candidate."""
        machine = store.machine_id_distributor(namespace="n", interval=0.1, safe_guard=5)
        async with SnowflakeId(machine) as generator:
            first = await generator.next_id()
            nats.purge(f"{namespace}_cells")

            async def is_asserted() -> bool:
                return bool(await store.machines(namespace="n"))

            await eventually(is_asserted)
            assert await generator.next_id() > first
            with pytest.raises(MachineIdQuarantineError):
                await take(machine_of(store, "b"), 10)

    async def test_an_older_state_is_noticed_by_the_next_renewal(
        self, nats_factory: Callable[..., NatsServer], tmp_path: Any
    ) -> None:
        """The files of a server, put back: who was handed an id since has lost it."""
        server = nats_factory()
        async with NatsStore.from_url(server.url) as store:
            await store.create_schema(disposable=True)
            early, late = machine_of(store, "a"), machine_of(store, "b")
            counter = store.segment_distributor(name="order")
            assert (await take(early), await counter.next_max_id(10)) == (0, 10)
            server.stop()
            copy = tmp_path / "copy"
            server.data.rename(copy)
            _copy(copy, server.data)
            server.start()
            assert await eventually(lambda: take(late), StoreUnavailableError) == 1
            assert await counter.next_max_id(10) == 20
            server.stop()
            server.data.rename(tmp_path / "newer")
            _copy(copy, server.data)
            server.start()

            async def renew() -> None:
                await late.renew(1, now_ms=T + 1, fence_ms=T + 1)

            with pytest.raises(MachineIdLostError, match="no instance holds it"):
                await eventually(renew, StoreUnavailableError)
            await early.renew(0, now_ms=T + 1, fence_ms=T + 1)
            with pytest.raises(StoreRolledBackError):
                await counter.next_max_id(10)


def _copy(source: Any, target: Any) -> None:
    import shutil

    shutil.copytree(source, target)


@pytest.mark.stress
class TestClusters:
    """Three members, of which one is behind, or leads no more."""

    async def test_a_replica_that_lags_leads_to_no_hand_out(
        self, nats_cluster: NatsCluster
    ) -> None:
        """One that was stopped is asked again until it has what the leader has."""
        async with NatsStore.from_url(f"{nats_cluster.url}?timeout=15") as store:
            await store.create_schema(disposable=True)
            for stream in ("aiocosid_counters", "aiocosid_cells"):
                info = nats_cluster.call(f"STREAM.INFO.{stream}")
                assert info["config"]["num_replicas"] == 3
            leader = nats_cluster.leader("aiocosid_cells")
            behind = next(each for each in nats_cluster.members if each is not leader)
            near = NatsStore.from_url(f"nats://{behind.address}?timeout=15")
            first = machine_of(near, "first")
            assert await take(first, 5) == 0
            async with NatsStore.from_url(f"nats://{leader.address}?timeout=15") as ahead:
                behind.pause()
                owners = [machine_of(ahead, f"i{number}") for number in range(10)]
                numbers = [await take(each, 5) for each in owners]
                for turn in range(20):
                    for each, number in zip(owners, numbers, strict=True):
                        await each.renew(number, now_ms=T + turn, fence_ms=T)
                behind.resume()
                late = await eventually(
                    lambda: take(machine_of(near, "late"), 5), StoreUnavailableError
                )
                assert len({0, *numbers, late}) == 12
            await near.aclose()

    async def test_many_ask_while_leaders_change(self, nats_cluster: NatsCluster) -> None:
        """Everybody is served, with an id of its own."""
        async with NatsStore.from_url(nats_cluster.url) as store:
            await store.create_schema(disposable=True)
        stores = [NatsStore.from_url(nats_cluster.url) for _ in range(12)]
        killed = await asyncio.to_thread(nats_cluster.kill_leader, "aiocosid_cells")
        numbers = await asyncio.gather(
            *(
                eventually(
                    lambda each=each, n=n: take(machine_of(each, f"i{n}"), 5),  # type: ignore[misc]
                    StoreUnavailableError,
                    deadline=40,
                )
                for n, each in enumerate(stores)
            )
        )
        assert len({*numbers}) == 12
        await asyncio.to_thread(killed.start)
        for each in stores:
            await each.aclose()


def test_the_kinds_of_errors() -> None:
    """What the driver says without a word is silence."""
    assert stores_nats._as_store_error("nats", TimeoutError()).reason == "no answer in time"
