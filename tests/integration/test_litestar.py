"""The Litestar application of docs/howto/fastapi.md, served by uvicorn, over real HTTP."""

from __future__ import annotations

import logging
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar, Router, WebSocket, get, websocket
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath

import aiocosid
from aiocosid.abc import IdGenerator, Provider
from aiocosid.errors import CosIdError, MachineIdLostError, SegmentUnavailableError
from aiocosid.integrations.litestar import CosIdPlugin, generator
from tests.docs._blocks import ROOT, blocks

from ._web import StartError, serve

pytestmark = [pytest.mark.integration]

PAGE = ROOT / "docs" / "howto" / "fastapi.md"
FILES = {block.title: block.source for block in blocks(PAGE) if block.title}

# The provider under its usual name, which the page's handler does not need.
MORE = """
from aiocosid.abc import Provider
from litestar import get

@get("/generators")
async def generators(ids: NamedDependency[Provider]) -> list[str]:
    return sorted(ids)

app = Litestar([create_order, generators], plugins=[ids])
"""


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Litestar sets the root logger up for itself; the other tests need theirs."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """Serve the page's application on a file."""
    (tmp_path / "ids.db").touch()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids.toml").write_text(FILES["ids.toml"])
    (tmp_path / "star.py").write_text(FILES["star.py"] + MORE)
    with serve(runpy.run_path(str(tmp_path / "star.py"))["app"]) as client:
        yield client


def test_the_application_gives_ids_and_tells_about_them(client: httpx.Client) -> None:
    assert [client.post("/orders").json() for _ in range(3)] == [{"id": str(n)} for n in (1, 2, 3)]
    assert client.get("/ids/order").json()["name"] == "order"
    for path in ("/ids", "/ids/"):
        assert set(client.get(path).json()) == {"order"}
    assert client.get("/generators").json() == ["order"]
    missing = client.get("/ids/invoice")
    assert (missing.status_code, missing.json()["detail"]) == (
        404,
        "no generator is named 'invoice'",
    )
    health = client.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "up")
    assert client.head("/health").status_code == 200
    assert client.post("/health").status_code == 405


def test_names_and_errors_and_another_dependency(namespace: str) -> None:
    """What the page does not show."""
    errors: dict[str, CosIdError] = {
        "starved": SegmentUnavailableError("shop.order", waited=5, reason="secret"),
        "lost": MachineIdLostError("shop", 7, reason="secret"),
    }

    @get("/fail/{kind:str}")
    async def fail(kind: FromPath[str]) -> None:
        raise errors[kind]

    @get("/share", dependencies={"share": generator()})
    async def share(share: NamedDependency[aiocosid.SnowflakeId]) -> str:
        return str(await share.next_id())

    @get("/default")
    async def default(cosid: NamedDependency[Provider]) -> bool:
        return aiocosid.default_provider() is cosid

    ids = aiocosid.connect("memory://", namespace=namespace)

    async def open_all(_app: Litestar) -> None:
        await ids.snowflake()
        await ids.segment_chain("order/2026")

    app = Litestar(
        [fail, share, default],
        plugins=[CosIdPlugin(ids, dependency="cosid", statistics="/ids")],
        on_startup=[open_all],
    )
    with serve(app) as client:
        starved, lost = client.get("/fail/starved"), client.get("/fail/lost")
        assert (starved.status_code, starved.headers["retry-after"]) == (503, "1")
        assert starved.json()["detail"] == "no id just now"
        assert starved.headers["content-type"] == "application/problem+json"
        assert (lost.status_code, lost.json()["type"]) == (500, errors["lost"].url)
        assert "secret" not in starved.text + lost.text
        assert int(client.get("/share").text) > 2**53
        assert client.get("/default").json() is True
        for path in ("/ids/order%2F2026", "/ids/order/2026"):
            assert client.get(path).json()["name"] == "order/2026"
        assert client.get("/health").status_code == 404
        with aiocosid.use_provider(aiocosid.connect("memory://")):  # its own one comes first
            assert set(client.get("/ids").json()) == {"__share__", "order/2026"}
    assert "aiocosid" not in app.state
    with pytest.raises(aiocosid.errors.NotOpenError):
        aiocosid.default_provider()


def test_a_misspelt_name_stops_the_start(capfd: pytest.CaptureFixture[str]) -> None:
    """Where a handler takes it, unless a layer below replaces it or a start hook opens it."""

    @get("/order")
    async def order(orders: NamedDependency[IdGenerator]) -> int:
        return await orders.next_id()

    @websocket("/order", dependencies={"more": generator("order")})
    async def socket_of(
        socket: WebSocket[Any, Any, Any], more: NamedDependency[IdGenerator]
    ) -> None:
        await socket.accept()
        await socket.send_json(await more.next_id())

    async def give(orders: NamedDependency[IdGenerator]) -> int:
        return await orders.next_id()

    @get("/deep", dependencies={"number": Provide(give)})
    async def deep(number: NamedDependency[int]) -> int:
        return number

    @get("/other")
    async def other() -> None: ...

    def start(*handlers: Any, name: str = "ordr") -> None:
        ids = aiocosid.connect("memory://")

        async def open_it(_app: Litestar) -> None:
            await ids.segment_chain(name)

        app = Litestar(
            [*handlers],
            dependencies={"orders": generator("order")},
            plugins=[CosIdPlugin(ids, health="/health")],
            on_startup=[open_it],
        )
        with serve(app) as client:
            assert client.get("/health").status_code == 200

    replaced = Router("/", route_handlers=[order], dependencies={"orders": generator("ordr")})
    start(replaced, other)
    start(order, socket_of, name="order")
    for handler in (order, socket_of, deep):
        with pytest.raises(StartError):
            start(handler)
        assert "there is no generator 'order'; similar are 'ordr'" in capfd.readouterr().err


def test_it_does_not_start_without_its_provider() -> None:
    """Nor does it leave anything behind."""

    def refuse() -> aiocosid.IdProvider:
        raise aiocosid.errors.StoreUnavailableError("redis", "nobody there")

    app = Litestar(plugins=[CosIdPlugin(refuse)])
    with pytest.raises(StartError), serve(app):
        pass
