"""Several stores side by side: whose an id is, and who is asked when one fails."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from aiocosid import SegmentChainId, SegmentId, store_from_url
from aiocosid._life import fork
from aiocosid.abc import MAX_ID, Counter
from aiocosid.errors import (
    CorruptCounterError,
    CosIdError,
    ForkedError,
    IdOverflowError,
    InvalidArgumentError,
    StoreAuthenticationError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
    UnsupportedByStoreError,
)
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.striped import (
    ResidueClass,
    StripedIdSegmentDistributor,
    StripedStore,
    highest_id,
)
from aiocosid.testing import ManualClock, settle

from ._flaky import AWAY, Flaky

KEY = "cosid.order~striped"


def flaky(count: int = 3) -> list[Flaky]:
    return [Flaky() for _ in range(count)]


def at(stores: Iterable[Any], home: int = 0, **about: Any) -> StripedIdSegmentDistributor:
    """Make one whose home is known, and the others follow in their order."""
    options = {name: about.pop(name) for name in ("clock", "store_timeout") if name in about}
    described: dict[str, Any] = {"name": "order", "step": 10, **about}
    made = StripedStore(list(stores), **options).segment_distributor(**described)
    made._fail_over.order = [*made._stripes[home:], *made._stripes[:home]]
    made._home = home
    return made


async def grant(striped: StripedIdSegmentDistributor, step: int = 10) -> range:
    """The ids of one call."""
    last = await striped.next_max_id(step)
    return range(last - (step - 1) * striped.stride, last + 1, striped.stride)


async def started(*stores: Flaky) -> list[Flaky]:
    """Stores all of which were seen by somebody."""
    stores = stores or tuple(flaky())
    await grant(at(stores), 1)
    return [*stores]


def fate(rng: random.Random, rate: float) -> str:
    """What becomes of a call."""
    return rng.choice(("away", "lost")) if rng.random() < rate else ""


def test_it_is_refused_for_strict_order() -> None:
    """Ids of its stores interleave."""
    with pytest.raises(UnsupportedByStoreError, match="each of its stores counts by itself"):
        SegmentId(at(flaky()), strict=True)


class TestPlaces:
    def test_ids_of_all_places_are_all_ids(self) -> None:
        """Each id belongs to one place; the first ones are 1 to n."""
        for width in range(2, 10):
            places = [ResidueClass(number, width) for number in range(width)]
            owned = [set(place.ids(place.floor(0) + 500, 5)) for place in places]
            assert set().union(*owned) == set(range(1, 5 * width + 1))
            assert sum(map(len, owned)) == 5 * width

    def test_a_floor_is_the_lowest(self) -> None:
        """What follows it is above, and what follows the value before it is not."""
        for width in range(2, 10):
            for number in range(width):
                place = ResidueClass(number, width)
                for above in [*range(40), 10**15, highest_id(width)]:
                    floor = place.floor(above)
                    assert floor + 100 <= MAX_ID
                    assert place.ids(floor + 100, 1)[0] > above
                    assert floor < 100 or place.ids(floor, 1)[0] <= above
                    assert ResidueClass.noted_in(floor) == (place, False)

    def test_a_value_tells_its_place(self) -> None:
        """In its last two digits; others tell nothing."""
        assert ResidueClass.noted_in(1_200_013) == (ResidueClass(1, 3), False)
        assert ResidueClass(1, 3).last_id(1_200_013) == 35_999
        assert ResidueClass(0, 2).last_id(2) == 0
        assert ResidueClass.noted_in(1_031) == (ResidueClass(1, 3), True)
        assert ResidueClass.noted_in(90) == (ResidueClass(0, 9), True)
        for value in (0, 100, 1, 11, 33, 99, 10, -87):
            assert ResidueClass.noted_in(value)[0] is None


class TestGrants:
    async def test_what_lies_in_the_stores(self) -> None:
        """Row before, first id, last id, row after; the first call costs each store an id."""
        stores = [MemoryStore() for _ in range(3)]
        one = at(stores, 1, offset=7)
        assert list(await grant(one, 4)) == [14, 17, 20, 23]  # those below told the places
        assert [store._backend._counters for store in stores] == [
            {KEY: 503},
            {KEY: 813},
            {KEY: 423},
        ]
        assert (one.stride, one.offset, one.step) == (3, 7, 10)
        assert list(await grant(one, 2)) == [26, 29]
        assert [store._backend._counters[KEY] for store in stores] == [503, 1013, 423]

    async def test_a_new_object_begins_above_all_stores(self) -> None:
        """Also at a store that is behind, whose counter is raised and not added to."""
        stores = flaky()
        first = at(stores, 0)
        before = [await grant(first, 1000) for _ in range(3)][-1]
        second = at(stores, 2)
        after = await grant(second, 5)
        assert after[0] > before[-1]
        assert after[0] <= before[-1] + 2 * 3
        assert second.statistics().stores[2].raises == 1

    async def test_many_that_find_a_store_behind_raise_it_once(self) -> None:
        """It ends where the others are: sums would grow with each of them, and without an end."""
        stores, objects, taken = flaky(), 20, list[range]()
        everybody = [at(stores, 0) for _ in range(objects)]
        for _ in range(10):
            for home in (0, 1, 2):
                for each in everybody:
                    each._fail_over.order = [*each._stripes[home:], *each._stripes[:home]]
                taken = await asyncio.gather(*(grant(each) for each in everybody))
        grants = 10 * 3 * objects
        assert max(ids[-1] for ids in taken) <= 3 * 10 * (grants + objects)

    async def test_several_objects_share_no_id(self) -> None:
        """Wherever they are at home, one after the other or at once; each one's ids rise."""
        stores = flaky()
        everybody = [at(stores, home) for home in (0, 1, 2, 0, 1, 2)]
        seen: list[int] = []
        for _ in range(10):
            taken = await asyncio.gather(*(grant(each) for each in everybody for _ in range(3)))
            seen += [each for ids in taken for each in ids]
        assert len(set(seen)) == len(seen) == 10 * 18 * 10

    async def test_homes_are_spread(self) -> None:
        """Each object has its own, and others behind it in an order of its own."""
        stores = flaky()
        made = [StripedStore(stores).segment_distributor(name="order") for _ in range(200)]
        assert {each.statistics().home for each in made} == {0, 1, 2}
        orders = {
            tuple(each._stripes.index(stripe) for stripe in each._fail_over.order) for each in made
        }
        assert len(orders) == 6

    async def test_above_what_another_object_handed_out(self) -> None:
        """A generator that is made anew on another object tells it."""
        one = at(flaky())
        one.resume_above(10**9)
        assert (await grant(one))[0] > 10**9

    async def test_the_end(self) -> None:
        """What no counter can count to is an overflow, and a bad offset."""
        stores = flaky(2)
        with pytest.raises(IdOverflowError):
            await at(stores).next_max_id(2**62)
        limit = highest_id(2)
        with pytest.raises(InvalidArgumentError, match="offset"):
            at(stores, offset=limit + 1)
        for width in (2, 9):
            last = at(flaky(width), offset=highest_id(width))
            with pytest.raises(IdOverflowError):
                await last.next_max_id(2)

    async def test_a_generator(self) -> None:
        """Its ids have holes where the other stores' are, and rise."""
        stores = flaky()
        async with SegmentChainId(at(stores)) as chain:
            ids = await chain.next_ids(100)
            stores[0].error = AWAY
            ids += await chain.next_ids(1000)  # more than it may have in hand
        assert all(later > former for former, later in pairwise(ids))
        assert len({each % 3 for each in ids}) == 2


