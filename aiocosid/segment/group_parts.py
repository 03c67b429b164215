"""What a grouped generator keeps for each group."""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from .._life.component import (
    drain,
    drain_all,
    has_to_drain,
    label_of,
    release,
    retire,
    why_unusable,
)
from ..abc import IdSegmentDistributor, Statistics
from ..errors import ClosedError, WouldBlock
from .generator import SegmentChainId, SegmentId
from .options import CountedOptions, SegmentChainOptions, SegmentIdOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._life.open_state import Home
    from ..abc.events import Event, Instrument
    from ..errors import CosIdError
    from ._group_key import GroupBy
    from ._opening import SegmentOpening
    from ._statistics import SegmentStatistics
    from .chain import IdsInHand

__all__ = (
    "KINDS",
    "NS_PER_MS",
    "Agreement",
    "Group",
    "GroupDistributor",
    "GroupedStatistics",
    "Groups",
    "MakeDistributor",
    "UnderOneName",
)

logger = logging.getLogger("aiocosid")

NS_PER_MS: Final = 1_000_000
SECOND: Final = 1000 * NS_PER_MS

KINDS: Final[dict[str, tuple[type[SegmentChainId | SegmentId], type[CountedOptions]]]] = {
    "chain": (SegmentChainId, SegmentChainOptions),
    "segment": (SegmentId, SegmentIdOptions),
}
"""The type of generator that serves each group, and its options."""


