"""Counters that start anew with each group: daily numbers, numbers for each tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Unpack

from anyio.lowlevel import checkpoint

from .._life import fork
from ..abc import DEFAULT_NAMESPACE, DEFAULT_STEP, GroupedId, IdGenerator
from ..abc._ids import check_integer
from ..errors import InvalidArgumentError
from ._group import KINDS, Group, GroupedStatistics, UnderOneName
from ._groups import GroupBy
from ._open_groups import OpenGroups

if TYPE_CHECKING:
    from .._provider_options import SegmentChainOptions
    from ..abc import Clock, Store
    from ..errors import CosIdError
    from ._group import MakeDistributor, SegmentKind

__all__ = ("GroupedSegmentId",)

LABEL_STRETCH: Final = 1000
"""Ids that are given their group between two turns of the event loop, about a millisecond."""

MAX_GROUPS: Final = 1000

new_int: Final = int.__new__


class GroupedSegmentId(OpenGroups, IdGenerator):
    """Ids from one counter for each group: of a day, of a tenant, of a tenant's day.

    An id is unique under its group alone: the first of each day is 1.  It is a `GroupedId` and
    brings its group along, so that a number and its prefix always come from the same one.

    A call belongs to the group that is present when it is made.  A batch is of that group alone,
    and a call that waits for the store over midnight gets the number, and the group, of the day
    before.  So ids of a period come out at most ``wait_timeout`` after its end.

    Attributes:
        namespace: the namespace of its counters.
        name: its name in the namespace; the counter of the group ``20260116`` is called
            ``{name}@20260116``, as CosId calls it.
        group_by: says which group a call belongs to.
    """

    __slots__ = ()

    def __init__(
        self,
        store: Store | MakeDistributor,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        group_by: GroupBy,
        offset: int = 0,
        step: int = DEFAULT_STEP,
        kind: SegmentKind = "chain",
        max_groups: int = MAX_GROUPS,
        clock: Clock | None = None,
        **options: Unpack[SegmentChainOptions],
    ) -> None:
        """Describe a generator; nothing is fetched before it is opened.

        Args:
            store: where the counters lie; it stays open.  Or what makes a distributor of one
                counter, as ``store.segment_distributor``.
            namespace: the namespace of the counters.
            name: the generator's name.
            group_by: ``GroupBy.day(zone="Europe/Berlin")``, or another.
            offset: where a new counter starts; the first id of a group is ``offset + 1``.
            step: ids per segment.  What is left of it at the end of a period, or of the process,
                is a gap.
            kind: ``"chain"`` fetches ahead, as `SegmentChainId`; ``"segment"`` as `SegmentId`.
            max_groups: groups held in memory at most, 1 or more.  The longest unused one is given
                up for a new one, and its ids in hand with it; one that somebody waits for never.
            clock: time; the system's by default.
            **options: as for the kind: ``safe_distance``, ``ttl``, ``wait_timeout`` ...  Events
                bear the generator's name, whatever the group.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        if not isinstance(group_by, GroupBy):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            expected = "a GroupBy, as GroupBy.day(zone='UTC')"  # type: ignore[unreachable]
            raise InvalidArgumentError("group_by", group_by, expected=expected)
        if kind not in KINDS:
            raise InvalidArgumentError("kind", kind, expected=f"one of {', '.join(KINDS)}")
        check_integer("max_groups", max_groups, at_least=1)
        told: dict[str, Any] = {**options}
        instrument = options.get("instrument")
        if instrument is not None:
            told["instrument"] = UnderOneName(instrument, name)
        super().__init__(
            store,
            namespace=namespace,
            name=name,
            group_by=group_by,
            offset=offset,
            step=step,
            kind=KINDS[kind],
            max_groups=max_groups,
            clock=clock,
            options=told,
        )

    # The hot path.

    async def next_id(self) -> GroupedId:
        """Return the next id of the present group; see `aiocosid.abc.IdGenerator.next_id`."""
        begin, until, group = self._window
        if begin <= self._read_ns() < until:
            for new_id in group.generator._exposed:
                # GroupedId(new_id, group.key), in half the time.
                grouped_id = new_int(GroupedId, new_id)
                grouped_id.group = group.key
                return grouped_id
        return await self._next_id_slow()

    def next_id_nowait(self) -> GroupedId:
        """Return the next id in hand; see `aiocosid.abc.IdGenerator.next_id_nowait`.

        Of a group that was not open yet there is none: it is opened, and `WouldBlock` raised.
        """
        begin, until, group = self._window
        if begin <= self._read_ns() < until:
            for new_id in group.generator._exposed:
                return GroupedId(new_id, group.key)
        group = self._enter()
        try:
            return GroupedId(group.generator.next_id_nowait(), group.key)
        finally:
            self._leave(group)

    async def next_ids(self, n: int) -> list[GroupedId]:  # type: ignore[override]  # the caller's own list  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return exactly ``n`` ids of one group; see `aiocosid.abc.IdGenerator.next_ids`.

        Python's garbage collector looks at each of them, unlike at an `int`: 100,000 at once keep
        the event loop for about 20 milliseconds at a time, 10,000 for less than one.
        """
        process, group = fork.generation, self._enter()
        try:
            ids = await _labelled(await group.generator.next_ids(n), group)
        finally:
            self._leave(group)
        self._check_process(process)
        return ids

    async def _next_id_slow(self) -> GroupedId:
        group = self._enter()
        try:
            for new_id in group.generator._exposed:
                return GroupedId(new_id, group.key)
            new_id = await group.generator.next_id()
        finally:
            self._leave(group)
        return GroupedId(new_id, group.key)

    # Looking inside.

    def statistics(self) -> GroupedStatistics:
        """Return a frozen picture of the generator; cheap, and never waits."""
        last = self._last
        return GroupedStatistics(
            kind=type(self).__name__,
            namespace=self.namespace,
            name=self.name,
            group=None if last is None else last.key,
            open_groups=len(self._groups),
            dropped_groups=self._dropped,
            actual=None if last is None else last.generator.statistics(),
            ended=self._ended(),
        )

    def _ended(self) -> CosIdError | None:
        """Return why no id comes any more, if so; of groups of callers the others may serve."""
        last, is_by_date = self._last, self.group_by.is_by_date_alone
        if self._unusable is None and is_by_date and last and last.period == self._present()[2]:
            return last.generator._ended()
        return self._unusable

    def __repr__(self) -> str:
        """Say in which group it is and how many are open."""
        state = "open" if self._unusable is None else type(self._unusable).__name__
        group = None if self._last is None else self._last.key
        return f"<{self._label()} {state} group={group!r} groups={len(self._groups)}>"


async def _labelled(ids: list[int], group: Group) -> list[GroupedId]:
    """Give ids their group, with a turn for the loop between long stretches."""
    key, labelled = group.key, list[GroupedId]()
    for start in range(0, len(ids), LABEL_STRETCH):
        if start:
            try:
                await checkpoint()
            except BaseException:
                group.generator._opening.discard(len(ids), "cancelled")
                raise
        for each in ids[start : start + LABEL_STRETCH]:
            grouped_id = new_int(GroupedId, each)  # as in next_id
            grouped_id.group = key
            labelled.append(grouped_id)
    return labelled
