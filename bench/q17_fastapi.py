"""What does an id cost in a FastAPI route, beside a constant?

A real uvicorn on a core of its own, asked over HTTP by wrk, or, where it is not installed
(``apt-get install wrk``), by a small generator of load in a process of its own.  Each route is
asked in turn, round by round, and compared with its constant of the same round.  "The same route"
takes its constant as it takes its generator, by a dependency: FastAPI's own share of that is in the
last row.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from time import perf_counter
from typing import Annotated, Any
from urllib.request import urlopen

from fastapi import Depends, FastAPI
from pydantic import BaseModel

import aiocosid
from aiocosid.integrations.fastapi import generator, lifespan
from aiocosid.integrations.pydantic import Int64Str

from ._harness import Answer, ratio

ROUNDS = 15
ROUND = 1.0  # seconds for each route
CONNECTIONS = 16
BAR = 0.95
HOST = "127.0.0.1"
CONSTANT = 1_234_567_890_123_456_789

# What is asked, its constant, and how the reader knows it.
PAIRS = (
    ("/id", "/constant", "`{id: int}`, both by dependency"),
    ("/snowflake", "/constant", "`{id: int}` of a Snowflake, both by dependency"),
    ("/text", "/text-constant", "model with `Int64Str`, both by dependency"),
    ("/global", "/bare", "`{id: int}`, neither by dependency"),
    ("/id", "/bare", "`{id: int}` by dependency, the constant without one"),
)
ROUTES = tuple(dict.fromkeys(route for *pair, _ in PAIRS for route in pair))

OrderIds = Annotated[aiocosid.SegmentChainId, Depends(generator("order"))]
Snowflakes = Annotated[aiocosid.SnowflakeId, Depends(generator("snowflake"))]


class Order(BaseModel):
    """What a route answers."""

    id: Int64Str


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
        return Order(id=number)

    @app.get("/text")
    async def _text(orders: OrderIds) -> Order:
        return Order(id=await orders.next_id())

    return app


@contextmanager
def server() -> Generator[str]:
    """Run uvicorn on this process's core; give its URL."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "--factory", f"{__name__}:application"]
    options = ["--port", str(port), "--log-level", "warning", "--no-access-log"]
    process = subprocess.Popen([*command, *options])  # noqa: S603 - ours
    try:
        url = f"http://{HOST}:{port}"
        until = perf_counter() + 30
        while True:
            try:
                urlopen(f"{url}/id").close()  # noqa: S310 - ours
                break
            except OSError:
                assert process.poll() is None, "uvicorn has ended"
                assert perf_counter() < until, "uvicorn does not answer"
        yield url
    finally:
        process.terminate()
        process.wait()


def rate(url: str, seconds: float) -> float:
    """Return the requests a second that a route answers."""
    wrk = shutil.which("wrk")
    if wrk is not None:
        asked = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", url]
    else:
        asked = [sys.executable, "-m", __name__, url, str(seconds)]
    done = subprocess.run(  # noqa: S603 - ours
        asked, check=True, capture_output=True, text=True, preexec_fn=_leave_core
    )
    assert "Non-2xx" not in done.stdout, done.stdout
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


def _leave_core() -> None:
    """Load comes from the other cores, if there are any."""
    if hasattr(os, "sched_setaffinity"):
        mine, count = os.sched_getaffinity(0), os.cpu_count() or 1
        os.sched_setaffinity(0, set(range(count)) - mine or mine)


async def ask() -> Answer:
    """Ask all routes in turn, some rounds, each round in another order."""
    found: dict[str, list[float]] = {route: [] for route in ROUTES}
    with server() as url:
        for route in ROUTES:
            rate(url + route, 1)
        for turn in range(ROUNDS):
            at = turn % len(ROUTES)
            for route in (*ROUTES[at:], *ROUTES[:at]):
                found[route].append(rate(url + route, ROUND))
    ratios = {(ours, floor): ratio(found[ours], found[floor]) for ours, floor, _ in PAIRS}
    first = ratios["/id", "/constant"]
    return Answer(
        "A FastAPI route that returns an id, against the same route returning a constant",
        f"at least {BAR:.0%} of its requests a second",
        first >= BAR,
        f"{first:.1%}, asked by {'wrk' if shutil.which('wrk') else 'our own load'}.",
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


async def load(url: str, seconds: float) -> float:
    """Send requests over some connections, one after the other on each; requests a second."""
    host, port, path = re.fullmatch(r"http://([\d.]+):(\d+)(/.*)", url).groups()  # type: ignore[union-attr]  # ours
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    until = perf_counter() + seconds

    async def one() -> int:
        reader, writer = await asyncio.open_connection(host, int(port))
        answered = 0
        while perf_counter() < until:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            await reader.readexactly(int(length[1]) if length else 0)
            answered += 1
        writer.close()
        return answered

    begin = perf_counter()
    answered = sum(await asyncio.gather(*(one() for _ in range(CONNECTIONS))))
    return answered / (perf_counter() - begin)


def main(arguments: Sequence[Any]) -> None:
    """Be the load, as wrk would."""
    url, seconds = arguments
    print(f"Requests/sec: {asyncio.run(load(url, float(seconds)))}")


if __name__ == "__main__":
    main(sys.argv[1:])
