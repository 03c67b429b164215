"""How fast are segments by INCRBY, and a worker's blocks over a Unix socket, beside a real Valkey?

The server is a process of its own with a store in memory; so is Valkey.  redis-py sends pipelines
of 100 commands to both in turn.  A worker's block is one `next_max_id(1000)` of a distributor: of
this library's store on the server's Unix socket, and of its Redis store on Valkey over loopback.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import redis
import uvicorn

import aiocosid
from aiocosid.abc import Store
from aiocosid.provider import configure
from aiocosid.server import App
from aiocosid.server._listen import EitherProtocol
from aiocosid.server.dialects import resp

from ._harness import Answer, beside, ratio
from ._http import HOST, free_port, running
from ._servers import valkey

ROUNDS = 101
PIPELINE = 100
BLOCKS = 50
KEY = "cosid:{shop.order}.adder"
STEP = 1000
PIPELINE_BAR, BLOCK_BAR = 0.9, 1.1


def service() -> App:
    """Return the id service on a store in memory."""
    generators = {"order": {"kind": "chain"}}
    ids = configure({"store": "memory:", "generators": generators}, default=False)
    return App(ids, resp=resp.commands())


def serve(where: str) -> None:
    """Be the server, at a port or a Unix socket."""
    place: dict[str, Any] = {"port": int(where)} if where.isdecimal() else {"uds": where}
    quiet: dict[str, Any] = {"log_level": "warning", "access_log": False, "proxy_headers": False}
    uvicorn.run(service(), http=EitherProtocol, loop="uvloop", **quiet, **place)


def client_of(url: str) -> Any:  # noqa: ANN401 - redis-py's types are partly unknown
    """Return redis-py's own client."""
    return cast("Any", redis.Redis).from_url(url)


def pipelines(client: Any) -> float:  # noqa: ANN401 - as above
    """Return the seconds of one pipeline."""
    pipe = client.pipeline(transaction=False)
    for _ in range(PIPELINE):
        pipe.incrby(KEY, STEP)
    begin = perf_counter()
    found = pipe.execute()
    took = perf_counter() - begin
    assert found == [found[0] + STEP * turn for turn in range(PIPELINE)]
    return took


async def blocks_of(store: Store) -> Callable[[], Awaitable[object]]:
    """Return what takes some blocks, one after the other."""
    distributor = store.segment_distributor(namespace="shop", name="block", step=STEP)
    await distributor.next_max_id(STEP)

    async def take() -> None:
        for _ in range(BLOCKS):
            await distributor.next_max_id(STEP)

    return take


async def ask() -> Answer:
    """Send both kinds of call to both servers in turn."""
    port = free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        valkey() as url,
        running(["-m", __name__, str(port)], port),
    ):
        theirs, ours = client_of(url), client_of(f"redis://{HOST}:{port}")
        times: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(ROUNDS):
            times["theirs"].append(pipelines(theirs))
            times["ours"].append(pipelines(ours))
        part = ratio(times["theirs"], times["ours"])  # of commands a second
        socket = Path(folder, "ids.sock")
        with running(["-m", __name__, str(socket)], 0, path=socket):
            async with (
                aiocosid.store_from_url(f"aiocosid+unix://{socket}") as local,
                aiocosid.store_from_url(url) as remote,
            ):
                floors, found = await beside(
                    await blocks_of(remote), await blocks_of(local), ROUNDS
                )
    block = ratio(found, floors)
    return Answer(
        "INCRBY by pipelines, and a worker's block over a Unix socket, beside Valkey on loopback",
        f"at least {PIPELINE_BAR} of Valkey's commands a second; a block at most {BLOCK_BAR} x",
        part >= PIPELINE_BAR and block <= BLOCK_BAR,
        f"{part:.2f} of the commands a second; a block {block:.2f} x.",
        ("what", "ours", "Valkey", "ratio"),
        (
            (
                f"pipeline of {PIPELINE} INCRBY, µs",
                *(f"{statistics.median(times[who]) * 1e6:.0f}" for who in ("ours", "theirs")),
                f"{part:.2f}",
            ),
            (
                "a block, µs",
                f"{statistics.median(found) / BLOCKS * 1e6:.0f}",
                f"{statistics.median(floors) / BLOCKS * 1e6:.0f}",
                f"{block:.2f}",
            ),
        ),
        raw={"pipelines": times, "blocks": {"ours": found, "theirs": floors}},
    )


if __name__ == "__main__":
    serve(sys.argv[1])
