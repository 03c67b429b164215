"""The segment chain: ids bought and not yet handed out.  Pure.

Nodes are linked at the tail by the prefetcher alone; a node's `next` is set once.  Consumers only
walk forward from the head.  A linked list, not a deque: an empty deque holds a block of 64 places,
and a process may keep a hundred thousand idle chains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._segment import IdSegment

__all__ = ("ChainNode", "IdSegmentChain")


class ChainNode:
    """One linked segment.

    Attributes:
        segment: what was fetched.
        first: the next id of this node to be cut off.
        next: the following node, or None at the tail.
    """

    __slots__ = ("first", "next", "segment")

    def __init__(self, segment: IdSegment) -> None:
        self.segment = segment
        self.first = segment.offset + segment.stride
        self.next: ChainNode | None = None

    @property
    def remaining(self) -> int:
        """Ids of this node that are not cut off yet."""
        return (self.segment.max_id - self.first) // self.segment.stride + 1


class IdSegmentChain:
    """Linked segments ahead of the consumer.

    Attributes:
        head: the oldest node with ids left, or None when the chain is dry.
        current: the segment that was last cut from; None before.
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
        """Append a segment whose ids are all above the ones linked before."""
        node = ChainNode(segment)
        self.remaining += segment.step
        if self.tail is None:
            self.head = node
        else:
            self.tail.next = node
        self.tail = node

    def cut(self, size: int) -> tuple[range, IdSegment] | None:
        """Take up to ``size`` ids off the head node, never across two; None when dry."""
        node = self.head
        if node is None:
            return None
        first = node.first
        self.current = node.segment
        size = min(size, node.remaining)
        self._advance(node, size)
        return range(first, node.first, node.segment.stride), node.segment

    def take(self, n: int) -> list[range]:
        """Take exactly ``n`` ids, across nodes; IndexError, and none taken, if there are fewer."""
        if n > self.remaining:
            raise IndexError(f"{n} ids of {self.remaining}")
        pieces: list[range] = []
        while n > 0 and (cut := self.cut(n)) is not None:
            pieces.append(cut[0])
            n -= len(cut[0])
        return pieces

    def drop_expired(self, now: float) -> int:
        """Drop the nodes that are too old at ``now``; return how many ids that were.

        Nodes are fetched one after the other, so the first one that is fresh ends the search.
        """
        dropped = 0
        while (node := self.head) is not None and node.segment.is_expired(now):
            dropped += node.remaining
            self._advance(node, node.remaining)
        return dropped

    def unbroken(self, in_hand: list[int]) -> range:
        """Return the ids at the end that follow each other without a hole, and stay as they are.

        For segments without a stride.

        Args:
            in_hand: the ids that were cut off last and not used, without a hole.
        """
        first, stop = (in_hand[0], in_hand[-1] + 1) if in_hand else (0, 0)
        node = self.head
        while node is not None:
            if node.first != stop:
                first = node.first
            stop = node.segment.max_id + 1
            node = node.next
        return range(first, stop)

    def clear(self) -> int:
        """Drop everything; return how many ids that were."""
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
