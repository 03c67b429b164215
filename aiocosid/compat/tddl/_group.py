"""A group sequence: one of TDDL's sequences in several databases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import InvalidArgumentError
from .._group import GroupIdSegmentDistributor
from ._segments import TddlIdSegmentDistributor

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("TddlGroupIdSegmentDistributor",)


class TddlGroupIdSegmentDistributor(GroupIdSegmentDistributor[TddlIdSegmentDistributor]):
    """A sequence in several databases, each with ranges of its own; any one of them is enough.

    TDDL draws a database for each range; here it is the same one as long as it answers, and ids
    rise.  Each number is checked to be one of its database's (``value % outStep``): all that can be
    read before the first grant, and each by the very statement that grants.  A wrong order shows in
    the first number; a wrong ``inner_step`` in most, but not in one that is, say, a third of it.
    """

    __slots__ = ()

    def __init__(self, counters: Sequence[TddlIdSegmentDistributor], **options: Any) -> None:  # noqa: ANN401 - the base's
        """Put databases side by side, which stay yours to close; nothing is sent yet.

        Args:
            counters: one for each database that is on, each with its own ``index``, all of one
                ``name``, ``inner_step`` and ``count``.
            **options: as for `TinyidGroupIdSegmentDistributor`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        indexes = {counter.table.index for counter in counters}
        alike = {(counter.table.inner_step, counter.table.count) for counter in counters}
        if len(indexes) < len(counters) or len(alike) > 1:
            expected = "one of each index, all of one inner_step and count"
            raise InvalidArgumentError("counters", counters, expected=expected)
        super().__init__(counters, **options)