class MakeDistributor(Protocol):
    """Makes the distributor of one counter: a distributor class, or a ``partial`` of one."""

    def __call__(
        self, *, namespace: str, name: str, offset: int, step: int
    ) -> IdSegmentDistributor:
        """Return a distributor; nothing is sent yet."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedStatistics(Statistics):
    """A frozen snapshot of a `GroupedSegmentId`.

    Attributes:
        group: the group of the latest call; None before the first one.
        group_ends: the last second of that group's period, unix time; None for a group without one.
        open_groups: how many groups are in memory.
        dropped_groups: how many groups were dropped since it was opened: those of past periods,
            and the least recently used ones above ``max_groups``.
        actual: the generator of the latest call's group.
        ended: why it hands out no more ids: it was closed, or, if groups are dates alone, the
            current group has ended; None while it serves.
    """

    group: str | None
    group_ends: int | None = None
    open_groups: int
    dropped_groups: int
    actual: SegmentStatistics | None
    ended: CosIdError | None

    def as_tree(self) -> dict[str, object]:
        """Return the snapshot as CosId's actuator shows it: the group's generator is ``actual``."""
        tree = Statistics.as_tree(self)  # super() does not work in a dataclass with slots
        return {**tree, "actual": self.actual and self.actual.as_tree()}


@dataclass(frozen=True, slots=True)
class Agreement:
    """What two callers that request a generator of the same name must agree on.

    Attributes:
        step: ids per segment; None for strict order, which uses none.
        kind: the type of generator that serves each group.
        group_by: says which group a call belongs to; two functions of one name are not equal.
    """

    step: int | None
    kind: type[SegmentChainId | SegmentId]
    group_by: GroupBy

    def __str__(self) -> str:
        """Return it as text for a message."""
        step = "strict order" if self.step is None else f"step {self.step}"
        return f"{step}, {self.kind.__name__} and {self.group_by!r}"


class Group:
    """One open group.

    Attributes:
        key: its key.
        period: the text of the period that it belongs to; empty without dates.
        opened_ms: a moment of that period, unix time in milliseconds.
        generator: hands out its ids.
        opening: the generator's only opening.
        hand: the buffered ids of that opening.
        callers: calls that may be suspended in it; while there are any, it is not dropped.
    """

    __slots__ = ("callers", "generator", "hand", "key", "opened_ms", "opening", "period")

    def __init__(
        self,
        key: str,
        period: str,
        opened_ms: int,
        generator: SegmentChainId | SegmentId,
        opening: SegmentOpening,
    ) -> None:
        self.key = key
        self.period = period
        self.opened_ms = opened_ms
        self.generator = generator
        self.opening = opening
        self.hand: IdsInHand = opening.hand
        self.callers = 0


class Groups:
    """The groups of one opening of a grouped generator: the open ones, and those being closed.

    Attributes:
        by_key: the open groups, the least recently used first.
        dropped: how many were dropped.
        ending: dropped generators whose calls may still be under way.
        floors: the highest id reserved in each dropped group, for as many as may be open.
    """

    __slots__ = (
        *("_fallen", "_group_by", "_home", "_keeps_store", "_most", "_period", "_read_ns"),
        *("by_key", "dropped", "ending", "floors"),
    )

    def __init__(
        self,
        home: Home,
        floors: OrderedDict[str, int],
        *,
        group_by: GroupBy,
        most: int,
        keeps_store: bool,
    ) -> None:
        """Start without a group.

        Args:
            home: what the generator and its opening share.
            floors: see the attribute.
            group_by: says which period it is.
            most: how many may be open.
            keeps_store: whether all distributors use a store that stays open.
        """
        self._home = home
        self._group_by = group_by
        self._most = most
        self._keeps_store = keeps_store
        self._read_ns: Callable[[], int] = home.clock.wall_reader()
        self._fallen = False  # whether a group has ended by itself
        self._period: tuple[int, int, str] = (0, 0, "")  # begin and end (in ns), and its text
        self.by_key: OrderedDict[str, Group] = OrderedDict()
        self.dropped = 0
        self.ending: set[SegmentChainId | SegmentId] = set()
        self.floors = floors

    def present(self) -> tuple[int, int, str]:
        """Return the time span for which the period is known, in nanoseconds, and its text.

        Midnights and daylight-saving changes fall on whole seconds of UTC.  So the time zone is
        asked at most once a second, and every peculiarity of it is respected.
        """
        now = self._read_ns()
        if not self._period[0] <= now < self._period[1]:
            begin = now - now % SECOND
            period = self._group_by.period_at(now // NS_PER_MS)
            self._period = begin, begin + SECOND, period
        return self._period

    def add(self, group: Group) -> Group:
        """Add a group that was opened; return the group of that key."""
        # A signal handler may have added one meanwhile.
        group = self.by_key.setdefault(group.key, group)
        self._trim(group)
        return group

    def freshen(self, group: Group) -> None:
        """Mark a group as the most recently used one."""
        try:  # no suppress(), which takes longer than the rest
            self.by_key.move_to_end(group.key)
        except KeyError:  # a signal handler has dropped it
            return

    def _oldest(self) -> Group | None:
        while True:
            try:
                return next(iter(self.by_key.values()), None)
            except RuntimeError:  # a signal handler has opened or used a group
                continue

    def _trim(self, kept: Group) -> None:
        """Drop old groups: two at most, since only one is opened at a time."""
        for _ in range(2):
            oldest = self._oldest()
            if oldest is None or oldest is kept or not self._is_surplus(oldest):
                return
            if oldest.callers:
                self.freshen(oldest)
            else:
                self._give_up(oldest)

    def _is_surplus(self, group: Group) -> bool:
        return group.period != self._period[2] or len(self.by_key) > self._most

    def leave(self, group: Group) -> None:
        """Remove one caller; the last caller of a past period's group drops the group."""
        group.callers -= 1
        if why_unusable(group.generator) is not None:
            self._fallen = True
        if group.callers or not self._is_surplus(group):
            return
        if group.period != self._period[2]:
            self._give_up(group)
        else:
            self._trim(group)  # the group that was just used is the last to be dropped

    def renew_fallen(self) -> None:
        """Let the next calls reopen the groups that have ended by themselves.

        Calls do not reopen them on their own: a counter that went backwards would soon pass the
        highest id that we know of, while other processes have handed out higher ones.
        """
        if self._fallen:
            self._fallen = False
            for group in tuple(self.by_key.values()):
                if why_unusable(group.generator) is not None:
                    self._give_up(group)

    def _give_up(self, group: Group) -> None:
        if self.by_key.get(group.key) is not group:
            return  # dropped already, or reopened since
        found = self.by_key.pop(group.key, None)
        if found is not group:  # a signal handler has dropped it since the line above
            if found is not None:
                self.by_key.setdefault(group.key, found)
            return
        self.dropped += 1
        retire(group.generator, ClosedError(self._home.label))
        self._remember(group)
        generator, root = group.generator, self._home.root
        if root is not None and self._has_to_end(generator):
            self.ending.add(generator)
            name = f"aiocosid drop {label_of(generator)}"
            root.start_soon(self._end, generator, name=name)

    def _has_to_end(self, generator: SegmentChainId | SegmentId) -> bool:
        return has_to_drain(generator) or not self._keeps_store

    async def _end(self, generator: SegmentChainId | SegmentId) -> None:
        """Wait for its call to the store, then close what its distributor has opened."""
        try:
            await drain(generator)
            await release(generator)
        except Exception:
            logger.exception("%s: cannot be closed", label_of(generator))
        finally:
            self.ending.discard(generator)

    def _remember(self, group: Group) -> None:
        floor = group.hand.floor
        if floor is None:
            return
        with suppress(KeyError):  # a signal handler has removed the oldest one
            self.floors[group.key] = floor
            self.floors.move_to_end(group.key)
            while len(self.floors) > self._most:
                self.floors.popitem(last=False)

    def reached(self) -> OrderedDict[str, int]:
        """Return the highest id reserved in each group, for a successor."""
        for group in tuple(self.by_key.values()):
            self._remember(group)
        return self.floors.copy()

    def stop(self, reason: CosIdError) -> None:
        """Drop all groups, for the given reason."""
        for group in tuple(self.by_key.values()):
            retire(group.generator, reason)
            self._remember(group)
            if self._has_to_end(group.generator):
                self.ending.add(group.generator)
        self.by_key.clear()
        self._home.root = None  # the root refers to the component

    async def drain(self) -> None:
        """Wait for the calls to the store."""
        await drain_all(tuple(self.ending))
        if self._keeps_store:
            self.ending.clear()

    async def release(self) -> None:
        """Close what the distributors have opened; raise the first of their errors."""
        errors: list[Exception] = []
        while self.ending and not self._keeps_store:  # only then the connections are their own
            try:
                await release(self.ending.pop())
            except Exception as error:  # noqa: BLE001 - raised when all are closed
                errors.append(error)  # raised when all are closed
        if errors:
            raise errors[0]


