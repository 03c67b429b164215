"""Counters on etcd: what fails, who logs in, whose loop and process it is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import aetcd  # type: ignore[import-untyped]
import anyio
import pytest

from aiocosid import SegmentChainId
from aiocosid.errors import (
    CorruptCounterError,
    IdOverflowError,
    StoreAuthenticationError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
    WrongLoopError,
)
from aiocosid.stores.counters import CounterDistributor
from aiocosid.stores.etcd import EtcdStore
from tests.machine_marks import mark_etcd_store
from tests.script import run_python
from tests.servers import PASSWORD, EtcdServer, FaultProxy, eventually, free_port

from ._snowflakes import until

pytestmark = [pytest.mark.integration]

ROUNDS: Final = 1000


@pytest.fixture(autouse=True)
def _marker(etcd: EtcdServer) -> None:
    """Counters are created."""
    mark_etcd_store(etcd)


@asynccontextmanager
async def behind_proxy(
    server: EtcdServer, namespace: str, *others: str, seconds: float = 0.5
) -> AsyncGenerator[tuple[FaultProxy, CounterDistributor]]:
    """A counter whose next call is one transaction, and the proxy on the way to it."""
    async with FaultProxy(server.host, server.port) as proxy:
        hosts = ",".join((f"{proxy.host}:{proxy.port}", *others))
        async with EtcdStore.from_url(f"etcd://{hosts}?timeout={seconds}") as store:
            counter = store.segment_distributor(namespace=namespace, name="order", step=10)
            # A busy machine may be too slow for the first connection.
            await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
            yield proxy, counter


async def _has_failed(chain: SegmentChainId) -> None:
    assert chain.statistics().failures


def value_of(server: EtcdServer, namespace: str) -> int:
    return int(server.get(f"/cosid/{namespace}.order") or 0)


class TestFaults:
    """A lost reply costs a range; nothing is granted twice."""

    async def test_a_lost_reply(self, etcd: EtcdServer, namespace: str) -> None:
        """The server has acted, and the connection is reset: the range is lost, and no other."""
        async with behind_proxy(etcd, namespace) as (proxy, counter):
            before = value_of(etcd, namespace)
            proxy.swallow_replies(1, to=f"{namespace}.order".encode())
            with pytest.raises(StoreUnavailableError):
                await counter.next_max_id(10)
            assert proxy.swallowed == 1

            await until(lambda: value_of(etcd, namespace) == before + 10)
            granted = await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
            assert granted > before + 10

    async def test_a_black_hole(self, etcd: EtcdServer, namespace: str) -> None:
        """It ends in time, and the next call takes another connection."""
        async with behind_proxy(etcd, namespace) as (proxy, counter):
            for way in ({"requests": True}, {"replies": True}):
                made = proxy.connections
                proxy.blackhole(**way)
                with pytest.raises(StoreUnavailableError, match=r"(?i)deadline"):
                    await counter.next_max_id(10)
                proxy.heal()
                before = value_of(etcd, namespace)
                granted = await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
                assert granted > before
                assert proxy.connections > made

    async def test_a_dead_connection_under_a_silent_one(
        self, etcd: EtcdServer, namespace: str
    ) -> None:
        """One that is never answered again is not used again, though nobody has closed it."""
        async with behind_proxy(etcd, namespace) as (proxy, counter):
            # A reply comes in pieces, and pieces come that are none.
            proxy.swallow_replies(1000, to=f"{namespace}.order".encode(), reset=False)
            with pytest.raises(StoreUnavailableError):
                await counter.next_max_id(10)
            proxy.swallow_replies(0)
            made, before = proxy.connections, value_of(etcd, namespace)
            granted = await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
            assert granted > before
            assert proxy.connections > made

    async def test_another_member_answers(self, etcd: EtcdServer, namespace: str) -> None:
        """Within the same call: of one that is down, silent or loses its reply."""
        async with behind_proxy(etcd, namespace, etcd.address, seconds=1.0) as (proxy, counter):
            before = value_of(etcd, namespace)
            proxy.swallow_replies(1, to=f"{namespace}.order".encode())
            assert await counter.next_max_id(10) == before + 20
        other_namespace = f"{namespace}2"
        async with behind_proxy(etcd, other_namespace, etcd.address, seconds=1.0) as (proxy, other):
            before = value_of(etcd, other_namespace)
            proxy.blackhole(requests=True)
            assert await other.next_max_id(10) == before + 10
            proxy.heal()
        url = f"etcd://127.0.0.1:{free_port()},{etcd.address}"
        async with EtcdStore.from_url(url) as store:
            assert await store.segment_distributor(namespace=namespace, name="x").next_max_id(1)

    async def test_a_cancelled_call(self, etcd: EtcdServer, namespace: str) -> None:
        """Whether the server has acted or not, the next one gets a reply of its own."""
        async with behind_proxy(etcd, namespace, seconds=10) as (proxy, counter):
            other = CounterDistributor(
                counter._backend, namespace=namespace, name="far", offset=10**12
            )
            await other.next_max_id(10)
            for watch in (proxy.next_request, proxy.next_reply):
                seen = watch()
                call = asyncio.create_task(counter.next_max_id(10))
                await seen
                call.cancel()
                before = value_of(etcd, namespace) - 10  # it may be under way
                granted = await asyncio.gather(other.next_max_id(10), counter.next_max_id(10))
                assert call.cancelled()
                assert granted[0] > 10**12 > granted[1] > before

    async def test_a_cancel_scope(self, etcd: EtcdServer, namespace: str) -> None:
        """It knows its own cancellation, which the driver replaces; a generator lives on."""
        async with behind_proxy(etcd, namespace, seconds=10) as (proxy, counter):
            proxy.blackhole(replies=True)
            client = aetcd.Client(proxy.host, proxy.port)
            for each in (counter, EtcdStore(client).segment_distributor(name="order")):
                with anyio.move_on_after(0.1) as scope:
                    await each.next_max_id(10)
                assert scope.cancelled_caught
            await client.close()
            proxy.heal()
            async with SegmentChainId(counter, fetch_timeout=0.3) as chain:
                first = await chain.next_id()
                proxy.blackhole(replies=True)
                waiting = asyncio.create_task(chain.next_ids(1000))
                await eventually(partial(_has_failed, chain), AssertionError)
                assert "no answer within" in str(chain.statistics().last_error)
                proxy.heal()
                assert len({first, *await waiting}) == 1001

    async def test_a_login_without_an_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is silence, and not the end of the client."""
        monkeypatch.setattr("aiocosid.stores.etcd._link.TIMEOUT", 0.1)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            client = aetcd.Client("127.0.0.1", port, username="app", password=PASSWORD)
            with pytest.raises(StoreUnavailableError, match="no connection within"):
                await EtcdStore(client).counters()
            await client.close()

    async def test_closing_under_a_call(self, etcd: EtcdServer, namespace: str) -> None:
        """Whoever waits is told; also in a cancelled scope; then it connects anew."""
        async with behind_proxy(etcd, namespace, seconds=10) as (proxy, counter):
            for _ in range(2):
                proxy.blackhole(replies=True)
                calls = [asyncio.create_task(counter.next_max_id(10)) for _ in range(3)]
                await proxy.next_request()
                made = proxy.connections
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await counter._backend.aclose()
                for call in calls:
                    with pytest.raises(StoreUnavailableError, match="closed"):
                        await call
                assert proxy.connections == made
                proxy.heal()
                assert await counter.next_max_id(10) >= 20

    @pytest.mark.stress
    async def test_a_server_that_is_down_comes_back(
        self, etcd_factory: Callable[..., EtcdServer], namespace: str
    ) -> None:
        """Long before the driver by itself would try again."""
        server = etcd_factory()
        mark_etcd_store(server)
        async with EtcdStore.from_url(server.url) as store:
            counter = store.segment_distributor(namespace=namespace, name="order")
            assert await counter.next_max_id(10) == 10
            server.kill()
            for _ in range(5):
                with pytest.raises(StoreUnavailableError):
                    await counter.next_max_id(10)
            server.start()
            again = eventually(lambda: counter.next_max_id(10), StoreUnavailableError, deadline=3)
            assert await again == 20
            server.wipe()
            with pytest.raises(StoreRolledBackError):
                await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)


