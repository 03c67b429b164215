"""The errors of clocks, layouts and machine ids."""

from __future__ import annotations

from math import ceil, inf
from shlex import quote
from typing import Final

from ._stores import StoreError
from .base import MOST_SHOWN, TRY_AGAIN, CosIdError, shortened, with_remedy

__all__ = (
    "ClockTooFarForwardError",
    "ClockTooManyBackwardsError",
    "CorruptMachineStateError",
    "LayoutExpiredError",
    "LeafWorkerIdsUsedUpError",
    "MachineBitsMismatchError",
    "MachineIdInUseError",
    "MachineIdLostError",
    "MachineIdOverflowError",
    "MachineIdQuarantineError",
    "MachineIdUnavailableError",
    "RingEmptyError",
    "StoreNotInitializedError",
    "WorkerIdsUsedUpError",
)

MOST_OF_A_PLACE: Final = 400  # characters: a path has many


class LayoutExpiredError(CosIdError, OverflowError):
    """The layout's time field has no room for the current time: no more ids can be made.

    Attributes:
        layout: the layout's name.
        last_instant: the last moment of which there can be ids, ISO 8601 in UTC.
    """

    def __init__(self, layout: str, *, last_instant: str, remedy: str) -> None:
        super().__init__(f"{layout} ended at {last_instant}; {remedy}")
        self.layout = layout
        self.last_instant = last_instant
        self.remedy: str = remedy


class RingEmptyError(CosIdError):
    """The ring of a `CachedSnowflakeId` holds too few ids, and ``on_empty`` is ``"raise"``.

    Its ids are ahead of the clock by all that may be borrowed, or the lease allows no later ones
    yet; then the lease's last error, if there is one, is the ``__cause__``.

    Attributes:
        counter: the generator, ``{namespace}.{name}``.
        borrowed: seconds that its last id is ahead of the clock.
    """

    retryable = True
    remedy = "try again soon, or let callers wait with on_empty='wait'"

    def __init__(self, namespaced_name: str, *, borrowed: float) -> None:
        super().__init__(
            f"the ring of {namespaced_name} is empty, and its ids are {borrowed:g} s ahead of the "
            f"clock; {self.remedy}"
        )
        self.counter = namespaced_name
        self.borrowed = borrowed


class ClockTooManyBackwardsError(CosIdError):
    """The wall clock is too far behind the last id's time, or behind a stored one, to wait.

    Attributes:
        backwards: seconds that the clock is behind.
        threshold: seconds that a call waits for it at most (`broken_threshold`).
    """

    retryable = True
    remedy = "set the clock right"

    def __init__(self, *, backwards: float, threshold: float) -> None:
        super().__init__(
            f"the wall clock is {backwards:g} s behind the last id's time, more than the "
            f"{threshold:g} s that a call waits (broken_threshold); {self.remedy}"
        )
        self.backwards = backwards
        self.threshold = threshold


class ClockTooFarForwardError(CosIdError):
    """The wall clock jumped further ahead than `max_forward_jump` allows.

    Attributes:
        forward: seconds that it jumped.
        limit: seconds that are allowed.
    """

    retryable = True
    remedy = "set the clock right, or open the generator again if it is right now"

    def __init__(self, *, forward: float, limit: float) -> None:
        super().__init__(
            f"the wall clock jumped {forward:g} s ahead, more than the {limit:g} s allowed "
            f"(max_forward_jump); {self.remedy}"
        )
        self.forward = forward
        self.limit = limit


def _region_of(region_code: int) -> tuple[int, int]:
    """Return a region and the number of region bits."""
    region_bits = region_code.bit_length() - 1
    return region_code - (1 << region_bits), region_bits


def _in_region(region_code: int) -> str:
    region, region_bits = _region_of(region_code)
    return f"with region={region}, region_bits={region_bits}" if region_bits else "without regions"


