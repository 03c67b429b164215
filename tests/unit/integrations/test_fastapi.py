"""Dependencies: found, missing, and put in their place by a test; without a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeAlias, cast

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import aiocosid
from aiocosid.abc import IdGenerator
from aiocosid.errors import (
    CosIdError,
    GeneratorMissingError,
    InvalidArgumentError,
    NotOpenError,
    SegmentUnavailableError,
    WouldBlock,
)
from aiocosid.generators import CounterId
from aiocosid.integrations.asgi import ErrorMiddleware, HealthApp, StatisticsApp
from aiocosid.integrations.fastapi import Ids, check_generators, generator, handle_errors, lifespan
from aiocosid.integrations.starlette import generator_of, provider_of
from aiocosid.testing import FailingDistributor, ManualClock

from .._kit import Call
from ..segment._kit import OneDistributor, counter
from ._kit import client

LOST = aiocosid.errors.MachineIdLostError("shop", 7, reason="gone")
Orders = Annotated[IdGenerator, Depends(generator("order"))]


def shop(error: CosIdError | None = None, **options: Any) -> FastAPI:
    app = FastAPI(**options)
    handle_errors(app)

    @app.get("/order")
    async def order(orders: Orders) -> int:
        if error is not None:
            raise error
        return await orders.next_id()

    @app.get("/names")
    async def names(ids: Ids) -> list[str]:
        return sorted(ids)

    return app


@asynccontextmanager
async def asking(
    app: FastAPI | None = None, *, name: str = "order", **options: Any
) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of an application whose default provider has one generator."""
    async with aiocosid.connect("memory://", **options) as ids, client(app or shop()) as http:
        await ids.segment_chain(name)
        with aiocosid.use_provider(ids):
            yield http


async def test_without_the_lifespan_the_error_says_so() -> None:
    async with client(shop(debug=True)) as http:
        with pytest.raises(NotOpenError, match=r"lifespan=lifespan\(\.\.\.\)"):
            await http.get("/order")


async def test_the_default_provider_will_do(namespace: str) -> None:
    async with asking(namespace=namespace) as http:
        assert (await http.get("/order")).json() == 1
        assert (await http.get("/names")).json() == ["order"]


async def test_a_generator_that_is_not_there_is_named() -> None:
    async with asking(shop(debug=True), name="bill") as http:
        with pytest.raises(InvalidArgumentError, match="'order'"):
            await http.get("/order")


async def test_a_test_puts_another_generator_in_its_place() -> None:
    app = shop()
    async with CounterId() as counted, client(app) as http:
        app.dependency_overrides[generator("order")] = lambda: counted
        assert [(await http.get("/order")).json() for _ in range(3)] == [1, 2, 3]


async def test_an_error_is_an_invitation_or_the_servers_own() -> None:
    starved = SegmentUnavailableError("shop.order", waited=5, reason="password of app at 10.0.0.7")
    async with asking(shop(starved)) as http:
        reply = await http.get("/order")
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert reply.headers["content-type"] == "application/problem+json"
    assert (reply.json()["detail"], reply.json()["type"]) == ("no id just now", starved.url)
    assert "10.0.0.7" not in reply.text
    async with asking(shop(LOST)) as http:
        reply = await http.get("/order")
    assert (reply.status_code, reply.json()["type"]) == (500, LOST.url)
    async with asking(shop(LOST, debug=True)) as http:
        with pytest.raises(aiocosid.errors.MachineIdLostError):  # for Starlette's page
            await http.get("/order")


