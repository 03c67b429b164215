"""The store of an aiocosid server: fail-over, lost answers, tokens, processes."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import anyio
import pytest

from aiocosid import connect, store_from_url
from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.abc import IdSegmentDistributor
from aiocosid.errors import (
    CounterMissingError,
    CounterNotCreatedError,
    ForkedError,
    InvalidArgumentError,
    MachineIdInUseError,
    NameTooLongError,
    SchemaDroppedError,
    StoreAuthenticationError,
    StoreError,
    StoreNotEmptyError,
    StoreNotInitializedError,
    StoreRolledBackError,
    StoreUnavailableError,
    UnsupportedByStoreError,
)
from aiocosid.server import Limits, Token, TokenScope, digest_of, new_token
from aiocosid.stores.memory import MemoryStore
from tests.servers import (
    HOST,
    CosIdProxy,
    FaultProxy,
    PostgresServer,
    ValkeyCluster,
    ValkeyServer,
    free_port,
)

from ._id_service import ServerProcess, app_on, serve_store
from ._web import serve

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

BOTH: Final = pytest.mark.parametrize("is_unix", [False, True], ids=["http", "unix"])
FAR: Final = 2**52


@pytest.fixture
def socket_path() -> Generator[Path]:
    """Short enough for a socket."""
    path = Path(f"/tmp/{os.urandom(6).hex()}.sock")  # noqa: S108 - a name of its own
    yield path
    path.unlink(missing_ok=True)


@asynccontextmanager
async def counter_at(url: str, namespace: str) -> AsyncGenerator[IdSegmentDistributor]:
    """A counter on connections of its own."""
    async with store_from_url(url) as store:
        yield store.segment_distributor(namespace=namespace, name="order")


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something, with a deadline."""
    with anyio.fail_after(60):
        while not is_so():  # noqa: ASYNC110 - nobody says when
            await asyncio.sleep(0.01)


# Several servers.


@pytest.mark.stress
@pytest.mark.parametrize("behind", ["valkey", pytest.param("postgres", marks=pytest.mark.nightly)])
async def test_two_servers_are_killed_in_turn(
    request: pytest.FixtureRequest, behind: str, namespace: str
) -> None:
    """The others go on without an error, and no segment is handed out twice."""
    server: ValkeyServer | PostgresServer = request.getfixturevalue(behind)
    async with store_from_url(server.url) as store:
        await store.create_schema(disposable=True)
    ports = [free_port() for _ in range(2)]
    hosts = ",".join(f"{HOST}:{port}" for port in ports)
    found: list[int] = []
    errors: list[StoreUnavailableError] = []
    is_over = False

    async def worker() -> None:
        async with counter_at(f"aiocosid+http://{hosts}?timeout=20", namespace) as counter:
            while not is_over:
                try:
                    found.append(await counter.next_max_id(10))
                except StoreUnavailableError as error:
                    errors.append(error)
                await asyncio.sleep(0.01)

    async def fifty_more() -> None:
        enough = len(found) + 50
        await until(lambda: len(found) >= enough)

    with ExitStack() as stack:
        servers = [ServerProcess(server.url, port) for port in ports]
        for each in servers:
            stack.callback(each.stop)
            await asyncio.to_thread(each.start)
        async with anyio.create_task_group() as workers:
            for _ in range(4):
                workers.start_soon(worker)
            for each in servers:
                await fifty_more()
                await asyncio.to_thread(each.stop)
                await fifty_more()
                await asyncio.to_thread(each.start)
            await fifty_more()
            is_over = True
    assert errors == []
    assert len(set(found)) == len(found)
    assert all(max_id % 10 == 0 for max_id in found)


async def test_a_server_that_drains(namespace: str) -> None:
    """Its clients go to the other one, and come back to it when that drains."""
    first, options = app_on("memory://")
    second, _ = app_on("memory://")
    with serve(first, **options) as one, serve(second, **options) as other:
        hosts = ",".join(f"{each.base_url.host}:{each.base_url.port}" for each in (one, other))
        async with counter_at(f"aiocosid+http://{hosts}?timeout=10", namespace) as counter:
            assert await counter.next_max_id(10) == 10
            first.service.is_draining = True
            assert await counter.next_max_id(10) == 20
            first.service.is_draining, second.service.is_draining = False, True
            assert await counter.next_max_id(10) == 30
            first.service.is_draining = True
            with pytest.raises(StoreUnavailableError, match="about to stop") as caught:
                await counter.next_max_id(10)
            assert caught.value.retryable