class MachineBitsMismatchError(CosIdError):
    """The machine ids of the namespace have another width or region; nothing was taken or written.

    Ids of two layouts under one namespace may be equal, as may those of two stores of one region.

    Attributes:
        namespace: the namespace.
        bits: the width that was asked for.
        found: the width that the namespace has.
        region_code: the region that was asked for, its bits behind a 1; 1 for no regions.
        found_region: the region of the namespace in this store.
        remedy: how to change it permanently, once all instances are closed.
    """

    def __init__(
        self,
        namespace: str,
        *,
        bits: int,
        found: int,
        region_code: int = 1,
        found_region: int = 1,
        remedy: str = "",
    ) -> None:
        region, region_bits = _region_of(region_code)
        remedy = remedy or (
            f"run 'aiocosid machines bits --namespace {quote(namespace)} --set {bits} --store URL'"
        )
        if region_bits:
            remedy = (
                f"run 'aiocosid machines bits --namespace {quote(namespace)} --set {bits} "
                f"--region {region} --region-bits {region_bits} --store URL'"
            )
        advice = f"take a layout with {found} machine bits"
        asked, has, changed = f"{bits} were", f"{found} bits", "width"
        if region_code != found_region:
            asked = f"{bits} bits {_in_region(region_code)} were"
            has = f"{found} bits {_in_region(found_region)} in this store"
            advice, changed = "name that region, or the store of your region", "region"
        super().__init__(
            f"namespace {namespace!r} has machine ids of {has}, and {asked} asked for; {advice}, "
            f"or another namespace; if the {changed} has changed permanently, close all instances "
            f"and {remedy}"
        )
        self.namespace = namespace
        self.bits = bits
        self.found = found
        self.region_code = region_code
        self.found_region = found_region
        self.remedy: str = remedy


class MachineIdOverflowError(CosIdError):
    """All machine ids of the namespace are held; an id is never given to a second holder.

    Attributes:
        namespace: the namespace.
        size: how many machine ids there are.
        holders: some of those who hold them.
    """

    retryable = True
    remedy: str = (
        "close an instance, use more machine bits, or wait for the safe guard duration of dead "
        "instances ('aiocosid machines list --store URL' shows them)"
    )

    def __init__(self, namespace: str, *, size: int, holders: tuple[str, ...] = ()) -> None:
        held = f", by {', '.join(holders)}" if holders else ""
        held += ", ..." if 0 < len(holders) < size else ""
        super().__init__(
            f"all {size} machine ids of namespace {namespace!r} are held{held}; {self.remedy}"
        )
        self.namespace = namespace
        self.size = size
        self.holders = holders


class WorkerIdsUsedUpError(MachineIdOverflowError):
    """A start was given a number that does not fit the layout's machine bits.

    uid-generator counts starts and uses no number twice.  Forks of it that take the number modulo a
    limit hand out worker ids that are still in use.

    Attributes:
        worker_id: the number.
        bits: the layout's machine bits.
    """

    retryable = False
    remedy = (
        "take a layout with more machine bits whose ids cannot equal the old ones "
        "(aiocosid.snowflake.clearance() tells), or lease machine ids from a store, which reuses "
        "them safely"
    )

    def __init__(self, namespace: str, *, worker_id: int, bits: int) -> None:
        CosIdError.__init__(
            self,
            f"WORKER_NODE gave worker id {worker_id}, which does not fit {bits} machine bits, "
            f"and worker ids are never reused; {self.remedy}",
        )
        self.namespace = namespace
        self.size: int = 1 << bits
        self.holders: tuple[()] = ()
        self.worker_id = worker_id
        self.bits = bits


class LeafWorkerIdsUsedUpError(MachineIdOverflowError):
    """The registry's next number does not fit the layout's machine bits.

    Leaf counts addresses and uses no number twice: each new address of a container takes one.

    Attributes:
        worker_id: the number; -1 if none was made.
        bits: the layout's machine bits.
    """

    retryable = False

    def __init__(
        self, namespace: str, *, worker_id: int, bits: int, holders: tuple[str, ...] = ()
    ) -> None:
        silent = f" (silent for longest: {', '.join(holders)})" if holders else ""
        number = f"worker id {worker_id}" if worker_id >= 0 else "the next worker id"
        self.remedy: str = (
            f"pass the ip and port of a host that is permanently gone{silent} to take its number, "
            "give hosts names that survive a restart, or move to a registry that reuses numbers "
            "(zk_recycle, or a lease from any store of aiocosid)"
        )
        CosIdError.__init__(
            self,
            f"{number} of {namespace} does not fit {bits} machine bits, which hold {1 << bits}; "
            f"{self.remedy}",
        )
        self.namespace = namespace
        self.size: int = 1 << bits
        self.holders = holders
        self.worker_id = worker_id
        self.bits = bits


class MachineIdLostError(CosIdError):
    """The machine id is no longer ours: another process holds it, or its lease ran out.

    Attributes:
        namespace: the namespace.
        machine_id: the machine id.
        reason: how it was lost.
    """

    remedy = "open the generator again, which leases another one"

    def __init__(self, namespace: str, machine_id: int, *, reason: str) -> None:
        super().__init__(
            f"machine id {machine_id} of namespace {namespace!r} is lost: {reason}; {self.remedy}"
        )
        self.namespace = namespace
        self.machine_id = machine_id
        self.reason = reason


