"""Callers that wait for ids, in the order in which they came."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiocosid._life.waiting_line import Waiter, WaiterQueue
from aiocosid.errors import ClosedError


class Stock:
    """Ids to take from, counted from 1."""

    def __init__(self, available: int) -> None:
        self.available = available
        self.next = 1

    def take(self, n: int) -> list[range]:
        assert n <= self.available
        self.available -= n
        self.next += n
        return [range(self.next - n, self.next)]


def queue_of(*sizes: int) -> tuple[WaiterQueue, list[Waiter], list[int]]:
    """Waiters for so many ids each, and who was woken."""
    queue = WaiterQueue()
    woken: list[int] = []
    waiters = []
    for number, n in enumerate(sizes):
        waiter = Waiter(n, partial(woken.append, number))
        queue.add(waiter)
        waiters.append(waiter)
    return queue, waiters, woken


def test_the_first_is_served_first() -> None:
    """From the front, each woken in the same moment, for as long as there is enough."""
    queue, waiters, woken = queue_of(2, 3, 4)
    stock = Stock(6)
    queue.serve(6, stock.take)
    assert woken == [0, 1]
    assert [waiter.pieces for waiter in waiters] == [[range(1, 3)], [range(3, 6)], None]
    assert (len(queue), queue.wanted, stock.available) == (1, 4, 1)


def test_nobody_behind_the_first_is_served_before_it() -> None:
    """A large caller at the front holds the small ones behind it."""
    queue, waiters, woken = queue_of(5, 1)
    queue.serve(4, Stock(4).take)
    assert woken == []
    assert not any(waiter.is_done for waiter in waiters)


def test_who_wants_none_waits_until_there_is_any() -> None:
    """As opening does: it takes nothing, but not before something has come."""
    queue, waiters, woken = queue_of(0)
    queue.serve(0, Stock(0).take)
    assert woken == []
    queue.serve(1, Stock(1).take)
    assert woken == [0]
    assert list(waiters[0].pieces[0]) == []  # type: ignore[index]  # served


def test_who_leaves_is_not_counted() -> None:
    """Its ids are not wanted any more, wherever in the line it stood."""
    queue, waiters, _ = queue_of(2, 3, 4)
    queue.discard(waiters[1])
    assert queue.wanted == 6
    assert list(queue) == [waiters[0], waiters[2]]


def test_all_fail_each_with_an_error_of_its_own() -> None:
    """One error in several tasks would collect the tracebacks of all."""
    queue, waiters, woken = queue_of(1, 2, 3)
    queue.fail(lambda: ClosedError("it"))
    assert woken == [0, 1, 2]
    assert len({id(waiter.error) for waiter in waiters}) == 3
    assert (len(queue), queue.wanted) == (0, 0)


def test_a_fetch_is_for_those_who_asked_before_it_was_sent() -> None:
    """With ``sent`` given, who lined up later has to wait for the next one."""
    queue = WaiterQueue()
    early, late = Waiter(1, lambda: None, sent=0), Waiter(1, lambda: None, sent=1)
    queue.add(early)
    queue.add(late)
    queue.serve(5, Stock(5).take, sent=1)
    assert (early.is_done, late.is_done) == (True, False)
    queue.serve(5, Stock(5).take, sent=2)
    assert late.is_done


class Line(RuleBasedStateMachine):
    """Any order of coming, leaving and serving."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = WaiterQueue()
        self.waiting: list[Waiter] = []
        self.stock = Stock(0)

    @rule(n=st.integers(0, 9))
    def come(self, n: int) -> None:
        waiter = Waiter(n, lambda: None)
        self.queue.add(waiter)
        self.waiting.append(waiter)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from(self.waiting))
        self.queue.discard(waiter)
        self.waiting.remove(waiter)

    @rule(n=st.integers(0, 20))
    def serve(self, n: int) -> None:
        self.stock.available += n
        self.queue.serve(self.stock.available, self.stock.take)
        served = [waiter for waiter in self.waiting if waiter.is_done]
        assert self.waiting[: len(served)] == served
        ids = [each for waiter in served for piece in waiter.pieces or () for each in piece]
        assert len(ids) == sum(waiter.n for waiter in served)
        assert ids == sorted(ids)
        del self.waiting[: len(served)]
        if self.waiting:
            assert max(1, self.waiting[0].n) > self.stock.available

    @invariant()
    def counts_agree(self) -> None:
        assert list(self.queue) == self.waiting
        assert self.queue.wanted == sum(waiter.n for waiter in self.waiting)
        assert not any(waiter.is_done for waiter in self.waiting)


TestLine = Line.TestCase


@given(st.lists(st.integers(1, 20), max_size=20), st.integers(0, 200))
def test_what_is_left_is_not_enough_for_the_first(sizes: list[int], available: int) -> None:
    """Serving stops only where the next one cannot be served whole."""
    queue, waiters, woken = queue_of(*sizes)
    stock = Stock(available)
    queue.serve(available, stock.take)
    assert woken == list(range(len(woken)))
    if queue:
        assert waiters[len(woken)].n > stock.available


def test_who_says_nothing_lined_up_at_0() -> None:
    """Before the first fetch."""
    assert Waiter(1, list).sent == 0
