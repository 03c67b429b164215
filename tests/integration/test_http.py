"""Counters behind a CosId proxy: what is sent, what may come back, and what a failure costs."""

from __future__ import annotations

import asyncio
import base64
import gc
import signal
import socket
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx
import pytest

from aiocosid import SegmentChainId
from aiocosid.errors import (
    CorruptCounterError,
    IdOverflowError,
    StoreAuthenticationError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
    UnsupportedByStoreError,
    WrongLoopError,
)
from aiocosid.stores.counters import CounterDistributor
from aiocosid.stores.http import HttpStore
from tests.servers import CosIdProxy, FaultProxy

from ._id_server import IdServer

pytestmark = [pytest.mark.integration]

FAR = 10**12


@pytest.fixture
def proxy(cosid_proxy: CosIdProxy) -> CosIdProxy:
    """The session's proxy as if it were new."""
    cosid_proxy.reset()
    return cosid_proxy


@asynccontextmanager
async def counter_at(url: str, **about: Any) -> AsyncGenerator[CounterDistributor]:
    """A counter on connections of its own."""
    about.setdefault("name", "order")
    async with HttpStore.from_url(url) as store:
        yield store.segment_distributor(**about)


class TestWire:
    async def test_what_is_sent(self, cosid_proxy: CosIdProxy, namespace: str) -> None:
        """A counter is created once, then advanced; arguments stand in the query alone."""
        path = f"/{namespace}/a%2Fb%20%C3%A9"
        before = len(cosid_proxy.asked)
        async with counter_at(
            cosid_proxy.url, namespace=namespace, name="a/b é", offset=7, step=50
        ) as counter:
            assert [await counter.next_max_id(step) for step in (10, 2**40)] == [17, 17 + 2**40]
        assert cosid_proxy.asked[before:] == [
            ("POST", f"/segments/distributor{path}", {"offset": "7", "step": "50"}),
            ("PATCH", f"/segments{path}", {"step": "10"}),
            ("PATCH", f"/segments{path}", {"step": str(2**40)}),
        ]
        assert cosid_proxy.counters[f"{namespace}.a/b é"] == 17 + 2**40

    async def test_your_own_client(self, cosid_proxy: CosIdProxy, namespace: str) -> None:
        """With its address, path and headers; it stays open, and follows no redirect for us."""
        headers = {"X-Tenant": "me"}
        async with httpx.AsyncClient(
            base_url=cosid_proxy.url, headers=headers, follow_redirects=True
        ) as client:
            store = HttpStore(client)
            assert repr(store) == f"<HttpStore {cosid_proxy.url}>"
            async with store:
                counter = store.segment_distributor(namespace=namespace, name="order")
                assert await counter.next_max_id(10) == 10
            assert await counter.next_max_id(10) == 20
            cosid_proxy.answer(307, headers={"location": "/segments/elsewhere/order"})
            before = len(cosid_proxy.asked)
            with pytest.raises(StoreError, match=r"HTTP 307.* give the URL that it leads to"):
                await counter.next_max_id(10)
            assert len(cosid_proxy.asked) == before + 1
            assert await counter.next_max_id(10) == 30
        with pytest.raises(StoreError, match=r"client .* is closed"):
            await counter.next_max_id(10)

    async def test_credentials(self, proxy: CosIdProxy) -> None:
        """They go as basic authentication, and into no message."""
        url = proxy.url.replace("http://", "cosid+http://me:secret%2F@")
        async with counter_at(url) as counter:
            assert await counter.next_max_id(10) == 10
            login = base64.b64encode(b"me:secret/").decode()
            assert proxy.headers["authorization"] == f"Basic {login}"
            proxy.answer(401, "who are you?")
            with pytest.raises(StoreAuthenticationError) as caught:
                await counter.next_max_id(10)
            assert "secret" not in f"{caught.value!r} {counter!r} {HttpStore.from_url(url)!r}"

    async def test_an_old_server_started_anew(self, proxy: CosIdProxy) -> None:
        """Before 3.2.1 it has forgotten the counter: one call fails, the next creates it again."""
        proxy.is_lazy = False
        async with counter_at(proxy.url, offset=100) as counter:
            assert await counter.next_max_id(10) == 110
            proxy.restart()
            with pytest.raises(StoreUnavailableError, match="HTTP 500"):
                await counter.next_max_id(10)
            assert await counter.next_max_id(10) == 120
        assert [method for method, _, _ in proxy.asked] == ["POST", *["PATCH"] * 2, "POST", "PATCH"]

    @pytest.mark.stress
    async def test_a_java_node_beside_ours(self, cosid_proxy: CosIdProxy, namespace: str) -> None:
        """In turn, 1000 times; its statements are CosId's client's."""
        segments, due = f"/segments/{namespace}/order", 0
        async with (
            httpx.AsyncClient(base_url=cosid_proxy.url) as java,
            counter_at(cosid_proxy.url, namespace=namespace, offset=5, step=10) as ours,
        ):
            create = f"/segments/distributor/{namespace}/order?offset=5&step=100"
            assert (await java.post(create)).status_code == 200
            due = 5
            for _ in range(500):
                due += 100
                assert (await java.patch(f"{segments}?step=100")).json() == due
                due += 10
                assert await ours.next_max_id(10) == due
        assert cosid_proxy.counters[f"{namespace}.order"] == due == 5 + 500 * 110


