"""Connections whose clients keep a server waiting."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from aiocosid.server._listen import EitherProtocol, Patience

TIMEOUT = 10.0


class Transport:
    """Notes that it was ended."""

    def __init__(self) -> None:
        self.is_ended = False

    def abort(self) -> None:
        self.is_ended = True

    def get_extra_info(self, _name: str) -> Any:
        return self

    def setsockopt(self, *_: object) -> None:
        """Stand in for the socket, too."""


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
