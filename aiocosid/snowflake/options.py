"""The options of the generators that use a clock, validated.  Pure."""
# Without "from __future__ import annotations": the bounds in annotations are read at run time.

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, get_args

from ..abc import SHARE
from ..abc.checks import check_integer, check_text
from ..abc.options import Bounds, Options, Seconds, SecondsOrZero
from ..errors import InvalidArgumentError
from ..errors.base import one_of
from ._layout import COSID_MS, UID_GENERATOR_HA

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..abc import Clock, MachineIdDistributor
    from ..abc.events import Instrument, RingEmptied, RingFilled
    from ..machine import MachineIdLease
    from ._cosid_state import CosIdText
    from ._layout import SnowflakeLayout
    from ._sharded_layout import ShardedLayout

__all__ = (
    "COSID_THRESHOLD",
    "SECOND_MS",
    "CachedIdOptions",
    "CachedOptions",
    "ClockOptions",
    "CosIdGeneratorOptions",
    "CosIdOptions",
    "OnEmpty",
    "OnUnavailable",
    "RingOptions",
    "ShardedOptions",
    "SnowflakeIdOptions",
    "SnowflakeOptions",
    "StampOptions",
)

COSID_THRESHOLD: Final = -1
"""Stands for half of the sequence, CosId's default."""

SECOND_MS: Final = 1000
FETCH_SHARE: Final = 2 / 5  # of wait_timeout

OnEmpty: TypeAlias = Literal["wait", "raise"]
"""What a `CachedSnowflakeId` does when its ring is empty."""

OnUnavailable: TypeAlias = Literal["raise", "wait", "lane", "random_unsafe"]
"""What to do while the store cannot be reached and no id of the second is buffered."""


class ClockOptions(Options):
    """The options of all generators that use a clock.

    Attributes:
        broken_threshold: seconds that a call waits for a clock that stepped back; None for no
            limit.  CosId's is 0.5.
        wait_timeout: seconds that a call waits for a lease that allows no ids: while the store
            cannot be reached, or the machine id is lost.
        close_timeout: seconds that closing may take.
        instrument: receives events.
        clock: tells the time; the system's by default.
    """

    broken_threshold: SecondsOrZero | None = 2.0
    wait_timeout: Seconds = 5.0
    close_timeout: Seconds = 5.0
    instrument: "Instrument | None" = None
    clock: "Clock | None" = None


class StampOptions(ClockOptions):
    """The options of all generators whose ids have a machine id.

    Attributes:
        max_forward_jump: seconds by which the wall clock may run ahead of the monotonic one
            between two ids; None for any.
    """

    max_forward_jump: SecondsOrZero | None = None


class NameOption(Options):
    """The name of a generator.

    Attributes:
        name: the generator's name.  Its ids are unique under it; generators of two names may
            issue equal ids.
    """

    name: str = SHARE

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` for the first option outside its range."""
        check_text("name", self.name)
        super().__post_init__()


class SnowflakeOptions(StampOptions):
    """The options of `SnowflakeId`.

    Attributes:
        layout: the layout of the ids.
        sequence_reset_threshold: the sequence restarts in a new tick once it has reached this,
            0 to the highest sequence; -1 for CosId's default, ``2^(sequence_bits-1) - 1``; None
            to begin each tick at 0, as Twitter's does.
        random_start: the first sequence of a tick is random, from 0 to below this limit, so
            that ``id % n`` is spread evenly at a low rate; Leaf's limit is 100.  A tick has up
            to ``random_start - 1`` ids fewer, half of that on average; a tick after a used-up
            one begins at 0.  None uses the threshold above.
    """

    layout: "SnowflakeLayout" = COSID_MS
    sequence_reset_threshold: int | None = COSID_THRESHOLD
    random_start: int | None = None

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` for the first option outside its range."""
        super().__post_init__()
        highest, given = self.layout.max_sequence, self.sequence_reset_threshold
        if self.random_start is not None:
            most = self.layout.ids_per_tick
            check_integer("random_start", self.random_start, at_least=1, at_most=most)
            if given not in {COSID_THRESHOLD, None}:
                rule = "cannot be combined with random_start: the sequence restarts in each tick"
                raise InvalidArgumentError("sequence_reset_threshold", given, rule)
        elif given is not None and not (type(given) is int and COSID_THRESHOLD <= given <= highest):
            rule = f"must be from 0 to {highest}, -1 for CosId's default, or None"
            raise InvalidArgumentError("sequence_reset_threshold", given, rule)

    @property
    def reset_threshold(self) -> int | None:
        """The threshold, adapted to the layout."""
        given = self.sequence_reset_threshold
        if given == COSID_THRESHOLD and self.random_start is None:
            return self.layout.max_sequence >> 1
        return None if self.random_start is not None else given


class SnowflakeIdOptions(NameOption, SnowflakeOptions):
    """The options of `SnowflakeId`, including its name."""


class RingOptions(Options):
    """The options of the ring of a `CachedSnowflakeId`.

    Attributes:
        boost: the ring holds the ids of ``2^boost`` seconds, 1 to 16; uid-generator's
            ``boostPower``.
        padding_factor: percent, 1 to 99; the ring is filled when it holds fewer ids.
        max_borrow: seconds that ids may be ahead of the clock, at least ``2^boost`` and at most
            0.9 of the machine id's safe guard.  Callers do not wait for a clock that steps back
            by less.  After a crash in a burst only another `CachedSnowflakeId` can use the
            machine id at once; other generators wait as long.  If the fence is lost, ids may
            repeat for as long.  That happens when the ``state_dir`` of a machine id chosen by
            hand is lost, after a clean close or not (any generator may then repeat ids of one
            tick).  It also happens after a crash, in a Java peer of the same stable instance,
            which does not read the fence.
    """

    boost: Annotated[int, Bounds(1, 16)] = 3  # 16 makes a ring of 18 hours
    padding_factor: Annotated[int, Bounds(1, 99)] = 50
    max_borrow: Seconds = 60.0

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` for the first option outside its range."""
        if self.max_borrow < self.seconds:
            rule = f"must be at least {self.seconds}, which a boost of {self.boost} prepares"
            raise InvalidArgumentError("max_borrow", self.max_borrow, rule)

    @property
    def seconds(self) -> int:
        """How many seconds the ring holds: 2^boost."""
        return 1 << self.boost


