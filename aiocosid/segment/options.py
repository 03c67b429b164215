"""The options of all segment generators.  Pure."""
# Without "from __future__ import annotations": the bounds in annotations are read at run time.

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, get_args

from ..abc import DEFAULT_NAMESPACE, DEFAULT_STEP, MAX_ID
from ..abc.options import Bounds, Count, Options, Seconds, SecondsOrZero, declared
from ..errors import InvalidArgumentError
from ..errors.base import one_of
from .blocks import MAX_BLOCK
from .chain import FOREVER
from .pace import ENDURANCE, MAX_DISTANCE, MAX_IDS_AHEAD, QUIET_PERIOD, Pace

if TYPE_CHECKING:
    from ..abc import Clock
    from ..abc.events import Instrument
    from ._group_key import GroupBy

__all__ = (
    "BLOCK",
    "MAX_AGE",
    "MAX_GROUPS",
    "MAX_STEP",
    "MAX_WAITERS",
    "OF_CHAINS",
    "PREFETCH_AT",
    "SEGMENT_DURATION",
    "CountedOptions",
    "EnduranceOption",
    "GroupOptions",
    "GroupedOptions",
    "LeafSegmentOptions",
    "RemoteIdOptions",
    "RemoteOptions",
    "SegmentChainOptions",
    "SegmentIdOptions",
    "SegmentKind",
    "SegmentOptions",
)

MAX_WAITERS: Final = 10_000
"""Callers of one generator; each takes about 2 kB, and more callers than that mean an overload."""

FETCH_SHARE = 0.4  # of wait_timeout, so that two attempts and a pause between them fit in

PREFETCH_AT: Final = 0.1
"""When this share of a segment is used, the next one is loaded; Leaf's ``idle < 0.9 * step``."""

SEGMENT_DURATION: Final = 900.0
"""Seconds that a segment should last; Leaf's ``SEGMENT_DURATION``, 15 minutes.

If a segment lasts less, the step doubles; if it lasts at least twice as long, the step halves.
"""

MAX_STEP: Final = 1_000_000
"""Ids: the step is never doubled beyond this.  Leaf's ``MAX_STEP``."""

BLOCK: Final = 100  # ids
MAX_AGE: Final = 1.0  # seconds