async def test_a_silent_server_leaves_time_for_the_next(namespace: str) -> None:
    """The one that answers is asked first from then on."""
    with serve_store("memory://") as url:
        port = int(url.rpartition(":")[2])
        async with FaultProxy(HOST, port) as silent:
            silent.blackhole(replies=True)
            hosts = f"{HOST}:{silent.port},{HOST}:{port}"
            async with counter_at(f"aiocosid+http://{hosts}?timeout=1", namespace) as counter:
                assert await counter.next_max_id(10) in {10, 20}
                before = silent.requests
                for _ in range(3):
                    await counter.next_max_id(10)
                assert silent.requests == before == 1


# Lost answers.


async def test_a_lost_answer_is_a_gap(namespace: str) -> None:
    """The call is repeated once on another connection; no segment is handed out twice."""
    with serve_store("memory://") as url:
        async with (
            FaultProxy(HOST, int(url.rpartition(":")[2])) as proxy,
            counter_at(f"aiocosid+http://{HOST}:{proxy.port}?timeout=10", namespace) as counter,
        ):
            assert await counter.next_max_id(10) == 10
            proxy.swallow_replies(1, to=b"POST")
            assert await counter.next_max_id(10) == 30
            proxy.swallow_replies(2, to=b"POST")
            with pytest.raises(StoreUnavailableError):
                await counter.next_max_id(10)
            assert await counter.next_max_id(10) == 60


async def test_a_machine_id_whose_answer_is_lost(namespace: str) -> None:
    """A commit that is applied twice hands out one id, and a renewal is no other process's."""
    with serve_store("memory://") as url:
        async with (
            FaultProxy(HOST, int(url.rpartition(":")[2])) as proxy,
            store_from_url(f"aiocosid+http://{HOST}:{proxy.port}?timeout=10") as store,
        ):
            machine = store.machine_id_distributor(namespace=namespace, instance_id="a")
            proxy.swallow_replies(1, to=b"/take_machine")
            assert (await machine.distribute(2, now_ms=1, latest_ms=FAR)).machine_id == 0
            proxy.swallow_replies(1, to=b"/renew_machine")
            await machine.renew(0, now_ms=5, fence_ms=9)
            await machine.renew(0, now_ms=6, fence_ms=10)
            proxy.swallow_replies(1, to=b"/release_machine")
            await machine.release(0, last_ms=7)
            held = await store.machines(namespace=namespace)
            assert [(each.machine_id, each.instance_id) for each in held] == [(0, "")]


async def test_a_socket_whose_server_is_killed(
    valkey: ValkeyServer, socket_path: Path, namespace: str
) -> None:
    """Callers get a retryable error, and go on with the next server on the same path."""
    server = ServerProcess(valkey.url, socket_path)
    found: list[int] = []
    async with counter_at(server.url, namespace) as counter:
        with pytest.raises(StoreUnavailableError):
            await counter.next_max_id(10)
        for _ in range(3):
            server.start()
            try:
                found += [await counter.next_max_id(10) for _ in range(20)]
            finally:
                server.stop()
            with pytest.raises(StoreUnavailableError):
                await counter.next_max_id(10)
    assert found == sorted(set(found))


@BOTH
async def test_a_cancelled_call(namespace: str, *, is_unix: bool) -> None:
    """No later call gets its answer, wherever it was cancelled."""
    with serve_store("memory://", is_unix=is_unix) as url:
        async with counter_at(url, namespace) as counter:
            last = await counter.next_max_id(10)
            for turns in range(40):
                call = asyncio.ensure_future(counter.next_max_id(10))
                for _ in range(turns):
                    await asyncio.sleep(0)
                call.cancel()
                with suppress(asyncio.CancelledError):
                    last = await call
                peeked = await counter.peek()
                taken = await counter.next_max_id(1_000)
                assert peeked is not None
                assert taken >= peeked + 1_000 > last
                last = taken


