"""The bits of a Snowflake id: fields, epoch and end; the layouts of known systems.  Pure."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from ..abc.checks import MAX_MACHINE_BITS, check_integer, is_integer
from ..abc.dates import LAST_MS, UNIX_EPOCH, iso_text, moment_of
from ..errors import InvalidArgumentError, InvalidIdError, LayoutExpiredError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo


__all__ = (
    "COSID_MS",
    "COSID_S",
    "JAVASCRIPT_MAX_SAFE_ID",
    "JAVASCRIPT_SAFE_MS",
    "JAVASCRIPT_SAFE_S",
    "LAYOUTS",
    "LEAF",
    "PLAINLY_SECONDS",
    "SONYFLAKE_V1",
    "SONYFLAKE_V2",
    "TWITTER",
    "UID_GENERATOR",
    "UID_GENERATOR_2016_09",
    "UID_GENERATOR_HA",
    "UID_GENERATOR_SPRING",
    "LayoutExpiryWarning",
    "SnowflakeLayout",
    "SnowflakeParts",
    "TickUnit",
    "sharded",
)

JAVASCRIPT_MAX_SAFE_ID: Final = 2**53 - 1
"""``Number.MAX_SAFE_INTEGER``.  CosId's ``isSafeJavaScript`` treats exactly this number as unsafe.
"""

TickUnit: TypeAlias = Literal["ms", "10ms", "s"]
"""The usual lengths of a tick, by name."""

TICK_UNITS: Final[dict[str, int]] = {"ms": 1, "10ms": 10, "s": 1000}

# In milliseconds this is 1973-03-03, in seconds the year 5138: a lower number was meant as seconds.
PLAINLY_SECONDS: Final = 10**11

ID_BITS: Final = 63  # an int64 without its sign

REMEDY: Final = "use a new layout, with a later epoch or more timestamp bits"

EXPIRY_HORIZON: Final = timedelta(days=365)
"""A layout that ends sooner than this causes a warning, with time left to plan a migration."""


class LayoutExpiryWarning(UserWarning):
    """A layout in use ends within a year; after that it makes no more ids."""


@dataclass(frozen=True, slots=True)
class SnowflakeParts:
    """The fields of an id.

    Attributes:
        timestamp: the start of its tick, in the requested zone.
        timestamp_ms: the same, in milliseconds since 1970-01-01T00:00Z.
        machine_id: the whole machine field.
        sequence: its number within tick and machine.
        region: the upper part of the machine field; None in a layout without regions.
        worker: the lower part of the machine field; None in a layout without regions.
    """

    timestamp: datetime
    timestamp_ms: int
    machine_id: int
    sequence: int
    region: int | None = None
    worker: int | None = None


@dataclass(frozen=True, slots=True, init=False, repr=False)
class SnowflakeLayout:
    """The layout of an id: time, machine id and sequence, from the highest bit down.

    It does not read the clock: call `check_usable` before making ids.  Two layouts are equal if
    they make the same ids; their names are not compared.

    Attributes:
        timestamp_bits: width of the time field, which counts ticks since the epoch.
        machine_bits: width of the machine id, including regions.
        sequence_bits: width of the sequence.
        unit_ms: length of a tick in milliseconds.
        epoch_ms: start of tick 0, in milliseconds since 1970-01-01T00:00Z.
        region_bits: how many of the machine bits, from the top, name a region or data centre.
        sequence_first: whether the sequence is above the machine id, as in sonyflake.
        name: its name in errors and `repr`.
        last_tick: the highest tick.
        machine_count: how many machine ids there are.
        max_sequence: the highest sequence.
        ids_per_tick: how many ids one machine can make in a tick.
        max_id: the highest id.
    """

    timestamp_bits: int
    machine_bits: int
    sequence_bits: int
    unit_ms: int
    epoch_ms: int
    region_bits: int
    sequence_first: bool
    name: str = field(compare=False)
    last_tick: int = field(compare=False)
    machine_count: int = field(compare=False)
    max_sequence: int = field(compare=False)
    ids_per_tick: int = field(compare=False)
    max_id: int = field(compare=False)
    _remedy: str = field(compare=False)
    _machine_shift: int = field(compare=False)
    _sequence_shift: int = field(compare=False)
    _timestamp_shift: int = field(compare=False)

    def __init__(
        self,
        timestamp_bits: int,
        machine_bits: int,
        sequence_bits: int,
        unit: TickUnit | timedelta,
        epoch: datetime | int,
        *,
        region_bits: int = 0,
        sequence_first: bool = False,
        name: str = "",
        remedy: str = "",
    ) -> None:
        """Describe a layout of at most 63 bits, so that no id is ever negative.

        Args:
            timestamp_bits: at least 1.
            machine_bits: 1 to 31.
            sequence_bits: at least 1.
            unit: length of a tick: "ms", "10ms", "s", or a timedelta of whole milliseconds.
            epoch: start of tick 0: an aware datetime, or an integer of *milliseconds* since 1970
                whatever the unit; it must be a whole number of units.
            region_bits: 0, or how many of the machine bits name a region; the rest, at least one,
                names the worker.
            sequence_first: whether the sequence is above the machine id.
            name: the name in errors and `repr`.
            remedy: what `LayoutExpiredError` advises once the layout has ended.

        Raises:
            InvalidArgumentError: a width or their sum is out of range, or the epoch is naive, a
                text, or does not fit the unit.
        """
        total = self._fill(timestamp_bits, machine_bits, sequence_bits)
        if total > ID_BITS:
            rule = f"must be at most {ID_BITS}"
            raise InvalidArgumentError("timestamp_bits + machine_bits + sequence_bits", total, rule)
        unit_ms = unit_ms_of(unit)
        check_integer("region_bits", region_bits, at_least=0, at_most=machine_bits - 1)
        self._put(
            unit_ms=unit_ms,
            epoch_ms=epoch_ms_of(epoch, unit_ms),
            region_bits=region_bits,
            sequence_first=bool(sequence_first),
            name=name,
            _remedy=remedy or REMEDY,
            _machine_shift=0 if sequence_first else sequence_bits,
            _sequence_shift=machine_bits if sequence_first else 0,
        )

    @classmethod
    def _unpacked(cls, timestamp_bits: int, machine_bits: int, sequence_bits: int) -> Self:
        """Describe CosId's fields, which are written one after the other and may exceed int64.

        Ticks are milliseconds since 1970.  Only a sequencer uses this layout, to count ids.
        """
        self = object.__new__(cls)
        self._fill(timestamp_bits, machine_bits, sequence_bits)
        self._put(
            unit_ms=1,
            epoch_ms=0,
            region_bits=0,
            sequence_first=False,
            name="CosIdGenerator",
            _remedy="use more timestamp bits",
            _machine_shift=sequence_bits,
            _sequence_shift=0,
        )
        return self

    def _fill(self, timestamp_bits: int, machine_bits: int, sequence_bits: int) -> int:
        """Set the widths and the attributes that depend only on them; return the sum."""
        check_integer("timestamp_bits", timestamp_bits, at_least=1, at_most=ID_BITS)
        check_integer("machine_bits", machine_bits, at_least=1, at_most=MAX_MACHINE_BITS)
        check_integer("sequence_bits", sequence_bits, at_least=1, at_most=ID_BITS)
        total = timestamp_bits + machine_bits + sequence_bits
        self._put(
            timestamp_bits=timestamp_bits,
            machine_bits=machine_bits,
            sequence_bits=sequence_bits,
            last_tick=(1 << timestamp_bits) - 1,
            machine_count=1 << machine_bits,
            max_sequence=(1 << sequence_bits) - 1,
            ids_per_tick=1 << sequence_bits,
            max_id=(1 << total) - 1,
            _timestamp_shift=machine_bits + sequence_bits,
        )
        return total

    def _put(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def with_epoch(self, epoch: datetime | int) -> SnowflakeLayout:
        """Return the layout with another epoch.

        Args:
            epoch: an aware datetime, or an integer of *milliseconds* since 1970 whatever the unit;
                it must be a whole number of units.

        Raises:
            InvalidArgumentError: the epoch is naive, a text, or does not fit the unit.
        """
        layout = copy(self)
        # Its remedy may not apply with another epoch.
        layout._put(epoch_ms=epoch_ms_of(epoch, self.unit_ms), _remedy=REMEDY)
        return layout

    @property
    def epoch(self) -> datetime:
        """The start of tick 0, in UTC."""
        return UNIX_EPOCH + timedelta(milliseconds=self.epoch_ms)

    @property
    def last_instant(self) -> datetime | None:
        """The start of the last tick, in UTC; None if it is after the year 9999."""
        last_ms = self.ms_of(self.last_tick)
        return moment_of(last_ms) if last_ms <= LAST_MS else None

    @property
    def last_instant_text(self) -> str:
        """The start of the last tick as ISO 8601 in UTC; past the year 9999 as ``+12024-...``."""
        return iso_text(self.ms_of(self.last_tick))

    @property
    def is_javascript_safe(self) -> bool:
        """Whether every id of this layout is an exact number in JavaScript: at most 2^53-1."""
        return self.max_id <= JAVASCRIPT_MAX_SAFE_ID

    def tick_at(self, now_ms: int) -> int:
        """Return the tick at a unix time in milliseconds; negative before the epoch."""
        return (now_ms - self.epoch_ms) // self.unit_ms

    def ms_of(self, tick: int) -> int:
        """Return the start of a tick, in milliseconds since 1970-01-01T00:00Z."""
        return self.epoch_ms + tick * self.unit_ms

    def lowest(self, at: datetime) -> int:
        """Return the lowest id of the tick that contains a moment; 0 before the epoch.

        Use it for queries by time: ``id >= lowest(start) AND id < lowest(end)``.

        Args:
            at: an aware datetime.

        Raises:
            InvalidArgumentError: it is naive, or after the layout's last tick.
        """
        return max(0, self._tick_of(at)) << self._timestamp_shift

    def highest(self, at: datetime) -> int:
        """Return the highest id of the tick that contains a moment; -1 before the epoch.

        Args:
            at: an aware datetime.

        Raises:
            InvalidArgumentError: it is naive, or after the layout's last tick.
        """
        return (max(-1, self._tick_of(at)) + 1 << self._timestamp_shift) - 1

    def _tick_of(self, at: datetime) -> int:
        if at.tzinfo is None:
            raise InvalidArgumentError("at", at, "must be a datetime with a time zone")
        tick = self.tick_at((at - UNIX_EPOCH) // timedelta(milliseconds=1))
        if tick > self.last_tick:
            rule = f"must be at or before {self.last_instant_text}, the end of {self!r}"
            raise InvalidArgumentError("at", at, rule)
        return tick

    def machine_of(self, region: int, worker: int) -> int:
        """Return the machine id of a worker in a region.

        Raises:
            InvalidArgumentError: one of them is not within its bits.
        """
        worker_bits = self.machine_bits - self.region_bits
        check_integer("region", region, at_least=0, at_most=(1 << self.region_bits) - 1)
        check_integer("worker", worker, at_least=0, at_most=(1 << worker_bits) - 1)
        return region << worker_bits | worker

    def compose(self, tick: int, machine_id: int, sequence: int) -> int:
        """Return the id of these fields.

        Args:
            tick: ticks since the epoch, 0 to `last_tick`.
            machine_id: 0 to ``machine_count - 1``.
            sequence: 0 to `max_sequence`.

        Raises:
            InvalidArgumentError: a field is not within its bits.
        """
        check_integer("tick", tick, at_least=0, at_most=self.last_tick)
        check_integer("machine_id", machine_id, at_least=0, at_most=self.machine_count - 1)
        check_integer("sequence", sequence, at_least=0, at_most=self.max_sequence)
        return (
            tick << self._timestamp_shift
            | machine_id << self._machine_shift
            | sequence << self._sequence_shift
        )

    def ids(self, tick: int, machine_id: int, first: int, stop: int) -> range:
        """Return the ids of one tick and machine, from one sequence to just before another.

        Args:
            tick: ticks since the epoch, 0 to `last_tick`.
            machine_id: 0 to ``machine_count - 1``.
            first: the first sequence, at least 0.
            stop: the sequence after the last one, `first` to `ids_per_tick`.

        Raises:
            LayoutExpiredError: the tick is above `last_tick`.
            InvalidArgumentError: a field is not within its bits.
        """
        # Generators call this in each new tick, so the normal case makes few comparisons.
        if not (0 <= tick <= self.last_tick and 0 <= machine_id < self.machine_count):
            if tick > self.last_tick:
                raise self._expired()
            self.compose(tick, machine_id, 0)
        if not 0 <= first <= stop <= self.ids_per_tick:
            rule = f"must be from {first} (first) to {self.ids_per_tick}, and first 0 or more"
            raise InvalidArgumentError("stop", stop, rule)
        base = tick << self._timestamp_shift | machine_id << self._machine_shift
        shift = self._sequence_shift
        return range(base + (first << shift), base + (stop << shift), 1 << shift)

    def parse(self, snowflake_id: int, zone: tzinfo = UTC) -> SnowflakeParts:
        """Return the fields of an id of this layout.

        Any number within the bits can be read, so an id of another layout is not detected.

        Args:
            snowflake_id: 0 to `max_id`.
            zone: the zone of the timestamp.

        Raises:
            InvalidIdError: it is not an integer, is negative or too high, or its time is after the
                year 9999.
        """
        if not is_integer(snowflake_id) or not 0 <= snowflake_id <= self.max_id:
            raise InvalidIdError("id", snowflake_id, f"must be an integer from 0 to {self.max_id}")
        timestamp_ms = self.ms_of(snowflake_id >> self._timestamp_shift)
        machine_id = snowflake_id >> self._machine_shift & self.machine_count - 1
        worker_bits = self.machine_bits - self.region_bits
        try:
            timestamp = moment_of(timestamp_ms, zone)
        except OverflowError:
            rule = f"must have a time before the year 10000, not {iso_text(timestamp_ms)}"
            raise InvalidIdError("id", snowflake_id, rule) from None
        return SnowflakeParts(
            timestamp=timestamp,
            timestamp_ms=timestamp_ms,
            machine_id=machine_id,
            sequence=snowflake_id >> self._sequence_shift & self.max_sequence,
            region=machine_id >> worker_bits if self.region_bits else None,
            worker=machine_id & (1 << worker_bits) - 1 if self.region_bits else None,
        )

    def check_usable(self, now_ms: int) -> None:
        """Check that the layout can make ids now; warn if it ends within 365 days.

        Args:
            now_ms: the wall clock, in milliseconds since 1970-01-01T00:00Z.

        Raises:
            LayoutExpiredError: its last tick is over.
            InvalidArgumentError: its epoch is in the future.

        Warns:
            LayoutExpiryWarning: its last tick ends within 365 days.
        """
        if now_ms < self.epoch_ms:
            rule = f"must be at or before the wall clock, which shows {iso_text(now_ms)}"
            raise InvalidArgumentError("epoch", iso_text(self.epoch_ms), rule)
        end_ms = self.ms_of(self.last_tick + 1)
        if now_ms >= end_ms:
            raise self._expired()
        if timedelta(milliseconds=min(end_ms - now_ms, LAST_MS)) < EXPIRY_HORIZON:
            sentence = f"{self!r} ends at {self.last_instant_text}; {self._remedy}"
            warnings.warn(sentence, LayoutExpiryWarning, stacklevel=2)

    def _expired(self) -> LayoutExpiredError:
        last_instant = self.last_instant_text
        return LayoutExpiredError(repr(self), last_instant=last_instant, remedy=self._remedy)

    def __repr__(self) -> str:
        """Show the layout's name, its widths from the highest bit down, its unit and its epoch."""
        low = (self.machine_bits, self.sequence_bits)
        widths = "/".join(
            map(str, (self.timestamp_bits, *(reversed(low) if self.sequence_first else low)))
        )
        unit = unit_text(self.unit_ms)
        name = f" {self.name}" if self.name else ""
        return f"<SnowflakeLayout{name} {widths} {unit} from {iso_text(self.epoch_ms)}>"


