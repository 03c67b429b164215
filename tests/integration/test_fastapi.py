"""The applications of two how-to guides, FastAPI and the end of a pod, over real HTTP."""

from __future__ import annotations

import logging
import runpy
import signal
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import anyio
import httpx
import pytest
from fastapi import Depends, FastAPI
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import aiocosid
from aiocosid.abc import IdGenerator, Machine
from aiocosid.converter import OpaqueIdConverter, Radix62IdConverter, TypedId
from aiocosid.integrations.asgi import HealthApp, StatisticsApp
from aiocosid.integrations.fastapi import Ids, generator, handle_errors, lifespan
from aiocosid.integrations.starlette import provider_of
from tests.docs._blocks import ROOT, blocks
from tests.machine_marks import initialize_namespace
from tests.servers import ValkeyServer, wait_until

from ._web import Process, StartError, serve

pytestmark = [pytest.mark.integration]

HOWTO = ROOT / "docs" / "howto"
PAGES = [HOWTO / "fastapi.md", HOWTO / "kubernetes.md"]
FILES = {b.title: b.source for page in PAGES for b in blocks(page) if b.title}

# An endpoint that tells when a request has come, and answers it when it may.
HELD = """
from pathlib import Path
from uuid import uuid4
import anyio
from web import Order, OrderIds, app

@app.post("/held")
async def held(orders: OrderIds) -> Order:
    Path(f"come-{uuid4()}").touch()
    while not Path("go").exists():
        await anyio.sleep(0.01)
    return Order(id=await orders.next_id())
"""

# What the page's application may have besides.
MORE = """
from fastapi import Query

@app.post("/orders/bulk")
async def create_orders(
    orders: OrderIds, count: Annotated[int, Query(ge=1, le=10_000)] = 10
) -> list[Order]:
    return [Order(id=Int64Text(each)) for each in await orders.next_ids(count)]

@app.get("/orders/{order_id}")
async def read_order(order_id: Int64Text) -> Order:
    return Order(id=order_id)
"""

Shop = Callable[[str], httpx.Client]


def names_of(folder: Path, file: str, more: str = "") -> dict[str, Any]:
    """Write and run one of the page's files, and more; what it defines."""
    (folder / "ids.toml").write_text(FILES["ids.toml"])
    path = folder / file
    path.write_text(FILES[file] + more)
    return runpy.run_path(str(path))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Serve the page's first file on a store."""
    with ExitStack() as stack:

        def start(url: str) -> httpx.Client:
            monkeypatch.chdir(tmp_path)
            monkeypatch.setenv("AIOCOSID_STORE", url)
            monkeypatch.setenv("AIOCOSID_GENERATORS__ORDER__WAIT_TIMEOUT", "0.5")
            return stack.enter_context(serve(names_of(tmp_path, "shop.py", MORE)["app"]))

        yield start


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    (tmp_path / "ids.db").touch()
    return f"sqlite:///{tmp_path}/ids.db"


def ordered(client: httpx.Client, requests: int, *, at_once: int = 8) -> list[int]:
    """The ids of so many orders, several of which are under way at any time."""
    with ThreadPoolExecutor(at_once) as pool:
        replies = list(pool.map(client.post, ["/orders"] * requests))
    assert {reply.status_code for reply in replies} == {200}
    return [int(reply.json()["id"]) for reply in replies]


def test_an_application_gives_ids_and_tells_about_them(shop: Shop, file_url: str) -> None:
    """Single orders, whole batches, ids in paths, health, statistics and OpenAPI."""
    client = shop(file_url)
    assert sorted(ordered(client, 200)) == list(range(1, 201))
    batch = client.post("/orders/bulk", params={"count": 2500}).json()
    assert batch == [{"id": str(each)} for each in range(201, 2701)]
    assert client.post("/orders/bulk", params={"count": 0}).status_code == 422
    most = str(2**63 - 1)
    assert client.get(f"/orders/{most}").json() == {"id": most}
    for wrong in ("007", "-1", "9" * 19, "x"):
        refused = client.get(f"/orders/{wrong}")
        assert (refused.status_code, refused.json()["detail"][0]["loc"]) == (
            422,
            ["path", "order_id"],
        )
    health = client.get("/health")
    assert (health.status_code, health.json()["generators"]["order"]["status"]) == (200, "up")
    one, all_of_them = client.get("/ids/order").json(), client.get("/ids/").json()
    assert (one["name"], one.keys()) == ("order", all_of_them["order"].keys())
    paths = client.get("/openapi.json").json()["paths"]
    (parameter,) = paths["/orders/{order_id}"]["get"]["parameters"]
    assert (parameter["schema"]["type"], parameter["schema"]["format"]) == ("string", "int64")