@BOTH
async def test_many_at_once(namespace: str, *, is_unix: bool) -> None:
    """Calls wait for a connection of the few; each gets its own segment, and none is left open."""
    with serve_store("memory://", is_unix=is_unix) as url:
        async with counter_at(f"{url}?timeout=30", namespace) as counter:
            found = await asyncio.gather(*(counter.next_max_id(1) for _ in range(200)))
            assert sorted(found) == list(range(1, 201))
            await asyncio.gather(*(counter.peek() for _ in range(50)))
        gc.collect()


@BOTH
async def test_closed_under_a_call(namespace: str, *, is_unix: bool) -> None:
    """It ends with an error, and the store can be used again."""
    with serve_store("memory://", is_unix=is_unix) as url:
        async with store_from_url(url) as store:
            counter = store.segment_distributor(namespace=namespace, name="order")
            calls = [asyncio.ensure_future(counter.next_max_id(1)) for _ in range(64)]
            await asyncio.sleep(0)
            await store.aclose()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(each, int | StoreUnavailableError) for each in results)
            assert await counter.next_max_id(1) > 0


# Tokens.


def tokens(secret: str, *scopes: TokenScope, **options: Any) -> list[Token]:
    """One token for the namespace ``mine``, beside another one."""
    names = options.pop("names", ("mine", "mine.*"))
    mine = Token(name="me", digest=digest_of(secret), scopes=scopes, names=names, **options)
    other = Token(name="other", digest=digest_of(new_token()), scopes=tuple(TokenScope))
    return [mine, other]


@BOTH
async def test_tokens(caplog: pytest.LogCaptureFixture, *, is_unix: bool) -> None:
    """A token allows what it says; nothing shows it."""
    secret, wrong = new_token(), new_token()
    caplog.set_level(1)
    allowed = tokens(secret, TokenScope.SEGMENTS, TokenScope.MACHINES)
    shown: list[str] = []
    with serve_store("memory://", is_unix=is_unix, tokens=allowed) as url:
        for token, is_right in ((secret, True), (wrong, False), ("", False)):
            async with store_from_url(f"{url}?token={token}" if token else url) as store:
                shown += [repr(store), repr(store._backend), store._backend.address]  # type: ignore[attr-defined]
                mine = store.segment_distributor(namespace="mine", name="a")
                theirs = store.segment_distributor(namespace="theirs", name="a")
                machine = store.machine_id_distributor(namespace="mine", instance_id="a")
                if is_right:
                    assert await mine.next_max_id(10) >= 10
                    grant = await machine.distribute(4, now_ms=1, latest_ms=FAR)
                    await machine.release(grant.machine_id, last_ms=-1)
                calls: list[Any] = [theirs.next_max_id, *(() if is_right else (mine.next_max_id,))]
                refused = [call(10) for call in calls]
                refused += [store.set_floor(namespace="mine", name="a", above=5)]
                refused += [
                    store.initialize(),
                    store.counters(),
                    store.machines(namespace="theirs"),
                ]
                for call in refused:
                    with pytest.raises(StoreAuthenticationError) as caught:
                        await call
                    shown += [str(caught.value), repr(caught.value)]
                    assert not caught.value.retryable
    shown += [caplog.text]
    assert [text for text in shown if secret in text or wrong in text] == []


@BOTH
async def test_a_token_in_front_of_the_host_that_expires(*, is_unix: bool) -> None:
    """Also on a connection that is open already."""
    secret = new_token()
    until_ms = SYSTEM_CLOCK.now_ms() + 1_000
    allowed = tokens(secret, *TokenScope, names=("*",), expires_ms=until_ms)
    with serve_store("memory://", is_unix=is_unix, tokens=allowed) as url:
        async with counter_at(url.replace("://", f"://{secret}@"), "mine") as counter:
            await counter.next_max_id(1)
            await until(lambda: SYSTEM_CLOCK.now_ms() >= until_ms)
            for _ in range(2):
                with pytest.raises(StoreAuthenticationError):
                    await counter.next_max_id(1)


