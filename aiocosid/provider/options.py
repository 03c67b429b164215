"""The options of each kind of generator in a provider, and those of machine ids.  No I/O."""
# This module does without "from __future__ import annotations", because the bounds of options are
# needed at run time.

from math import inf
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from ..abc import DEFAULT_NAMESPACE, DEFAULT_STEP, MAX_ID
from ..abc.checks import MAX_MACHINE_BITS, Create
from ..abc.leases import InstanceOptions, LeaseTerms, RestartOptions
from ..abc.options import Bounds, Count, Options, Seconds
from ..segment.options import (
    LeafSegmentOptions,
    SegmentChainOptions,
    SegmentIdOptions,
    SegmentKind,
)
from ..segment.pace import CHAIN_STEP
from ..snowflake.options import CachedOptions, CosIdOptions, ShardedOptions, SnowflakeOptions

if TYPE_CHECKING:
    from ..abc import Clock, MachineIdDistributor
    from ..abc.events import Instrument
    from ..machine import MachineIdLease

__all__ = (
    "OPTIONS",
    "ConnectOptions",
    "HostOptions",
    "MachineOptions",
    "NamedCached",
    "NamedChain",
    "NamedCosId",
    "NamedInner",
    "NamedLeaf",
    "NamedSegment",
    "NamedSharded",
    "NamedSnowflake",
    "NamedUncertainty",
    "NoOptions",
    "OptionSpec",
    "ProviderOptions",
    "SequenceOptions",
    "StepOptions",
)


class OptionSpec(NamedTuple):
    """An option as settings, the command line and the reference pages show it.

    Attributes:
        doc: its meaning and unit; in lower case, without a full stop.
        at_least: the lowest value; None for a text.
        at_most: the highest value; None for a text.
    """

    doc: str
    at_least: float | None = None
    at_most: float | None = None


OPTIONS: Final = {
    "namespace": OptionSpec("namespace of counters and machine ids"),
    "step": OptionSpec("maximum ids for each store call", 1, MAX_ID),
    "layout": OptionSpec("layout of the ids"),
    "unit": OptionSpec("length of a tick"),
    "epoch": OptionSpec("start of tick 0: a time with a UTC offset, or milliseconds since 1970"),
    "zone": OptionSpec("time zone of the texts"),
    "machine_id": OptionSpec("the machine id", 0, 2**MAX_MACHINE_BITS - 1),
    "machine_bits": OptionSpec("width of the machine ids in bits", 1, MAX_MACHINE_BITS),
    "call_timeout": OptionSpec("timeout of one store call in seconds", 0.001, 10**9),
    "safe_guard": OptionSpec("seconds until an unrenewed id is free; inf for never", 0.001, inf),
}
"""The options that the command line shares with settings, by their keys."""


class StepOptions(Options):
    """The counter of a generator.

    Attributes:
        step: ids per segment.
        offset: where a new counter starts.
    """

    step: Count = DEFAULT_STEP
    offset: Annotated[int, Bounds(0, MAX_ID)] = 0


class NamedSegment(StepOptions, SegmentIdOptions):
    """The options of `IdProvider.segment`."""


class NamedChain(StepOptions, SegmentChainOptions):
    """The options of `IdProvider.segment_chain`."""

    step: Count = CHAIN_STEP


class NamedLeaf(StepOptions, LeafSegmentOptions):
    """The options of `IdProvider.leaf_segment`."""


class NamedInner(NamedChain):
    """The options of `IdProvider.int32`.

    Attributes:
        step: ids per segment; for the kind ``"segment"`` 1000 by default.
        kind: the kind of the inner generator: ``"chain"``, or ``"segment"``, which does not take
            the options that only a chain has.
    """

    kind: SegmentKind = "chain"


class NamedUncertainty(NamedInner):
    """The options of `IdProvider.uncertainty`.

    Attributes:
        bits: random bits in each id, 1 to 62; the counter ends at ``2**(63 - bits) - 1``.
    """

    bits: Annotated[int, Bounds(1, 62)]


class MachineOptions(LeaseTerms, RestartOptions, InstanceOptions):
    """The source of machine ids, and how they are leased.

    Attributes:
        machine: a distributor of machine ids, for example `ManualMachineIdDistributor`, or a lease;
            None for the provider's store.  Only the store takes the options of an instance.
    """

    machine: "MachineIdDistributor | MachineIdLease | None" = None


class NamedSnowflake(MachineOptions, SnowflakeOptions):
    """The options of `IdProvider.snowflake`."""


class NamedCached(MachineOptions, CachedOptions):
    """The options of `IdProvider.cached_snowflake`."""


class NamedCosId(MachineOptions, CosIdOptions):
    """The options of `IdProvider.cosid_text`."""


class SequenceOptions(Options):
    """The options of `RedisStore.sequence_distributor`.

    Attributes:
        key: pattern of the counters' keys, with ``<second>`` in place of the second; for servers
            that are shared with Java nodes.
        max_sequence: the highest sequence, on all nodes; None for the layout's.
        tolerance: seconds by which a host's clock may differ from the server's.
        margin: seconds by which the clocks of two servers may differ.
        ttl: seconds that a counter is kept.
    """

    key: str | None = None
    max_sequence: Count | None = None
    tolerance: Annotated[int, Bounds(1, 3600)] = 2
    margin: Annotated[int, Bounds(0, 3600)] = 1
    ttl: Annotated[int, Bounds(62, 86_400)] = 600


class NamedSharded(SequenceOptions, ShardedOptions):
    """The options of `IdProvider.sharded`.

    Attributes:
        lane: the source of the lane's number; with ``on_unavailable="lane"`` and None it is one of
            64 machine ids of the store, in the namespace ``{namespace}.lane``.
    """


class NoOptions(Options):
    """The options of kinds that have none."""


class HostOptions(MachineOptions):
    """The options of all providers on one store.

    Attributes:
        namespace: the namespace of all its counters.
        instrument: receives the events of all its generators, and of a store created from a URL.
        close_timeout: seconds that closing waits for running calls, also for each generator.
        create: what opening may create.  True: tables and files that never existed, in a store that
            can tell this: memory, SQLite, PostgreSQL, MySQL, MariaDB.  Other stores cannot tell a
            new store from an emptied one, and need ``aiocosid init`` once, or the last day on which
            a new store is prepared, for example ``"2026-12-31"``.  ``"disposable"``: a store for
            tests, in which everything that is dropped or emptied is created again.  Without this
            option a missing SQLite file is an error.
    """

    namespace: str = DEFAULT_NAMESPACE
    instrument: "Instrument | None" = None
    close_timeout: Seconds = 5.0
    create: Create = False


class ConnectOptions(HostOptions):
    """The options of `aiocosid.connect`.

    Attributes:
        clock: the time source; the system's clock by default.
    """

    clock: "Clock | None" = None


class ProviderOptions(ConnectOptions):
    """The options of `IdProvider`.

    Attributes:
        owns_store: whether closing it closes the store.
    """

    owns_store: bool = False