class GroupDistributor(IdSegmentDistributor):
    """A group's distributor, opened by its first call, so that adding a group needs no await."""

    __slots__ = ("_inner", "_is_open")

    def __init__(
        self,
        inner: IdSegmentDistributor | None,
        *,
        namespace: str,
        name: str,
        offset: int,
        step: int,
    ) -> None:
        super().__init__(namespace=namespace, name=name, offset=offset, step=step)
        self._inner = inner or self  # without an inner one, it only checks arguments
        if inner is not None:
            self.step = inner.step  # it may be lower
        self._is_open = False

    @property
    def store(self) -> str:  # type: ignore[override]  # the inner one's
        """The kind of store, for error messages."""
        return self._inner.store

    @property
    def order_risk(self) -> str:  # type: ignore[override]  # the inner one's
        """Why a later call may get lower ids; empty if it cannot."""
        return self._inner.order_risk if self._inner is not self else ""

    @property
    def stride(self) -> int:  # type: ignore[override]  # the inner one's
        """The distance from one id to the next."""
        return 1 if self._inner is self else self._inner.stride

    @property
    def step_limit(self) -> int | None:  # type: ignore[override]  # the inner one's
        """The most ids that one call may ask for."""
        return None if self._inner is self else self._inner.step_limit

    async def next_max_id(self, step: int) -> int:
        """Reserve ids; the first call opens the distributor."""
        if not self._is_open:
            await self._inner.aopen()
            self._is_open = True
        return await self._inner.next_max_id(step)

    def next_max_id_nowait(self, step: int) -> int:
        """Reserve ids without suspending, if it is open and its store can."""
        if not self._is_open:
            raise WouldBlock
        return self._inner.next_max_id_nowait(step)

    def resume_above(self, reached: int) -> None:
        """Continue above what an earlier object reached."""
        self._inner.resume_above(reached)

    async def aclose(self) -> None:
        """Close the inner distributor."""
        await self._inner.aclose()


class UnderOneName:
    """Renames events after the generator, so that metrics do not get a series for each group."""

    __slots__ = ("_instrument", "_name")

    def __init__(self, instrument: Instrument, name: str) -> None:
        self._instrument = instrument
        self._name = name

    def on_event(self, event: Event) -> None:
        """Pass an event on."""
        self._instrument.on_event(replace(event, name=self._name))