class TestFailures:
    async def test_the_next_is_asked_in_the_same_call(self) -> None:
        """Whatever is wrong with a store; nobody hears of it while one lives."""
        for error in (
            AWAY,
            StoreAuthenticationError("flaky", "no"),
            CorruptCounterError("flaky", counter="a", found="a text"),
            IdOverflowError("a", limit=5),
            ValueError("a stranger's"),
            asyncio.CancelledError(),
        ):
            stores = flaky()
            one = at(stores)
            first = await grant(one)
            stores[0].error = stores[1].error = error
            second = await grant(one)
            assert second[0] > first[-1]
            assert [each.is_healthy for each in one.statistics().stores] == [False, False, True]
            assert isinstance(one.statistics().stores[0].last_error, CosIdError)
            stores[2].error, stores[1].error = error, None
            assert (await grant(one))[0] > second[-1], "the one in quarantine is the last resort"

    async def test_a_store_that_hangs(self) -> None:
        """It has its share of the time; then the next one is asked."""
        clock, stores = ManualClock(), flaky()
        one = at(stores, clock=clock, store_timeout=0.6)
        await grant(one)
        stores[0].hangs = True
        call = asyncio.ensure_future(grant(one))
        await clock.advance(0.59)
        assert not call.done()
        await clock.advance(0.01)
        assert (await call)[0] % 3 == 2
        assert "no answer within 0.6 s" in str(one.statistics().stores[0].last_error)

    async def test_a_quarantine_grows_and_ends(self) -> None:
        """Its store is not asked until it is over; each is longer, by chance, to half a minute."""
        clock, stores = ManualClock(), flaky()
        one = at(stores, clock=clock)
        await grant(one)
        stores[0].error = AWAY
        pauses: list[float] = []
        for _ in range(9):
            await grant(one)
            failed, begin = stores[0].calls, clock.monotonic()
            while stores[0].calls == failed:
                await clock.advance(0.05)
                await grant(one)
            pauses.append(clock.monotonic() - begin)
        for number, pause in enumerate(pauses[:-1]):
            longest = min(30.0, 0.5 * 2**number)
            assert longest / 2 <= pause <= longest + 0.1
        stores[0].error = None
        await clock.advance(31)
        assert (await grant(one))[0] % 3 == 1, "home again"
        stores[0].error = AWAY
        await grant(one)
        await clock.advance(0.51)
        failed = stores[0].calls
        await grant(one)
        assert stores[0].calls > failed, "the next quarantine is short again"

    async def test_many_calls_that_fail_at_once(self) -> None:
        """They are one failure to the quarantine."""
        clock, stores = ManualClock(), flaky()
        one = at(stores, clock=clock)
        await grant(one)
        stores[0].error = AWAY
        await asyncio.gather(*(grant(one) for _ in range(20)))
        assert one.statistics().stores[0].failures == 20
        await clock.advance(0.51)
        asked = stores[0].calls
        await grant(one)
        assert stores[0].calls > asked

    async def test_it_is_told_once(self, caplog: pytest.LogCaptureFixture) -> None:
        """A warning when a store fails first, a line when it is back."""
        clock, stores = ManualClock(), await started()
        one = at(stores, clock=clock)
        caplog.set_level(logging.INFO, "aiocosid")
        stores[0].error = AWAY
        for _ in range(5):
            await grant(one)
            await clock.advance(1)
        stores[0].error = None
        await clock.advance(30)
        await grant(one)
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
        assert "memory, place 0 of 3 is failing" in caplog.text

    async def test_nobody_answers(self) -> None:
        """The error tells what each store said; it is retryable if one of them was."""
        stores = flaky()
        one = at(stores)
        for store in stores:
            store.error = StoreAuthenticationError("flaky", "no rights")
        with pytest.raises(StoreError, match="no store answers: flaky: no rights; flaky") as caught:
            await grant(one)
        assert not caught.value.retryable
        assert any(caught.value.__cause__ is store.error for store in stores)
        stores[1].error = AWAY
        with pytest.raises(StoreUnavailableError, match="flaky: away"):
            await grant(one)
        for store in stores:
            store.error = None
        assert await grant(one), "the next call asks them all, in quarantine or not"

    async def test_a_store_that_was_away_at_first(self) -> None:
        """The first start needs all: nothing is granted before each has noted its place."""
        clock, stores = ManualClock(), flaky()
        one = at(stores, clock=clock)
        stores[2].error = AWAY
        for _ in range(3):
            with pytest.raises(StoreUnavailableError, match="place 0 of 3 is new"):
                await grant(one)
        assert KEY not in stores[2]._backend._counters
        stores[2].error = None
        assert await grant(one)
        assert [store._backend._counters[KEY] % 100 for store in stores] == [3, 13, 23]
        stores[0].error = stores[2].error = AWAY
        assert await grant(at(stores)), "from now on any one is enough"

    async def test_an_empty_store_beside_others_that_are_away(self) -> None:
        """It would grant their ids: what is new there stays so, whoever comes and how often."""
        first, second = flaky(2)
        seen = await grant(at([first, second]), 10)
        first.error = second.error = AWAY
        third = Flaky()
        for _ in range(5):
            for one in (at([first, second, third]), at([first, second, third], 2)):
                for _ in range(2):
                    with pytest.raises(StoreUnavailableError, match="place 2 of 3 is new"):
                        await grant(one)
        first.error = second.error = None
        with pytest.raises(StoreError, match="use another name for the counter"):
            await grant(at([first, second, third]))
        assert (await grant(at([first, second])))[0] > seen[-1]

    async def test_new_stores_that_hang(self) -> None:
        """They are waited for once, all at the same time; then they rest like any other."""
        clock, stores = ManualClock(), flaky(5)
        one = at(stores, clock=clock, store_timeout=0.6)
        stores[4].error = AWAY
        with pytest.raises(StoreUnavailableError, match="is new"):
            await grant(one)
        stores[4].error = None
        for store in stores[1:4]:
            store.hangs = True
        call = asyncio.ensure_future(grant(one))
        await clock.advance(0.6)
        assert call.done()
        again = asyncio.ensure_future(grant(one))
        await settle()
        assert again.done()

    async def test_a_new_counter_is_no_outage(self) -> None:
        """What waits for a store that is away leaves the health of the others alone."""
        stores = flaky()
        striped = StripedStore(stores)
        stores[2].error = AWAY
        new = striped.segment_distributor(name="new")
        for _ in range(3):
            with pytest.raises(StoreUnavailableError, match="is new"):
                await grant(new)
        assert [each.is_healthy for each in new.statistics().stores] == [True, True, False]

    async def test_new_counters_are_opened_while_others_ask(self) -> None:
        """Each advances them, also between another one's look and its opening."""
        for seed in range(10):
            stores = flaky()
            rng = random.Random(seed)  # noqa: S311
            everybody = [at(stores, rng.randrange(3)) for _ in range(8)]
            granted = await asyncio.gather(*map(grant, everybody))
            taken = [each for ids in granted for each in ids]
            assert len(set(taken)) == len(taken)

    async def test_what_is_no_failure_of_the_store(self) -> None:
        """A fork is the whole process's."""
        stores = flaky()
        one = at(stores)
        await grant(one)
        stores[0].error = ForkedError("a client")
        with pytest.raises(ForkedError):
            await grant(one)
        fresh = at(stores)
        with pytest.raises(ForkedError):
            await grant(fresh)

    async def test_a_forked_child(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It uses nothing of the parent's until it is opened there; a call across is refused."""
        stores = flaky()
        one = at(stores)
        ids = await grant(one)
        monkeypatch.setattr(fork, "generation", fork.generation + 1)
        with pytest.raises(ForkedError):
            await grant(one)
        for store in stores:
            monkeypatch.setattr(store._backend, "_fork_generation", fork.generation)
        await one.aopen()
        assert (await grant(one))[0] > ids[-1]
        call = asyncio.ensure_future(grant(one))
        await asyncio.sleep(0)
        monkeypatch.setattr(fork, "generation", fork.generation + 1)
        with pytest.raises(ForkedError):
            await call

    async def test_closed_under_a_call(self) -> None:
        """No other store is asked then: it would open connections that nobody closes."""
        clock, stores = ManualClock(), flaky()
        store = StripedStore(stores, owns_stores=True, clock=clock)
        one = store.segment_distributor(name="order")
        await grant(one)
        for each in stores:
            each.hangs = True
        call = asyncio.ensure_future(grant(one))
        await clock.advance(0.1)
        asked = [each.calls for each in stores]
        await store.aclose()
        assert [each.closed for each in stores] == [1, 1, 1]
        await clock.advance(5)
        with pytest.raises(StoreUnavailableError, match="closed while the call was under way"):
            await call
        assert [each.calls for each in stores] == asked

    async def test_a_stranger_that_cannot_be_closed(self) -> None:
        """The others are closed all the same."""

        class Stubborn(Flaky):
            async def aclose(self) -> None:
                raise ValueError

        stores = [Stubborn(), *flaky(2)]
        with pytest.raises(ValueError, match=r"^$"):
            await StripedStore(stores, owns_stores=True).aclose()
        assert [store.closed for store in stores[1:]] == [1, 1]

    async def test_cut_at_every_await(self) -> None:
        """Whatever a cancelled call has done: it shares nothing, and the next one goes on."""
        stores, seen = flaky(), set[int]()
        for turns in range(25):
            fresh, used = at(stores, turns % 3), at(stores, turns % 3)
            seen |= {*await grant(used)}
            for one in (fresh, used):
                task = asyncio.ensure_future(grant(one))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                done = (await asyncio.gather(task, return_exceptions=True))[0]
                taken = [*done] if isinstance(done, range) else []
                taken += await grant(one)
                assert seen.isdisjoint(taken)
                assert taken == sorted(taken)
                seen |= {*taken}

    async def test_any_script_of_failures(self) -> None:
        """Away, or a lost reply, at any call of any store: never an id twice, each object's rise.

        And no error as long as one store was there for the whole call.
        """
        for seed in range(25):
            rng = random.Random(seed)  # noqa: S311
            rates = [rng.choice((0.0, 0.0, 0.2, 0.6)) for _ in range(3)]
            stores = await started()
            for store, rate in zip(stores, rates, strict=True):
                store.draw = partial(fate, rng, rate)
            seen: set[int] = set()
            everybody = [at(stores, rng.randrange(3), clock=ManualClock()) for _ in range(3)]
            last = dict.fromkeys(everybody, 0)
            for _ in range(12):
                group = rng.sample(everybody, rng.randrange(1, 4))
                for one in group:
                    await one._fail_over._whole.clock.advance(rng.expovariate(2.0))  # type: ignore[attr-defined]
                sizes = [rng.randrange(1, 9) for _ in group]
                answers = await asyncio.gather(
                    *(grant(one, size) for one, size in zip(group, sizes, strict=True)),
                    return_exceptions=True,
                )
                for one, ids in zip(group, answers, strict=True):
                    if isinstance(ids, BaseException):
                        assert isinstance(ids, StoreUnavailableError), seed
                        assert min(rates) > 0, seed
                        continue
                    assert last[one] < ids[0], seed
                    assert seen.isdisjoint(ids), seed
                    last[one] = ids[-1]
                    seen |= {*ids}


class TestLosses:
    async def test_a_counter_that_went_back(self, caplog: pytest.LogCaptureFixture) -> None:
        """Who has seen it higher asks that store never more; the others go on."""
        clock, stores = ManualClock(), flaky()
        one = at(stores, clock=clock)
        before = await grant(one, 1000)
        stores[0]._backend._counters[KEY] = 303
        after = await grant(one)
        assert after[0] > before[-1]
        assert "is no longer used" in caplog.text
        stripe = one.statistics().stores[0]
        assert (stripe.is_healthy, stripe.has_ended) == (False, True)
        error = stripe.last_error
        assert isinstance(error, StoreRolledBackError)
        assert (error.counter, error.seen, error.expected) == ("cosid.order", 37, 3034)
        assert "set-floor order --namespace cosid" in str(error)
        asked = stores[0].calls
        await clock.advance(3600)
        await grant(one)
        assert stores[0].calls == asked

    async def test_a_counter_that_went_back_where_we_are_not_at_home(self) -> None:
        """Everybody has seen every store at its first call."""
        stores = flaky()
        one, other = at(stores, 0), at(stores, 1)
        await grant(one)
        await grant(other, 100)
        stores[0]._backend._counters[KEY] = 3
        stores[1].error = stores[2].error = AWAY
        with pytest.raises(StoreUnavailableError, match="went backwards"):
            await grant(other)
        assert other.statistics().stores[0].has_ended

    async def test_a_store_that_lost_its_counter(self) -> None:
        """Whoever finds it new, and sees the others, opens it above them."""
        stores = await started()
        seen = await grant(at(stores), 100)
        stores[2]._backend._counters.clear()
        await grant(at(stores))
        stores[0].error = stores[1].error = AWAY
        assert (await grant(at(stores, 2)))[0] > seen[-1]

    async def test_a_store_that_does_not_keep_its_floor(self) -> None:
        """It forgets, or does nothing: no id below is taken from it."""

        class Forgets(Flaky):
            left = 3

            async def set_floor(self, **asked: Any) -> Counter:
                self._backend._counters[KEY] = min(self.left, self._backend._counters[KEY])
                return Counter(namespaced_name=KEY, last_max_id=10**9)

        for left in (3, 10**9):
            Forgets.left = left
            stores = [Forgets(), *flaky(2)]
            kept = await started()
            for store, other in zip(stores, kept, strict=True):
                store._backend._counters.update(other._backend._counters)
            one = at(stores, 0)
            await grant(one)
            one.resume_above(1000)
            assert (await grant(one))[0] > 1000
            assert one.statistics().stores[0].has_ended

    async def test_all_went_back(self) -> None:
        """The generator ends, as on one store."""
        stores = flaky()
        one = at(stores)
        await grant(one, 100)
        for store in stores:
            store._backend._counters[KEY] %= 100
        for _ in range(2):
            with pytest.raises(StoreRolledBackError):
                await grant(one)

    async def test_stores_in_another_order(self) -> None:
        """Refused at the first call, also if one of them was never asked for an id before."""
        a, b, c = stores = flaky()
        await grant(at(stores, 0))
        before = [store._backend._counters[KEY] % 100 for store in stores]
        for swapped in ((b, a, c), (a, c, b), (b, c, a)):
            for offset in (0, 10**6):
                with pytest.raises(StoreError, match=r"place \d of 3, but was requested as place"):
                    await grant(at(swapped, offset=offset))
        assert [store._backend._counters[KEY] % 100 for store in stores] == before

    async def test_more_or_fewer_stores(self) -> None:
        """Refused; under another name, above all ids, they are another counter."""
        stores = flaky(4)
        ids = await grant(at(stores[:3]), 100)
        for others in (stores, stores[:2]):
            with pytest.raises(StoreError, match="use another name for the counter"):
                await grant(at(others))
        more = await grant(at(stores, name="order2", offset=ids[-1]))
        assert more[0] > ids[-1]

    async def test_a_plain_counter_of_that_name(self) -> None:
        """It names no place; the others go on."""
        stores = await started()
        stores[0]._backend._counters[KEY] = 5000
        one = at(stores)
        assert (await grant(one))[0] % 3 == 2
        assert "5100, which does not end in a place" in str(one.statistics().stores[0].last_error)


class TestStore:
    async def test_its_counters(self) -> None:
        """Each once, with the highest id of all stores; other counters are none of its."""
        stores = flaky()
        striped = StripedStore(stores)
        await stores[0].segment_distributor(namespace="cosid", name="plain").next_max_id(10)
        stores[1]._backend._counters["cosid.odd~striped"] = 5
        ids = await grant(striped.segment_distributor(name="order"))
        other = await grant(striped.segment_distributor(namespace="other", name="order"))
        found = {each.namespaced_name: each.last_max_id for each in await striped.counters()}
        assert found == {"cosid.order": ids[-1], "other.order": other[-1]}
        assert [each.namespaced_name for each in await striped.counters(namespace="other")] == [
            "other.order"
        ]

    async def test_its_floor(self) -> None:
        """It is raised in each store, never lowered, and not in stores in another order."""
        stores = flaky()
        striped = StripedStore(stores)
        raised = await striped.set_floor(name="order", above=1000)
        assert (raised.namespaced_name, raised.last_max_id) == ("cosid.order", 1000)
        values = [store._backend._counters[KEY] for store in stores]
        assert values == [ResidueClass(number, 3).floor(1000) for number in range(3)]
        again = await striped.set_floor(name="order", above=5)
        assert again.last_max_id >= 1000
        for home in range(3):
            assert (await grant(at(stores, home)))[0] > 1000
        with pytest.raises(StoreError, match="was requested as place"):
            await StripedStore(stores[::-1]).set_floor(name="order", above=10**6)
        assert max(store._backend._counters[KEY] for store in stores) < 10**6
        for wrong in (-1, True, highest_id(3) + 1, "5"):
            with pytest.raises(InvalidArgumentError, match="above"):
                await striped.set_floor(name="order", above=wrong)  # type: ignore[arg-type]

    async def test_a_floor_needs_all_stores(self) -> None:
        """Else it would open one that does not belong there."""
        first, second = flaky(2)
        await grant(at([first, second]))
        first.error, third = AWAY, Flaky()
        with pytest.raises(StoreUnavailableError):
            await StripedStore([third, first, second]).set_floor(name="order", above=1000)
        assert ResidueClass.noted_in(third._backend._counters[KEY]) == (ResidueClass(0, 3), True)

    async def test_its_life(self) -> None:
        """It closes what it was given to own, and nothing else; all its counters know an outage."""
        stores = flaky()
        for name in ("one", "two"):
            await grant(at(stores, name=name), 1)
        async with StripedStore(stores) as striped:
            await striped.create_schema()
            stores[0].error = AWAY
            one, two = (striped.segment_distributor(name=name) for name in ("one", "two"))
            await grant(one)
            assert [each.is_healthy for each in two.statistics().stores] == [False, True, True]
            await one.aopen()
            await one.aclose()
        assert [store.closed for store in stores] == [0, 0, 0]

    async def test_no_machine_ids(self) -> None:
        """They need one truth."""
        striped = StripedStore(flaky())
        with pytest.raises(UnsupportedByStoreError, match="use a single store"):
            striped.machine_id_distributor()
        with pytest.raises(StoreError, match="use a single store"):
            await striped.machines()


class TestDescription:
    def test_what_it_says_of_itself(self) -> None:
        stores = [MemoryStore(), MemoryStore()]
        assert repr(StripedStore(stores)).startswith("<StripedStore <MemoryStore")
        one = at(stores, step=7)
        assert repr(one) == "<StripedIdSegmentDistributor cosid.order step=7 x2>"
        assert one.statistics().stores[1].place == 1

    def test_its_url(self, tmp_path: Path) -> None:
        """The stores in their order; within, all of a URL is percent-encoded."""
        urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("a b&c", "d+e")]
        inner = "&".join(f"store={quote(url, safe='')}" for url in urls)
        striped = StripedStore.from_url(
            f"striped:?{inner}&store_timeout=1.5", store_from_url=store_from_url
        )
        assert striped.store_timeout == 1.5
        assert [str(tmp_path / name) in repr(striped) for name in ("a b&c.db", "d+e.db")] == [
            True
        ] * 2
        both = "store=memory:&store=redis+sentinel://h/s"
        opened: list[str] = []
        with pytest.raises(InvalidArgumentError, match="stores"):
            StripedStore.from_url(f"striped:?{both}", store_from_url=opened.append)  # type: ignore[arg-type]
        assert opened == ["memory:", "redis+sentinel://h/s"]
        for wrong in ("", "?", f"?{both}&span=1", f"?{both}&store_timeout=1&store_timeout=1", both):
            with pytest.raises(
                InvalidArgumentError, match=r"url 'striped:\.\.\.' must look like striped:"
            ):
                StripedStore.from_url(f"striped:{wrong}", store_from_url=store_from_url)
        for seconds in ("x", "0", "nan"):
            url = f"striped:?{inner}&store_timeout={seconds}"
            with pytest.raises(InvalidArgumentError, match="store_timeout"):
                StripedStore.from_url(url, store_from_url=store_from_url)
        with pytest.raises(InvalidArgumentError, match="2 to 9 stores"):
            StripedStore.from_url("striped:?store=memory:", store_from_url=store_from_url)

    def test_what_are_no_stores(self) -> None:
        one, two = MemoryStore(), MemoryStore()
        striped = StripedStore([one, two])
        for wrong in ([], [one], [one] * 2, [one, None], one, flaky(10), None):
            with pytest.raises(InvalidArgumentError, match="stores"):
                StripedStore(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="contiguous ranges"):
            at([striped, one])
        with pytest.raises(InvalidArgumentError, match="store_timeout"):
            StripedStore([one, two], store_timeout=0)
        with pytest.raises(InvalidArgumentError, match="store_timeout"):
            at([one, two], store_timeout=0)


