"""Ids of a server's generator: in blocks of several ranges, not too old, and never lower."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from aiocosid.abc.events import IdsDiscarded, SegmentFetched
from aiocosid.errors import (
    InvalidArgumentError,
    NotOpenError,
    SegmentUnavailableError,
    StoreError,
    StoreUnavailableError,
    UnsupportedByStoreError,
    WouldBlock,
)
from aiocosid.segment import RemoteId
from aiocosid.segment.blocks import Block, ShardBits
from aiocosid.testing import IdGeneratorContract, MakeGenerator, ManualClock

from .._kit import Call, Ear, settled


class Server:
    """Hands out blocks of several ranges, as ticks of a Snowflake are."""

    shards: ShardBits | None = None

    def __init__(self, *, tick: int = 7, gap: int = 100, stride: int = 1) -> None:
        self.next = 1
        self.tick, self.gap, self.stride = tick, gap, stride
        self.counts: list[int] = []
        self.is_down = False
        self.gate: anyio.Event | None = None

    async def aopen(self) -> None:
        """Keep counting."""

    async def take_block(self, name: str, count: int) -> Block:
        assert name == "event"
        self.counts.append(count)
        await anyio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        if self.is_down:
            raise StoreUnavailableError("server", "unplugged")
        found: list[range] = []
        while count:
            size = min(count, self.tick)
            found.append(range(self.next, self.next + size * self.stride, self.stride))
            self.next += size * self.stride + self.gap
            count -= size
        return Block(found, self.shards)


def remote(server: Server, **options: Any) -> RemoteId:
    return RemoteId(server, namespace="shop", name="event", **options)


@pytest.mark.asyncio
class TestContract(IdGeneratorContract):
    @pytest.fixture(params=[1, 8], ids=["", "strided"])
    def make_generator(self, request: pytest.FixtureRequest) -> MakeGenerator:
        server = Server(stride=request.param)
        return lambda: remote(server, block=self.step)


class TestBlocks:
    async def test_every_id_of_a_block_is_handed_out(self) -> None:
        """In order, across the holes between its ranges."""
        server = Server(tick=3, gap=10)
        async with remote(server, block=10) as ids:
            found = [await ids.next_id() for _ in range(7)] + await ids.next_ids(5)
        assert found == [1, 2, 3, 14, 15, 16, 27, 28, 29, 40, 41, 42]

    async def test_ids_are_counted(self) -> None:
        """An event and the statistics tell of the block as a whole."""
        ear, server = Ear(), Server(tick=3)
        async with remote(server, block=10, instrument=ear) as ids:
            await ids.next_ids(5)
            statistics = ids.statistics()
        [first, *_] = ear.of(SegmentFetched)
        assert first.count == server.counts[0]
        assert first.max_id % 103 == (first.count - 1) % 3 + 1
        assert (statistics.kind, statistics.ids_handed_out) == ("RemoteId", 5)
        assert statistics.ids_fetched == 5 + statistics.remaining

    async def test_ids_above_the_limit_are_left_out(self) -> None:
        """The rest of a block is discarded."""
        ear = Ear()
        async with remote(Server(tick=3, gap=10), block=8, max_id=15, instrument=ear) as ids:
            assert await ids.next_ids(5) == [1, 2, 3, 14, 15]
        assert sum(each.count for each in ear.of(IdsDiscarded) if each.reason == "limit") >= 3

    async def test_a_call_asks_for_ten_thousand_ids_at_most(self) -> None:
        """A larger batch takes several."""
        server = Server(tick=1000)
        async with remote(server, max_age=None) as ids:
            assert len(await ids.next_ids(50_000)) == 50_000
        assert max(server.counts) == 10_000

    async def test_blocks_grow_with_the_rate(self) -> None:
        """A consumer at full speed costs few calls."""
        server = Server(tick=1000)
        async with remote(server, block=10) as ids:
            for _ in range(100_000):
                await ids.next_id()
        assert len(server.counts) < 200

    async def test_nothing_is_contiguous(self) -> None:
        """A counter has segments, a generator has none."""
        async with remote(Server()) as ids:
            with pytest.raises(UnsupportedByStoreError):
                await ids.peek()
            with pytest.raises(UnsupportedByStoreError):
                await ids._distributor.next_max_id(1)


class TestShards:
    """Ids of a sharded generator: a block serves all of them."""

    async def test_ids_are_put_on_a_shard(self) -> None:
        """One by one, several, and without waiting; nothing is asked for them."""
        server = Server(tick=10**4)
        server.next, server.shards = (5 << 16) + (3 << 8) + 1, ShardBits(8, 15)
        async with remote(server, block=100, max_age=None) as ids:
            asked = len(server.counts)
            found = [await ids.next_id(), await ids.next_id(0), await ids.next_id(15)]
            found += [*await ids.next_ids(2, 7), ids.next_id_nowait(4), ids.next_id_nowait()]
            assert len(server.counts) == asked
        assert [each >> 8 & 15 for each in found] == [3, 0, 15, 7, 7, 4, 3]
        assert {each >> 12 for each in found} == {5 << 4}
        assert [each & 255 for each in found] == [1, 2, 3, 4, 5, 6, 7]

    @pytest.mark.parametrize("wrong", [-1, 16, True, "7"])
    async def test_a_shard_outside_its_bits(self, wrong: Any) -> None:
        """The error has the limit, and no id is taken."""
        server = Server()
        server.shards = ShardBits(8, 15)
        async with remote(server, block=100, max_age=None) as ids:
            with pytest.raises(InvalidArgumentError, match="integer from 0 to 15"):
                await ids.next_id(wrong)
            with pytest.raises(InvalidArgumentError, match="integer from 0 to 15"):
                await ids.next_ids(2, wrong)
            with pytest.raises(InvalidArgumentError, match="integer from 0 to 15"):
                ids.next_id_nowait(wrong)
            assert ids.statistics().ids_handed_out == 0

    async def test_ids_without_a_shard(self) -> None:
        ids = remote(Server())
        with pytest.raises(NotOpenError):
            await ids.next_id(1)
        async with ids:
            with pytest.raises(
                InvalidArgumentError, match=r"sharding_id 1 cannot be .* carry no shard"
            ):
                await ids.next_id(1)

    @pytest.mark.parametrize("after", [None, ShardBits(6, 63), ShardBits(8, 31)])
    async def test_another_layout(self, after: ShardBits | None) -> None:
        """Moved by the bits of another block, two ids would become one."""
        server = Server(tick=10**4)
        server.next, server.shards = 5 << 16, ShardBits(8, 15)
        async with remote(server, block=300, max_age=None) as ids:
            await ids.next_id(1)
            server.shards = after
            server.next = 6 << 16
            with pytest.raises(StoreError, match=r"layout has changed.*reopen it"):
                [await ids.next_id(1) for _ in range(1000)]
            with pytest.raises(StoreError, match="layout has changed"):
                await ids.next_ids(2, 1)
            with pytest.raises(StoreError, match="layout has changed"):
                ids.next_id_nowait(1)
            assert await ids.next_id() > 5 << 16
        if after is not None:
            async with ids:
                assert await ids.next_id(1) >> after.shift & after.most == 1

    async def test_another_layout_while_it_waits(self) -> None:
        """The id of a waiting caller is from the block that comes after its call."""
        server = Server(tick=10**4)
        server.shards = ShardBits(8, 15)
        async with remote(server, block=10, max_age=None) as ids:
            gate = server.gate = anyio.Event()
            server.shards = ShardBits(6, 63)
            with suppress(WouldBlock):
                while True:
                    ids.next_id_nowait()
            calls = await settled(lambda: [Call(ids.next_id, 1), Call(ids.next_ids, 3, 1)])
            assert not any(each.is_done for each in calls)
            await settled(gate.set)
            for each in calls:
                assert type(each.error) is StoreError
                assert "layout has changed" in str(each.error)


class TestAge:
    async def test_old_ids_are_given_up(self) -> None:
        """After ``max_age`` the next caller gets new ones."""
        clock, server = ManualClock(), Server()
        async with remote(server, clock=clock, max_age=1.0) as ids:
            first = await ids.next_id()
            calls = len(server.counts)
            await clock.advance(0.9)
            assert await ids.next_id() == first + 1
            await clock.advance(0.2)
            assert len(server.counts) == calls, "somebody has asked although nobody wanted any"
            taken = sum(server.counts)
            assert await ids.next_id() > taken

    async def test_they_may_be_kept(self) -> None:
        """Without an age."""
        clock, server = ManualClock(), Server()
        async with remote(server, clock=clock, max_age=None) as ids:
            first = await ids.next_id()
            await clock.advance(10**6)
            assert await ids.next_id() == first + 1


class TestOutages:
    async def test_ids_in_hand_go_on(self) -> None:
        """Then callers wait, within their deadlines, and for the server to come back."""
        clock, server = ManualClock(), Server()
        async with remote(server, clock=clock, block=10, wait_timeout=5) as ids:
            first = await ids.next_id()
            server.is_down = True
            rest = [ids.next_id_nowait() for _ in range(ids.statistics().remaining)]
            assert rest == sorted(rest)
            assert rest[0] == first + 1
            call = Call(ids.next_id)
            await clock.advance(5.0)
            assert isinstance(call.error, SegmentUnavailableError)
            call = Call(ids.next_id)
            await clock.advance(1.0)
            server.is_down = False
            await clock.advance(2.0)
            assert call.result > rest[-1]

    async def test_lower_ids_are_never_handed_out(self) -> None:
        """Of a server that was started anew, with a clock that is behind; callers wait for it."""
        clock, server = ManualClock(), Server()
        async with remote(server, clock=clock, block=10) as ids:
            server.next = 10**6
            last = (await ids.next_ids(500))[-1]
            await clock.advance(10.0)  # whatever is left is too old
            server.next = 1
            call = Call(ids.next_id)
            await clock.advance(2.0)
            assert not call.is_done
            server.next = last + 10**6
            await clock.advance(2.0)
            assert call.result > last

    async def test_an_error_that_no_retry_mends(self) -> None:
        """Opening raises it, as of a name that the server does not have."""

        class Refusing(Server):
            async def take_block(self, name: str, count: int) -> Block:
                raise StoreError("server", f"no {name} for {count}")

        with pytest.raises(StoreError, match="no event"):
            async with remote(Refusing()):
                pass


@pytest.mark.parametrize(
    "wrong",
    [
        {"block": 0},
        {"block": 10_001},
        {"max_age": 0},
        {"endurance": -1},
        {"max_age": 1.0, "endurance": 2.0},
        {"wait_timeout": 0},
    ],
)
def test_wrong_arguments(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        remote(Server(), **wrong)


def test_the_default_endurance_gives_way() -> None:
    """To the age, and to the one that is given."""
    make: Callable[..., RemoteId] = remote
    assert make(Server(), max_age=0.5)._pace.endurance == 60