async def test_who_may_read_sees_what_it_may() -> None:
    secret = new_token()
    allowed = tokens(secret, TokenScope.READ)
    with serve_store("memory://", tokens=allowed) as url:
        shared = MemoryStore.from_url()
        for namespace in ("mine", "theirs"):
            await shared.segment_distributor(namespace=namespace, name="a").next_max_id(5)
            await shared.machine_id_distributor(namespace=namespace).distribute(
                4, now_ms=1, latest_ms=FAR
            )
        async with store_from_url(url.replace("://", f"://{secret}@")) as store:
            for found in (await store.counters(), await store.counters(namespace="mine")):
                assert {each.namespaced_name.partition(".")[0] for each in found} == {"mine"}
            assert {each.namespace for each in await store.machines()} == {"mine"}
            assert await store.counters(namespace="theirs") == []
            with pytest.raises(StoreAuthenticationError):
                await store.segment_distributor(namespace="mine", name="a").next_max_id(1)


async def test_two_tokens_in_a_url() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        store_from_url("aiocosid+http://horse@h?token=battery")
    assert not re.search("horse|battery", str(caught.value))


# What a server says.


@BOTH
async def test_errors(namespace: str, tmp_path: Path, *, is_unix: bool) -> None:
    """Each has its class and facts, and none names what the server's store is."""
    limits = Limits(step=1_000, name=300)
    async with store_from_url(f"sqlite:///{tmp_path}/hidden.db") as store:
        await store.create_schema(disposable=True)
    with serve_store(f"sqlite:///{tmp_path}/hidden.db", is_unix=is_unix, limits=limits) as url:
        async with store_from_url(url) as store:
            counter = store.segment_distributor(namespace=namespace, name="a")
            long = store.segment_distributor(namespace=namespace, name="n" * 150)
            longer = store.segment_distributor(namespace=namespace, name="n" * 400)
            calls = (
                (partial(counter.next_max_id, 1_001), InvalidArgumentError),
                (partial(long.next_max_id, 1), NameTooLongError),
                (partial(longer.next_max_id, 1), StoreError),
                (
                    partial(store.set_floor, namespace=namespace, name="a", above=5, create=False),
                    CounterMissingError,
                ),
            )
            for call, kind in calls:
                with pytest.raises(kind) as caught:
                    await call()
                assert "hidden" not in str(caught.value)
            assert await counter.next_max_id(1_000) == 1_000


async def test_a_counter_that_went_back(namespace: str) -> None:
    """A store behind that lost its data is noticed by the client."""
    with serve_store("memory://") as url:
        async with counter_at(url, namespace) as counter:
            await counter.next_max_id(100)
            counters = MemoryStore.from_url()._backend._counters
            counters[counter.namespaced_name] = 50
            with pytest.raises(StoreRolledBackError):
                await counter.next_max_id(10)
            del counters[counter.namespaced_name]
            with pytest.raises(StoreRolledBackError):
                await counter.next_max_id(10)
            assert counter.namespaced_name not in counters


async def test_a_striped_store_behind(tmp_path: Path, namespace: str) -> None:
    """What it does not have is refused with the reason."""
    files = [quote(f"sqlite:///{tmp_path}/{name}.db", safe="") for name in "ab"]
    striped = "striped:?" + "&".join(f"store={each}" for each in files)
    with serve_store(striped, is_unix=True) as url:
        async with store_from_url(url) as store:
            await store.create_schema(disposable=True)
            counter = store.segment_distributor(namespace=namespace, name="order")
            with pytest.raises(UnsupportedByStoreError, match="no contiguous ranges"):
                await counter.next_max_id(1)
            with pytest.raises(UnsupportedByStoreError, match="hands out no machine ids"):
                await store.machines()