async def test_many_failures_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Without a traceback, and with the endpoint that asked."""
    async with asking(shop(LOST)) as http:
        for _ in range(20):
            assert (await http.get("/order")).status_code == 500
    (record,) = (each for each in caplog.records if each.name == "aiocosid.requests")
    assert record.exc_info is None
    assert record.getMessage().startswith("a request was answered with 500: MachineIdLostError: ")
    assert "test_fastapi.py" in record.getMessage()


@pytest.mark.parametrize(("error", "code"), [(WouldBlock(), 1013), (LOST, 1011)])
@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_web_socket_is_closed(error: CosIdError, code: int, *, is_closed: bool) -> None:
    """Unless it is closed already."""
    app = shop()

    @app.websocket("/ids")
    async def serve(socket: WebSocket, _orders: Orders) -> None:
        await socket.accept()
        if is_closed:
            await socket.close()
        raise error

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with asking(app):
        scope = {"type": "websocket", "path": "/ids", "headers": [], "query_string": b""}
        await app({**scope, "state": {}}, receive, send)
    assert [each["type"] for each in sent] == ["websocket.accept", "websocket.close"]
    assert sent[-1]["code"] == (1000 if is_closed else code)


async def test_openapi_knows_nothing_of_dependencies() -> None:
    for path in shop().openapi()["paths"].values():
        assert "parameters" not in path["get"]


async def test_a_lifespan_opens_closes_and_opens_again() -> None:
    opened = 0

    def make() -> aiocosid.IdProvider:
        nonlocal opened
        opened += 1
        return aiocosid.connect("memory://")

    for source, times in ((aiocosid.connect("memory://"), 0), (make, 2)):
        entered = lifespan(source)
        for _ in range(2):
            async with entered(FastAPI()) as state:
                provider = cast("aiocosid.IdProvider", state["aiocosid"])
                assert aiocosid.default_provider() is provider
                await provider.segment_chain("order")
            with pytest.raises(NotOpenError):
                aiocosid.default_provider()
            with pytest.raises(aiocosid.errors.ClosedError):
                await provider.segment_chain("order")
        assert opened == times


@pytest.mark.parametrize("is_configured", [False, True])
async def test_a_request_waits_for_two_failed_calls_at_most(is_configured: bool) -> None:
    """And not for `wait_timeout`; the store is asked again in a second."""
    distributor, clock = FailingDistributor(counter(step=1)), ManualClock()
    store = OneDistributor(distributor)
    settings = {"store": store, "generators": {"order": {"kind": "segment", "step": 1}}}
    source: Any = aiocosid.connect(store, clock=clock)
    if is_configured:
        source = aiocosid.configure(settings, clock=clock)
    app = shop()
    async with (
        lifespan(source)(app) as state,
        client(app) as http,
    ):
        if not is_configured:
            await cast("aiocosid.IdProvider", state["aiocosid"]).segment("order", step=1)
        assert (await http.get("/order")).json() == 1
        distributor.fail()
        call = Call(http.get, "/order")
        await clock.advance(0.5)
        assert call.is_done
        assert (call.result.status_code, call.result.headers["retry-after"]) == (503, "1")
        distributor.recover()
        await clock.advance(1)
        assert (await http.get("/order")).status_code == 200


async def test_a_source_that_gives_no_provider_is_refused() -> None:
    @asynccontextmanager
    async def forgot() -> AsyncGenerator[None]:
        yield

    async def coroutine() -> aiocosid.IdProvider:
        return aiocosid.connect("memory://")

    async def undecorated() -> AsyncGenerator[aiocosid.IdProvider]:
        yield aiocosid.connect("memory://")

    sources: list[Any] = [None, "memory://", forgot, forgot(), coroutine, undecorated]
    sources += [lambda: None, lambda: "memory://"]
    for source in sources:
        with pytest.raises(InvalidArgumentError, match=r"^source .*must (be|yield) a provider"):
            async with lifespan(source)(FastAPI()):
                raise AssertionError
        with pytest.raises(NotOpenError):
            aiocosid.default_provider()


async def test_starlette_finds_it_in_the_state_of_the_request() -> None:
    async def order(request: Request) -> JSONResponse:
        assert generator_of(request, "order") is provider_of(request)["order"]
        return JSONResponse(await generator_of(request, "order").next_id())

    routes = [
        Route("/order", order),
        Route("/health", HealthApp()),
        Mount("/ids", StatisticsApp()),
        Mount("/sub", Starlette(routes=[Route("/order", order), Mount("/ids", StatisticsApp())])),
    ]
    app = Starlette(routes=routes)

    async with lifespan(aiocosid.connect("memory://"))(app) as state:

        async def served(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state)}, receive, send)

        await cast("aiocosid.IdProvider", state["aiocosid"]).segment_chain("order")
        async with client(served) as http, aiocosid.connect("memory://") as other:
            with aiocosid.use_provider(other):  # the request's own one comes first
                for path in ("/order", "/sub/order"):
                    assert (await http.get(path)).status_code == 200
                for path in ("/ids/order", "/sub/ids/order"):
                    assert (await http.get(path)).json()["name"] == "order"
                assert set((await http.get("/sub/ids/")).json()) == {"order"}
                assert set((await http.get("/health")).json()["generators"]) == {"order"}


async def needed(orders: Orders) -> int:
    return await orders.next_id()


def in_an_endpoint(app: FastAPI) -> None:
    app.get("/x")(needed)


def in_a_web_socket(app: FastAPI) -> None:
    @app.websocket("/x")
    async def serve(_socket: WebSocket, _orders: Orders) -> None: ...


def below_a_dependency(app: FastAPI) -> None:
    @app.get("/x")
    async def deep(_number: Annotated[int, Depends(needed)]) -> None: ...


def in_a_router(app: FastAPI) -> None:
    outer, inner = APIRouter(), APIRouter(dependencies=[Depends(needed)])

    @inner.websocket("/y")
    async def serve(_socket: WebSocket) -> None: ...

    outer.include_router(inner)
    app.include_router(outer)


def in_an_included_endpoint(app: FastAPI) -> None:
    router = APIRouter()
    router.get("/x")(needed)
    app.include_router(router, prefix="/r")


def in_an_including_router(app: FastAPI) -> None:
    router = APIRouter()

    @router.get("/x")
    async def plain() -> None: ...

    app.include_router(router, dependencies=[Depends(needed)])


def in_a_mounted_application(app: FastAPI) -> None:
    inner = FastAPI()
    in_an_included_endpoint(inner)
    app.mount("/sub", ErrorMiddleware(cast("Any", inner)))


Place: TypeAlias = Callable[[FastAPI], None]
every_place = pytest.mark.parametrize(
    "place",
    [
        in_an_endpoint,
        in_a_web_socket,
        below_a_dependency,
        in_a_router,
        in_an_included_endpoint,
        in_an_including_router,
        in_a_mounted_application,
    ],
)


@asynccontextmanager
async def misspelt() -> AsyncGenerator[aiocosid.IdProvider]:
    async with aiocosid.connect("memory://") as ids:
        await ids.segment_chain("ordr")
        yield ids


@every_place
async def test_a_misspelt_name_stops_the_start(place: Place) -> None:
    """Wherever it stands; the error names what is alike."""
    app = FastAPI(lifespan=lifespan(misspelt))
    place(app)
    message = "no generator 'order'; similar are 'ordr'"
    with pytest.raises(GeneratorMissingError, match=message):
        async with app.router.lifespan_context(app):
            pass
    with pytest.raises(NotOpenError):  # and leaves nothing behind
        aiocosid.default_provider()


@every_place
async def test_what_another_application_needs_does_not(place: Place) -> None:
    """Nor does a name that is there."""
    app, other = FastAPI(), FastAPI(lifespan=lifespan(misspelt))
    place(app)
    async with other.router.lifespan_context(other):
        pass
    async with aiocosid.connect("memory://") as ids:
        await ids.segment_chain("order")
        check_generators(app, ids)


@pytest.mark.parametrize("replaced", [generator("order"), needed])
async def test_a_replaced_dependency_is_not_needed(replaced: Any) -> None:
    """Neither the generator's, nor what a replaced dependency would have asked for."""
    app = FastAPI(lifespan=lifespan(misspelt))
    below_a_dependency(app)
    app.dependency_overrides[replaced] = lambda: 7
    async with app.router.lifespan_context(app):
        pass


async def test_a_lifespan_around_it_may_open_more() -> None:
    """It has not been there yet, so that lifespan checks for itself."""
    inner = lifespan(misspelt)

    @asynccontextmanager
    async def both(app: FastAPI) -> AsyncGenerator[dict[str, object]]:
        async with inner(app) as state:
            ids = cast("aiocosid.IdProvider", state["aiocosid"])
            with pytest.raises(GeneratorMissingError):
                check_generators(app, ids)
            await ids.segment_chain("order")
            check_generators(app, ids)
            yield state

    app = FastAPI(lifespan=both)
    in_an_included_endpoint(app)
    async with app.router.lifespan_context(app):
        pass