def unit_ms_of(unit: object) -> int:
    """Return the length of a tick in milliseconds.

    Raises:
        InvalidArgumentError: it is not a unit.
    """
    if isinstance(unit, timedelta):
        unit_ms, rest = divmod(unit, timedelta(milliseconds=1))
        if unit_ms >= 1 and not rest:
            return unit_ms
    elif isinstance(unit, str) and unit in TICK_UNITS:
        return TICK_UNITS[unit]
    rule = "must be 'ms', '10ms', 's' or a timedelta of whole milliseconds, at least one"
    raise InvalidArgumentError("unit", unit, rule)


def unit_text(unit_ms: int) -> str:
    """Return the name of a tick's length."""
    return next((name for name, ms in TICK_UNITS.items() if ms == unit_ms), f"{unit_ms}ms")


def epoch_ms_of(epoch: object, unit_ms: int) -> int:
    """Return the epoch in milliseconds since 1970; it must fit the unit.

    Raises:
        InvalidArgumentError: it is naive, a text, or does not fit.
    """
    if isinstance(epoch, datetime) and epoch.utcoffset() is not None:
        offset = epoch - UNIX_EPOCH
    elif type(epoch) is int and 0 <= epoch <= LAST_MS:
        offset = timedelta(milliseconds=epoch)
        if 0 < epoch < PLAINLY_SECONDS:
            rule = f"must be in milliseconds since 1970; give {epoch * 1000} if this is in seconds"
            raise InvalidArgumentError("epoch", epoch, rule)
    else:
        rule = "must be an aware datetime, or an integer of milliseconds since 1970"
        raise InvalidArgumentError("epoch", epoch, rule)
    if offset < timedelta(0) or offset % timedelta(milliseconds=unit_ms):
        rule = f"must be a whole number of the layout's ticks ({unit_ms} ms each) since 1970"
        raise InvalidArgumentError("epoch", epoch, rule)
    return offset // timedelta(milliseconds=1)