class TestValues:
    """What lies in the key."""

    async def test_a_damaged_counter(self, etcd: EtcdServer, namespace: str) -> None:
        """It is named, and left as it is."""
        key = f"/cosid/{namespace}.order"
        async with EtcdStore.from_url(etcd.url) as store:
            counter = store.segment_distributor(namespace=namespace, name="order")
            for bad in ("", "x", "-5", "1_0", " 7", "07", "1e3", str(2**63), "9" * 5000):
                etcd.put(key, bad)
                for call in (
                    counter.next_max_id(10),
                    store.set_floor(namespace=namespace, name="order", above=7),
                ):
                    with pytest.raises(CorruptCounterError, match="order"):
                        await call
                assert await store.counters(namespace=namespace) == []
                assert etcd.get(key) == bad
            etcd.put(key, str(2**63 - 11))
            with pytest.raises(IdOverflowError):
                await counter.next_max_id(11)
            assert await counter.next_max_id(10) == 2**63 - 1

    async def test_a_revision_that_comes_again(self, etcd: EtcdServer, namespace: str) -> None:
        """As on a cluster that was restored: the number is compared as well."""
        async with EtcdStore.from_url(etcd.url) as store:
            counter = store.segment_distributor(namespace=namespace, name="order")
            assert await counter.next_max_id(10) == 10
            known: dict[str, bytes] = getattr(store._backend, "_known")  # noqa: B009 - of etcd's
            assert known == {f"/cosid/{namespace}.order": b"10"}
            known.update(dict.fromkeys(known, b"7"))
            assert await counter.next_max_id(10) == 20
        assert etcd.get(f"/cosid/{namespace}.order") == "20"

    async def test_a_prefix_of_ones_own(self, etcd: EtcdServer, namespace: str) -> None:
        """It is told by the URL or the argument; machine ids beneath it are no counters."""
        url = f"{etcd.url}/apps/{namespace}/"
        async with EtcdStore.from_url(url) as store:
            await store.initialize()
            counter = store.segment_distributor(namespace="a", name="b", step=10)
            assert await counter.next_max_id(10) == 10
            await store.initialize_namespace(namespace="a.b")
            machine = store.machine_id_distributor(namespace="a.b", instance_id="5")
            await machine.distribute(1, now_ms=1, latest_ms=1)
            found = [each.namespaced_name for each in await store.counters()]
            assert found == ["a.b"]
            assert [each.namespace for each in await store.machines()] == ["a.b"]
        async with EtcdStore.from_url(url) as own:
            assert await own.segment_distributor(namespace="a", name="b").next_max_id(10) == 20
        assert etcd.get(f"/apps/{namespace}/a.b") == "20"

    async def test_many_counters_are_read_in_pages(self, etcd: EtcdServer, namespace: str) -> None:
        """All of them, once each."""
        async with EtcdStore.from_url(f"{etcd.url}/{namespace}") as store:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("aiocosid.stores.etcd._link.PAGE", 3)
                for number in range(8):
                    await store.set_floor(namespace="n", name=f"{number}", above=number)
                found = await store.counters()
        assert [each.last_max_id for each in found] == list(range(8))


