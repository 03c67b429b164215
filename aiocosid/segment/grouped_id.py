"""Counters that restart with each group: daily numbers, numbers for each tenant."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from .._life import fork
from .._life.callers import in_stretches
from .._life.component import Component, has_to_drain
from ..abc import GroupedId, IdGenerator, Store
from ..abc.options import common, takes
from ..errors import InvalidArgumentError
from ._group_key import GroupBy
from .generator import claim, resume
from .group_parts import (
    KINDS,
    NS_PER_MS,
    Group,
    GroupDistributor,
    GroupedStatistics,
    Groups,
    UnderOneName,
)
from .options import GroupedOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..errors import CosIdError
    from .generator import SegmentChainId, SegmentId
    from .group_parts import MakeDistributor

__all__ = ("GroupedSegmentId", "WithGroup", "renew_fallen")

LABEL_STRETCH: Final = 1000
"""Ids that are given their group between two turns of the event loop: about a millisecond."""


class WithGroup:
    """Hands out the ids of an open `GroupedSegmentId` together with their groups.

    A `GroupedId` is for code that needs the group.  Some encoders and drivers know only an exact
    `int`: msgspec and hiredis refuse it, and PyMySQL writes it as text.
    """

    __slots__ = ("_enter", "_label", "_leave")

    def __init__(
        self, enter: Callable[[], Group], leave: Callable[[Group], None], label: str
    ) -> None:
        self._enter = enter
        self._leave = leave
        self._label = label

    def __repr__(self) -> str:
        """Name the generator."""
        return f"<{type(self).__name__} of {self._label}>"

    async def next_id(self) -> GroupedId:
        """Return the next id of the present group; see `aiocosid.abc.IdGenerator.next_id`."""
        group = self._enter()
        try:
            for new_id in group.hand.exposed:
                return GroupedId(new_id, group.key)
            new_id = await group.generator.next_id()
        finally:
            self._leave(group)
        return GroupedId(new_id, group.key)

    def next_id_nowait(self) -> GroupedId:
        """Return the next buffered id; see `aiocosid.abc.IdGenerator.next_id_nowait`."""
        group = self._enter()
        try:
            return GroupedId(group.generator.next_id_nowait(), group.key)
        finally:
            self._leave(group)

    async def next_ids(self, n: int) -> list[GroupedId]:
        """Return exactly ``n`` ids of one group; see `aiocosid.abc.IdGenerator.next_ids`.

        Python's garbage collector visits each of them, unlike an `int`: 100,000 at once block the
        event loop for about 20 milliseconds at a time, 10,000 for less than one.
        """
        process, group = fork.generation, self._enter()
        try:
            ids = await _labelled(await group.generator.next_ids(n), group)
        finally:
            self._leave(group)
        fork.ensure_own(process, self._label)
        return ids


SHUT: Final[tuple[int, int, Any]] = (0, 0, None)

new_int: Final = int.__new__


class GroupedSegmentId(Component, IdGenerator):
    """Ids from a counter for each group: for each day, each tenant, or each tenant's day.

    An id is unique only within its group: the first of each day is 1.  It is a plain `int`, which
    every driver and encoder accepts.  A `StringIdGenerator` writes the group before the number;
    `with_group` hands out both as one value, so that they always belong together.

    The group of a call is decided when the call is made.  All ids of a batch have that group.  If a
    call waits for the store over midnight, it gets the number, and the group, of the day before.
    So ids of a period are handed out at most ``wait_timeout`` after its end.

    Attributes:
        namespace: the namespace of its counters.
        name: its name in the namespace; the counter of the group ``20260116`` is called
            ``{name}@20260116``, as in CosId.
        group_by: says which group a call belongs to.
    """

    __slots__ = (
        *("_groups", "_kind", "_last", "_max_groups", "_offset", "_options"),
        *("_read_ns", "_step", "_store", "_timeout", "_window", "group_by", "name", "namespace"),
    )

    _groups: Groups

    @takes(GroupedOptions)
    def __init__(self, store: Store | MakeDistributor, options: GroupedOptions, /) -> None:
        """Describe a generator; nothing is fetched before it is opened.

        Args:
            store: a store, which stays open; or a function that makes a distributor of one counter,
                such as ``store.segment_distributor``.
            options: the keyword arguments: see `GroupedOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            UnsupportedByStoreError: ``strict`` is true, and the store is not linearizable.
        """
        if not isinstance(options.group_by, GroupBy):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            rule = "must be a GroupBy, such as GroupBy.day(zone='UTC')"  # type: ignore[unreachable]
            raise InvalidArgumentError("group_by", options.group_by, rule)
        self.namespace: str = options.namespace
        self.name: str = options.name
        self.group_by: GroupBy = options.group_by
        self._store = store
        self._offset = options.offset
        self._step = options.step
        self._kind, of_kind = KINDS[options.group_kind]
        self._max_groups = options.max_groups
        self._options = common(options, of_kind)
        if options.instrument is not None:
            self._options["instrument"] = UnderOneName(options.instrument, self.name)
        self._timeout = options.close_timeout
        self._generator(self.name, is_used=options.strict)  # raises for bad arguments
        super().__init__(options.clock)
        self._reset()

    # The hot path.

    async def next_id(self) -> int:
        """Return the next id of the present group; see `aiocosid.abc.IdGenerator.next_id`."""
        begin, until, group = self._window
        if begin <= self._read_ns() < until:
            new_id: int
            for new_id in group.hand.exposed:
                return new_id
        return int(await self.with_group.next_id())

    def next_id_nowait(self) -> int:
        """Return the next buffered id; see `aiocosid.abc.IdGenerator.next_id_nowait`.

        If the group is not open yet, the call opens it and raises `WouldBlock`.
        """
        begin, until, group = self._window
        if begin <= self._read_ns() < until:
            new_id: int
            for new_id in group.hand.exposed:
                return new_id
        return int(self.with_group.next_id_nowait())

    async def next_ids(self, n: int) -> list[int]:
        """Return exactly ``n`` ids of one group; see `aiocosid.abc.IdGenerator.next_ids`."""
        group = self._enter()
        try:
            return await group.generator.next_ids(n)
        finally:
            self._leave(group)

    @property
    def with_group(self) -> WithGroup:
        """Hands out the same ids as `GroupedId`, each with the group in which it was counted."""
        return WithGroup(self._enter, self._leave, self._home.label)

    def probe(self) -> None:
        """Call the store again for the latest group; see `SegmentChainId.probe`."""
        self._check_usable()
        if self._last is not None:
            self._last.generator.probe()

    def _reset(self) -> None:
        self._read_ns: Callable[[], int] = self._clock.wall_reader()
        groups: Groups | None = getattr(self, "_groups", None)
        self._groups = Groups(
            self._home,
            # If a loop died, its groups were never dropped, so their floors are read here.
            OrderedDict() if groups is None else groups.reached(),
            group_by=self.group_by,
            most=self._max_groups,
            keeps_store=isinstance(self._store, Store),
        )
        self._last: Group | None = None
        # The current period and its group, if the clock alone decides: the hot path looks at
        # nothing else.
        self._window: tuple[int, int, Any] = SHUT

    # Groups.

    def _enter(self) -> Group:
        """Return the group of the current call, and count one caller more.

        It is opened if necessary, without an await: so all calls of one moment line up in the same
        group, in their order.
        """
        self._check_usable()
        groups = self._groups
        while True:
            begin, until, period = groups.present()
            key = self.group_by.key_in(period)
            group = groups.by_key.get(key)
            if group is None:
                group = self._opened(key, period, begin // NS_PER_MS)
            else:
                groups.freshen(group)
            self._last = group
            if self.group_by.is_by_date_alone:
                self._window = begin, until, group
            group.callers += 1
            if groups.by_key.get(group.key) is group:
                return group
            group.callers -= 1  # a signal handler has dropped the group a moment ago

    def _leave(self, group: Group) -> None:
        self._groups.leave(group)

    def _opened(self, key: str, period: str, now_ms: int) -> Group:
        generator = self._generator(f"{self.name}@{key}", is_used=True)
        resume(generator, self._groups.floors.get(key))
        self._check_usable()  # the function that made the key or distributor may have closed us
        opening = claim(generator, self._root)
        return self._groups.add(Group(key, period, now_ms, generator, opening))

    def _generator(self, name: str, *, is_used: bool) -> SegmentChainId | SegmentId:
        """Return the generator of one counter; without a distributor it only checks options."""
        counter, store = None, self._store
        names: Any = {"namespace": self.namespace, "name": name}
        sizes: Any = {"offset": self._offset, "step": self._step}
        if is_used:
            make = store.segment_distributor if isinstance(store, Store) else store
            counter = make(**names, **sizes)
        return self._kind(GroupDistributor(counter, **names, **sizes), **self._options)

    def _reached(self) -> OrderedDict[str, int]:
        """Return the highest ids reserved, for a successor; see `SegmentGenerator._reached`."""
        return self._groups.reached()

    def _resume(self, reached: OrderedDict[str, int] | None) -> None:
        """Continue above what `_reached` returned."""
        self._groups.floors = OrderedDict(reached or ())

    # Opening and closing.

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._timeout

    @property
    def _has_to_drain(self) -> bool:
        return any(has_to_drain(each) for each in tuple(self._groups.ending))

    def _label(self) -> str:
        return f"{type(self).__name__} {self.namespace}.{self.name}"

    async def _start(self) -> None:
        if isinstance(self._store, Store):
            await self._store.aopen()
        if self.group_by.is_by_date_alone:  # otherwise only a call tells which group is needed
            group = self._enter()
            try:
                await group.opening.wait_for_first()
            finally:
                self._groups.leave(group)

    def _stop(self, reason: CosIdError) -> None:
        self._groups.stop(reason)

    async def _drain(self) -> None:
        await self._groups.drain()

    async def _release(self) -> None:
        await self._groups.release()

    # Looking inside.

    def statistics(self) -> GroupedStatistics:
        """Return a frozen snapshot of the generator; cheap, and never waits."""
        last, groups, ended = self._last, self._groups, self._unusable
        if ended is None and self.group_by.is_by_date_alone:  # otherwise other groups may serve
            ended = (
                last.opening.supply.ended if last and last.period == groups.present()[2] else None
            )
        return GroupedStatistics(
            kind=type(self).__name__,
            namespace=self.namespace,
            name=self.name,
            group=None if last is None else last.key,
            group_ends=None if last is None else self.group_by.last_second(last.opened_ms),
            open_groups=len(groups.by_key),
            dropped_groups=groups.dropped,
            actual=None if last is None else last.generator.statistics(),
            ended=ended,
        )

    def __repr__(self) -> str:
        """Show its state, the latest group and how many are open."""
        group = None if self._last is None else self._last.key
        return (
            f"<{self._label()} {self._condition} group={group!r} groups={len(self._groups.by_key)}>"
        )


def renew_fallen(generator: GroupedSegmentId) -> None:
    """Let the next calls reopen the groups that have ended by themselves."""
    generator._groups.renew_fallen()


async def _labelled(ids: list[int], group: Group) -> list[GroupedId]:
    """Attach the group to ids; long batches let the loop run in between."""
    key = group.key

    def label(some: Sequence[int]) -> list[GroupedId]:
        labelled = list[GroupedId]()
        for each in some:
            grouped_id = new_int(GroupedId, each)  # faster than a call of GroupedId
            grouped_id.group = key
            labelled.append(grouped_id)
        return labelled

    try:
        return await in_stretches(ids, label, LABEL_STRETCH)
    except BaseException:
        group.opening.stock.discard(len(ids), "cancelled")
        raise