# The layouts of known systems.  Sources: CosId 3.2.1, Twitter's snowflake of 2010, Leaf 1.0.1,
# uid-generator and its forks, sonyflake 1 and 2; all were checked against ids that those systems
# printed.

COSID_EPOCH_MS: Final = 1_577_203_200_000  # 2019-12-24T16:00Z; CosId.COSID_EPOCH
TWITTER_EPOCH_MS: Final = 1_288_834_974_657  # 2010-11-04T01:42:54.657Z; IdWorker.twepoch

INSTAGRAM_EPOCH_MS: Final = 1_314_220_021_721  # 2011-08-24T21:07:01.721Z; `our_epoch`

# uid-generator reads `epochStr` in the zone of its JVM; these are midnights in its authors' zone.
CHINA: Final = timezone(timedelta(hours=8))

COSID_MS: Final = SnowflakeLayout(41, 10, 12, "ms", COSID_EPOCH_MS, name="cosid-ms")
"""CosId's MillisecondSnowflakeId: 1024 machines, 4096 ids per millisecond, until 2089-08-30."""

COSID_S: Final = SnowflakeLayout(31, 10, 22, "s", COSID_EPOCH_MS, name="cosid-s")
"""CosId's SecondSnowflakeId: 1024 machines, 4,194,304 ids per second, until 2088-01-11."""

