"""What a grouped generator keeps of each group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from ..abc import IdSegmentDistributor, Statistics
from ..errors import WouldBlock
from ._segment_ids import SegmentChainId, SegmentId
from .options import CountedOptions, SegmentChainOptions, SegmentIdOptions

if TYPE_CHECKING:
    from ..abc.events import Event, Instrument
    from ..errors import CosIdError
    from ._group_key import GroupBy
    from ._statistics import SegmentStatistics

__all__ = (
    "KINDS",
    "Agreement",
    "Group",
    "GroupDistributor",
    "GroupedStatistics",
    "MakeDistributor",
    "UnderOneName",
)

KINDS: Final[dict[str, tuple[type[SegmentChainId | SegmentId], type[CountedOptions]]]] = {
    "chain": (SegmentChainId, SegmentChainOptions),
    "segment": (SegmentId, SegmentIdOptions),
}
"""The generator that each group has, and its options."""


class MakeDistributor(Protocol):
    """Makes the distributor of one counter: a class of distributors, or a ``partial`` of one."""

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
        dropped_groups: how many groups were dropped since it was opened: those of ended periods,
            and above ``max_groups`` the least recently used.
        actual: the generator of the latest call's group.
        ended: why it hands out no more ids: it was closed, or, if groups are dates alone, the
            present group has ended; None while it serves.
    """

    group: str | None
    group_ends: int | None = None
    open_groups: int
    dropped_groups: int
    actual: SegmentStatistics | None
    ended: CosIdError | None

    def as_tree(self) -> dict[str, object]:
        """Return the picture as CosId's actuator shows it, the group's generator as ``actual``."""
        tree = Statistics.as_tree(self)  # super() knows the class before it had slots
        return {**tree, "actual": self.actual and self.actual.as_tree()}


@dataclass(frozen=True, slots=True)
class Agreement:
    """What two askers for a generator of one name have to agree on.

    Attributes:
        step: ids per segment; None for strict order, which uses none.
        kind: what hands out the ids of one group.
        group_by: says which group a call belongs to; two functions of one name are not equal.
    """

    step: int | None
    kind: type[SegmentChainId | SegmentId]
    group_by: GroupBy

    def __str__(self) -> str:
        """Say it in a message."""
        step = "strict order" if self.step is None else f"step {self.step}"
        return f"{step}, {self.kind.__name__} and {self.group_by!r}"


class Group:
    """One group that is open.

    Attributes:
        key: its key.
        period: the text of the period that it belongs to; empty without dates.
        opened_ms: a moment of that period, unix time in milliseconds.
        generator: hands out its ids.
        callers: calls that may be suspended in it; it is not given up under them.
    """

    __slots__ = ("callers", "generator", "key", "opened_ms", "period")

    def __init__(
        self, key: str, period: str, opened_ms: int, generator: SegmentChainId | SegmentId
    ) -> None:
        self.key = key
        self.period = period
        self.opened_ms = opened_ms
        self.generator = generator
        self.callers = 0


class GroupDistributor(IdSegmentDistributor):
    """A group's distributor, opened with its first call: a group is there without an await."""

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
        self._inner = inner or self  # without one it is for checking arguments alone
        if inner is not None:
            self.step = inner.step  # which may be lower
        self._is_open = False

    @property
    def store(self) -> str:  # type: ignore[override]  # the inner one's
        """The kind of store, for error messages."""
        return self._inner.store

    @property
    def order_risk(self) -> str:  # type: ignore[override]  # the inner one's
        """Why a later call may get lower ids; empty for none."""
        return self._inner.order_risk if self._inner is not self else ""

    @property
    def stride(self) -> int:  # type: ignore[override]  # the inner one's
        """From one id to the next."""
        return 1 if self._inner is self else self._inner.stride

    @property
    def step_limit(self) -> int | None:  # type: ignore[override]  # the inner one's
        """The most ids that one call may ask for."""
        return None if self._inner is self else self._inner.step_limit

    async def next_max_id(self, step: int) -> int:
        """Reserve ids; the first call opens."""
        if not self._is_open:
            await self._inner.aopen()
            self._is_open = True
        return await self._inner.next_max_id(step)

    def next_max_id_nowait(self, step: int) -> int:
        """Reserve ids without a suspension, if it is open and its store can."""
        if not self._is_open:
            raise WouldBlock
        return self._inner.next_max_id_nowait(step)

    def resume_above(self, reached: int) -> None:
        """Continue above what an earlier object reached."""
        self._inner.resume_above(reached)

    async def aclose(self) -> None:
        """Close the inner one."""
        await self._inner.aclose()


class UnderOneName:
    """Passes events on under the generator's name: no metric is to have a series for each day."""

    __slots__ = ("_instrument", "_name")

    def __init__(self, instrument: Instrument, name: str) -> None:
        self._instrument = instrument
        self._name = name

    def on_event(self, event: Event) -> None:
        """Pass an event on."""
        self._instrument.on_event(replace(event, name=self._name))