class TestAnswers:
    async def test_errors(self, proxy: CosIdProxy) -> None:
        """Each is ours, says what came, and the next call goes on."""
        coded = '{{"code":"{}","msg":{},"errors":{}}}'
        wrong_step = coded.format(400, "null", '[{"field":"step","msg":"must not be null"}]')
        long = "x" * 70_000
        cases: list[tuple[int, str, type[StoreError], str]] = [
            (400, wrong_step, StoreError, "HTTP 400, 400: step must not be null"),
            (400, coded.format(500, '"step:[0]!"', "null"), StoreError, "HTTP 400, 500: step:.0.!"),
            (500, coded.format(500, '"Redis is away"', "null"), StoreUnavailableError, "is away"),
            (500, "null", StoreUnavailableError, "HTTP 500"),
            (500, '[{"code":1}]', StoreUnavailableError, "HTTP 500; try again"),
            (502, "<html>", StoreUnavailableError, "HTTP 502"),
            (503, "", StoreUnavailableError, "HTTP 503"),
            (429, "", StoreUnavailableError, "HTTP 429"),
            (401, "", StoreAuthenticationError, "HTTP 401"),
            (403, "", StoreAuthenticationError, "HTTP 403"),
            (404, "<html>", StoreError, "HTTP 404"),
            (302, "", StoreError, "it redirects"),
            (200, "<html>", StoreError, "it answered '<html>', not an integer; check that"),
            (200, "", StoreError, "it answered '', not an integer"),
            (200, '"100"', StoreError, "not an integer"),
            (200, "100.0", StoreError, "not an integer"),
            (200, "true", StoreError, "not an integer"),
            (200, "NaN", StoreError, "not an integer"),
            (200, "null", StoreError, "not an integer"),
            (200, "[" * 60_000, StoreError, "not an integer"),
            (200, "9" * 5000, StoreError, "not an integer"),
            (200, str(2**63), StoreError, "not an integer"),
            (200, "-5", CorruptCounterError, "holds -15"),
            (200, "9", CorruptCounterError, "holds -1"),
            (200, long, StoreError, "longer than 65536 bytes"),
            (500, long, StoreError, "longer than 65536 bytes"),
        ]
        async with counter_at(proxy.url) as counter:
            due = await counter.next_max_id(10)
            for status, body, error, text in cases:
                proxy.answer(status, body, method="PATCH")
                with pytest.raises(StoreError, match=text) as caught:
                    await counter.next_max_id(10)
                assert type(caught.value) is error, (status, body[:20])
                assert caught.value.retryable == (error is StoreUnavailableError)
                assert len(str(caught.value)) < 300
                due += 10
                assert await counter.next_max_id(10) == due
            proxy.answer(200, "10", method="PATCH", headers={"content-encoding": "gzip"})
            with pytest.raises(StoreError, match="compresses its answers"):
                await counter.next_max_id(10)
            proxy.counters["cosid.order"] = 0
            with pytest.raises(StoreRolledBackError) as went_back:
                await counter.next_max_id(10)
            assert (went_back.value.seen, went_back.value.expected) == (10, due + 10)

    async def test_a_counter_that_cannot_be_created(self, proxy: CosIdProxy) -> None:
        """No ids are asked for before it is: it would begin at 0 and not at the offset."""
        async with counter_at(proxy.url, offset=100) as counter:
            for status in (400, 500):
                proxy.answer(status, method="POST")
                with pytest.raises(StoreError, match=f"HTTP {status}"):
                    await counter.next_max_id(10)
            assert proxy.counters == {}
            assert await counter.next_max_id(10) == 110

    async def test_the_end_of_int64(self, proxy: CosIdProxy) -> None:
        """What is known to be the end is not asked for; what the server finds is its own error."""
        proxy.counters["cosid.order"] = 2**63 - 11
        async with counter_at(proxy.url) as counter:
            with pytest.raises(StoreUnavailableError, match="Error in execution"):
                await counter.next_max_id(11)
            assert await counter.next_max_id(10) == 2**63 - 1
            asked = len(proxy.asked)
            with pytest.raises(IdOverflowError):
                await counter.next_max_id(1)
            assert len(proxy.asked) == asked

    async def test_what_the_protocol_has_not(self, cosid_proxy: CosIdProxy) -> None:
        """A clear error, and no request."""
        asked = len(cosid_proxy.asked)
        async with HttpStore.from_url(cosid_proxy.url) as store:
            await store.create_schema()
            for call in (
                store.counters(),
                store.set_floor(name="order", above=1),
                store.machines(),
                store.evict_machine(machine_id=1),
                store.machine_bits(),
                store.set_machine_bits(bits=3),
                store.initialize_namespace(),
                store.machine_markers(),
            ):
                with pytest.raises(
                    UnsupportedByStoreError, match=r"has no way to .*; use the store behind it"
                ):
                    await call
        assert len(cosid_proxy.asked) == asked


