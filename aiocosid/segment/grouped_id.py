"""Counters that start anew with each group: daily numbers, numbers for each tenant."""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from .._life import fork
from .._life.callers import in_stretches
from .._life.component import (
    Component,
    drain,
    drain_all,
    has_to_drain,
    label_of,
    release,
    retire,
    why_unusable,
)
from ..abc import GroupedId, IdGenerator, Store
from ..abc.options import common, takes
from ..errors import ClosedError, CosIdError, InvalidArgumentError
from ._group_key import GroupBy
from .generator import resume
from .group_parts import (
    KINDS,
    Group,
    GroupDistributor,
    GroupedStatistics,
    UnderOneName,
)
from .options import GroupedOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..abc import IdSegmentDistributor
    from ._segment_ids import SegmentChainId, SegmentId
    from .group_parts import MakeDistributor

__all__ = ("GroupedSegmentId",)

logger = logging.getLogger("aiocosid")

LABEL_STRETCH: Final = 1000
"""Ids that are given their group between two turns of the event loop, about a millisecond."""

NS_PER_MS: Final = 1_000_000
SECOND: Final = 1000 * NS_PER_MS

SHUT: Final[tuple[int, int, Any]] = (0, 0, None)

new_int: Final = int.__new__


class GroupedSegmentId(Component, IdGenerator):
    """Ids from a counter for each group: for each day, each tenant, or each tenant's day.

    An id is unique only within its group: the first of each day is 1.  It is a `GroupedId`, which
    contains its group: so a number and its prefix always belong to the same group.

    The group of a call is decided when the call is made.  All ids of a batch have that group.  If a
    call waits for the store over midnight, it gets the number, and the group, of the day before.
    So ids of a period are handed out at most ``wait_timeout`` after its end.

    Attributes:
        namespace: the namespace of its counters.
        name: its name in the namespace; the counter of the group ``20260116`` is called
            ``{name}@20260116``, as CosId calls it.
        group_by: says which group a call belongs to.
    """

    __slots__ = (
        "_dropped",
        "_ending",
        "_fallen",
        "_floors",
        "_groups",
        "_kind",
        "_last",
        "_max_groups",
        "_offset",
        "_options",
        "_period",
        "_read_ns",
        "_step",
        "_store",
        "_timeout",
        "_window",
        "group_by",
        "name",
        "namespace",
    )

    @takes(GroupedOptions)
    def __init__(self, store: Store | MakeDistributor, options: GroupedOptions, /) -> None:
        """Describe a generator; nothing is fetched before it is opened.

        Args:
            store: a store, which stays open; or a function that makes a distributor of one counter,
                as ``store.segment_distributor``.
            options: the keyword arguments: see `GroupedOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            UnsupportedByStoreError: ``strict`` is true, and the store is not linearizable.
        """
        if not isinstance(options.group_by, GroupBy):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            expected = "a GroupBy, as GroupBy.day(zone='UTC')"  # type: ignore[unreachable]
            raise InvalidArgumentError("group_by", options.group_by, expected=expected)
        self.namespace: str = options.namespace
        self.name: str = options.name
        self.group_by: GroupBy = options.group_by
        self._store = store
        self._offset = options.offset
        self._step = options.step
        self._kind, of_kind = KINDS[options.kind]
        self._max_groups = options.max_groups
        self._options = common(options, of_kind)
        if options.instrument is not None:
            self._options["instrument"] = UnderOneName(options.instrument, self.name)
        self._floors: OrderedDict[str, int] = OrderedDict()  # of groups that are gone
        self._groups: OrderedDict[str, Group] = OrderedDict()  # the longest unused first
        counter = self._counter(self.name) if options.strict else None
        self._timeout = options.close_timeout
        self._generator(counter, self.name)  # raises for bad arguments
        super().__init__(options.clock)
        self._reset()

    # The hot path.

    async def next_id(self) -> GroupedId:
        """Return the next id of the present group; see `aiocosid.abc.IdGenerator.next_id`."""
        begin, until, group = self._window
        if begin <= self._read_ns() < until:
            for new_id in group.generator._hand.exposed:
                # GroupedId(new_id, group.key), in half the time.
                grouped_id = new_int(GroupedId, new_id)
                grouped_id.group = group.key
                return grouped_id
        return await self._next_id_slow()

    def next_id_nowait(self) -> GroupedId:
        """Return the next id in hand; see `aiocosid.abc.IdGenerator.next_id_nowait`.

        If the group is not open yet, the call opens it and raises `WouldBlock`.
        """
        begin, until, group = self._window
        if begin <= self._read_ns() < until:
            for new_id in group.generator._hand.exposed:
                return GroupedId(new_id, group.key)
        group = self._enter()
        try:
            return GroupedId(group.generator.next_id_nowait(), group.key)
        finally:
            self._leave(group)

    async def next_ids(self, n: int) -> list[GroupedId]:  # type: ignore[override]  # the caller's own list  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return exactly ``n`` ids of one group; see `aiocosid.abc.IdGenerator.next_ids`.

        Python's garbage collector visits each of them, which it does not for an `int`: 100,000 at
        once block the event loop for about 20 milliseconds at a time, 10,000 for less than one.
        """
        process, group = fork.generation, self._enter()
        try:
            ids = await _labelled(await group.generator.next_ids(n), group)
        finally:
            self._leave(group)
        fork.ensure_own(process, self._home.label)
        return ids

    async def _next_id_slow(self) -> GroupedId:
        group = self._enter()
        try:
            for new_id in group.generator._hand.exposed:
                return GroupedId(new_id, group.key)
            new_id = await group.generator.next_id()
        finally:
            self._leave(group)
        return GroupedId(new_id, group.key)

    def _reset(self) -> None:
        self._read_ns: Callable[[], int] = self._clock.wall_reader()
        self._reached()  # a loop that died could not have them given up
        self._groups = OrderedDict()
        self._ending: set[SegmentChainId | SegmentId] = set()  # given up, perhaps in flight still
        self._last: Group | None = None
        self._fallen = False  # a group has ended by itself
        self._dropped: int = 0
        self._period: tuple[int, int, str] = (0, 0, "")  # from, to (in ns), and its text
        # The same with the group, when the clock alone decides: all that the hot path looks at.
        self._window: tuple[int, int, Any] = SHUT

    # Groups.

    def _enter(self) -> Group:
        """Return the group of the call that is being made, with one caller more.

        It is opened if it is not open.  No await: all calls of one moment line up in the same
        group, in their order.
        """
        self._check_usable()
        while True:
            group = self._group()
            group.callers += 1
            if self._groups.get(group.key) is group:
                return group
            group.callers -= 1  # a signal handler has had it given up a moment ago

    def _group(self) -> Group:
        begin, until, period = self._present()
        key = self.group_by.key_in(period)
        group = self._groups.get(key)
        if group is None:
            group = self._opened(key, period, begin // NS_PER_MS)
        else:
            self._freshen(group)
        self._last = group
        if self.group_by.is_by_date_alone:
            self._window = begin, until, group
        return group

    def _present(self) -> tuple[int, int, str]:
        """Return the present period, and from when to when that is known, in nanoseconds.

        Midnights, and the hours of summer time, lie on full seconds of UTC; so the zone is asked
        once a second at most, and every oddity of it is followed.
        """
        now = self._read_ns()
        if not self._period[0] <= now < self._period[1]:
            begin = now - now % SECOND
            period = self.group_by.period_at(now // NS_PER_MS)
            self._period = begin, begin + SECOND, period
        return self._period

    def _opened(self, key: str, period: str, now_ms: int) -> Group:
        name = f"{self.name}@{key}"
        generator = self._generator(self._counter(name), name)
        resume(generator, self._floors.get(key))
        self._check_usable()  # whoever made the key or the distributor may have closed us
        generator._claim(self._root)
        # A signal handler's may be there meanwhile.
        group = self._groups.setdefault(key, Group(key, period, now_ms, generator))
        self._trim(group)
        return group

    def _counter(self, name: str) -> IdSegmentDistributor:
        store = self._store
        make = store.segment_distributor if isinstance(store, Store) else store
        return make(namespace=self.namespace, name=name, offset=self._offset, step=self._step)

    def _generator(
        self, distributor: IdSegmentDistributor | None, name: str
    ) -> SegmentChainId | SegmentId:
        own = GroupDistributor(
            distributor,
            namespace=self.namespace,
            name=name,
            offset=self._offset,
            step=self._step,
        )
        generator: SegmentChainId | SegmentId = self._kind(own, **self._options)
        return generator

    def _freshen(self, group: Group) -> None:
        """Make it the last one to be given up."""
        try:  # no suppress(), which takes longer than the rest
            self._groups.move_to_end(group.key)
        except KeyError:  # a signal handler has had it given up
            return

    def _oldest(self) -> Group | None:
        while True:
            try:
                return next(iter(self._groups.values()), None)
            except RuntimeError:  # a signal handler has opened one, or used it
                continue

    def _trim(self, kept: Group) -> None:
        """Give up old groups: two at most, since one is opened at a time."""
        for _ in range(2):
            oldest = self._oldest()
            if oldest is None or oldest is kept or not self._is_surplus(oldest):
                return
            if oldest.callers:
                self._freshen(oldest)
            else:
                self._give_up(oldest)

    def _is_surplus(self, group: Group) -> bool:
        return group.period != self._period[2] or len(self._groups) > self._max_groups

    def _leave(self, group: Group) -> None:
        """One caller less; the last one out of a group of an ended period gives it up."""
        group.callers -= 1
        if why_unusable(group.generator) is not None:
            self._fallen = True
        if group.callers or not self._is_surplus(group):
            return
        if group.period != self._period[2]:
            self._give_up(group)
        else:
            self._trim(group)  # the one that was just used is the last to go

    def _renew_fallen(self) -> None:
        """Let groups that have ended by themselves be opened anew by their next calls.

        Not by each call: a counter that went backwards would climb over what we have seen of it,
        while others have handed out more.
        """
        if self._fallen:
            self._fallen = False
            for group in tuple(self._groups.values()):
                if why_unusable(group.generator) is not None:
                    self._give_up(group)

    def _give_up(self, group: Group) -> None:
        if self._groups.get(group.key) is not group:
            return  # given up already, or opened anew since
        found = self._groups.pop(group.key, None)
        if found is not group:  # a signal handler has done the same since the line above
            if found is not None:
                self._groups.setdefault(group.key, found)
            return
        self._dropped += 1
        retire(group.generator, ClosedError(self._label()))
        self._remember(group)
        generator, root = group.generator, self._root
        if root is not None and self._has_to_end(generator):
            self._ending.add(generator)
            name = f"aiocosid drop {label_of(generator)}"
            root.start_soon(self._end_group, generator, name=name)

    def _has_to_end(self, generator: SegmentChainId | SegmentId) -> bool:
        return has_to_drain(generator) or not isinstance(self._store, Store)

    # How far groups have come, of as many as may be open.

    def _remember(self, group: Group) -> None:
        floor = group.generator._hand.floor
        if floor is None:
            return
        with suppress(KeyError):  # a signal handler has made room
            self._floors[group.key] = floor
            self._floors.move_to_end(group.key)
            while len(self._floors) > self._max_groups:
                self._floors.popitem(last=False)

    def _reached(self) -> OrderedDict[str, int]:
        """Return how far the groups have come, for a successor; see `SegmentGenerator._reached`."""
        for group in tuple(self._groups.values()):
            self._remember(group)
        return self._floors.copy()

    def _resume(self, reached: OrderedDict[str, int] | None) -> None:
        """Go on above what `_reached` returned."""
        self._floors = OrderedDict(reached or ())

    async def _end_group(self, generator: SegmentChainId | SegmentId) -> None:
        """Wait for its call to the store, and close what its distributor has opened."""
        try:
            await drain(generator)
            await release(generator)
        except Exception:
            logger.exception("%s: cannot be closed", label_of(generator))
        finally:
            self._ending.discard(generator)

    # Opening and closing.

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._timeout

    @property
    def _has_to_drain(self) -> bool:
        return any(has_to_drain(each) for each in tuple(self._ending))

    def _label(self) -> str:
        return f"{type(self).__name__} {self.namespace}.{self.name}"

    async def _start(self) -> None:
        if isinstance(self._store, Store):
            await self._store.aopen()
        if self.group_by.is_by_date_alone:  # else there may be no key before somebody calls
            group = self._enter()
            try:
                await group.generator._first_ids()
            finally:
                self._leave(group)

    def _stop(self, reason: CosIdError) -> None:
        for group in tuple(self._groups.values()):
            retire(group.generator, reason)
            self._remember(group)
            if self._has_to_end(group.generator):
                self._ending.add(group.generator)
        self._groups.clear()

    async def _drain(self) -> None:
        ending = self._ending
        await drain_all(tuple(ending))
        if isinstance(self._store, Store):
            ending.clear()

    async def _release(self) -> None:
        if isinstance(self._store, Store):
            return  # its connections are its own
        errors: list[Exception] = []
        ending, self._ending = self._ending, set()
        for generator in tuple(ending):
            try:
                await release(generator)
            except Exception as error:  # noqa: BLE001 - for whoever closes, after all the others
                errors.append(error)
        if errors:
            raise errors[0]

    # Looking inside.

    def statistics(self) -> GroupedStatistics:
        """Return a frozen snapshot of the generator; cheap, and never waits."""
        last = self._last
        return GroupedStatistics(
            kind=type(self).__name__,
            namespace=self.namespace,
            name=self.name,
            group=None if last is None else last.key,
            group_ends=None if last is None else self.group_by.last_second(last.opened_ms),
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
    key = group.key

    def label(some: Sequence[int]) -> list[GroupedId]:
        labelled = list[GroupedId]()
        for each in some:
            grouped_id = new_int(GroupedId, each)  # as in next_id
            grouped_id.group = key
            labelled.append(grouped_id)
        return labelled

    try:
        return await in_stretches(ids, label, LABEL_STRETCH)
    except BaseException:
        group.generator._opening.stock.discard(len(ids), "cancelled")
        raise
