"""A ``biz_type`` in several of tinyid's databases."""

from __future__ import annotations

from itertools import combinations

from ...errors import CorruptCounterError
from .._group import GroupIdSegmentDistributor
from ._segments import TinyidIdSegmentDistributor
from ._table import share_ids

__all__ = ("TinyidGroupIdSegmentDistributor",)


class TinyidGroupIdSegmentDistributor(GroupIdSegmentDistributor[TinyidIdSegmentDistributor]):
    """A ``biz_type`` in several databases, each with its own remainder of one delta.

    tinyid draws a database for each segment; here it is the same one as long as it answers.  Two
    rows that share an id (an equal remainder, or deltas that do not fit) are an error: the rows of
    all databases that answer are compared before anything is granted, and that of one that was away
    before it is asked.  Of one that is away nobody knows: two processes of which each reaches one
    database alone do not see it.  Once the rows are right, the next call or the one after grants.
    """

    __slots__ = ()

    def _check(self) -> None:
        known = [each.counter for each in self._members]
        for (number, one), (_, other) in combinations(enumerate(known), 2):
            if not (one.stride and other.stride):
                continue  # one that was away since this object was made
            if share_ids((one.stride, one.remainder), (other.stride, other.remainder)):
                text = (
                    f"the ids that are {other.remainder} modulo {other.stride}, of which database "
                    f"{number} has some as well"
                )
                counter = f"tiny_id_info.{other.name}"
                raise CorruptCounterError(other.store, counter=counter, found=text)