class TestFailures:
    async def test_a_lost_reply_is_a_gap(self, proxy: CosIdProxy) -> None:
        """The request is not sent again by the call; the next one goes on above."""
        async with FaultProxy(proxy.host, proxy.port) as way:
            url = f"http://{way.host}:{way.port}"
            async with counter_at(url) as counter:
                assert await counter.next_max_id(10) == 10
                for due in (30, 50):
                    way.swallow_replies(to=b"PATCH")
                    before = len(proxy.asked)
                    with pytest.raises(StoreUnavailableError):
                        await counter.next_max_id(10)
                    assert proxy.asked[before:] == [
                        ("PATCH", "/segments/cosid/order", {"step": "10"})
                    ]
                    assert await counter.next_max_id(10) == due

    async def test_several_hosts(self, proxy: CosIdProxy, namespace: str) -> None:
        """Proxies on one store: another one is asked if a host gets no request; no id twice."""
        async with FaultProxy(proxy.host, proxy.port) as way:
            url = f"cosid+http://{way.host}:{way.port},{proxy.host}:{proxy.port}"
            async with counter_at(url, namespace=namespace) as counter:
                assert await counter.next_max_id(10) == 10
                way.refuse()
                way.cut()
                with suppress(StoreUnavailableError):  # a connection that was kept: not sent again
                    await counter.next_max_id(10)
                before = await counter.next_max_id(10)
                assert [await counter.next_max_id(10) for _ in range(2)] == [
                    before + 10,
                    before + 20,
                ]
            async with counter_at(url, namespace=namespace) as counter:  # the first is away
                assert await counter.next_max_id(10) == before + 30
                await way.accept()
                proxy.answer(503, method="PATCH")
                assert await counter.next_max_id(10) == before + 40
                way.swallow_replies(to=b"PATCH")
                asked = len(proxy.asked)
                with pytest.raises(StoreUnavailableError):
                    await counter.next_max_id(10)
                assert len(proxy.asked) == asked + 1, "a request whose answer is lost is a gap"
                assert await counter.next_max_id(10) == before + 60

    async def test_a_killed_server(self, namespace: str) -> None:
        """Two servers on one store, of which one is killed while a chain takes ids."""
        ids: list[int] = []
        server = "[server.cosid]\n"
        with IdServer(server=server) as first, IdServer(server=server, store=first.url) as second:
            url = f"cosid+http://{first.host}:{first.port},{second.host}:{second.port}"
            async with (
                HttpStore.from_url(url) as store,
                SegmentChainId(
                    store.segment_distributor(namespace=namespace, name="order", step=10)
                ) as order,
            ):
                ids += await order.next_ids(200)
                first.end(signal.SIGKILL)
                for _ in range(20):
                    ids += await order.next_ids(50)
            async with HttpStore.from_url(url) as store:
                counter = store.segment_distributor(namespace=namespace, name="order")
                assert await counter.next_max_id(1) > ids[-1]
        assert len(set(ids)) == len(ids) == 1200

    async def test_silence(self, proxy: CosIdProxy) -> None:
        """A reply that comes too late is nobody's."""
        async with (
            FaultProxy(proxy.host, proxy.port) as way,
            httpx.AsyncClient(base_url=f"http://{way.host}:{way.port}", timeout=1.0) as client,
        ):
            store = HttpStore(client)
            counter = store.segment_distributor(name="order")
            other = store.segment_distributor(name="other", offset=FAR)
            assert await other.next_max_id(10) == FAR + 10
            assert await counter.next_max_id(10) == 10
            way.blackhole(replies=True)
            with pytest.raises(StoreUnavailableError, match="ReadTimeout"):
                await counter.next_max_id(10)
            way.heal()
            assert await other.next_max_id(10) == FAR + 20
            assert await counter.next_max_id(10) == 30

    async def test_a_call_whose_caller_has_gone(self, proxy: CosIdProxy) -> None:
        """It fails in silence."""
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about))
        async with (
            FaultProxy(proxy.host, proxy.port) as way,
            counter_at(f"http://{way.host}:{way.port}") as counter,
        ):
            await counter.next_max_id(10)
            way.blackhole(replies=True)
            seen = way.next_request(b"PATCH")
            call = asyncio.ensure_future(counter.next_max_id(10))
            await seen
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            way.cut()
            backend: Any = counter._backend
            session = await backend.link.ready()
            await asyncio.wait(session._calls)
            way.heal()
            assert await counter.next_max_id(10) == 30
        gc.collect()
        assert told == []

    async def test_nobody_there(self) -> None:
        """Refused, or a name that leads nowhere: it may be there the next time."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            async with counter_at(f"http://127.0.0.1:{port}") as counter:
                with pytest.raises(StoreUnavailableError) as caught:
                    await counter.next_max_id(10)
        assert isinstance(caught.value.__cause__, httpx.ConnectError)

    async def test_no_http(self) -> None:
        """Somebody else's port."""

        async def banner(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-x\r\n")
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(banner, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with counter_at(f"http://127.0.0.1:{port}") as counter:
                with pytest.raises(StoreUnavailableError) as caught:
                    await counter.next_max_id(10)
        assert isinstance(caught.value.__cause__, httpx.TransportError)

    async def test_a_certificate_of_an_unknown_authority(self, redis_tls: Any) -> None:
        """No second attempt mends it; the error says what does."""
        async with counter_at(f"https://127.0.0.1:{redis_tls.port}") as counter:
            with pytest.raises(StoreError, match=r"not trusted.*verify=") as caught:
                await counter.next_max_id(10)
        assert not caught.value.retryable

    async def test_a_hook_that_raises(self, proxy: CosIdProxy) -> None:
        """Of the user's client: its errors are translated as well."""

        async def hook(response: httpx.Response) -> None:
            response.raise_for_status()

        async with httpx.AsyncClient(
            base_url=proxy.url, event_hooks={"response": [hook]}
        ) as client:
            counter = HttpStore(client).segment_distributor(name="order")
            assert await counter.next_max_id(10) == 10
            for status, error in ((503, StoreUnavailableError), (400, StoreError)):
                proxy.answer(status)
                with pytest.raises(error, match=f"HTTP {status}"):
                    await counter.next_max_id(10)

    async def test_closed_under_a_call(self, proxy: CosIdProxy) -> None:
        """The call ends at once; the next one has a connection of its own."""
        async with FaultProxy(proxy.host, proxy.port) as way:
            store = HttpStore.from_url(f"http://{way.host}:{way.port}")
            counter = store.segment_distributor(name="a")
            assert await counter.next_max_id(10) == 10
            seen = way.next_request(b"PATCH")
            way.blackhole(replies=True)
            call = asyncio.ensure_future(counter.next_max_id(10))
            await seen
            await store.aclose()
            with pytest.raises(StoreUnavailableError, match="closed while the call was under way"):
                await call
            way.heal()
            assert await counter.next_max_id(10) == 30
            await store.aclose()

    async def test_a_generator_goes_on(self, proxy: CosIdProxy) -> None:
        """Through failures of every kind; its ids rise."""
        async with (
            counter_at(proxy.url, step=10) as counter,
            SegmentChainId(counter, endurance=0, wait_timeout=20) as order,
        ):
            ids = await order.next_ids(25)
            for status in (500, 502, 429):
                proxy.answer(status, method="PATCH")
                ids += await order.next_ids(25)
        assert ids == sorted(set(ids))


async def test_cut_at_every_await(proxy: CosIdProxy, namespace: str) -> None:
    """On one connection, new or used, two counters see their own replies, and nothing is lost."""
    last = {offset: offset for offset in (0, FAR)}
    options: dict[str, Any] = {"verify": False, "limits": httpx.Limits(max_connections=1)}
    for turns in range(36):
        for cancel in (cancel_task, cancel_scope):
            async with httpx.AsyncClient(base_url=proxy.url, **options) as client:
                store = HttpStore(client)
                counters: dict[int, Any] = {
                    offset: store.segment_distributor(
                        namespace=namespace, name=f"from {offset}", offset=offset
                    )
                    for offset in last
                }
                for counter in counters.values():
                    counter._is_created = turns > 0
                    await cancel(counter, turns)
                for offset, counter in counters.items():
                    with anyio.fail_after(4):
                        max_id = await counter.next_max_id(1)
                    assert last[offset] < max_id < last[offset] + 5
                    last[offset] = max_id


async def cancel_task(counter: CounterDistributor, turns: int) -> None:
    """As asyncio does it: once, to the task."""
    task = asyncio.ensure_future(counter.next_max_id(1))
    for _ in range(turns):
        await asyncio.sleep(0)
    done = task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
        assert done, "the cancellation was swallowed"


async def cancel_scope(counter: CounterDistributor, turns: int) -> None:
    """As anyio does it: every await in the scope is cut from then on."""

    async def cut() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        scope.cancel()

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(cut)
            await counter.next_max_id(1)
            scope.cancel()


class TestLoops:
    """One object, several event loops one after the other."""

    def test_your_own_client_on_two_loops(self, proxy: CosIdProxy) -> None:
        """Refused while the first one lives; after its end the errors are ours."""
        client = httpx.AsyncClient(base_url=proxy.url)
        counter = HttpStore(client).segment_distributor(name="order")
        with warnings.catch_warnings(), asyncio.Runner() as other:
            warnings.simplefilter("ignore", ResourceWarning)  # of the user who left it to its end
            with asyncio.Runner() as one:
                assert one.run(counter.next_max_id(10)) == 10
                with pytest.raises(WrongLoopError):
                    other.run(counter.next_max_id(10))
                with pytest.raises(WrongLoopError):
                    other.run(counter.aopen())
                assert one.run(counter.next_max_id(10)) == 20
            # The former loop's connection is in the way once.
            with pytest.raises(StoreUnavailableError, match="of another event loop"):
                other.run(counter.next_max_id(10))
            assert other.run(counter.next_max_id(10)) > 20
            other.run(client.aclose())
            gc.collect()