class TestRegions:
    """Data centres with a store each: every process asks that of its own region alone."""

    def at(self, stores: Iterable[Any], region: int) -> StripedIdSegmentDistributor:
        store = StripedStore(list(stores), region=region)
        return store.segment_distributor(name="order", step=10)

    @pytest.mark.parametrize("began", ["in a region", "anywhere"])
    async def test_only_the_own_store_is_asked_for_ids(self, began: str) -> None:
        """Once the counter has begun, the others may be out of reach for good."""
        stores = flaky()
        await grant(self.at(stores, 1) if began == "in a region" else at(stores), 1)
        for region in range(3):
            calls = [each.calls for each in stores]
            for number, store in enumerate(stores):
                store.error = AWAY if number != region else None
            one = self.at(stores, region)
            ids = [each for _ in range(20) for each in await grant(one)]
            assert {(each - 1) % 3 for each in ids} == {region}
            assert ids == sorted(set(ids))
            assert [number for number, each in enumerate(stores) if each.calls > calls[number]] == [
                region
            ]
            assert one.statistics().home == region

    async def test_a_new_counter_needs_every_store(self) -> None:
        """As without regions: an empty store cannot tell that it is not the first."""
        stores = flaky()
        stores[2].error = AWAY
        one = self.at(stores, 0)
        with pytest.raises(StoreUnavailableError, match="until every store has been reached once"):
            await grant(one)
        stores[2].error = None
        assert (await grant(one))[0] % 3 == 1

    async def test_its_own_store_is_away(self) -> None:
        """No other one helps, though it could; the call fails, and goes on afterwards."""
        stores = await started(*flaky())
        one = self.at(stores, 1)
        before = await grant(one)
        stores[1].error = AWAY
        for _ in range(3):
            with pytest.raises(StoreUnavailableError, match="no store answers"):
                await grant(one)
        stores[1].error = None
        assert (await grant(one))[0] > before[-1]

    async def test_its_own_store_was_replaced_by_an_empty_one(self) -> None:
        """It grants nothing before it has seen the others, and then only above them."""
        stores = await started(*flaky())
        last = (await grant(at(stores, 0), 1000))[-1]
        stores[1] = Flaky()
        stores[0].error = AWAY
        one = self.at(stores, 1)
        with pytest.raises(StoreUnavailableError, match="until every store has been reached once"):
            await grant(one)
        stores[0].error = None
        assert (await grant(one))[0] > last, "one in a cooldown is asked as well"

    async def test_its_own_counter_went_back(self) -> None:
        """The error is the one of that store; no other is asked."""
        stores = await started(*flaky())
        one = self.at(stores, 1)
        await grant(one, 1000)
        stores[1]._backend._counters[KEY] %= 100
        for _ in range(2):
            with pytest.raises(StoreRolledBackError):
                await grant(one)

    async def test_another_split_is_refused(self) -> None:
        """More or fewer regions, or the same in another order: nothing is handed out."""
        stores = await started(*flaky())
        for others, region in ((stores[:2], 0), ([*reversed(stores)], 0), ([*stores, Flaky()], 1)):
            with pytest.raises(StoreError, match="was requested as place"):
                await grant(self.at(others, region))
        assert (await grant(self.at(stores, 0)))[0] % 3 == 1

    @pytest.mark.parametrize("region", [-1, 3, True, "1"])
    def test_there_is_no_such_region(self, region: Any) -> None:
        """A region is the place of a store."""
        with pytest.raises(InvalidArgumentError, match="region"):
            StripedStore(flaky(), region=region)

    def test_in_a_url(self) -> None:
        """As ``store_timeout`` is."""
        url = "striped:?store=redis://a&store=redis://b&region="
        store = store_from_url(f"{url}1")
        assert isinstance(store, StripedStore)
        assert store.region == 1
        for wrong in ("2", "one"):
            with pytest.raises(InvalidArgumentError, match="region"):
                store_from_url(f"{url}{wrong}")