class SegmentOptions(Options):
    """The options of all generators that reserve ranges of ids.

    Attributes:
        wait_timeout: maximum seconds that a caller waits for ids.
        fetch_timeout: seconds for one call to the store, at most ``wait_timeout``; by default two
            fifths of ``wait_timeout``, so that a second attempt fits in.
        close_timeout: seconds that `aclose` waits for a call under way before it cancels the
            call.
        max_id: the highest id ever handed out, 1 to 2^63-1; 2^53-1 for JavaScript.
        max_waiters: how many callers may wait at a time, 1 or more; the next one fails at once.
        fail_fast: whether callers fail as soon as two calls to the store have failed in a row,
            and later callers when the next call fails, instead of after ``wait_timeout``.  None
            follows the provider: False, but True in the web integrations.
        instrument: receives events.
        clock: tells the time; the system's by default.
    """

    wait_timeout: Seconds = 5.0
    fetch_timeout: Seconds | None = None
    close_timeout: Seconds = 5.0
    max_id: Count = MAX_ID
    max_waiters: Count = MAX_WAITERS
    fail_fast: bool | None = None
    instrument: "Instrument | None" = None
    clock: "Clock | None" = None

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` for the first option outside its range."""
        if self.call_timeout > self.wait_timeout:
            rule = (
                f"must be a finite number of seconds above 0, at most {self.wait_timeout:g} "
                "(wait_timeout)"
            )
            raise InvalidArgumentError("fetch_timeout", self.fetch_timeout, rule)

    @property
    def call_timeout(self) -> float:
        """Seconds for one call to the store."""
        given = self.fetch_timeout
        return self.wait_timeout * FETCH_SHARE if given is None else given

    @property
    def lifetime(self) -> float:
        """Seconds after which fetched ids are no longer handed out."""
        return FOREVER

    @property
    def quiet_seconds(self) -> float:
        """Seconds after which a distance that is no longer needed halves."""
        return QUIET_PERIOD


class CountedOptions(Options):
    """Further options of generators that use a counter of a store.

    Attributes:
        ttl: seconds after which fetched ids are no longer handed out; by default no limit.
    """

    ttl: Seconds | None = None

    @property
    def lifetime(self) -> float:
        """Seconds after which fetched ids are no longer handed out."""
        return FOREVER if self.ttl is None else self.ttl


class SegmentIdOptions(CountedOptions, SegmentOptions):
    """The options of `SegmentId`.

    Attributes:
        strict: whether ids are in order across all processes; the distributor's step is unused.
    """

    strict: bool = False


class LeafSegmentOptions(CountedOptions, SegmentOptions):
    """The options of `LeafSegmentId`.

    Attributes:
        prefetch_at: the share of a segment, 0 to below 1, that is used when the next is loaded.
        segment_duration: seconds; if a segment lasts less, the step doubles; if it lasts at
            least twice as long, the step halves.
        max_step: ids; the step is never doubled beyond it.  A row's own step may be above it.
    """

    prefetch_at: Annotated[float, Bounds(0, 1, below=True)] = PREFETCH_AT
    segment_duration: Seconds = SEGMENT_DURATION
    max_step: Count = MAX_STEP


class EnduranceOption(Options):
    """The endurance of generators that fetch ahead.

    Attributes:
        endurance: seconds that the buffered ids last at the measured rate.
    """

    endurance: SecondsOrZero = ENDURANCE


class SegmentChainOptions(EnduranceOption, CountedOptions, SegmentOptions):
    """The options of `SegmentChainId`.

    Attributes:
        safe_distance: segments kept ahead of the consumer at rest, 1 to ``max_distance``.
            CosId's code has the same default.
        endurance: seconds that the buffered ids last at the measured rate, even if the store
            fails at the worst moment; 0 keeps no more than the distances below.  The chain
            refills to one and a half times that; the ids are lost if the process crashes.  At
            most ``ttl`` (with a shorter ``ttl`` the default is ``ttl``), and bounded by
            ``max_ids_ahead`` and by a thousandth of the ids left below ``max_id``.
        max_distance: maximum ids kept ahead because the store is slow, under any load.
        max_ids_ahead: maximum ids kept ahead at all, for a high rate or a large step.  Neither
            maximum limits the safe distance or the size of a caller's batch.
        quiet_period: seconds after which a distance that is no longer needed halves.
    """

    safe_distance: Count = 2
    max_distance: Count = MAX_DISTANCE
    max_ids_ahead: Count = MAX_IDS_AHEAD
    quiet_period: Seconds = QUIET_PERIOD

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` for the first option outside its range."""
        super().__post_init__()
        if self.safe_distance > self.max_distance:
            rule = f"must be an integer from 1 to {self.max_distance}"
            raise InvalidArgumentError("safe_distance", self.safe_distance, rule)
        check_endurance(self.endurance, self.lifetime, "ttl")

    @property
    def quiet_seconds(self) -> float:
        """Seconds after which a distance that is no longer needed halves."""
        return self.quiet_period

    def pace(self, step: int) -> Pace:
        """Return the pace of a chain whose segments have ``step`` ids."""
        return Pace(
            step=step,
            safe_distance=self.safe_distance,
            max_distance=self.max_distance,
            max_ids_ahead=self.max_ids_ahead,
            endurance=self.endurance,
            ttl=self.lifetime,
        )


class RemoteOptions(EnduranceOption, SegmentOptions):
    """The options of `RemoteId`.

    Attributes:
        block: ids that one request asks for while few are needed, 1 to 10,000.  Two blocks are
            kept ahead at rest, and more at a higher rate.
        max_age: seconds after their request when buffered ids are dropped, because their time
            would be too old; None for never.
        endurance: seconds that the buffered ids last at the measured rate while the server is
            down; at most ``max_age``; with a shorter ``max_age`` the default is ``max_age``.
    """

    block: Annotated[int, Bounds(1, MAX_BLOCK)] = BLOCK
    max_age: Seconds | None = MAX_AGE

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` for the first option outside its range."""
        super().__post_init__()
        check_endurance(self.endurance, self.lifetime, "max_age")

    @property
    def lifetime(self) -> float:
        """Seconds after which fetched ids are no longer handed out."""
        return FOREVER if self.max_age is None else self.max_age

    def pace(self) -> Pace:
        """Return the pace of blocks."""
        return Pace(step=self.block, safe_distance=2, endurance=self.endurance, ttl=self.lifetime)