class TestPlainClients:
    """Somebody else's program that follows the documented format."""

    @pytest.mark.nightly
    async def test_a_thousand_alternations(self, etcd: EtcdServer, namespace: str) -> None:
        """Ours and the other's turns tile the counter."""
        key = f"/cosid/{namespace}.order".encode()
        granted: list[tuple[int, int]] = []

        async def plain(client: Any, step: int) -> int:
            while True:
                found = await client.get(key)
                value, revision = (int(found.value), found.mod_revision) if found else (0, 0)
                done, _ = await client.transaction(
                    compare=[client.transactions.mod(key) == revision],
                    success=[client.transactions.put(key, str(value + step).encode())],
                    failure=[],
                )
                if done:
                    return value + step

        async with aetcd.Client(etcd.host, etcd.port) as client:
            counter = EtcdStore(client).segment_distributor(namespace=namespace, name="order")
            for _ in range(ROUNDS):
                max_id, their_max_id = await counter.next_max_id(7), await plain(client, 3)
                granted += [(max_id - 7, max_id), (their_max_id - 3, their_max_id)]
        ends = [0, *(end for _, end in granted)]
        assert [start for start, _ in granted] == ends[:-1]
        assert ends[-1] == ROUNDS * 10


class TestLogin:
    """Who may, and by which certificate."""

    @pytest.mark.stress
    async def test_users_and_passwords(
        self, etcd_factory: Callable[..., EtcdServer], namespace: str
    ) -> None:
        """A login that has ended is renewed; whoever may not is told so."""
        server = etcd_factory()
        mark_etcd_store(server)
        server.require_login()
        login = server.url.replace("://", f"://root:{server.quoted_password}@")
        async with EtcdStore.from_url(login) as store:
            assert server.quoted_password not in repr(store)
            assert PASSWORD not in repr(store)
            counter = store.segment_distributor(namespace=namespace, name="order")
            assert await counter.next_max_id(10) == 10
            server.restart()  # which forgets who has logged in
            assert await eventually(lambda: counter.next_max_id(10), StoreUnavailableError) == 20
        async with EtcdStore.from_url(login.replace("root", "app")) as store:
            await store.initialize_namespace(namespace=namespace)
            machine = store.machine_id_distributor(namespace=namespace)
            await machine.distribute(1, now_ms=1, latest_ms=1)
            await machine.renew(0, now_ms=2, fence_ms=3)
            assert len(await store.counters()) == len(await store.machines()) == 1
            await store.set_floor(namespace=namespace, name="order", above=100)
        elsewhere = login.replace("root", "app") + "/other"
        for url in (
            *(server.url, login.replace("root", "guest"), login.replace("root:", "root:x")),
            elsewhere,
        ):
            async with EtcdStore.from_url(url) as store:
                with pytest.raises(StoreAuthenticationError):
                    await store.set_floor(namespace=namespace, name="order", above=7)

    async def test_a_login_that_is_not_asked_for(self, etcd: EtcdServer, namespace: str) -> None:
        """It is an error: the password was to protect something."""
        async with EtcdStore.from_url(etcd.url.replace("://", "://root:x@")) as store:
            with pytest.raises(StoreAuthenticationError, match="not enabled"):
                await store.counters(namespace=namespace)

    @pytest.mark.stress
    async def test_tls(self, etcd_factory: Callable[..., EtcdServer], namespace: str) -> None:
        """For those who trust the right authority."""
        server = etcd_factory(tls=True)
        assert server.certificates is not None
        url = f"{server.url}?ssl_ca_certs={server.certificates.ca}"
        async with EtcdStore.from_url(url) as store:
            await store.create_schema(disposable=True)
            counter = store.segment_distributor(namespace=namespace, name="order")
            assert await counter.next_max_id(10) == 10
        stranger = f"{server.url}?ssl_ca_certs={server.certificates.stranger_ca}"
        async with EtcdStore.from_url(stranger) as store:
            with pytest.raises(StoreError, match="not trusted"):
                await store.counters()