class MachineIdInUseError(CosIdError):
    """A machine id, or an instance id, is in use by another process or object.

    There are four cases.  Another process on this host holds an id that was chosen by hand.  A
    lease's id is taken over repeatedly while the lease is valid, because another process runs under
    the same instance id.  A process of the same instance id that has another ``state_dir`` may
    issue ids without the store (``offline``): that directory was copied, or the instance was moved
    to another machine.  Or the width or region of a namespace is to be changed while an instance
    holds a machine id in it.

    Attributes:
        what: what is held.
        holder: who holds it.
    """

    def __init__(
        self, what: str, *, holder: str, remedy: str = "close that one, or choose another"
    ) -> None:
        super().__init__(with_remedy(f"{what} is in use by {holder}", remedy))
        self.what = what
        self.holder = holder
        self.remedy: str = remedy


class MachineIdQuarantineError(StoreError):
    """The store may have forgotten who holds which machine id, and hands out none for a while.

    It was never initialised for the namespace, or was emptied, restored or failed over.  Running
    holders write their ids again when they renew; a new instance waits until every holder that did
    not has stopped issuing ids.

    Attributes:
        namespace: the namespace.
        seconds_left: how long it takes from now, by the store's clock; ``inf`` if it does not end
            by itself.
    """

    retryable = True

    def __init__(self, store: str, *, namespace: str, seconds_left: float) -> None:
        wait = "it does not end by itself (safe_guard=inf)"
        if seconds_left < inf:
            wait = f"wait for {ceil(seconds_left)} s"
        super().__init__(
            store,
            f"it may have forgotten who holds the machine ids of namespace {namespace!r} (emptied, "
            "restored or failed over); no machine ids are granted yet",
            remedy=f"{wait}, or run 'aiocosid init --store URL --namespace {quote(namespace)} "
            "--confirm-no-holders' if no process that was started before holds one",
        )
        self.namespace = namespace
        self.seconds_left = seconds_left

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the same call may succeed; None if it does not end by itself."""
        return self.seconds_left if self.seconds_left < inf else None


class StoreNotInitializedError(MachineIdQuarantineError):
    """The store was never initialised for machine ids, or was emptied: the two look alike.

    It hands out no machine id.  Run ``aiocosid init`` once; otherwise the store can be used after
    the longest safe guard.
    """

    retryable = False

    def __init__(self, store: str, *, namespace: str, seconds_left: float) -> None:
        super().__init__(store, namespace=namespace, seconds_left=seconds_left)
        what = "it was not initialised for machine ids, or has been emptied since"
        self.remedy: str = "run 'aiocosid init --store URL' once"
        self.reason: str = f"{what}: {self.remedy}"
        self.args: tuple[object, ...] = (f"{store}: {self.reason}",)


class MachineIdUnavailableError(CosIdError):
    """No machine id could be got or kept in time; the store's own error is the ``__cause__``.

    Attributes:
        namespace: the namespace.
        waited: seconds that the caller waited.
        reason: what kept it; empty if the store did not answer.
    """

    retryable = True

    def __init__(
        self, namespace: str, *, waited: float, reason: str = "", remedy: str = ""
    ) -> None:
        remedy = remedy or TRY_AGAIN
        what = f"no machine id of namespace {namespace!r} became available within {waited:g} s"
        super().__init__(with_remedy(f"{what}: {reason}" if reason else what, remedy))
        self.remedy: str = remedy
        self.namespace = namespace
        self.waited = waited
        self.reason = reason


class CorruptMachineStateError(StoreError):
    """A stored machine state is damaged; no id is handed out on a guess.

    Attributes:
        place: the file, key or row that is damaged.
        found: what it holds, in short.
        expected: what it has to hold.
    """

    def __init__(
        self, store: str, *, place: str, found: str, expected: str = "'machine_id|timestamp_ms'"
    ) -> None:
        # Any client may have written it: it is shown in short, and without control characters.
        shown = shortened(place if place.isprintable() else repr(place)[1:-1], MOST_OF_A_PLACE)
        found = shortened(found, MOST_SHOWN)
        super().__init__(
            store, f"{shown} holds {found}, not {expected}", remedy="repair or remove it"
        )
        self.place = place
        self.found: str = found
        self.expected = expected