class RemoteIdOptions(RemoteOptions):
    """The options of `RemoteId`, including its name.

    Attributes:
        namespace: the namespace that events and statistics show.
        name: the generator's name on the server.
    """

    namespace: str
    name: str


SegmentKind: TypeAlias = Literal["chain", "segment"]
"""The generator that serves each group: `SegmentChainId` or `SegmentId`."""

MAX_GROUPS: Final = 1000


class GroupOptions(SegmentChainOptions):
    """The options of `GroupedSegmentId`.  Events have the generator's name, not the group's.

    Attributes:
        group_by: a `GroupBy`, for example ``GroupBy.day(zone="Europe/Berlin")``.
        offset: where a new counter starts; the first id of a group is ``offset + 1``.
        step: ids per segment.  At the end of a period, or of the process, the unused ids of a
            segment are a gap.
        group_kind: ``"chain"`` fetches ahead, like `SegmentChainId`; ``"segment"`` works like
            `SegmentId`, without the options that only a chain has.
        strict: whether ids of a group are in order across all processes, like ``strict`` of
            `SegmentId`; with ``group_kind="segment"``.
        max_groups: maximum groups in memory, 1 or more.  A new group replaces the least
            recently used one, whose buffered ids are a gap; a group for which a caller waits is
            never replaced.
    """

    group_by: "GroupBy"
    offset: int = 0
    step: int = DEFAULT_STEP
    group_kind: SegmentKind = "chain"
    strict: bool = False
    max_groups: Count = MAX_GROUPS

    def __post_init__(self) -> None:
        """Raise for the first option outside its range."""
        kinds = get_args(SegmentKind)
        if self.group_kind not in kinds:
            raise InvalidArgumentError(
                "group_kind", self.group_kind, one_of(kinds, self.group_kind)
            )
        super().__post_init__()
        if self.group_kind == "chain":
            if self.strict:
                rule = "must be False for chains, which fetch ahead"
                raise InvalidArgumentError("strict", self.strict, rule)
            return
        for name in OF_CHAINS:
            if getattr(self, name) != declared(SegmentChainOptions)[name].default:
                raise TypeError(f"unexpected keyword argument {name!r}, which only chains have")


class GroupedOptions(GroupOptions):
    """The options of `GroupedSegmentId`, including its name.

    Attributes:
        namespace: the namespace of the counters.
        name: the generator's name.
    """

    namespace: str = DEFAULT_NAMESPACE
    name: str


OF_CHAINS: Final = declared(SegmentChainOptions).keys() - declared(SegmentIdOptions).keys()
"""The options that only chains have."""


def check_endurance(seconds: float, limit: float, name: str) -> None:
    """Raise if ids would have to last longer than they may be used, unless it is the default."""
    if seconds > limit and seconds != ENDURANCE:
        rule = f"must be at most {limit:g} ({name}): older ids are not handed out"
        raise InvalidArgumentError("endurance", seconds, rule)
