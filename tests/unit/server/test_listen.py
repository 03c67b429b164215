"""Connections whose clients keep a server waiting."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from aiocosid import connect
from aiocosid.server import App, Limits
from aiocosid.server._listen import EitherProtocol, Patience, _HttpProtocol

TIMEOUT = 10.0


class Transport:
    """Notes that it was ended."""

    def __init__(self) -> None:
        self.is_ended = False

    def abort(self) -> None:
        self.is_ended = True

    def get_extra_info(self, _name: str) -> Any:
        return SimpleNamespace(setsockopt=print)


def cycle(**state: bool) -> Any:
    return SimpleNamespace(**{"response_complete": False, "more_body": False, **state})


def http(cycle_: Any, *, write_paused: bool = False) -> Any:
    """A connection that serves a request, or waits."""
    made: Any = object.__new__(HttpToolsProtocol)
    made.cycle, made.transport = cycle_, Transport()
    made.flow = SimpleNamespace(write_paused=write_paused)
    return made


def silent() -> Any:
    made: Any = object.__new__(EitherProtocol)
    made.transport = Transport()
    return made


def ended(connections: list[Any], *times: float, change: Any = None) -> list[bool]:
    """Look at connections at those times; a change happens before the last."""

    async def watch() -> None:
        patience = Patience(connections, TIMEOUT)
        for index, now in enumerate(times):
            if index == len(times) - 1 and change is not None:
                change()
            await patience.close_overdue(now)

    asyncio.run(watch())
    return [each.transport.is_ended for each in connections]


def test_who_is_waited_for_is_ended_after_the_timeout() -> None:
    def waiting() -> list[Any]:
        return [
            silent(),
            http(None),
            http(cycle(response_complete=True)),
            http(cycle(more_body=True)),
            http(cycle(), write_paused=True),
        ]

    assert ended(waiting(), 0.0, 5.0, 9.9) == [False] * 5
    assert ended(waiting(), 0.0, 5.0, 10.0) == [True] * 5


def test_a_request_that_is_served_may_take_its_time() -> None:
    assert ended([http(cycle())], 0.0, 100.0) == [False]


def test_another_request_is_another_wait() -> None:
    connection = http(cycle(response_complete=True))

    def ask() -> None:
        connection.cycle = cycle(response_complete=True)

    assert ended([connection], 0.0, 9.0, 11.0, change=ask) == [False]


def test_a_connection_that_has_gone_is_forgotten() -> None:
    connections = [silent()]
    patience = Patience(connections, TIMEOUT)
    asyncio.run(patience.close_overdue(0.0))
    connections.clear()
    asyncio.run(patience.close_overdue(1.0))
    assert patience._waiting == {}


class Pipe(asyncio.Transport):
    """Takes what is written."""

    def write(self, data: Any) -> None:
        """Nobody reads it."""

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """It is fed by hand."""

    resume_reading = pause_reading


def test_a_body_has_several_turns_and_its_sender_may_end_between_them() -> None:
    async def talk() -> None:
        config = uvicorn.Config(App(connect("memory://"), limits=Limits(body=1 << 20)))
        config.load()
        state = ServerState()
        loop = asyncio.get_running_loop()
        protocol = _HttpProtocol(config=config, server_state=state, app_state={}, _loop=loop)
        protocol.connection_made(Pipe())
        head = b"POST /v1/machines/shop HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n"
        protocol.data_received(head + b"x" * 60_000)
        assert len(protocol.cycle.body) < 10_000
        assert protocol.eof_received(), "the answer is due"
        assert len(protocol.cycle.body) == 60_000

    asyncio.run(talk())
