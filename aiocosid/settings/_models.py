"""What can be set: one class a table, one attribute a key.  No cross-checks; see `_build`."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, SecretStr, Tag

from ..abc import DEFAULT_NAMESPACE, DEFAULT_STEP
from ..abc._ids import MAX_ID
from ..segment._pace import MAX_DISTANCE, MAX_IDS_AHEAD, QUIET_PERIOD
from ._sharding import ShardingSettings  # noqa: TC001 - pydantic reads annotations
from ._values import Flag, Moment, Seconds, Section, Whole, shorthand

__all__ = (
    "ChainSettings",
    "ConverterSettings",
    "CosIdSettings",
    "DatePrefixSettings",
    "GeneratorSettings",
    "GroupPrefixSettings",
    "GroupedSettings",
    "LayoutSettings",
    "MachineSettings",
    "SegmentSettings",
    "Settings",
    "SnowflakeSettings",
    "TieredSettings",
)

Count: TypeAlias = Annotated[Whole, Field(ge=1, le=MAX_ID)]
Timeout: TypeAlias = Annotated[Seconds, Field(gt=0, allow_inf_nan=False)]
Patience: TypeAlias = Annotated[Seconds, Field(ge=0)]  # inf: for ever
Bits: TypeAlias = Annotated[Whole, Field(ge=1, le=63)]
Name: TypeAlias = Annotated[str, Field(min_length=1)]


class DatePrefixSettings(Section):
    """The date in front of a text.

    Attributes:
        pattern: Java's letters.
        delimiter: between date and text.
        zone: whose date; there is no default that two hosts would share.
        before_prefix: whether it is put on before the fixed prefix is, and so stands behind it.
    """

    pattern: str = "yyMMdd"
    delimiter: str = "-"
    zone: str
    before_prefix: Flag = True


class GroupPrefixSettings(Section):
    """The group in front of a text; for ``kind = "grouped"``.

    Attributes:
        delimiter: between group and text.
        before_prefix: whether it is put on before the fixed prefix is, and so stands behind it.
    """

    delimiter: str = "-"
    before_prefix: Flag = True


class ConverterSettings(Section):
    """How ids become text.  CosId's order: prefix, date, group, id, suffix.

    Attributes:
        type: what writes the number.
        char_size: the most characters; radix62 11, radix36 13 and crockford 13 if it is not given.
        pad_start: whether short texts are padded with zeros; true for the radixes.
        check: crockford: whether a check symbol is written.
        zone: friendly: whose local time.
        key: opaque: the secret.
        inner: opaque: what writes the number that the key has made, radix62 if it is not given;
            javascript-safe: what writes the number, to-string if it is not given.
        prefix: a text in front of everything.
        suffix: a text behind everything.
        group_prefix: a table, which may be empty.
        date_prefix: a table.
    """

    type: Literal[
        "to-string", "radix62", "radix36", "friendly", "crockford", "opaque", "javascript-safe"
    ] = "radix62"
    char_size: Annotated[Whole, Field(ge=0, le=64)] | None = None
    pad_start: Flag | None = None
    check: Flag | None = None
    zone: str | None = None
    key: SecretStr | None = None
    inner: Literal["to-string", "radix62", "radix36", "crockford"] | None = None
    prefix: str = ""
    suffix: str = ""
    group_prefix: GroupPrefixSettings | None = None
    date_prefix: DatePrefixSettings | None = None


Converter: TypeAlias = Annotated[ConverterSettings, shorthand("type")]


class LayoutSettings(Section):
    """How a Snowflake id is put together: a ready-made layout by name, or bits of your own.

    Attributes:
        name: one of `aiocosid.snowflake.LAYOUTS`.
        timestamp_bits: width of the time; with it all of the others but the last two are due.
        machine_bits: width of the machine id, regions included.
        sequence_bits: width of the sequence.
        unit: length of a tick.
        epoch: a time with its offset, or an integer of milliseconds since 1970 whatever the unit;
            beside a name it replaces that layout's own.
        region_bits: how many of the machine bits name a region.
        sequence_first: whether the sequence lies above the machine id.
    """

    name: str | None = None
    timestamp_bits: Bits | None = None
    machine_bits: Bits | None = None
    sequence_bits: Bits | None = None
    unit: Literal["ms", "10ms", "s"] | None = None
    epoch: Moment = None
    region_bits: Annotated[Whole, Field(ge=0, le=30)] | None = None
    sequence_first: Flag | None = None


class _Generator(Section):
    """What all kinds have.

    Attributes:
        namespace: instead of the one for all.
        name: instead of the table's own.
        store: a URL, or a name in ``[stores]``, instead of the one for all.
        converter: how ids become text; numbers without it.
        limit: the highest id that its readers can hold; checked, and for segments the last id.
        rate: ids a second that are expected; for `check-config` only.
        wait_timeout: seconds that a caller waits at most.
        close_timeout: seconds that closing may take, instead of the one for all.
    """

    namespace: Name | None = None
    name: Name | None = None
    store: SecretStr | None = None
    converter: Converter | None = None
    limit: Literal["int32", "javascript", "int64"] | None = None
    rate: Annotated[Seconds, Field(gt=0, allow_inf_nan=False)] | None = None
    wait_timeout: Timeout = 5.0
    close_timeout: Timeout | None = None


class _Counted(_Generator):
    """What kinds on a counter have.

    Attributes:
        step: ids per segment.
        offset: where a new counter starts.
        ttl: seconds after which fetched ids are not handed out any more; for ever without it.
        fetch_timeout: seconds for one call to the store; two fifths of wait_timeout without it.
        max_id: the highest id ever handed out.
        give_back: whether closing gives unused ids back to the store.
    """

    step: Count = DEFAULT_STEP
    offset: Annotated[Whole, Field(ge=0, le=MAX_ID)] = 0
    ttl: Timeout | None = None
    fetch_timeout: Timeout | None = None
    max_id: Count | None = None
    give_back: Flag = False


class SegmentSettings(_Counted):
    """A `SegmentId`."""

    kind: Literal["segment"]


class _Prefetched(_Counted):
    """What a chain has.

    Attributes:
        safe_distance: segments kept ahead at rest.
        max_distance: segments kept ahead at most.
        max_ids_ahead: the same in ids.
        quiet_period: seconds after which a distance that was not needed is halved.
    """

    safe_distance: Count = 2
    max_distance: Count = MAX_DISTANCE
    max_ids_ahead: Count = MAX_IDS_AHEAD
    quiet_period: Timeout = QUIET_PERIOD


class ChainSettings(_Prefetched):
    """A `SegmentChainId`."""

    kind: Literal["chain"]


class GroupedSettings(_Prefetched):
    """A `GroupedSegmentId`: counters that restart with every period.

    Attributes:
        group_by: the period.
        zone: whose years, months and days.
        pattern: how a period is written, in Java's letters; as CosId's of that period without it.
        mode: what hands out the ids of one group.
    """

    kind: Literal["grouped"]
    group_by: Literal["year", "month", "day"]
    zone: str
    pattern: str | None = None
    mode: Literal["chain", "segment"] = "chain"


class _Stamped(_Generator):
    """What kinds on a clock have.

    Attributes:
        broken_threshold: seconds that a call waits for a clock that stepped back; inf for ever.
        max_forward_jump: seconds by which the wall clock may run ahead; inf for any.
        sequence_reset_threshold: as for `SnowflakeId`; -1 is CosId's default.
    """

    broken_threshold: Patience = 2.0
    max_forward_jump: Patience | None = None
    sequence_reset_threshold: Annotated[Whole, Field(ge=-1)] = -1


class SnowflakeSettings(_Stamped):
    """A `SnowflakeId`.

    Attributes:
        layout: how the ids are put together: a name, or a table.
    """

    kind: Literal["snowflake"]
    layout: Annotated[LayoutSettings, shorthand("name")] = LayoutSettings(name="cosid-ms")


class CosIdSettings(_Stamped):
    """A `CosIdGenerator`.

    Attributes:
        text: how the ids are written.
        zone: friendly: whose local time; it must keep one offset.
        pad_start: friendly: whether machine id and sequence have a fixed width.
        timestamp_bits: width of the time.
        machine_bits: width of the machine id.
        sequence_bits: width of the sequence.
    """

    kind: Literal["cosid"]
    text: Literal["radix62", "radix36", "friendly"] = "radix62"
    zone: str | None = None
    pad_start: Flag | None = None
    timestamp_bits: Bits = 44
    machine_bits: Annotated[Whole, Field(ge=1, le=31)] = 20
    sequence_bits: Bits = 16


GeneratorSettings: TypeAlias = Annotated[
    SegmentSettings | ChainSettings | GroupedSettings | SnowflakeSettings | CosIdSettings,
    Field(discriminator="kind"),
]
"""The settings of one generator; ``kind`` says which."""


class MachineSettings(Section):
    """Where the machine ids of Snowflakes come from.

    Attributes:
        source: a lease of the generator's store, a number by hand, or the pod's in a StatefulSet.
        instance_id: who asks; an instance that nobody else is without it.
        stable: whether the same instance comes back under that name.
        safe_guard: store: seconds without a sign of life after which an id may go to another.
        interval: seconds between two signs of life, or writings of the mark.
        machine_id: manual: the number.
        hostname: stateful-set: the pod's name, instead of the environment's HOSTNAME.
        worker: manual and stateful-set: which of several workers this is.
        worker_bits: manual and stateful-set: how many of the lowest bits hold the worker.
        state_dir: manual and stateful-set: where lock and mark lie.
        on_lost: whether another id is taken after a loss, or the generators end.
        peer_safe_guard: seconds; the shortest safe guard of any instance of the namespace.
        lead: seconds that the time mark is ahead of the clock.
        broken_threshold: seconds that a clock behind a stored time is waited for; inf for ever.
        start_timeout: seconds that opening tries to reach the store.
        call_timeout: seconds after which a call to the store is given up.
    """

    source: Literal["store", "manual", "stateful-set"] = "store"
    instance_id: Name | None = None
    stable: Flag = False
    safe_guard: Timeout | None = None
    interval: Timeout | None = None
    machine_id: Annotated[Whole, Field(ge=0, lt=2**31)] | None = None
    hostname: Name | None = None
    worker: Annotated[Whole, Field(ge=0)] | None = None
    worker_bits: Annotated[Whole, Field(ge=0, le=30)] | None = None
    state_dir: Name | None = None
    on_lost: Literal["redistribute", "raise"] = "redistribute"
    peer_safe_guard: Timeout | None = None
    lead: Timeout | None = None
    broken_threshold: Patience = 2.0
    start_timeout: Timeout = 5.0
    call_timeout: Timeout = 2.0


class TieredSettings(Section):
    """A durable store beneath a fast one.

    Attributes:
        root: a URL, or a name in ``stores``: the store that counts.
        cache: likewise: Redis, which hands out what the root has leased.
        span: ids leased at a time, at least the steps of the generators on it.
        cache_timeout: seconds after which the root is asked instead.
        pause: seconds for which the cache is not asked after it did not answer.
        root_name: tells roots apart on one Redis; by default taken from the root's URL.
    """

    root: SecretStr
    cache: SecretStr
    span: Annotated[Whole, Field(ge=1, le=2**40)] = 1_000_000
    cache_timeout: Timeout = 0.75
    pause: Patience = 1.0
    root_name: Name | None = None


def _store_kind(value: object) -> str:
    return "tiered" if isinstance(value, dict | TieredSettings) else "url"


StoreSettings: TypeAlias = Annotated[
    Annotated[SecretStr, Tag("url")] | Annotated[TieredSettings, Tag("tiered")],
    Discriminator(_store_kind),
]


class Settings(Section):
    """All settings of a provider; `configure` builds it.

    Attributes:
        namespace: of all counters and machine ids that have none of their own.
        store: a URL, or a name in ``stores``: where they lie.
        stores: URLs by name, or tables of a tiered store.
        close_timeout: seconds that closing may take.
        machine: where machine ids come from.
        share: the default generator, ``__share__``.
        generators: by name.
        sharding: by name.
    """

    namespace: Name = DEFAULT_NAMESPACE
    store: SecretStr | None = None
    stores: dict[str, StoreSettings] = Field(default_factory=dict)
    close_timeout: Timeout = 5.0
    machine: MachineSettings = MachineSettings()
    share: GeneratorSettings | None = None
    generators: dict[str, GeneratorSettings] = Field(default_factory=dict)
    sharding: dict[str, ShardingSettings] = Field(default_factory=dict)
