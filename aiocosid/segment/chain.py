"""Segments, and the chain of them: ids that are fetched and not yet handed out.  Pure.

Only the prefetcher adds nodes, at the tail, and sets the `next` of a node once.  Consumers only
move forward from the head.  It is a linked list because an empty deque allocates a block of 64
places, and a process may keep a hundred thousand idle chains.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import length_hint
from typing import TYPE_CHECKING, Final

from .._life.atomic_step import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ("FOREVER", "ChainNode", "IdSegment", "IdSegmentChain", "IdsInHand")

FOREVER: Final = float("inf")
"""A ttl without an end; CosId writes it as 2^63-1 seconds."""


@dataclass(frozen=True, slots=True)
class IdSegment:
    """The ids ``(max_id - step, max_id]``, reserved in a store and owned by this process.

    With a stride, they are ``step`` ids that are ``stride`` apart; the last one is ``max_id``.

    Attributes:
        max_id: the last id; the store's counter after the fetch.
        step: how many ids.
        fetched_at: when the fetch was sent, in seconds on the generator's monotonic clock.
        ttl: seconds after which the ids are no longer handed out.
        stride: the distance from one id to the next; above 1 only for counters that use one
            residue class.
    """

    max_id: int
    step: int
    fetched_at: float = 0.0
    ttl: float = FOREVER
    stride: int = 1

    @property
    def offset(self) -> int:
        """The id before the first one."""
        return self.max_id - self.step * self.stride

    @property
    def ids(self) -> range:
        """The ids, in the order in which they are handed out."""
        return range(self.offset + self.stride, self.max_id + 1, self.stride)

    @property
    def expires_at(self) -> float:
        """The last moment at which the ids may be used, on the clock of ``fetched_at``."""
        return self.fetched_at + self.ttl

    def is_expired(self, now: float) -> bool:
        """Tell whether the ids are too old at ``now``, in seconds; strictly later, as in CosId."""
        return now > self.fetched_at + self.ttl

    def clipped(self, *, lowest: int, highest: int) -> IdSegment | None:
        """Return the part between two ids, both inclusive; None if none is left."""
        ids = self.ids
        if ids[0] >= lowest and self.max_id <= highest:
            return self
        below = max(0, -((ids[0] - lowest) // self.stride))
        above = max(0, -((highest - self.max_id) // self.stride))
        left = self.step - below - above
        if left < 1:
            return None
        high = self.max_id - above * self.stride
        return IdSegment(high, left, self.fetched_at, self.ttl, self.stride)


class ChainNode:
    """One linked segment.

    Attributes:
        segment: what was fetched.
        first: the next id of this node to take.
        next: the following node, or None at the tail.
    """

    __slots__ = ("first", "next", "segment")

    def __init__(self, segment: IdSegment) -> None:
        self.segment = segment
        self.first = segment.offset + segment.stride
        self.next: ChainNode | None = None

    @property
    def remaining(self) -> int:
        """Ids of this node that are not taken yet."""
        return (self.segment.max_id - self.first) // self.segment.stride + 1


class IdSegmentChain:
    """Linked segments ahead of the consumer.

    Attributes:
        head: the oldest node with ids left, or None when the chain is empty.
        current: the segment of the latest cut; None before the first.
        tail: the newest node, or None.
        remaining: ids in all nodes.
    """

    __slots__ = ("current", "head", "remaining", "tail")

    def __init__(self) -> None:
        self.head: ChainNode | None = None
        self.current: IdSegment | None = None
        self.tail: ChainNode | None = None
        self.remaining = 0

    def link(self, segment: IdSegment) -> None:
        """Append a segment; all its ids must be above the ones added before."""
        node = ChainNode(segment)
        self.remaining += segment.step
        if self.tail is None:
            self.head = node
        else:
            self.tail.next = node
        self.tail = node

    def cut(self, size: int) -> tuple[range, IdSegment] | None:
        """Take up to ``size`` ids from the head node alone; None when the chain is empty."""
        node = self.head
        if node is None:
            return None
        first = node.first
        self.current = node.segment
        size = min(size, node.remaining)
        self._advance(node, size)
        return range(first, node.first, node.segment.stride), node.segment

    def take(self, n: int) -> list[range]:
        """Take exactly ``n`` ids, across nodes; with fewer raise IndexError and take none."""
        if n > self.remaining:
            raise IndexError(f"{n} ids were requested, {self.remaining} remain")
        pieces: list[range] = []
        while n > 0 and (cut := self.cut(n)) is not None:
            pieces.append(cut[0])
            n -= len(cut[0])
        return pieces

    def drop_expired(self, now: float) -> int:
        """Drop the nodes that are too old at ``now``; return how many ids they had.

        Nodes were fetched in order, so the search ends at the first one that is fresh.
        """
        dropped = 0
        while (node := self.head) is not None and node.segment.is_expired(now):
            dropped += node.remaining
            self._advance(node, node.remaining)
        return dropped

    def drop_short(self, n: int) -> int:
        """Drop ids in front of a hole until ``n`` are contiguous; return how many were dropped.

        The last run of ids stays, however short: the next segment may continue it without a hole.
        """
        dropped = 0
        while (node := self.head) is not None:
            run, last = node.remaining, node
            while run < n and (behind := last.next) is not None:
                if behind.first != last.segment.max_id + 1:
                    break
                run, last = run + behind.remaining, behind
            if run >= n or last.next is None:
                break
            dropped += run
            self.head, self.remaining = last.next, self.remaining - run
        return dropped

    def clear(self) -> int:
        """Drop all ids; return how many there were."""
        dropped, self.remaining = self.remaining, 0
        self.head = self.tail = None
        return dropped

    def _advance(self, node: ChainNode, size: int) -> None:
        node.first += size * node.segment.stride
        self.remaining -= size
        if node.first > node.segment.max_id:
            self.head = node.next
            if self.head is None:
                self.tail = None


class IdsInHand:
    """The buffered ids: the piece in use, an iterator over its ids, and the chain behind it.

    A generator and one opening of it share this: the opening writes, callers take from `exposed`.

    Attributes:
        busy: whether a step is under way; see `atomic_step`.
        chain: ids that are in no piece yet.
        exposed: what callers take from: the piece, or nothing during a step and at the end.
        floor: the last max id of this and all earlier openings; a sound store answers above it.
        iterate: makes an iterator of a range; ``iter``, or one that checks who takes each id.
        piece: the ids that callers take.  It is replaced, never refilled, so a caller that keeps an
            old one finds it used up.
        stop: the id behind the last one of the piece, one stride on.
        stride: the distance from one id of the piece to the next.
    """

    __slots__ = ("busy", "chain", "exposed", "floor", "iterate", "piece", "stop", "stride")

    def __init__(self, floor: int | None = None) -> None:
        self.busy = False
        self.chain = IdSegmentChain()
        self.exposed: Iterator[int] = EMPTY
        self.floor = floor
        self.iterate: Callable[[range], Iterator[int]] = iter
        self.piece: Iterator[int] = EMPTY
        self.stop, self.stride = 0, 1

    @property
    def left(self) -> int:
        """Ids of the piece that are not taken yet."""
        return length_hint(self.piece)

    @property
    def ahead(self) -> int:
        """Ids of the piece and the chain together."""
        return length_hint(self.piece) + self.chain.remaining

    @property
    def head(self) -> IdSegment | None:
        """The segment of the next id, or else of the last one."""
        node = self.chain.head
        return self.chain.current if self.left or node is None else node.segment

    @property
    def before_next(self) -> int | None:
        """The id before the next one; None if there is no next one."""
        left, node = self.left, self.chain.head
        if left:
            return self.stop - (left + 1) * self.stride
        return None if node is None else node.first - node.segment.stride

    def cut(self, size: int) -> IdSegment | None:
        """Make the next piece, of up to ``size`` ids; return its segment, or None if there is none.

        The previous piece must be used up.
        """
        cut = self.chain.cut(size) if size > 0 else None
        if cut is None:
            return None
        piece, segment = cut
        self.stop, self.stride = piece.stop, piece.step
        self.piece = self.iterate(piece)
        return segment

    def take(self, n: int) -> list[range]:
        """Take exactly ``n`` ids, those of the piece first; at least that many must be there."""
        left, stop, stride = self.left, self.stop, self.stride
        self.piece = EMPTY
        if left == 0:
            return self.chain.take(n)
        in_hand = range(stop - left * stride, stop, stride)
        if left > n:
            self.piece = self.iterate(in_hand[n:])
            return [in_hand[:n]] if n else []
        return [in_hand, *self.chain.take(n - left)]

    def drop_piece(self) -> int:
        """Drop the rest of the piece; return how many ids it had."""
        left = self.left
        self.piece = EMPTY
        return left

    def clear(self) -> int:
        """Drop all ids; return how many there were."""
        return self.drop_piece() + self.chain.clear()