JAVASCRIPT_SAFE_MS: Final = SnowflakeLayout(
    41, 3, 9, "ms", COSID_EPOCH_MS, name="javascript-safe-ms"
)
"""CosId's SafeJavaScriptSnowflakeId.ofMillisecond: 8 machines, 512 ids per millisecond."""

JAVASCRIPT_SAFE_S: Final = SnowflakeLayout(31, 3, 19, "s", COSID_EPOCH_MS, name="javascript-safe-s")
"""CosId's SafeJavaScriptSnowflakeId.ofSecond: 8 machines, 524,288 ids per second."""

TWITTER: Final = SnowflakeLayout(41, 10, 12, "ms", TWITTER_EPOCH_MS, region_bits=5, name="twitter")
"""Twitter's snowflake of 2010: 32 data centres of 32 workers, until 2080-07-10."""

LEAF: Final = SnowflakeLayout(41, 10, 12, "ms", TWITTER_EPOCH_MS, name="leaf")
"""Leaf's SnowflakeIDGenImpl with its default ``twepoch``, which is Twitter's; 1024 workers."""

UID_GENERATOR: Final = SnowflakeLayout(
    28,
    22,
    13,
    "s",
    datetime(2016, 5, 20, tzinfo=CHINA),
    name="uid-generator",
    remedy="use UID_GENERATOR_HA ('uid-generator-ha') or UID_GENERATOR_SPRING "
    "('uid-generator-spring'), whose ids are below all ids of uid-generator after its first "
    "three days (check yours with aiocosid.snowflake.clearance()), or in a new table "
    "UID_GENERATOR_2016_09 ('uid-generator-2016-09'), whose ids can equal old ones",
)
"""Baidu's uid-generator with its default bits: ended at 2024-11-20T13:24:15Z; for reading ids."""

