"""The settings of a generator: a class for each kind, an attribute for each key."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field

from ...abc import DEFAULT_STEP, MAX_ID
from ...segment.options import (
    CountedOptions,
    GroupOptions,
    LeafSegmentOptions,
    RemoteOptions,
    SegmentChainOptions,
    SegmentIdOptions,
    SegmentOptions,
)
from ...segment.pace import CHAIN_STEP
from ...snowflake import COSID_MS, UID_GENERATOR_HA
from ...snowflake.options import CachedOptions, ClockOptions
from ..options import NamedSharded
from ._having import having
from ._texts import Bits, ConverterSettings, LayoutSettings
from ._values import (
    STRICT,
    Flag,
    Function,
    Moment,
    Seconds,
    StoreValue,
    Threshold,
    Whole,
    declared,
    shorthand,
)

__all__ = (
    "CachedSettings",
    "ChainSettings",
    "CosIdSettings",
    "CounterSettings",
    "GeneratorSettings",
    "GroupedSettings",
    "IntegerSettings",
    "LeafSettings",
    "Name",
    "OwnGeneratorSettings",
    "Patience",
    "RemoteSettings",
    "SegmentSettings",
    "ShardedSettings",
    "SnowflakeSettings",
    "Timeout",
    "UncertaintySettings",
    "UuidSettings",
)

Count: TypeAlias = Annotated[Whole, Field(ge=1, le=MAX_ID)]
Timeout: TypeAlias = Annotated[Seconds, Field(gt=0, allow_inf_nan=False)]
Patience: TypeAlias = Annotated[Seconds, Field(ge=0)]  # inf: for ever
Name: TypeAlias = Annotated[str, Field(min_length=1)]
Converter: TypeAlias = Annotated[ConverterSettings, shorthand("type", path="make")]
Layout: TypeAlias = Annotated[LayoutSettings, shorthand("name")]


@having(ClockOptions, "wait_timeout")
class _Generator(BaseModel):
    """The keys of all kinds.

    Attributes:
        namespace: the namespace of this generator; by default the one at the top.
        name: the name of the counter; by default the name of the table.
        store: a URL, a name in ``stores`` or a store; by default the one at the top.
        converter: how ids become text; by default they stay numbers.
        limit: the highest id that programs which read the ids can hold, 2^53-1 for "javascript";
            segments end there, and a layout must fit.
        wait_timeout: maximum seconds that a caller waits.
        close_timeout: seconds that closing may take; by default the value at the top.
    """

    model_config = STRICT

    namespace: Name | None = None
    name: Name | None = None
    store: StoreValue | None = None
    converter: Converter | None = None
    limit: Literal["int32", "javascript", "int64"] | None = None
    close_timeout: Timeout | None = None


@having(CountedOptions)
@having(SegmentOptions)
class _Counted(_Generator):
    """The keys of kinds on a counter.

    Attributes:
        offset: where a new counter starts; below ``max_id``.
        max_id: the highest id that may be issued; by default 2^63-1.
        fail_fast: whether calls fail as soon as two calls to the store have failed in a row,
            instead of after ``wait_timeout``; by default only in web applications.
    """

    step: Annotated[Whole, declared("step")] = DEFAULT_STEP
    offset: Annotated[Whole, Field(ge=0, le=MAX_ID)] = 0
    max_id: Count | None = None


@having(SegmentIdOptions)
class SegmentSettings(_Counted):
    """A `SegmentId`: ids from a counter, fetched when needed; in order with ``step = 1``.

    Attributes:
        strict: whether ids are in order over all processes; then ``step`` is not used.
    """

    kind: Literal["segment"]


@having(LeafSegmentOptions)
class LeafSettings(_Counted):
    """A `LeafSegmentId`, like Leaf's: ids from a counter, in two segments with an adaptive step.

    A row with its own step overrides ``step``.
    """

    kind: Literal["leaf_segment"]


@having(SegmentChainOptions)
class _Prefetched(_Counted):
    """The keys of kinds that may be a chain.

    Attributes:
        endurance: seconds for which the buffered ids last, at the measured rate, while the store is
            down; 0 for no reserve, at most ``ttl``.
    """


class ChainSettings(_Prefetched):
    """A `SegmentChainId`, like CosId's default generator: ids from a counter, fetched ahead.

    Attributes:
        step: lower than the general default, because ``endurance`` determines the size of a busy
            counter's calls.
    """

    kind: Literal["chain"]
    step: Annotated[Whole, declared("step")] = CHAIN_STEP


@having(GroupOptions, "strict", "max_groups")
class GroupedSettings(_Prefetched):
    """A `GroupedSegmentId`: ids from a counter for each year, month, day or key.

    Attributes:
        group_by: the period; "key" for groups without a period.
        zone: the time zone of the period, for example "UTC", "+08:00" or "Europe/Berlin"; required
            with a period.
        pattern: the format of a period, in Java's pattern letters; by default CosId's format for
            that period.
        key: a function without arguments that returns the key of the call, for example a tenant;
            required without a period.  With a period, each key has its own counters.
        group_kind: the kind of generator that each group has; with "segment", the keys that only
            ``chain`` and ``grouped`` have cannot be used.
        strict: whether ids of a group are in order over all processes; with ``group_kind =
            "segment"``.
        max_groups: maximum groups in memory; a further group replaces the least recently used one.
    """

    kind: Literal["grouped"]
    group_by: Literal["year", "month", "day", "key"]
    zone: str | None = None
    pattern: str | None = None
    key: Function | None = None
    group_kind: Literal["chain", "segment"] = "chain"


@having(ClockOptions)
class _Timed(_Generator):
    """The keys of kinds on a clock.

    Attributes:
        broken_threshold: seconds that a call waits for a clock that stepped back; ``inf`` for ever.
        max_forward_jump: seconds by which the wall clock may run ahead; ``inf`` for any number.
    """

    max_forward_jump: Patience | None = None


class _Stamped(_Timed):
    """The keys of kinds on a clock that reset their sequence.

    Attributes:
        sequence_reset_threshold: once the sequence has reached this value, it restarts with the
            next tick; -1 is half of its range, CosId's default.  With "none" it restarts with each
            tick, as in uid-generator and Twitter's Snowflake.
    """

    sequence_reset_threshold: Threshold = -1


class SnowflakeSettings(_Stamped):
    """A `SnowflakeId`: ids from the clock and a machine id, without a store call for each id.

    Attributes:
        layout: a name, or a table.
        random_start: the first sequence of a tick is random, from 0 to below this value; Leaf uses
            100.
    """

    kind: Literal["snowflake"]
    layout: Annotated[Layout, declared("layout")] = LayoutSettings(name=COSID_MS.name)
    random_start: Annotated[Whole, Field(ge=1)] | None = None


@having(CachedOptions)
class CachedSettings(_Timed):
    """A `CachedSnowflakeId`, like uid-generator's: ids in seconds, prepared ahead of the clock.

    Attributes:
        layout: in seconds; a name, or a table.
        boost: the ring holds the ids of ``2^boost`` seconds, 8 by default.
        max_borrow: seconds that ids may be ahead of the clock.
        refill_interval: seconds between two checks of the ring while no ids are requested; by
            default there are no such checks.
        on_empty: whether calls that find the ring empty wait, or raise.
    """

    kind: Literal["cached_snowflake"]
    layout: Annotated[Layout, declared("layout")] = LayoutSettings(name=UID_GENERATOR_HA.name)


@having(NamedSharded)
class ShardedSettings(_Generator):
    """A `ShardedId`: second, shard and sequence; the store grants the sequences of each second.

    Attributes:
        epoch: the first second: a time with its offset, or an integer since 1970, in seconds or
            milliseconds; by default CosId's.
        sharding_id: the sharding id of calls that pass none.
        timestamp_bits: width of the seconds.
        sharding_bits: width of the sharding id.
        sequence_bits: width of the sequence.
        zone: with a fixed offset.
        key: pattern of the counters' keys, with ``<second>`` in place of the second; for servers
            that are shared with Java nodes.
        max_sequence: the highest sequence, on all nodes; by default the layout's.
        on_unavailable: what to do while the store is down and no id is buffered; lanes are numbered
            with machine ids of 6 bits in the namespace ``<namespace>.lane``.
        lane_store: the store of the lanes' numbers, as for ``store``; by default the generator's
            own.  Choose another store, because lanes are needed when the generator's store is down.
        batch: sequences to request at once; by default according to demand.
        broken_threshold: seconds that the clock may be behind the last id's second; ``inf`` for any
            number.
    """

    kind: Literal["sharded"]
    epoch: Moment = COSID_MS.epoch_ms
    sharding_id: Annotated[Whole, Field(ge=0)] = 0
    timestamp_bits: Bits = 32
    sharding_bits: Annotated[Whole, Field(ge=1, le=31)] = 12
    sequence_bits: Bits = 19
    zone: Annotated[str, declared("zone")] = "UTC"
    key: Name | None = None
    lane_store: StoreValue | None = None
    batch: Count | None = None


class CosIdSettings(_Stamped):
    """A `CosIdGenerator`: ids from the clock and a machine id, as text of 80 bits.

    Attributes:
        text: the format of the ids.
        zone: for "friendly" text; it must have a fixed offset.
        pad_start: whether machine id and sequence have a fixed width in "friendly" text; by default
            true.
        timestamp_bits: width of the time.
        sequence_bits: width of the sequence.
    """

    kind: Literal["cosid_text"]
    text: Literal["radix62", "radix36", "friendly"] = "radix62"
    zone: Annotated[str | None, declared("zone")] = None
    pad_start: Flag | None = None
    timestamp_bits: Bits = 44
    machine_bits: Annotated[Whole, declared("machine_bits")] = 20
    sequence_bits: Bits = 16


@having(RemoteOptions, "block", "max_age", "endurance", "fetch_timeout", "max_waiters", "fail_fast")
class RemoteSettings(_Generator):
    """A `RemoteId`: ids of a generator on the server in ``store``, such as a broker's Snowflake.

    Attributes:
        max_age: seconds after which buffered ids are dropped because their time is too old; ``inf``
            for never.
        endurance: seconds for which the buffered ids last while the server is down, at most
            ``max_age``.
        fetch_timeout: seconds for one call to the server; by default two fifths of
            ``wait_timeout``.
        fail_fast: whether calls fail as soon as two calls to the server have failed in a row,
            instead of after ``wait_timeout``; by default only in web applications.
    """

    kind: Literal["remote"]


class UuidSettings(_Generator):
    """A `Uuid4Id` or `Uuid7Id`: UUIDs as text; those of version 7 sort by time."""

    kind: Literal["uuid4", "uuid7"]


class CounterSettings(_Generator):
    """A `CounterId`: 1, 2, 3 in this process, for tests."""

    kind: Literal["counter"]


NumberKinds: TypeAlias = (
    SegmentSettings
    | ChainSettings
    | LeafSettings
    | SnowflakeSettings
    | CachedSettings
    | ShardedSettings
    | CounterSettings
)
NumberSettings: TypeAlias = Annotated[NumberKinds, Field(discriminator="kind")]
"""The kinds that "int32" and "uncertainty" may wrap."""


class IntegerSettings(_Generator):
    """An `IntegerIdGenerator`: the ids of another generator, up to 2^31-1.

    Attributes:
        inner: the wrapped generator: a table of another kind that issues numbers, without
            ``converter``.
    """

    kind: Literal["int32"]
    inner: NumberSettings


class UncertaintySettings(_Generator):
    """An `UncertaintyIdGenerator`: the ids of another generator, with random low bits.

    Attributes:
        bits: random bits in each id; the wrapped generator's ids have the rest of 63.
        inner: the wrapped generator, as for ``int32``.
    """

    kind: Literal["uncertainty"]
    bits: Annotated[Whole, Field(ge=1, le=62)]
    inner: NumberSettings


class OwnGeneratorSettings(_Generator):
    """A generator of your own.

    Attributes:
        make: a class, or a function that returns the generator: one of this library's, of a derived
            class, or one that wraps such a generator as ``inner``.
        options: the keyword arguments of that call.
    """

    kind: Literal["own"]
    make: Function
    options: dict[str, object] = Field(default_factory=dict, repr=False)  # perhaps with a password


GeneratorSettings: TypeAlias = Annotated[
    NumberKinds
    | RemoteSettings
    | GroupedSettings
    | CosIdSettings
    | UuidSettings
    | IntegerSettings
    | UncertaintySettings
    | OwnGeneratorSettings,
    Field(discriminator="kind"),
]
"""The settings of one generator; ``kind`` says which."""
