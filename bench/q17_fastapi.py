"""What does an id cost in a FastAPI route, beside a constant?

A real uvicorn on a core of its own, asked over HTTP by wrk, or, where it is not installed
(``apt-get install wrk``), by a small generator of load in a process of its own.  Each route is
asked in turn, round by round, and compared with its constant of the same round.  "The same route"
takes its constant as it takes its generator, by a dependency: FastAPI's own share of that is in the
last row.
"""

from __future__ import annotations

import statistics
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel

import aiocosid
from aiocosid.converter import Int64Text
from aiocosid.integrations.fastapi import generator, lifespan

from ._harness import Answer, ratio
from ._http import free_port, load_tool, rate, running

ROUNDS = 9
ROUND = 1.0  # seconds for each route
CONNECTIONS = 16
BAR = 0.95
CONSTANT = 1_234_567_890_123_456_789

# What is asked, its constant, and how the reader knows it.
PAIRS = (
    ("/id", "/constant", "`{id: int}`, both by dependency"),
    ("/snowflake", "/constant", "`{id: int}` of a Snowflake, both by dependency"),
    ("/text", "/text-constant", "model with `Int64Text`, both by dependency"),
    ("/global", "/bare", "`{id: int}`, neither by dependency"),
    ("/id", "/bare", "`{id: int}` by dependency, the constant without one"),
)
ROUTES = tuple(dict.fromkeys(route for *pair, _ in PAIRS for route in pair))

OrderIds = Annotated[aiocosid.SegmentChainId, Depends(generator("order"))]
Snowflakes = Annotated[aiocosid.SnowflakeId, Depends(generator("snowflake"))]


class Order(BaseModel):
    """What a route answers."""

    id: Int64Text


async def constant() -> int:
    """Be a dependency as the application would have one."""
    return CONSTANT


Constant = Annotated[int, Depends(constant)]


@asynccontextmanager
async def open_ids() -> AsyncGenerator[aiocosid.IdProvider]:
    """Open the generators on a store in memory."""
    async with aiocosid.connect("memory://", namespace="bench") as ids:
        await ids.segment_chain("order")
        await ids.snowflake("snowflake")
        yield ids


def application() -> FastAPI:
    """Return the application; uvicorn's factory."""
    app = FastAPI(lifespan=lifespan(open_ids))

    @app.get("/bare")
    async def _bare() -> dict[str, int]:
        return {"id": CONSTANT}

    @app.get("/constant")
    async def _constant(number: Constant) -> dict[str, int]:
        return {"id": number}

    @app.get("/id")
    async def _id(orders: OrderIds) -> dict[str, int]:
        return {"id": await orders.next_id()}

    @app.get("/global")
    async def _global() -> dict[str, int]:
        return {"id": int(await aiocosid.generator_named("order").next_id())}

    @app.get("/snowflake")
    async def _snowflake(ids: Snowflakes) -> dict[str, int]:
        return {"id": await ids.next_id()}

    @app.get("/text-constant")
    async def _text_constant(number: Constant) -> Order:
        return Order(id=Int64Text(number))

    @app.get("/text")
    async def _text(orders: OrderIds) -> Order:
        return Order(id=Int64Text(await orders.next_id()))

    return app


async def ask() -> Answer:
    """Ask all routes in turn, some rounds, each round in another order."""
    found: dict[str, list[float]] = {route: [] for route in ROUTES}
    port = free_port()
    command = ["-m", "uvicorn", "--factory", f"{__name__}:application"]
    options = ["--port", str(port), "--log-level", "warning", "--no-access-log"]
    with running([*command, *options], port) as url:
        for route in ROUTES:
            rate(url + route, 1, connections=CONNECTIONS)
        for turn in range(ROUNDS):
            at = turn % len(ROUTES)
            for route in (*ROUTES[at:], *ROUTES[:at]):
                found[route].append(rate(url + route, ROUND, connections=CONNECTIONS))
    ratios = {(ours, floor): ratio(found[ours], found[floor]) for ours, floor, _ in PAIRS}
    first = ratios["/id", "/constant"]
    return Answer(
        "A FastAPI route that returns an id, against the same route returning a constant",
        f"at least {BAR:.0%} of its requests a second",
        first >= BAR,
        f"{first:.1%}, asked by {load_tool()}.",
        ("route", "requests/s", "its constant", "part"),
        tuple(
            (
                name,
                f"{statistics.median(found[ours]):.0f}",
                f"{statistics.median(found[floor]):.0f}",
                f"{ratios[ours, floor]:.1%}",
            )
            for ours, floor, name in PAIRS
        ),
        raw={"requests_per_second": found, "seconds": ROUND, "connections": CONNECTIONS},
    )