UID_GENERATOR_2016_09: Final = SnowflakeLayout(
    29, 21, 13, "s", datetime(2016, 9, 20, tzinfo=CHINA), name="uid-generator-2016-09"
)
"""The example configuration in uid-generator's README: 2,097,152 workers, until 2033-09-24."""

UID_GENERATOR_SPRING: Final = SnowflakeLayout(
    30, 16, 7, "s", datetime(2019, 2, 20, tzinfo=CHINA), name="uid-generator-spring"
)
"""uid-generator-spring-boot-starter, the fork on Maven Central: 65,536 workers, 128 ids per second,
until 2053-02-28; JavaScript-safe."""

UID_GENERATOR_HA: Final = SnowflakeLayout(
    40, 10, 13, "s", datetime(2016, 5, 20, tzinfo=CHINA), name="uid-generator-ha"
)
"""uid-generator's fork that recycles worker ids: 1024 workers, 8192 ids per second, until 36858.
Its ids fit JavaScript until 2050.  `CachedSnowflakeId` uses this layout by default."""

SONYFLAKE_V1: Final = SnowflakeLayout(
    39,
    16,
    8,
    "10ms",
    datetime(2014, 9, 1, tzinfo=UTC),
    sequence_first=True,
    name="sonyflake-v1",
)
"""sonyflake: time, sequence, machine; 65,536 machines, 256 ids in 10 ms, until 2188-11-16."""