async def test_a_cluster_behind(cluster_factory: Callable[..., ValkeyCluster]) -> None:
    """It is initialised through its server; what it has no marker for is told with what to do."""
    with serve_store(cluster_factory().url, is_unix=True) as url:
        async with connect(url, namespace="shop") as ids:
            store = ids.store
            with pytest.raises(
                UnsupportedByStoreError, match="'aiocosid init --store URL --namespace NAMESPACE'"
            ):
                await store.is_initialized()
            await store.initialize()
            counter = store.segment_distributor(namespace="shop", name="order")
            assert await counter.next_max_id(10) == 10
            with pytest.raises(StoreNotInitializedError):
                await ids.snowflake("event")
            await store.initialize_namespace(namespace="shop", confirm_no_holders=True)
            assert await (await ids.snowflake("event")).next_id()


def drop(path: Path) -> None:
    """Drop the tables behind a server's back."""
    with closing(sqlite3.connect(path)) as database:
        for each in ("cosid", "cosid_machine", "aiocosid_cell"):
            database.execute(f"DROP TABLE {each}")


@pytest.mark.parametrize("is_striped", [False, True])
async def test_tables_that_were_dropped_behind(
    tmp_path: Path, namespace: str, *, is_striped: bool
) -> None:
    """The error is itself, with its remedy; and what was said about them reaches each store."""
    files = [tmp_path / f"{name}.db" for name in "ab"]
    urls = [f"sqlite:///{each}" for each in files]
    given = "striped:?" + "&".join(f"store={quote(each, safe='')}" for each in urls)
    used = files if is_striped else files[:1]
    with serve_store(given if is_striped else urls[0], is_unix=True) as url:
        async with store_from_url(url) as store:
            await store.create_schema()
            for each in used:
                drop(each)
            with pytest.raises(SchemaDroppedError, match="--after-loss") as caught:
                await store.create_schema()
            assert set(caught.value.tables) == {"cosid", "cosid_machine", "aiocosid_cell"}
            with pytest.raises(SchemaDroppedError):
                await store.create_schema(disposable=True)
            await store.create_schema(after_loss=True)
            for each in used:
                drop(each)
                with closing(sqlite3.connect(each)) as database:
                    database.execute("DROP VIEW aiocosid_witness")
            await store.create_schema(disposable=True)
            for each in used:
                drop(each)
            await store.create_schema()


async def test_a_table_that_was_emptied_behind(tmp_path: Path, namespace: str) -> None:
    """Its witness knows that there was something: an initialisation by habit is refused."""
    path = tmp_path / "ids.db"
    with serve_store(f"sqlite:///{path}") as url:
        async with store_from_url(url) as store:
            await store.create_schema()
            await store.segment_distributor(namespace=namespace, name="a").next_max_id(10)
            with closing(sqlite3.connect(path)) as database:
                for each in ("cosid", "cosid_machine", "aiocosid_cell"):
                    database.execute(f"DELETE FROM {each}")  # noqa: S608 - names of ours
                database.commit()
            with pytest.raises(StoreNotEmptyError, match="--confirm-no-holders"):
                await store.initialize()
            with pytest.raises(CounterNotCreatedError, match="aiocosid init"):
                await store.segment_distributor(namespace=namespace, name="a").next_max_id(10)


async def test_a_tiered_store_behind(valkey: ValkeyServer, tmp_path: Path, namespace: str) -> None:
    """Segments come from its spans, machine ids from its root."""
    parts = (f"sqlite:///{tmp_path}/ids.db", valkey.patient_url)
    root, cache = (quote(each, safe="") for each in parts)
    with serve_store(f"tiered:?root={root}&cache={cache}&span=1000", is_unix=True) as url:
        async with store_from_url(url) as store:
            await store.create_schema(disposable=True)
            counter = store.segment_distributor(namespace=namespace, name="order")
            assert [await counter.next_max_id(10) for _ in range(3)] == [10, 20, 30]
            assert [each.last_max_id for each in await store.counters()] == [1000]
            raised = await store.set_floor(namespace=namespace, name="order", above=5000)
            assert raised.last_max_id == 5000
            assert await counter.next_max_id(10) > 5000
            machine = store.machine_id_distributor(namespace=namespace)
            await machine.distribute(4, now_ms=1, latest_ms=FAR)
    async with store_from_url(f"sqlite:///{tmp_path}/ids.db") as store:
        assert len(await store.machines()) == 1


