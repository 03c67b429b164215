"""The options of machine ids: how a store grants them, and the terms of a lease.  Pure."""
# Without "from __future__ import annotations": the bounds in annotations are read at run time.

from typing import TYPE_CHECKING, Annotated, Literal

from ._ids import DEFAULT_NAMESPACE
from .checks import MAX_MACHINE_BITS
from .machines import DEFAULT_SAFE_GUARD
from .options import Bounds, Options, Seconds

if TYPE_CHECKING:
    import os

    from .machines import InstanceId

__all__ = ("InstanceOptions", "LeaseTerms", "MachineIdOptions", "RestartOptions")


class RestartOptions(Options):
    """How an instance restarts on its machine: early, and without the store.

    Attributes:
        state_dir: a directory on the machine's own disk, for a stable instance: after a crash
            and a restart on the same machine it does not wait for its fence.
        offline: for how many seconds a process may issue ids, and may start on the same
            machine, while the store is down; 0, or above ``interval``.  It needs ``state_dir``.
            If this instance starts on another machine, it must wait that long, even after an
            orderly end.
    """

    state_dir: "str | os.PathLike[str] | None" = None
    offline: float = 0.0


class InstanceOptions(Options):
    """Which instance requests a machine id, and how long it may keep one.

    Attributes:
        instance_id: the instance that asks; by default a new, unique one for each process.
        safe_guard: seconds without a renewal after which an id may go to another instance.
        interval: seconds between two renewals; by default 60, and 10 for a stable instance.
        region: which region this store serves, if each of several stores grants the machine ids
            of one region and needs no connection to the others; it needs ``region_bits``.
        region_bits: how many of the machine bits, from the top, name the region; the same in all
            regions.  The store records both, and refuses a process with different values.
        offline_beside_cosid: allows ``offline`` where CosId on Java holds machine ids of the
            namespace: use it only if those nodes never take the id of a silent instance.  On JDBC
            stores they do take it, and on Redis when no other id is free.
    """

    instance_id: "InstanceId | str | None" = None
    safe_guard: float = DEFAULT_SAFE_GUARD
    interval: float | None = None
    region: Annotated[int, Bounds(0, 2 ** (MAX_MACHINE_BITS - 1) - 1)] | None = None
    region_bits: Annotated[int, Bounds(0, MAX_MACHINE_BITS - 1)] = 0
    offline_beside_cosid: bool = False


class MachineIdOptions(RestartOptions, InstanceOptions):
    """The options of `Store.machine_id_distributor`.

    Attributes:
        namespace: the namespace of the machine ids, at most 91 characters.
    """

    namespace: str = DEFAULT_NAMESPACE


class LeaseTerms(Options):
    """The options of `MachineIdLease` that a provider passes to it.

    Attributes:
        on_lost: ``"redistribute"`` takes another id after a loss, ``"raise"`` ends the
            generators with `MachineIdLostError`.
        peer_safe_guard: seconds; the shortest safe guard duration of any instance in the
            namespace, if it is shorter than the distributor's own.
        lead: seconds that the fence is ahead of the clock; 1.5 intervals by default.  Ids are
            issued that long while the store is down, and after a crash the next owner may have
            to wait that long.
        start_timeout: seconds that opening may take; if it would have to wait longer for a
            former owner's fence, it fails at once.  By default 5 to reach the store, and
            then as long as a fence can be ahead: ``lead`` and ``broken_threshold``.
        call_timeout: seconds after which a call to the store is abandoned.
    """

    on_lost: Literal["redistribute", "raise"] = "redistribute"
    peer_safe_guard: Seconds | None = None
    lead: Seconds | None = None
    start_timeout: Seconds | None = None
    call_timeout: Seconds = 2.0
