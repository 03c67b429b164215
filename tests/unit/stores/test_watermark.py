"""How a store that lost writes is noticed, and the ranges of arguments that all stores share."""

from __future__ import annotations

import pytest

from aiocosid._life import fork
from aiocosid.abc import MAX_ID
from aiocosid.abc.checks import check_above, check_step
from aiocosid.errors import ForkedError, InvalidArgumentError, StoreRolledBackError
from aiocosid.stores.counters import HighWater
from aiocosid.stores.memory import MemoryStore

DISTRIBUTOR = MemoryStore().segment_distributor(namespace="shop", name="order", step=10)


def reply(water: HighWater, max_id: int, baseline: int | None) -> int:
    return water.check(DISTRIBUTOR, max_id, step=10, baseline=baseline)


def test_the_first_reply_may_be_any() -> None:
    """Whatever the counter has come to, this process has seen nothing yet."""
    for max_id in (0, 10, MAX_ID):
        water = HighWater()
        assert water.baseline() is None
        assert reply(water, max_id, None) == max_id
        assert water.baseline() == max_id


def test_a_sound_store_adds_at_least_the_step() -> None:
    water = HighWater()
    reply(water, 30, None)
    for seen in (39, 30, 10, 0):
        with pytest.raises(StoreRolledBackError) as error:
            reply(water, seen, 30)
        assert (error.value.seen, error.value.expected) == (seen, 40)
        assert error.value.counter == "shop.order"
        assert water.baseline() == 30
    assert reply(water, 40, 30) == 40
    assert water.baseline() == 40


def test_replies_may_overtake_each_other() -> None:
    """Each is compared with what was known when its own call was sent."""
    water = HighWater()
    first = water.baseline()
    assert reply(water, 30, first) == 30
    second, third = water.baseline(), water.baseline()
    assert reply(water, 50, third) == 50
    assert reply(water, 40, second) == 40
    assert reply(water, 20, first) == 20
    assert water.baseline() == 50


def test_what_another_object_has_seen_counts() -> None:
    """And never less than what this one has."""
    water = HighWater()
    water.raise_to(0)
    assert water.baseline() == 0
    water.raise_to(30)
    water.raise_to(20)
    assert water.baseline() == 30
    with pytest.raises(StoreRolledBackError):
        reply(water, 39, water.baseline())


def test_a_child_has_to_make_it_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the parent has seen until then still holds."""
    water = HighWater()
    reply(water, 30, None)
    water.ensure_own("the counter")
    monkeypatch.setattr(fork, "generation", fork.generation + 1)
    with pytest.raises(ForkedError, match="the counter"):
        water.ensure_own("the counter")
    water.adopt()
    water.ensure_own("the counter")
    assert water.baseline() == 30


def test_a_step_is_an_integer_of_at_least_1() -> None:
    """One that no counter could hold is for the store to refuse."""
    for step in (1, 2, MAX_ID, MAX_ID + 1):
        check_step(step)
    for wrong in (0, -1, True, 1.0, "1", None):
        with pytest.raises(InvalidArgumentError) as error:
            check_step(wrong)
        assert error.value.argument == "step"


def test_above_is_what_a_counter_may_hold() -> None:
    for above in (0, 1, MAX_ID):
        check_above(above)
    for wrong in (-1, MAX_ID + 1, False, 1.0, "1", None):
        with pytest.raises(InvalidArgumentError) as error:
            check_above(wrong)
        assert error.value.argument == "above"
