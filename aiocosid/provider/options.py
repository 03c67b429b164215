"""The options of kinds of generators, as a provider takes them, and those of machine ids.  Pure."""
# Without "from __future__ import annotations": the bounds of options are there at run time.

from math import inf
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from ..abc import DEFAULT_NAMESPACE, DEFAULT_SAFE_GUARD, DEFAULT_STEP, MAX_ID
from ..abc.checks import MAX_MACHINE_BITS, Create
from ..abc.options import Bounds, Count, Options, Seconds, SecondsOrZero
from ..segment.options import (
    LeafSegmentOptions,
    SegmentChainOptions,
    SegmentIdOptions,
    SegmentKind,
)
from ..segment.pace import CHAIN_STEP
from ..snowflake.options import CachedOptions, CosIdOptions, ShardedOptions, SnowflakeOptions

if TYPE_CHECKING:
    import os

    from ..abc import Clock, InstanceId, MachineIdDistributor
    from ..abc.events import Instrument
    from ..machine import MachineIdLease

__all__ = (
    "OPTIONS",
    "ConnectOptions",
    "HostOptions",
    "LeaseTerms",
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
    """An option, as settings, the command line and the reference pages have it.

    Attributes:
        doc: what it is, with its unit; in small letters, without a full stop.
        at_least: the lowest value; None for a text.
        at_most: the highest value; None for a text.
    """

    doc: str
    at_least: float | None = None
    at_most: float | None = None


OPTIONS: Final = {
    "namespace": OptionSpec("namespace of counters and machine ids"),
    "step": OptionSpec("maximum ids for each store call", 1, MAX_ID),
    "layout": OptionSpec("how the ids are put together"),
    "unit": OptionSpec("length of a tick"),
    "epoch": OptionSpec("start of tick 0, a time with its offset or milliseconds since 1970"),
    "zone": OptionSpec("time zone of the texts"),
    "machine_id": OptionSpec("the machine id", 0, 2**MAX_MACHINE_BITS - 1),
    "machine_bits": OptionSpec("width of the machine ids in bits", 1, MAX_MACHINE_BITS),
    "call_timeout": OptionSpec("timeout of one store call in seconds", 0.001, 10**9),
    "safe_guard": OptionSpec("seconds until an unrenewed id is free, inf for never", 0.001, inf),
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
    """The options of `IdProvider.leaf`."""


class NamedInner(NamedChain):
    """The options of `IdProvider.int32`.

    Attributes:
        step: ids per segment; of the kind ``"segment"`` 1000 by default.
        kind: which generator hands out the ids inside: ``"chain"``, or ``"segment"``, without the
            options that only a chain has.
    """

    kind: SegmentKind = "chain"


class NamedUncertainty(NamedInner):
    """The options of `IdProvider.uncertainty`.

    Attributes:
        bits: random bits of each id, 1 to 62; the counter ends at ``2**(63 - bits) - 1``.
    """

    bits: Annotated[int, Bounds(1, 62)]


class LeaseTerms(Options):
    """The options of `MachineIdLease` that a provider passes to it.

    Attributes:
        on_lost: ``"redistribute"`` takes another id after a loss, ``"raise"`` ends the generators.
        peer_safe_guard: seconds; the shortest safe guard of any instance of the namespace, if it is
            shorter than ``safe_guard``.
        lead: seconds that the time mark is ahead of the clock; 1.5 intervals by default.
        start_timeout: seconds that opening the lease may take.
        call_timeout: seconds after which a call to the store is given up.
    """

    on_lost: Literal["redistribute", "raise"] = "redistribute"
    peer_safe_guard: Seconds | None = None
    lead: Seconds | None = None
    start_timeout: Seconds | None = None
    call_timeout: Seconds = 2.0


class MachineOptions(LeaseTerms):
    """Where machine ids come from, and how they are leased.

    Attributes:
        machine: a distributor of machine ids, as `ManualMachineIdDistributor`, or a lease; None for
            the provider's store, which alone takes the other options here.
        instance_id: the holder of the machine id; by default a new one for each process.
        safe_guard: seconds without a renewal after which another instance may get the id.
        interval: seconds between two renewals; by default 60, and 10 for a stable instance.
        state_dir: a directory on the machine's own disk, for a stable instance: after a crash and a
            start on the same machine it does not wait for its time mark.
        offline: seconds without the store for which ids may be issued, also by a process that
            starts on the same machine; see `Store.machine_id_distributor`.
        offline_beside_cosid: allows ``offline`` where CosId on Java holds machine ids.
    """

    machine: "MachineIdDistributor | MachineIdLease | None" = None
    instance_id: "InstanceId | str | None" = None
    safe_guard: Seconds = DEFAULT_SAFE_GUARD
    interval: Seconds | None = None
    state_dir: "str | os.PathLike[str] | None" = None
    offline: SecondsOrZero = 0.0
    offline_beside_cosid: bool = False


class NamedSnowflake(MachineOptions, SnowflakeOptions):
    """The options of `IdProvider.snowflake`."""


class NamedCached(MachineOptions, CachedOptions):
    """The options of `IdProvider.cached`."""


class NamedCosId(MachineOptions, CosIdOptions):
    """The options of `IdProvider.cosid`."""


class SequenceOptions(Options):
    """The options of `RedisStore.sequence_distributor`.

    Attributes:
        key: pattern of the counters' keys, with ``<second>`` in place of the second; for servers
            that Java nodes share.
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
        instrument: receives the events of all its generators, and of a store made from a URL.
        close_timeout: seconds that closing waits for calls under way, also of each generator.
        create: what opening may create.  True: tables and files that were never there, in a store
            that can tell so: memory, SQLite, PostgreSQL, MySQL, MariaDB.  Others cannot tell new
            from emptied, and need ``aiocosid init`` once, or the last day on which a new one is
            prepared, such as ``"2026-12-31"``.  ``"disposable"``: a store for tests, in which
            whatever is dropped or emptied is made again.  Without it a SQLite file that is missing
            is an error.
    """

    namespace: str = DEFAULT_NAMESPACE
    instrument: "Instrument | None" = None
    close_timeout: Seconds = 5.0
    create: Create = False


class ConnectOptions(HostOptions):
    """The options of `aiocosid.connect`.

    Attributes:
        clock: time; the system's by default.
    """

    clock: "Clock | None" = None


class ProviderOptions(ConnectOptions):
    """The options of `IdProvider`.

    Attributes:
        owns_store: whether closing it closes the store.
    """

    owns_store: bool = False
