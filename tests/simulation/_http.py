"""A CosId proxy in a world: the shipped store and httpx, with a link for a network."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import httpx

from aiocosid.stores._connection import OwnedConnection
from aiocosid.stores.http import HttpStore
from aiocosid.stores.http._backend import HttpBackend, session_on
from aiocosid.stores.http._session import HttpSession

from ._cosid_proxy import CosIdProxyModel
from ._faults import draw_between

if TYPE_CHECKING:
    from aiocosid.abc import IdSegmentDistributor, MachineIdDistributor

    from ._node import Node
    from ._process import Process
    from ._world import World

__all__ = ("SimulatedProxy",)

URL: Final = "http://proxy:8688"
AWAY: Final = (0.01, 2.0)  # seconds
MS: Final = 1000
OK: Final = 200
UNAVAILABLE: Final = 503


class SimulatedProxy(CosIdProxyModel):
    """A proxy that is started anew and goes away; its store keeps what it has written."""

    def __init__(self, world: World, *, safe_guard: float = 4.0) -> None:
        """Start it, with a clock that is right.

        Args:
            world: where it stands.
            safe_guard: seconds, of all who ask for machine ids.
        """
        super().__init__(world.clock.now_ms)
        self._world = world
        self._safe_guard = safe_guard
        self._is_away = False

    def segments(self, node: Node, *, name: str, step: int) -> IdSegmentDistributor:
        """Return a counter, for one process of a node."""
        return self._store(node).segment_distributor(name=name, step=step)

    def machines(self, node: Node, *, interval: float) -> MachineIdDistributor:
        """Return machine ids, for one process of a node, under a name that nobody else has."""
        return self._store(node).machine_id_distributor(
            safe_guard=self._safe_guard, interval=interval
        )

    def _store(self, node: Node) -> HttpStore:
        """Return the shipped store, on another network."""
        network = Network(self, node)

        async def connect() -> HttpSession:
            return session_on(httpx.AsyncClient(base_url=URL, transport=network, trust_env=False))

        store = HttpStore.from_url(URL)
        store._backend = HttpBackend(
            OwnedConnection("the proxy", connect=connect, disconnect=HttpSession.aclose)
        )
        return store

    async def trouble(self, world: World, *, seconds: float, every: float = 1.0) -> None:
        """Start it anew, or have it be away, now and then; have it run in the end."""
        rng, end = world.rng, world.time + seconds
        while (rest := rng.expovariate(1 / every)) < end - world.time:
            await world.sleep(rest)
            self.restart()
            if rng.random() < 0.5:
                self._is_away = True
                await world.sleep(draw_between(rng, AWAY))
                self._is_away = False
            world.note("proxy", "was started anew")

    def serve(self, request: httpx.Request, process: Process) -> tuple[int, bytes]:
        """Do what a process asks for; the world takes note of who is given which machine id."""
        if self._is_away:
            return UNAVAILABLE, b""
        path, query = _path_of(request), dict(request.url.params)
        status, body = self.respond(request.method, path, query)
        if path.startswith("/machines/") and status == OK:
            self._take_note(path.rpartition("/")[-1], query["instanceId"], body, process)
        return status, body

    def _take_note(self, namespace: str, instance: str, body: bytes, process: Process) -> None:
        ledger, entry = self._world.ledger, self.pools[namespace].entries.get(instance)
        if body:
            told = json.loads(body)
            machine_id, floor_ms = told["machineId"], told["lastTimeStamp"]
            ledger.granted(namespace, machine_id, process, floor_ms=floor_ms, has_marks=False)
        if entry is not None:  # else it was given back, or the proxy answered from its memory
            machine_id, stamp_ms = entry
            until = self._world.time + self._safe_guard - (self.now - stamp_ms) / MS
            ledger.renewed(namespace, machine_id, process, until=until)


class Network(httpx.AsyncBaseTransport):
    """Brings requests over a link, and answers back."""

    def __init__(self, proxy: SimulatedProxy, node: Node) -> None:
        self._proxy = proxy
        self._node = node
        self._link = node.link()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        process = self._node._current()

        async def serve() -> tuple[int, bytes]:
            return self._proxy.serve(request, process)

        answer = await self._link.post(
            f"{request.method} {_path_of(request)}",
            serve,
            late=partial(httpx.ReadTimeout, request=request),
            broken=partial(httpx.RemoteProtocolError, request=request),
        )
        status, body = cast("tuple[int, bytes]", answer)
        return httpx.Response(status, stream=httpx.ByteStream(body))


def _path_of(request: httpx.Request) -> str:
    return request.url.raw_path.partition(b"?")[0].decode()