class ShortId(TypedId, inner=Radix62IdConverter()):
    """Eleven characters."""


class AccountId(TypedId, inner=OpaqueIdConverter(bytes(16))):
    """A text that tells nothing."""


class Transfer(BaseModel):
    account: AccountId


def test_converted_ids_in_paths_and_bodies() -> None:
    """Texts come in and go out; numbers where a key is to hide them do not; OpenAPI knows."""
    app = FastAPI()

    @app.get("/coded/{order_id}")
    async def read_coded(order_id: ShortId) -> ShortId:
        return order_id

    @app.post("/transfers")
    async def transfer(asked: Transfer) -> ShortId:
        return ShortId(int(asked.account))

    with serve(app) as client:
        assert client.get("/coded/0000000000g").json() == "0000000000g"
        refused = client.get("/coded/!").json()["detail"][0]
        assert (refused["type"], refused["loc"]) == ("id_text", ["path", "order_id"])
        account = {"account": str(AccountId(42))}
        assert client.post("/transfers", json=account).json() == "0000000000g"
        assert client.post("/transfers", json={"account": 42}).status_code == 422
        (parameter,) = client.get("/openapi.json").json()["paths"]["/coded/{order_id}"]["get"][
            "parameters"
        ]
    assert parameter["schema"]["pattern"] == "^(?:[0-9A-Za-z]{11})$"


@pytest.mark.stress  # three interpreters that import a framework
def test_workers_share_the_counter_and_no_id(tmp_path: Path, file_url: str) -> None:
    """Two workers reserve segments of their own, and close them in order."""
    for name in ("ids.toml", "shop.py"):
        (tmp_path / name).write_text(FILES[name])
    with Process(tmp_path, "shop:app", "--workers", "2", AIOCOSID_STORE=file_url) as served:
        ids = ordered(served.client, 200)
        log = served.stop()
    assert len(set(ids)) == 200
    assert log.count("Application shutdown complete") == 2
    assert "Error" not in log
    assert "Warning" not in log


def test_an_outage_is_a_503_when_the_ids_end(
    shop: Shop, valkey_factory: Callable[..., ValkeyServer]
) -> None:
    """With ids in hand nobody notices; then clients are told to come again; then it recovers."""
    server = valkey_factory(persistent=True)
    client = shop(server.url)
    server.kill()
    assert sorted(ordered(client, 10)) == list(range(1, 11))
    client.post("/orders/bulk", params={"count": 180}).raise_for_status()
    wait_until(lambda: "degraded" in client.get("/health").json(), "the outage is seen")
    degraded = client.get("/health")
    assert (degraded.status_code, degraded.json()["degraded"]) == (200, ["order"])
    client.post("/orders/bulk", params={"count": 10}).raise_for_status()
    refused = client.post("/orders")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert client.get("/health").status_code == 503
    assert client.get("/ids/order").json()["lastError"]
    server.start()
    wait_until(lambda: client.post("/orders").status_code == 200, "ids come again")
    assert client.get("/health").json()["status"] == "up"


def test_a_store_that_forgot_its_counter_ends_the_ids(
    shop: Shop, valkey_factory: Callable[..., ValkeyServer], caplog: pytest.LogCaptureFixture
) -> None:
    """An emptied store is no outage: asking again does not help, and the reply says so."""
    server = valkey_factory()
    client = shop(server.url)
    server.call("FLUSHALL")
    client.post("/orders/bulk", params={"count": 200}).raise_for_status()
    wait_until(lambda: client.post("/orders").status_code == 500, "no further id")
    caplog.clear()
    begun = time.monotonic()
    replies = [client.post("/orders") for _ in range(300)]  # on one connection
    assert {reply.status_code for reply in replies} == {500}
    assert replies[0].json()["type"].endswith("#storerolledbackerror")
    wait_until(lambda: "more like it were left out" in caplog.text, "the summary")
    written = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert {each.name for each in written} == {"aiocosid.requests"}
    assert len(written) <= 2 + (time.monotonic() - begun)
    assert not any(each.exc_info for each in written)
    health = client.get("/health")
    assert health.status_code == 503
    assert health.json()["generators"]["order"]["error"] == "StoreRolledBackError"


