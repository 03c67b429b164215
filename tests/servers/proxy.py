"""A TCP proxy that fails on demand: slow, silent, refusing, cut off, or losing replies."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from dataclasses import dataclass, field
from typing import Final, Self

from ._process import HOST, free_port

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # linger for 0 s: RST instead of FIN


@dataclass
class _Link:
    writers: list[asyncio.StreamWriter]  # to the client; to the server, once it is reached
    request: bytes = b""  # the last one

    def reset(self) -> None:
        for writer in self.writers:
            if not writer.is_closing():
                # A duplicate, because uvloop's own object has no setsockopt.
                fileno = os.dup(writer.get_extra_info("socket").fileno())
                with socket.socket(fileno=fileno) as twin:
                    twin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()


@dataclass
class _Way:
    count: int = 0
    flows: asyncio.Event = field(default_factory=asyncio.Event)
    watchers: list[tuple[bytes, asyncio.Future[bytes]]] = field(default_factory=list)

    def watch(self, matching: bytes) -> asyncio.Future[bytes]:
        self.watchers.append((matching, asyncio.get_running_loop().create_future()))
        return self.watchers[-1][1]

    def announce(self, data: bytes) -> None:
        self.count += 1
        for matching, seen in self.watchers:
            if matching in data and not seen.done():
                seen.set_result(data)
        self.watchers = [watcher for watcher in self.watchers if not watcher[1].done()]


@dataclass
class _Swallow:
    left: int
    to: bytes = b""
    matching: bytes = b""
    reset: bool = True


class FaultProxy:
    """Forwards from ``port`` to a server; bytes are never reordered or corrupted.

    One read counts as one request or reply, which fits protocols that wait for the answer.
    An async context manager; leaving it cuts every connection.

    Attributes:
        latency: seconds by which each request, and each reply, is delayed.
        connections, swallowed: connections accepted, and replies lost, so far.
    """

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.host, self.port = HOST, free_port()
        self.connections = self.swallowed = 0
        self._requests, self._replies = _Way(), _Way()
        self._listener: asyncio.Server | None = None
        self._links: dict[asyncio.Task[None], _Link] = {}
        self.heal()

    def heal(self) -> None:
        """No latency, no black hole, nothing more swallowed; does not ``accept`` again."""
        self.latency = 0.0
        self._swallow = _Swallow(0)
        self.blackhole()

    def refuse(self) -> None:
        """Refuse new connections; the present ones live on."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def accept(self) -> None:
        """Listen again, on the same port."""
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accepted, HOST, self.port)

    def cut(self) -> None:
        """Reset every connection, on both sides."""
        for task, link in self._links.items():
            link.reset()
            task.cancel()

    def blackhole(self, *, requests: bool = False, replies: bool = False) -> None:
        """Let nothing through in the given directions; it arrives late, after ``heal``."""
        for way, held in ((self._requests, requests), (self._replies, replies)):
            way.flows.clear() if held else way.flows.set()

    def swallow_replies(
        self, count: int = 1, *, to: bytes = b"", matching: bytes = b"", reset: bool = True
    ) -> None:
        """Lose the next replies that contain ``matching`` to requests that contain ``to``.

        The server has acted.  The connection is reset, or stays silent with ``reset=False``.
        """
        self._swallow = _Swallow(count, to, matching, reset)

    def next_request(self, matching: bytes = b"") -> asyncio.Future[bytes]:
        """Done when such a request reaches the proxy; armed by the call, not by the await."""
        return self._requests.watch(matching)

    def next_reply(self, matching: bytes = b"") -> asyncio.Future[bytes]:
        """Done when such a reply reaches the proxy: the server has acted, the client waits."""
        return self._replies.watch(matching)

    @property
    def requests(self) -> int:
        """How many requests came so far."""
        return self._requests.count

    @property
    def open_connections(self) -> int:
        """How many connections there are now."""
        return len(self._links)

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.refuse()
        self.cut()
        await asyncio.gather(*self._links, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link([writer])
        if self._listener is None:  # accepted in the turn in which we began to refuse
            link.reset()
            return
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, link), name="fault proxy connection")
        self._links[task] = link
        task.add_done_callback(self._links.pop)

    async def _serve(self, client: asyncio.StreamReader, link: _Link) -> None:
        try:
            server, forth = await asyncio.open_connection(*self.target)
            link.writers.append(forth)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(self._requests, link, client, forth))
                pumps.create_task(self._pump(self._replies, link, server, link.writers[0]))
        except* OSError:
            link.reset()
        finally:
            for writer in link.writers:
                writer.close()
            closed = [writer.wait_closed() for writer in link.writers]
            await asyncio.gather(*closed, return_exceptions=True)

    async def _pump(
        self, way: _Way, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(1 << 16):
            if way is self._requests:
                link.request = data
            lost = way is self._replies and self._loses(link.request, data)
            way.announce(data)
            if lost and self._swallow.reset:
                raise ConnectionResetError
            if not lost:
                await asyncio.sleep(self.latency)
                await way.flows.wait()
                writer.write(data)
                await writer.drain()
        await way.flows.wait()  # a black hole takes the farewell as well
        writer.close()

    def _loses(self, request: bytes, reply: bytes) -> bool:
        rule = self._swallow
        if not rule.left or rule.to not in request or rule.matching not in reply:
            return False
        rule.left -= 1
        self.swallowed += 1
        return True