class CachedOptions(RingOptions, StampOptions):
    """The options of `CachedSnowflakeId`.

    Attributes:
        broken_threshold: seconds that a call waits for a clock that stepped back further than
            may be borrowed; None for no limit.
        layout: the layout of the ids, with ticks of seconds.  By default 8192 ids per second of
            1024 machines, until the year 36858.
        refill_interval: seconds between two refills of the ring while no ids are requested, so
            that a burst finds it full; None for none.  uid-generator's default, when enabled,
            is 300.
        on_empty: what a call does if it finds too few ids, because all that may be borrowed is
            used up, or the lease allows no later ones yet: ``"wait"`` for them, in order, or
            ``"raise"`` `RingEmptyError` and take none, like uid-generator's default handler of
            an empty ring.  A full ring needs no policy, since nothing is put into it then.
        when_filled: called with each `RingFilled` event.  Like uid-generator's handler of a
            rejected put, it learns that the ring has as many ids as it may have.
        when_empty: called with each `RingEmptied` event, before ``on_empty`` takes effect, like
            uid-generator's handler of a rejected take.  Both are called on the event loop, so they
            must not block; an error that one raises is logged, and changes nothing.
    """

    layout: "SnowflakeLayout" = UID_GENERATOR_HA
    refill_interval: Seconds | None = None
    on_empty: OnEmpty = "wait"
    when_filled: "Callable[[RingFilled], object] | None" = None
    when_empty: "Callable[[RingEmptied], object] | None" = None

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` for the first option outside its range."""
        if self.layout.unit_ms != SECOND_MS:
            raise InvalidArgumentError("layout", self.layout, "must be a layout of seconds")
        if self.on_empty not in get_args(OnEmpty):
            rule = one_of(get_args(OnEmpty), self.on_empty)
            raise InvalidArgumentError("on_empty", self.on_empty, rule)
        for name in ("when_filled", "when_empty"):
            if (given := getattr(self, name)) is not None and not callable(given):
                raise InvalidArgumentError(name, given, "must be a function of one argument")
        super().__post_init__()

    @property
    def reset_threshold(self) -> None:
        """None: each tick begins at 0."""

    @property
    def random_start(self) -> None:
        """None: each tick begins at 0."""


class CachedIdOptions(NameOption, CachedOptions):
    """The options of `CachedSnowflakeId`, including its name."""


class CosIdOptions(StampOptions):
    """The options of `CosIdGenerator`.

    Attributes:
        text: `RADIX62` (15 characters), `RADIX36` (17), or a `CosIdFriendlyText` with a zone of
            constant offset; None for `RADIX62`.
        sequence_reset_threshold: as for `SnowflakeId`.
    """

    text: "CosIdText | None" = None
    sequence_reset_threshold: int | None = COSID_THRESHOLD


class CosIdGeneratorOptions(NameOption, CosIdOptions):
    """The options of `CosIdGenerator`, including its name."""


class ShardedOptions(ClockOptions):
    """The options of `ShardedId`.

    Attributes:
        layout: the layout of the ids; None for `ShardedLayout()`, with CosId's epoch.
        sharding_id: the default sharding id.
        on_unavailable: what to do while the store cannot be reached and no id of this second or
            the next one is buffered: ``"raise"`` `SequenceUnavailableError`; ``"wait"`` for the
            store, at most ``wait_timeout``; take sequences of a ``"lane"``; or guess them with
            ``"random_unsafe"``, and then ids repeat.
        lane: the source of the lane's number, with ``"lane"`` only: a distributor of machine
            ids (64 lanes), or a lease (``2^bits`` lanes).  Then all nodes, including those of
            other systems, must use a ``max_sequence`` below the lanes: 458,751.
        batch: sequences per request; None to follow the demand.
        nodes: how many generators share the name; none requests more than its share at once.
        broken_threshold: seconds that the clock may be behind the last id's second; ids then
            stay in that second.  None for any.
        wait_timeout: seconds that a call waits while neither it nor earlier callers get any
            ids.
    """

    layout: "ShardedLayout | None" = None
    sharding_id: int = 0
    on_unavailable: OnUnavailable = "raise"
    lane: "MachineIdDistributor | MachineIdLease | None" = None
    batch: int | None = None
    nodes: Annotated[int, Bounds(1, 1_000_000)] = 16

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` for the first option outside its range."""
        policies = get_args(OnUnavailable)
        if self.on_unavailable not in policies:
            rule = one_of(policies, self.on_unavailable)
            raise InvalidArgumentError("on_unavailable", self.on_unavailable, rule)
        super().__post_init__()

    @property
    def fetch_timeout(self) -> float:
        """The timeout of a call to the store, in seconds."""
        return self.wait_timeout * FETCH_SHARE
