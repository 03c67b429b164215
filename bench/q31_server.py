"""What does an id cost over the id service's HTTP, beside a constant of the same framework?

A real uvicorn on a core of its own, asked by wrk over 64 connections.  Each route is asked in turn,
round by round, beside a bare Starlette application that answers as many bytes to the same method.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aiocosid.provider import configure
from aiocosid.server import App, Token, Verb, digest_of
from aiocosid.server._listen import EitherProtocol
from aiocosid.server.dialects.leaf import routes as leaf_routes
from aiocosid.server.dialects.tinyid import routes as tinyid_routes

from ._harness import Answer, ratio
from ._http import free_port, load_tool, rate, running

ROUNDS = 5
ROUND = 1.0  # seconds for each route
CONNECTIONS = 64
COUNT = 1000
BAR, DIALECT_BAR, BATCH_BAR = 0.85, 0.75, 200
SECRET = "aiocosid_bench"  # noqa: S105 - of a benchmark
BEARER = {"Authorization": f"Bearer {SECRET}"}
AN_ID = "12345678"

IDS = "/v1/ids/order"
LEAF = "/api/segment/get/order"
TINYID = f"/tinyid/id/nextIdSimple?bizType=order&token={SECRET}"

# What is asked: its method, its path, and the constant's body and type.
ROUTES: dict[str, tuple[str, str, str, str]] = {
    "one id, with a token": (
        "POST",
        IDS,
        f'{{"ids":["{AN_ID}"],"numbers":[{AN_ID}]}}',
        "application/json",
    ),
    "Leaf's route": ("GET", LEAF, AN_ID, "text/plain"),
    "tinyid's route": ("GET", TINYID, AN_ID, "text/plain"),
}


def service() -> App:
    """Return the id service."""
    generators = {"order": {"kind": "chain"}}
    ids = configure({"store": "memory:", "generators": generators}, default=False)
    token = Token(name="bench", digest=digest_of(SECRET), verbs=(Verb.IDS, Verb.SEGMENTS))
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


def serve(which: str, port: int) -> None:
    """Be one of the two servers."""
    common: Any = {"port": port, "log_level": "warning", "access_log": False, "loop": "uvloop"}
    if which == "service":
        uvicorn.run(service(), http=EitherProtocol, proxy_headers=False, **common)
    else:
        uvicorn.run(bare(), http="httptools", proxy_headers=False, **common)


async def ask() -> Answer:
    """Ask all routes in turn, some rounds."""
    ours: dict[str, list[float]] = {name: [] for name in ROUTES}
    floors: dict[str, list[float]] = {name: [] for name in ROUTES}
    batches: list[float] = []
    ports = free_port(), free_port()
    command = ["-m", __name__]
    with (
        running([*command, "service", str(ports[0])], ports[0]) as url,
        running([*command, "bare", str(ports[1])], ports[1]) as floor,
    ):
        for _ in range(ROUNDS):
            for name, (method, path, _, _) in ROUTES.items():
                how: Any = {"connections": CONNECTIONS, "method": method, "headers": BEARER}
                floors[name].append(rate(floor + path, ROUND, **how))
                ours[name].append(rate(url + path, ROUND, **how))
            how = {"connections": CONNECTIONS, "method": "POST", "headers": BEARER}
            batches.append(COUNT * rate(f"{url}{IDS}?count={COUNT}", ROUND, **how))
    parts = {name: ratio(ours[name], floors[name]) for name in ROUTES}
    single, *dialects = parts.values()
    batch = ratio(batches, ours["one id, with a token"])
    return Answer(
        "The id service's HTTP routes, beside a bare application of the same framework",
        f"one id at least {BAR:.0%} of its requests a second, Leaf's and tinyid's routes "
        f"{DIALECT_BAR:.0%}; {COUNT} ids a request at least {BATCH_BAR} x the ids a second",
        single >= BAR and min(dialects) >= DIALECT_BAR and batch >= BATCH_BAR,
        f"{single:.1%}; {', '.join(f'{each:.1%}' for each in dialects)}; {batch:.0f} x, asked by "
        f"{load_tool()}.",
        ("route", "requests/s", "its constant", "part"),
        (
            *(
                (
                    name,
                    f"{statistics.median(ours[name]):.0f}",
                    f"{statistics.median(floors[name]):.0f}",
                    f"{parts[name]:.1%}",
                )
                for name in ROUTES
            ),
            (f"{COUNT} ids, ids/s", f"{statistics.median(batches):.0f}", "-", f"{batch:.0f} x"),
        ),
        raw={"ours": ours, "constants": floors, "batches": batches, "connections": CONNECTIONS},
    )


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
