"""What a tiered distributor gives back is nobody's; of what cannot be told it gives nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.servers import FaultProxy, ValkeyServer

from .test_tiered import CURSOR, Bench, url_of

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


@pytest_asyncio.fixture
async def bench(namespace: str) -> AsyncIterator[Bench]:
    made = Bench(namespace)
    yield made
    await made.aclose()


@pytest_asyncio.fixture
async def proxy(valkey: ValkeyServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(valkey.host, valkey.port) as proxy:
        yield proxy


async def test_a_call_that_comes_twice(bench: Bench, valkey: ValkeyServer) -> None:
    """The second finds another's grant, of the same range, and the cursor where it was."""
    one, other = bench.on(valkey.url), bench.on(valkey.url)
    assert one.allow_give_back()
    assert await one.next_max_id(10) == 10
    nonce = one._run._nonce.encode()
    assert await one._span.give_back(10, 4, nonce)
    bench.note(4, 4)
    bench.note(await other.next_max_id(6), 6)
    assert valkey.call("HGET", bench.key, CURSOR) == "10"
    assert not await one._span.give_back(10, 4, nonce)
    bench.note(await other.next_max_id(10))
    assert other.allow_give_back()
    for noted in (False, True):
        bench.note(await (other if noted else one).next_max_id(10))
    assert not await one._span.give_back(40, 30, nonce)
    assert await other.give_back(40, 7) == 7


async def test_a_span_of_another_life(bench: Bench, valkey: ValkeyServer) -> None:
    """A restart, a fail-over, a loss, a floor: a note from before counts for nothing."""
    one = bench.on(valkey.url)
    assert one.allow_give_back()
    for change in (
        ("HSET", bench.key, "server@root", "another life"),
        ("DEL", bench.key),
        ("HDEL", bench.key, "note@root"),
        ("HSET", bench.key, "note@root", "another"),
        ("HSET", bench.key, "base@root", "999999"),
        ("HINCRBY", bench.key, CURSOR, 1),
        ("HSET", bench.key, "top@root", "1"),
    ):
        last = await bench.take(one)
        valkey.call(*change)
        before = valkey.call("HGETALL", bench.key)
        assert await one.give_back(last, 10) == 0, change
        assert valkey.call("HGETALL", bench.key) == before, change
        valkey.call("DEL", bench.key)


async def test_a_span_begins_with_what_its_opener_noted(bench: Bench, valkey: ValkeyServer) -> None:
    """Down to where the span begins, and no further; the very first id stays."""
    one = bench.on(valkey.url)
    assert one.allow_give_back()
    for first, due in ((1, 9), (101, 100)):
        top = await one.next_max_id(10 if first == 1 else 100)
        assert await one.give_back(top, top) == due, "all but what cannot go"
        valkey.call("HSET", bench.key, "last@root", str(valkey.call("HGET", bench.key, CURSOR)))
    assert await one.next_max_id(10) == 210
    assert await one.next_max_id(20) == 230
    assert await one.give_back(230, 40) == 30
    assert await one.give_back(230, 40) == 0


async def test_what_the_root_gave_stays(bench: Bench, valkey: ValkeyServer) -> None:
    """In an outage, and more than a span; a segment of a span below it stays as well."""
    one = bench.on(valkey.url)
    assert one.allow_give_back()
    await bench.take(one)
    last = await bench.take(one, step=1000)
    assert await one.give_back(10, 10) == 0
    assert await one.give_back(last, 1000) == 0
    assert await bench.take(one) == 1110, "it has seen 1100"


async def test_a_reply_that_is_lost(bench: Bench, proxy: FaultProxy, valkey: ValkeyServer) -> None:
    """Of a grant: the next one counts.  Of giving back: gone or a gap, and no repeat."""
    one, other = bench.on(url_of(proxy), cache_timeout=0.2), bench.on(valkey.url)
    assert one.allow_give_back()
    last = await bench.take(one)
    proxy.swallow_replies()
    assert await one.give_back(last, 5) == 0
    bench.taken[-1] = (last - 10, last - 5)
    await bench.take(other, 3)
    proxy.swallow_replies()
    last = await bench.take(one)  # sent again, or the root's
    back = await one.give_back(last, 5)
    assert back in {0, 5}
    bench.taken[-1] = (last - 10, last - back)
    await bench.take(one, 3)
    await bench.take(other, 3)
