"""What does an id cost over the id service's HTTP, beside a constant of the same framework?

A real uvicorn on a core of its own, asked by wrk over 64 connections.  Each route is asked in turn,
round by round, beside a bare Starlette application that answers as many bytes to the same method,
and one id also beside an ASGI application without any framework.  The token has a quota.

What counts is the processor time of a request, since other programs may share the cores.
"""

from __future__ import annotations

import statistics
import sys
from contextlib import ExitStack
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aiocosid.provider import configure
from aiocosid.server import App, Token, TokenScope, digest_of
from aiocosid.server._listen import EitherProtocol
from aiocosid.server.dialects.leaf import routes as leaf_routes
from aiocosid.server.dialects.tinyid import routes as tinyid_routes

from ._harness import Answer, ratio
from ._http import free_port, load_tool, processor_time, rate, serving

ROUNDS = 5
ROUND = 1.0  # seconds for each route
CONNECTIONS = 64
COUNT = 1000
BAR, ASGI_BAR, DIALECT_BAR, BATCH_BAR = 1.0, 0.7, 0.9, 160
ENOUGH = 1 << 40  # ids a second
SECRET = "aiocosid_bench"  # noqa: S105 - of a benchmark
BEARER = {"Authorization": f"Bearer {SECRET}"}
AN_ID = "12345678"

ONE = "one id, with a token"
IDS = "/v1/ids/order"
LEAF = "/api/segment/get/order"
TINYID = f"/tinyid/id/nextIdSimple?bizType=order&token={SECRET}"

# What is asked: its method, its path, and the constant's body and type.
ROUTES: dict[str, tuple[str, str, str, str]] = {
    ONE: (
        "POST",
        IDS,
        f'{{"ids":["{AN_ID}"],"numbers":[{AN_ID}]}}',
        "application/json",
    ),
    "Leaf's route": ("GET", LEAF, AN_ID, "text/plain"),
    "tinyid's route": ("GET", TINYID, AN_ID, "text/plain"),
}

BATCH = f"{COUNT} ids"
FLOORS = {"service": {*ROUTES, BATCH}, "bare": {*ROUTES}, "asgi": {ONE}}


def service() -> App:
    """Return the id service."""
    generators = {"order": {"kind": "chain"}}
    ids = configure({"store": "memory:", "generators": generators}, default=False)
    scopes = TokenScope.IDS, TokenScope.SEGMENTS
    token = Token(name="bench", digest=digest_of(SECRET), scopes=scopes, ids_per_second=ENOUGH)
    return App(
        ids,
        tokens=[token],
        dialects=[lambda found: leaf_routes(found, public=True), tinyid_routes],
    )


def bare() -> Starlette:
    """Return an application of constants."""
    return Starlette(
        routes=[
            Route(path.partition("?")[0], constant(text, kind), methods=[method])
            for method, path, text, kind in ROUTES.values()
        ]
    )


def constant(text: str, kind: str) -> Any:  # noqa: ANN401 - as Starlette has it
    """Return an endpoint."""
    body = text.encode()

    async def answer(_request: Request) -> Response:
        return Response(body, media_type=kind)

    return answer


async def asgi(scope: Any, _receive: Any, send: Any) -> None:  # noqa: ANN401 - as ASGI has it
    """Answer every request with the constant of one id."""
    if scope["type"] != "http":
        return
    _, _, text, kind = ROUTES[ONE]
    body = text.encode()
    headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def serve(which: str, port: int) -> None:
    """Be one of the servers."""
    common: Any = {"port": port, "log_level": "warning", "access_log": False, "loop": "uvloop"}
    if which == "service":
        uvicorn.run(service(), http=EitherProtocol, proxy_headers=False, **common)
    else:
        app: Any = bare() if which == "bare" else asgi
        uvicorn.run(app, http="httptools", proxy_headers=False, **common)


async def ask() -> Answer:
    """Ask all routes in turn, some rounds."""
    asked = {name: (method, path) for name, (method, path, _, _) in ROUTES.items()}
    asked[BATCH] = "POST", f"{IDS}?count={COUNT}"
    rates: dict[str, dict[str, list[float]]] = {}
    costs: dict[str, dict[str, list[float]]] = {}
    ports = {which: free_port() for which in ("service", "bare", "asgi")}
    with ExitStack() as stack:
        servers = {
            which: stack.enter_context(serving(["-m", __name__, which, str(port)], port))
            for which, port in ports.items()
        }
        for _ in range(ROUNDS):
            for name, (method, path) in asked.items():
                for which, (url, number) in servers.items():
                    if name not in FLOORS[which]:
                        continue
                    before = processor_time(number)
                    how: Any = {"connections": CONNECTIONS, "method": method, "headers": BEARER}
                    found = rate(url + path, ROUND, **how)
                    spent = (processor_time(number) - before) / (found * ROUND)
                    rates.setdefault(name, {}).setdefault(which, []).append(found)
                    costs.setdefault(name, {}).setdefault(which, []).append(spent * 1e6)
    parts = {name: ratio(costs[name]["bare"], costs[name]["service"]) for name in ROUTES}
    single, *dialects = parts.values()
    of_asgi = ratio(costs[ONE]["asgi"], costs[ONE]["service"])
    batch = COUNT * ratio(rates[BATCH]["service"], rates[ONE]["bare"])
    return Answer(
        "The id service's HTTP routes, beside a bare application of the same framework",
        f"one id in the processor time of that application, and at least {ASGI_BAR:.0%} of what "
        f"bare ASGI serves in it; Leaf's and tinyid's routes {DIALECT_BAR:.0%}; {COUNT} ids a "
        f"request at least {BATCH_BAR} ids for each request of that application",
        single >= BAR
        and of_asgi >= ASGI_BAR
        and min(dialects) >= DIALECT_BAR
        and batch >= BATCH_BAR,
        f"{single:.1%}, and {of_asgi:.1%} of bare ASGI; "
        f"{', '.join(f'{each:.1%}' for each in dialects)}; {batch:.0f} ids, "
        f"asked by {load_tool()}.",
        ("route", "server", "requests/s", "µs of processor time"),
        tuple(
            (
                name,
                which,
                f"{statistics.median(rates[name][which]):.0f}",
                f"{statistics.median(costs[name][which]):.1f}",
            )
            for name in asked
            for which in rates[name]
        ),
        raw={"rates": rates, "costs": costs, "connections": CONNECTIONS},
    )


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