def test_it_does_not_start_without_its_store(shop: Shop, valkey_password: ValkeyServer) -> None:
    """A missing password stops the application before it takes requests."""
    with pytest.raises(StartError):
        shop(valkey_password.url_for())


def test_other_endpoints_work(namespace: str) -> None:
    """Several generators, the provider itself, and an endpoint that runs in a thread."""

    @asynccontextmanager
    async def open_ids() -> AsyncGenerator[aiocosid.IdProvider]:
        async with aiocosid.connect("memory://", namespace=namespace) as ids:
            await ids.segment_chain("order")
            await ids.snowflake("payment")
            yield ids

    app = FastAPI(lifespan=lifespan(open_ids))
    handle_errors(app)

    @app.post("/payments")
    async def create_payment(
        payments: Annotated[IdGenerator, Depends(generator("payment"))],
    ) -> int:
        return await payments.next_id()

    @app.get("/generators")
    async def generators(ids: Ids) -> list[str]:
        return sorted(ids)

    @app.post("/orders/sync")
    def create_order(orders: Annotated[IdGenerator, Depends(generator("order"))]) -> int:
        return anyio.from_thread.run(orders.next_id)

    with serve(app) as client:
        assert client.post("/payments").json() > 2**53
        assert client.get("/generators").json() == ["order", "payment"]
        assert [client.post("/orders/sync").json() for _ in range(3)] == [1, 2, 3]


def test_starlette(tmp_path: Path, file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's application, with what the page does not show."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIOCOSID_STORE", file_url)
    app: Starlette = names_of(tmp_path, "plain.py")["app"]

    async def generators(request: Request) -> JSONResponse:
        return JSONResponse(sorted(provider_of(request)))

    app.router.routes += [
        Route("/generators", generators),
        Route("/health", HealthApp()),
        Mount("/ids", StatisticsApp()),
    ]
    with serve(app) as client:
        assert client.get("/generators").json() == ["order"]
        assert client.post("/orders").json() == {"id": "1"}
        assert client.get("/ids/order").json()["name"] == "order"
        assert client.get("/ids", follow_redirects=True).status_code == 200
        assert client.get("/health").json()["status"] == "up"
        assert client.post("/health").status_code == 405


def test_sigterm_answers_what_is_under_way_and_then_gives_the_machine_id_back(
    tmp_path: Path, valkey_factory: Callable[..., ValkeyServer]
) -> None:
    """First no new connections, then the last ids, then the return."""
    server = valkey_factory()
    initialize_namespace(server, "web")
    for name, source in (("web.py", FILES["web.py"]), ("held.py", HELD)):
        (tmp_path / name).write_text(source)
    with (
        Process(tmp_path, "held:app", IDS_URL=server.url) as served,
        ThreadPoolExecutor(8) as pool,
    ):
        before = ordered(served.client, 3)
        (held,) = machines(server.url)
        replies = [pool.submit(served.client.post, "/held") for _ in range(8)]
        wait_until(lambda: len(list(tmp_path.glob("come-*"))) == 8, "they are under way")
        served.process.send_signal(signal.SIGTERM)
        wait_until(lambda: is_refused(served.client), "it stops to serve")
        assert machines(server.url) == [held]  # not before the last answer
        (tmp_path / "go").touch()
        answers = [reply.result() for reply in replies]
        assert served.process.wait(timeout=20) in {0, -signal.SIGTERM}
    assert {answer.status_code for answer in answers} == {200}
    assert len({*before, *(int(answer.json()["id"]) for answer in answers)}) == 11
    assert held.instance_id
    assert [each.instance_id for each in machines(server.url)] == [""]
    assert "Application shutdown complete" in served.log
    assert "Error" not in served.log


def machines(url: str) -> list[Machine]:
    """Who holds which machine id."""

    async def ask() -> list[Machine]:
        async with aiocosid.store_from_url(url) as store:
            return list(await store.machines(namespace="web"))

    return anyio.run(ask)


def is_refused(client: httpx.Client) -> bool:
    """Tell whether nobody listens any more; over a connection of its own."""
    try:
        httpx.get(f"{client.base_url}/health")
    except httpx.TransportError:
        return True
    return False
