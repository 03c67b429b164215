"""The segment chain: ids bought and not yet handed out."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiocosid.segment import IdSegment
from aiocosid.segment.chain import IdSegmentChain, IdsInHand


def chain_of(*steps: int) -> IdSegmentChain:
    """Segments one after the other, from id 1 on."""
    chain, max_id = IdSegmentChain(), 0
    for step in steps:
        max_id += step
        chain.link(IdSegment(max_id, step))
    return chain


def test_the_id_before_the_next_one() -> None:
    """Of the piece, else of the chain."""
    hand = IdsInHand()
    found = [hand.before_next]
    hand.chain.link(IdSegment(20, 10, stride=2))
    found.append(hand.before_next)
    hand.cut(4)
    found += [hand.before_next, next(hand.piece), hand.before_next]
    assert found == [None, 0, 0, 2, 2]


def test_more_than_there_is_cannot_be_taken() -> None:
    """It is an IndexError, and nothing is taken."""
    chain = chain_of(10, 10)
    with pytest.raises(IndexError, match="21 ids"):
        chain.take(21)
    assert chain.remaining == 20
    assert chain.take(20) == [range(1, 11), range(11, 21)]


def test_expired_nodes_are_dropped_from_the_front() -> None:
    """Up to the first fresh one; what is left of a node counts, not its whole."""
    chain = IdSegmentChain()
    for number in range(1, 5):
        chain.link(IdSegment(number * 10, 10, fetched_at=number, ttl=10))
    chain.cut(3)
    assert chain.drop_expired(11) == 0
    assert chain.drop_expired(12.5) == 7 + 10
    assert chain.remaining == 20
    assert chain.take(1) == [range(21, 22)]
    assert chain.drop_expired(100) == 19
    assert (chain.head, chain.tail) == (None, None)


class Chain(RuleBasedStateMachine):
    """Any order of linking, cutting, taking, dropping and clearing, beside a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.chain = IdSegmentChain()
        self.ids: list[tuple[int, float]] = []  # each with the moment at which it expires
        self.max_id = 0
        self.now = 0.0
        self.highest_out = 0

    @rule(
        step=st.integers(1, 9), gap=st.integers(0, 5), age=st.floats(0, 2), stride=st.integers(1, 3)
    )
    def link(self, step: int, gap: int, age: float, stride: int) -> None:
        self.now += age
        self.max_id += gap + step * stride
        segment = IdSegment(self.max_id, step, fetched_at=self.now, ttl=3.0, stride=stride)
        self.chain.link(segment)
        self.ids += [(each, segment.expires_at) for each in segment.ids]

    @rule(size=st.integers(1, 12))
    def cut(self, size: int) -> None:
        cut = self.chain.cut(size)
        if cut is None:
            assert self.ids == []
            return
        piece, segment = cut
        assert 1 <= len(piece) <= size
        assert set(piece) <= set(segment.ids)
        self.gone(list(piece))

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        n = data.draw(st.integers(0, len(self.ids)))
        pieces = self.chain.take(n)
        self.gone([each for piece in pieces for each in piece])

    @rule(later=st.floats(0, 4))
    def drop_expired(self, later: float) -> None:
        self.now += later
        kept = [(each, at) for each, at in self.ids if not self.now > at]
        assert self.chain.drop_expired(self.now) == len(self.ids) - len(kept)
        self.ids = kept

    @rule()
    def clear(self) -> None:
        assert self.chain.clear() == len(self.ids)
        self.ids = []

    def gone(self, taken: list[int]) -> None:
        expected = [each for each, _ in self.ids[: len(taken)]]
        assert taken == expected
        assert all(each > self.highest_out for each in taken)
        self.highest_out = max([self.highest_out, *taken])
        del self.ids[: len(taken)]

    @invariant()
    def counts_agree(self) -> None:
        assert self.chain.remaining == len(self.ids)
        nodes, node = [], self.chain.head
        while node is not None:
            nodes.append(node)
            node = node.next
        held = [each for node in nodes for each in node.segment.ids if each >= node.first]
        assert held == [each for each, _ in self.ids]
        assert all(node.remaining > 0 for node in nodes)
        assert self.chain.tail is (nodes[-1] if nodes else None)


TestChain = Chain.TestCase


def test_current_is_what_was_cut_last() -> None:
    """Also once it is used up."""
    chain = IdSegmentChain()
    assert chain.current is None
    one, other = IdSegment(10, 10), IdSegment(20, 10)
    chain.link(one)
    chain.link(other)
    assert chain.current is None
    for size, due in ((3, one), (7, one), (1, other), (9, other)):
        chain.cut(size)
        assert chain.current is due
    assert chain.cut(1) is None
    assert chain.current is other
