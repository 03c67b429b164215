"""The groups that are open: opened without an await, given up when they are old."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

from .._life.component import Component
from ..abc import Store
from ..errors import ClosedError, CosIdError
from ._group import Agreement, Group, GroupDistributor
from ._supply import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..abc import Clock, IdSegmentDistributor
    from ._group import MakeDistributor
    from ._groups import GroupBy
    from ._segment_chain_id import SegmentChainId
    from ._segment_id import SegmentId

__all__ = ("OpenGroups",)

NS_PER_MS: Final = 1_000_000
SECOND: Final = 1000 * NS_PER_MS

SHUT: Final[tuple[int, int, Any]] = (0, 0, None)


class OpenGroups(Component):
    """Opens a group when it is asked for, and gives up those of ended periods and the unused."""

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

    def __init__(
        self,
        store: Store | MakeDistributor,
        *,
        namespace: str,
        name: str,
        group_by: GroupBy,
        offset: int,
        step: int,
        kind: type[SegmentChainId | SegmentId],
        max_groups: int,
        clock: Clock | None,
        options: dict[str, Any],
    ) -> None:
        self.namespace: str = namespace
        self.name: str = name
        self.group_by: GroupBy = group_by
        self._store = store
        self._offset = offset
        self._step = step
        self._kind = kind
        self._max_groups = max_groups
        self._options: dict[str, Any] = {**options, "clock": clock}
        self._floors: OrderedDict[str, int] = OrderedDict()  # of groups that are gone
        self._groups: OrderedDict[str, Group] = OrderedDict()  # the longest unused first
        self._timeout = self._generator(None, name).close_timeout  # raises for bad arguments
        super().__init__(clock)
        self._reset()

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
            group = self._opened(key, period)
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

    def _opened(self, key: str, period: str) -> Group:
        name = f"{self.name}@{key}"
        store = self._store
        make = store.segment_distributor if isinstance(store, Store) else store
        distributor = make(
            namespace=self.namespace, name=name, offset=self._offset, step=self._step
        )
        generator = self._generator(distributor, name)
        generator._resume(self._floors.get(key))
        self._check_usable()  # whoever made the key or the distributor may have closed us
        generator._claim()
        generator._root = self._root
        made = Group(key, period, generator)
        group = self._groups.setdefault(key, made)  # a signal handler's may be there meanwhile
        self._trim(group)
        return group

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
        return self._kind(own, **self._options)

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
        if group.generator._unusable is not None:
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
                if group.generator._unusable is not None:
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
        group.generator._retire(ClosedError(self._label()))
        self._remember(group)
        generator, root = group.generator, self._root
        if root is not None and self._has_to_end(generator):
            self._ending.add(generator)
            root.start_soon(self._end_group, generator, name=f"aiocosid drop {generator._label()}")

    def _has_to_end(self, generator: SegmentChainId | SegmentId) -> bool:
        return generator._has_to_drain or not isinstance(self._store, Store)

    # How far groups have come, of as many as may be open.

    def _remember(self, group: Group) -> None:
        floor = group.generator._floor
        if floor is None:
            return
        with suppress(KeyError):  # a signal handler has made room
            self._floors[group.key] = floor
            self._floors.move_to_end(group.key)
            while len(self._floors) > self._max_groups:
                self._floors.popitem(last=False)

    def _reached(self) -> OrderedDict[str, int]:
        """Return how far the groups have come, for a successor; see `Supply._reached`."""
        for group in tuple(self._groups.values()):
            self._remember(group)
        return self._floors.copy()

    def _resume(self, reached: OrderedDict[str, int] | None) -> None:
        """Go on above what `_reached` returned."""
        self._floors = OrderedDict(reached or ())

    async def _end_group(self, generator: SegmentChainId | SegmentId) -> None:
        """Wait for its call to the store, and close what its distributor has opened."""
        try:
            await generator._drain()
            await generator._release()
        except Exception:  # noqa: BLE001 - a stranger's distributor; the other groups go on
            logger.exception("%s: cannot be closed", generator._label())
        finally:
            self._ending.discard(generator)

    # Opening and closing.

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._timeout

    @property
    def _detail(self) -> Agreement:
        return Agreement(self._step, self._kind, self.group_by)

    @property
    def _has_to_drain(self) -> bool:
        return any(each._has_to_drain for each in tuple(self._ending))

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
            group.generator._retire(reason)
            self._remember(group)
            if self._has_to_end(group.generator):
                self._ending.add(group.generator)
        self._groups.clear()

    async def _drain(self) -> None:
        ending = self._ending
        async with anyio.create_task_group() as tasks:
            for generator in tuple(ending):
                if generator._has_to_drain:  # a task each would be too many for the idle ones
                    tasks.start_soon(generator._drain)
        if isinstance(self._store, Store):
            ending.clear()

    async def _release(self) -> None:
        if isinstance(self._store, Store):
            return  # its connections are its own
        errors: list[Exception] = []
        ending, self._ending = self._ending, set()
        for generator in tuple(ending):
            try:
                await generator._release()
            except Exception as error:  # noqa: BLE001 - for whoever closes, after all the others
                errors.append(error)
        if errors:
            raise errors[0]