SONYFLAKE_V2: Final = SnowflakeLayout(
    39,
    16,
    8,
    "10ms",
    datetime(2025, 1, 1, tzinfo=UTC),
    sequence_first=True,
    name="sonyflake-v2",
)
"""sonyflake/v2 with its default bits: like version 1, but a new epoch starts its ids again."""

DISCORD: Final = SnowflakeLayout(
    41, 10, 12, "ms", datetime(2015, 1, 1, tzinfo=UTC), region_bits=5, name="discord"
)
"""Discord's snowflakes: 32 workers of 32 processes; its 42nd bit of time begins in 2084."""

INSTAGRAM: Final = SnowflakeLayout(40, 13, 10, "ms", INSTAGRAM_EPOCH_MS, name="instagram")
"""Instagram's ids in PostgreSQL, with the epoch of its article; the machine id is the shard.  The
41st bit of time begins in 2046, and makes ids negative in int64.
"""

MASTODON: Final = SnowflakeLayout(47, 1, 15, "ms", 0, name="mastodon")
"""Mastodon's ids, for reading their time.  The other 16 bits are a hash plus a counter, so machine
id and sequence mean nothing.
"""

LAYOUTS: Final[Mapping[str, SnowflakeLayout]] = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            COSID_MS,
            COSID_S,
            JAVASCRIPT_SAFE_MS,
            JAVASCRIPT_SAFE_S,
            TWITTER,
            LEAF,
            UID_GENERATOR,
            UID_GENERATOR_2016_09,
            UID_GENERATOR_SPRING,
            UID_GENERATOR_HA,
            SONYFLAKE_V1,
            SONYFLAKE_V2,
            DISCORD,
            INSTAGRAM,
            MASTODON,
        )
    }
)
"""The predefined layouts by name, ``LAYOUTS["cosid-ms"]``; `sharded` needs your own epoch."""


def sharded(epoch: datetime | int) -> SnowflakeLayout:
    """Return the layout of the Redis generator whose ids contain their shard: 32/12/19, in seconds.

    The machine id is the shard, 0 to 4095.  The sequence, 1 to 524,287, is shared by all shards
    within a second; 0 is never used.  The layout lasts 136 years.

    Args:
        epoch: in whole seconds, as in `SnowflakeLayout`; no default is shared with other nodes.

    Raises:
        InvalidArgumentError: the epoch does not fit.
    """
    return SnowflakeLayout(32, 12, 19, "s", epoch, name="sharded")