class TestLoops:
    """Whose loop it is."""

    def test_two_loops_at_once(self, etcd: EtcdServer, namespace: str) -> None:
        """The second is refused, on a URL and on a client."""
        store = EtcdStore.from_url(etcd.url)

        async def main(client: Any) -> None:
            for each in (store, EtcdStore(client)):
                counter = each.segment_distributor(namespace=namespace, name="order")
                await counter.next_max_id(10)
                with pytest.raises(WrongLoopError):
                    await asyncio.to_thread(asyncio.run, counter.next_max_id(10))
                await counter.next_max_id(10)
            await store.aclose()
            await client.close()

        async def client_of() -> None:
            await main(aetcd.Client(etcd.host, etcd.port))

        asyncio.run(client_of())

    async def test_a_borrowed_client_stays_open(self, etcd: EtcdServer, namespace: str) -> None:
        """Also if it was not connected yet; closing a store leaves it."""
        client = aetcd.Client(etcd.host, etcd.port)
        async with EtcdStore(client) as store:
            await store.counters(namespace=namespace)
        assert await client.get(b"/nothing") is None
        await client.close()

    async def test_a_borrowed_client_of_a_server_that_is_down(self) -> None:
        """The error is ours."""
        client = aetcd.Client("127.0.0.1", free_port())
        with pytest.raises(StoreUnavailableError):
            await EtcdStore(client).counters()
        await client.close()