async def test_it_is_another_server(cosid_proxy: CosIdProxy, namespace: str) -> None:
    url = cosid_proxy.url.replace("http:", "aiocosid+http:")
    async with counter_at(url, namespace) as counter:
        with pytest.raises(StoreError) as caught:
            await counter.next_max_id(1)
        assert not isinstance(caught.value, UnsupportedByStoreError)


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (404, StoreError),
        (407, StoreAuthenticationError),
        (429, StoreUnavailableError),
        (502, StoreUnavailableError),
    ],
)
async def test_a_gateway_refuses(status: int, meaning: type[StoreError], namespace: str) -> None:
    """It has fewer words than a server: a limit of requests passes by itself, too."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 2\r\n\r\nno".encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as gateway:
        port = gateway.sockets[0].getsockname()[1]
        async with counter_at(f"aiocosid+http://127.0.0.1:{port}", namespace) as counter:
            with pytest.raises(StoreError, match=f"HTTP {status}") as caught:
                await counter.next_max_id(1)
    assert type(caught.value) is meaning


# Processes and loops.


async def test_a_forked_child(socket_path: Path, namespace: str) -> None:
    """Its parent's connections are none of its business; the parent goes on with them."""
    with ServerProcess("memory://", socket_path) as server:
        async with store_from_url(server.url) as store:
            counter = store.segment_distributor(namespace=namespace, name="order")
            before = await counter.next_max_id(1)
            pid = os.fork()
            if not pid:
                try:
                    await _in_child(counter)
                except BaseException:  # noqa: BLE001 - told by the exit status
                    os._exit(1)
                os._exit(0)
            ended: list[int] = []
            await until(lambda: has_ended(pid, ended))
            assert ended == [0]
            assert await counter.next_max_id(1) == before + 1


def has_ended(pid: int, statuses: list[int]) -> bool:
    """Tell whether a child has ended, and how."""
    done, status = os.waitpid(pid, os.WNOHANG)
    statuses += [status] if done else []
    return bool(done)


async def _in_child(counter: IdSegmentDistributor) -> None:
    with pytest.raises(ForkedError):
        await counter.next_max_id(1)


@BOTH
async def test_one_store_on_two_loops_in_turn(namespace: str, *, is_unix: bool) -> None:
    """It opens anew on the next loop."""
    with serve_store("memory://", is_unix=is_unix) as url:
        store = store_from_url(url)

        async def use() -> int:
            counter = store.segment_distributor(namespace=namespace, name="order")
            return await counter.next_max_id(1)

        found = [await asyncio.to_thread(asyncio.run, use()) for _ in range(3)]
        assert found == [1, 2, 3]


@BOTH
async def test_a_server_behind_a_server(namespace: str, *, is_unix: bool) -> None:
    """As a broker that takes from the service: operations are passed on, with who asks."""
    secret, far = new_token(), new_token()
    with (
        serve_store("memory://", tokens=tokens(far, *TokenScope, names=("*",))) as behind,
        serve_store(
            behind.replace("://", f"://{far}@"),
            is_unix=is_unix,
            tokens=tokens(secret, *TokenScope, names=("*",)),
        ) as url,
    ):
        async with (
            store_from_url(f"{url}?token={secret}") as store,
            store_from_url(behind.replace("://", f"://{far}@")) as other,
        ):
            machine = store.machine_id_distributor(namespace=namespace, instance_id="a")
            await machine.distribute(2, now_ms=1, latest_ms=FAR)
            await machine.renew(0, now_ms=5, fence_ms=9)
            twin = other.machine_id_distributor(namespace=namespace, instance_id="a")
            with pytest.raises(MachineIdInUseError):
                await twin.distribute(2, now_ms=1, latest_ms=FAR)
            await machine.renew(0, now_ms=6, fence_ms=10)
            [held] = await store.machines(namespace=namespace)
            assert (held.instance_id, held.fence_ms) == ("a", 10)
            await machine.release(0, last_ms=8)
            [held] = await store.machines(namespace=namespace)
            assert (held.instance_id, held.fence_ms) == ("", 8)
