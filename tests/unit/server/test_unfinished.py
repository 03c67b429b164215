"""What connections hold of requests that are not whole, and what ends them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocosid.server import Token, TokenScope, digest_of
from aiocosid.server._http import send_answer
from aiocosid.server._problems import Problem
from aiocosid.server._room import Room
from aiocosid.server._unfinished import Unfinished

from ._wire import Wire, command


class Connection:
    """Notes that it was ended."""

    def __init__(self) -> None:
        self.is_ended = False

    def abort(self) -> None:
        self.is_ended = True


def test_those_that_have_waited_longest_end() -> None:
    held = Unfinished(100)
    old, young, new = connections = Connection(), Connection(), Connection()
    held.note(old, 50)
    held.note(young, 40)
    held.note(old, 60)
    assert not any(each.is_ended for each in connections)
    held.note(new, 30)
    assert [each.is_ended for each in connections] == [True, False, False]
    held.note(old, 0)  # it says that it has ended
    held.note(new, 60)
    assert [each.is_ended for each in connections] == [True, False, False]
    held.note(young, 0)
    held.note(new, 100)
    assert not new.is_ended
    held.note(new, 101)
    assert new.is_ended


def test_of_redis_clients_strangers_count_and_others_with_what_they_hold() -> None:
    async def talk() -> None:
        token = Token(name="a", digest=digest_of("secret"), scopes=(TokenScope.SEGMENTS,))
        wire = Wire(tokens=[token])
        noted = dict[Any, int]()
        held: Any = wire.service.unfinished
        before = held.note
        wire.service.unfinished = Noting(noted, before)  # type: ignore[assignment]
        connection = wire.protocol
        partial = b"*2\r\n$4\r\nAUTH\r\n$5000\r\n" + b"x" * 3000
        wire.feed(command("PING"))
        assert noted == {connection: 4000}
        wire.feed(command("AUTH", "secret"))
        assert noted == {connection: 0}
        wire.feed(partial)
        assert 3000 < noted[connection] < 3100
        wire.close()
        await wire.settle()
        assert noted == {connection: 0}

    asyncio.run(talk())


class Noting:
    def __init__(self, noted: dict[Any, int], note: Any) -> None:
        self._noted, self._note = noted, note

    def note(self, connection: Any, size: int) -> None:
        self._noted[connection] = size
        self._note(connection, size)


def test_strangers_have_short_turns() -> None:
    """Others are served between their commands."""

    async def talk() -> None:
        wire = Wire(tokens=[Token(name="a", digest=digest_of("b"), scopes=(TokenScope.SEGMENTS,))])
        wire.feed(command("AUTH", "wrong") * 1000)
        assert len(wire.replies()) == 16
        for _ in range(500):
            await asyncio.sleep(0)
        assert len(wire.replies()) == 984

    asyncio.run(talk())


def test_room_is_for_many_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiocosid.server._room.PATIENCE", 0.01)

    async def take() -> None:
        room = Room()
        assert await room.take(1000) is None
        taken = [await room.take(1001) for _ in range(6)]
        with pytest.raises(Problem) as caught:
            await room.take(1001)
        assert (caught.value.status, caught.value.headers["retry-after"]) == (503, "1")
        assert await room.take(1) is None
        assert taken[0] is not None
        taken[0]()
        assert await room.take(1001) is not None

    asyncio.run(take())


def test_room_of_an_answer_that_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that leaves before the first byte gives its place back."""
    monkeypatch.setattr("aiocosid.server._room.PATIENCE", 0.01)

    async def ids() -> bytes:
        return b"[]"

    async def fail(_message: object) -> None:
        raise ConnectionError

    async def take() -> None:
        room = Room()
        for _ in range(7):  # one more than there are places
            answer = await room.answer(1001, ids)
            with pytest.raises(ConnectionError):
                await send_answer(fail, answer)

    asyncio.run(take())