class TestForks:
    """grpc does not survive a fork: nothing of it is touched in a child of one who used it."""

    @pytest.mark.parametrize(
        "ending", ["os._exit(0)", pytest.param("sys.exit(0)", marks=pytest.mark.stress)]
    )
    def test_a_forked_child(self, etcd: EtcdServer, namespace: str, ending: str) -> None:
        """It is refused while the parent had a connection, and may connect if it had none."""
        told = run_forking(FORK.replace("ENDING", ending), etcd.url, namespace)
        assert told == {
            "before": [10],
            "refused": ["ForkedError"] * 7,
            "parent": [20, 30, 40, 50],
        }


def run_forking(code: str, *arguments: str) -> Any:
    # grpc tells on stderr that it does nothing about a fork, unless it is told that before; and
    # Python from 3.12 on that there are threads, which are grpc's.
    hush = "import os, warnings; os.environ['GRPC_ENABLE_FORK_SUPPORT'] = 'false'"
    threads = "warnings.filterwarnings('ignore', '.*multi-threaded', DeprecationWarning)"
    return run_python(f"{hush}; {threads}\n{code}", *arguments)


FORK = """
import asyncio, json, sys
import aetcd
from aiocosid.stores.etcd import EtcdStore

url, namespace = sys.argv[1:]
named = {"namespace": namespace, "name": "order"}
host, _, port = url.rpartition("/")[2].partition(":")

async def outcome(awaitable):
    try:
        return await awaitable
    except Exception as exc:
        return type(exc).__name__

def forked(make):
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, json.dumps(asyncio.run(make())).encode())
        ENDING
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    return json.loads(os.read(ours, 10_000))

counters, store = EtcdStore.from_url(url), EtcdStore.from_url(url)
counter = counters.segment_distributor(**named)
machine = EtcdStore.from_url(url).machine_id_distributor(namespace=namespace)
parents = machine.instance_id

async def early():
    assert await outcome(machine.renew(0, now_ms=1, fence_ms=1)) == "ForkedError"
    await counter.aopen()
    await machine.aopen()
    assert machine.instance_id != parents
    assert await outcome(machine.renew(0, now_ms=1, fence_ms=1)) == "StoreNotInitializedError"
    return [await counter.next_max_id(10)]

told = {"before": forked(early)}

async def child(borrowed):
    refused = [await outcome(each) for each in (
        counter.next_max_id(10), store.counters(), borrowed.next_max_id(10), borrowed.aopen(),
        counter.aopen(), EtcdStore.from_url(url).counters(),
        asyncio.wait_for(EtcdStore(aetcd.Client(host, int(port))).counters(), 3))]
    return refused

async def main():
    client = aetcd.Client(host, int(port))
    borrowed = EtcdStore(client).segment_distributor(**named)
    granted = [await counter.next_max_id(10), await borrowed.next_max_id(10)]
    read, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        return theirs, borrowed
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert status == 0, status
    granted += [await counter.next_max_id(10), await borrowed.next_max_id(10)]
    for closing in (counters.aclose(), store.aclose(), client.close()):
        await closing
    told["refused"] = json.loads(os.read(read, 10_000))
    print(json.dumps(told | {"parent": granted}))

runner = asyncio.Runner()
found = runner.run(main())
if found:
    theirs, borrowed = found
    os.write(theirs, json.dumps(asyncio.run(child(borrowed))).encode())
    ENDING
runner.close()
"""
