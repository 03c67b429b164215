"""The contract of a distributor of machine ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from shlex import quote
from typing import TYPE_CHECKING, Final

from ..errors import InvalidArgumentError, MachineBitsMismatchError, MachineIdInUseError
from ._ids import DEFAULT_NAMESPACE
from .checks import MAX_MACHINE_BITS, check_integer, check_machine_bits, check_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .restart import RestartPlace

__all__ = (
    "DEFAULT_GUARD_INTERVAL",
    "DEFAULT_SAFE_GUARD",
    "INSTANCE_ID_WIDTH",
    "MAX_MACHINE_BITS",
    "QUARANTINE_MARGIN",
    "RELEASE_MARGIN",
    "STABLE_GUARD_INTERVAL",
    "WIDTH_EXPECTED",
    "InstanceId",
    "Machine",
    "MachineGrant",
    "MachineIdDistributor",
    "bits_in_use",
    "check_machine_bits",
    "check_safe_guard",
    "check_same_bits",
    "region_code_of",
    "region_ids",
)

DEFAULT_SAFE_GUARD: Final = 300.0
"""Seconds; CosId's safe guard duration (``cosid.machine.guarder.safe-guard-duration``, PT5M)."""

DEFAULT_GUARD_INTERVAL: Final = 60.0
"""Seconds; CosId's guarder has the same interval."""

STABLE_GUARD_INTERVAL: Final = 10.0
"""Seconds, for a stable instance: after a crash it waits for its own fence, which is 1.5
intervals ahead.
"""

QUARANTINE_MARGIN: Final = 5.0
"""Seconds by which a quarantine is longer than the longest safe guard that was named."""

RELEASE_MARGIN: Final = 1.0
"""Seconds that the stamp of an id that was released early is above its fence."""

NAME_WIDTH: Final = 91
"""Characters; ``{namespace}.{8 digits}`` must fit CosId's varchar(100)."""

INSTANCE_ID_WIDTH: Final = 100
"""Characters; CosId's varchar(100)."""

WIDTH_EXPECTED: Final = f"a number of machine bits, 1 to {MAX_MACHINE_BITS}"
"""What the record of a namespace's width must contain."""


@dataclass(frozen=True, slots=True)
class InstanceId:
    """The holder of a machine id: CosId's instance id.

    Attributes:
        text: `host:port`, or any text of 1 to 100 characters that no other instance has.
        stable: whether the same instance comes back under the same text, as a StatefulSet's pod
            does.  A stable instance keeps its machine id when it is closed, and this library gives
            the id to no other instance, however long this one does not renew.  CosId on Java may.
    """

    text: str
    stable: bool = False


@dataclass(frozen=True, slots=True)
class MachineGrant:
    """A machine id that was granted.

    Attributes:
        machine_id: 0 to ``2^bits - 1``.
        floor_ms: Unix time in milliseconds; every id's time must be *above* it: the later of the
            former owner's last renewal and its fence; -1 if there was no former owner.
        is_fenced: whether a fence may have put ``floor_ms`` ahead of the clock; False if only
            CosId on Java has held the id, because it writes its own clock's time and no fence.
    """

    machine_id: int
    floor_ms: int = -1
    is_fenced: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine id as a store has it.

    Attributes:
        namespace: the namespace that it belongs to.
        machine_id: the number.
        instance_id: the instance that holds it; empty if it was released.
        last_timestamp_ms: the holder's last renewal, unix time in milliseconds.
        fence_ms: no id was issued with a later time; -1 where the holder keeps no fence (CosId's).
        stable: whether the holder said that it is stable; CosId does not store that.
    """

    namespace: str
    machine_id: int
    instance_id: str
    last_timestamp_ms: int
    fence_ms: int = -1
    stable: bool = False


class MachineIdDistributor(ABC):
    """Grants the machine ids of one namespace, each to one instance at a time.

    It is the store's side of a lease: each call is one atomic step, and it has no clock and no task
    of its own.  `aiocosid.machine.MachineIdLease` calls it, and keeps track of how long an id may
    be used.  Check your own with `aiocosid.testing.MachineIdDistributorContract`.

    A store may lose data: it is emptied, restored, or fails over to a replica that lags.  So the
    store keeps a *marker* for each namespace, with the store's *identity*, and each atomic step
    checks it first.  If the marker is missing, or names an identity other than the store's current
    one, a **quarantine** begins, in that step:

    * It ends when the longest safe guard that was ever named in the namespace, plus
      `QUARANTINE_MARGIN`, has passed since its beginning by the *store's* clock.  The marker
      records that safe guard before an id is granted under it; if the marker is missing, the safe
      guards of the callers during the quarantine count.  The first call after the end records
      that the store is sound again.
    * Until then no instance is granted an id, whatever the store says: `distribute` raises
      `MachineIdQuarantineError`.
    * An instance that holds an id, and knows that its lease is still valid, calls `reassert`, which
      writes again everything that the store may have lost.
    * If two instances reclaim one id, the earlier one keeps it: the one whose `distribute` was
      called with the lower ``now_ms``, then the one with the lower text.  The other one gets
      `MachineIdLostError`, at once or at its next call.  If two processes share an instance id,
      the later one wins.
    * An entry whose holder has not reclaimed it during this quarantine does not count, with two
      exceptions.  One is a Java peer's renewal since the quarantine began, because CosId knows no
      quarantine and would not yield.  The other is an id that was granted before the loss could be
      noticed, as on a ZooKeeper that was restored: there the new holder renews, and the former one
      does not.

    Attributes:
        namespace: groups the machines of one system.
        instance_id: the instance that asks.
        safe_guard: seconds without a renewal after which the id of an owner that is not stable may
            be granted to another instance; CosId's default is 300.
        interval: seconds between two renewals.
    """

    __slots__ = ("__weakref__", "instance_id", "interval", "namespace", "safe_guard")

    store: str = "store"
    """The kind of store, for error messages."""

    is_leased: bool = True
    """Whether an id is lost without a renewal; False where a lock of the operating system holds it.
    """

    keeps_fences: bool = True
    """Whether the next owner of an id begins above the former owner's fence.

    If False, the store keeps no fence, and only the clocks protect ids: then no id may be ahead of
    its clock, and borrowing is refused.
    """

    region_code: int = 1
    """The region whose machine ids it grants, the region's bits behind a 1; 1 for no regions."""

    restart: RestartPlace | None = None
    """Lets a stable instance begin before its fence, or without the store, where it ran before.

    None if an instance always waits for its fence.
    """

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> None:
        """Describe the instance that asks; nothing is sent yet.

        Args:
            namespace: not empty, without NUL.
            instance_id: its text is 1 to 100 characters, without NUL.
            safe_guard: seconds, above three intervals; ``inf`` for ids that are never recycled.
            interval: seconds, above 0.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        check_text("namespace", namespace, at_most=NAME_WIDTH)
        check_text("instance_id", instance_id.text, at_most=INSTANCE_ID_WIDTH)
        if not 0 < interval < inf:
            raise InvalidArgumentError("interval", interval, "must be a number of seconds above 0")
        if not safe_guard > 3 * interval:
            rule = f"must be longer than three intervals of {interval:g} s"
            raise InvalidArgumentError("safe_guard", safe_guard, rule)
        self.namespace: str = namespace
        self.instance_id: InstanceId = instance_id
        self.safe_guard: float = safe_guard
        self.interval: float = interval

    @property
    def session(self) -> int:
        """A number that changes each time the session with the store is interrupted.

        After an interruption a lease allows no ids until a renewal sent after it has succeeded.
        The default, for stores without sessions, never changes.  Never waits.
        """
        return 0

    @abstractmethod
    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take a machine id: the instance's own, or else a released, a new or an expired one.

        It is one atomic step.  Applying it twice is safe: the second time the instance finds its
        own id.  A cancelled call may have taken effect; the same instance finds the id again, and
        otherwise it is recycled after the safe guard duration.

        Args:
            bits: width of the machine id, 1 to 31; all instances of a namespace use one width,
                which the first call that grants an id writes in the same step.
            now_ms: our wall clock, the time of the first renewal.
            latest_ms: an id whose floor is later than this is taken only if there is no other; if
                it is our own, and we are not stable, we get another one and it is released.

        Raises:
            MachineBitsMismatchError: the namespace has another width or region; nothing was
                written.
            MachineIdOverflowError: all ``2^bits``, or all of the region's, are held.
            MachineIdQuarantineError: the store may have lost which instance holds which id.
            InvalidArgumentError: ``bits`` is outside its range.
            StoreError: the store refuses or cannot be reached.
        """

    @abstractmethod
    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Renew the id and raise its fence; neither is ever lowered.

        It is one atomic step, and may safely be applied twice.

        Args:
            machine_id: the id that was granted to this instance.
            now_ms: our wall clock.
            fence_ms: no id with a later time will be issued before the next call has succeeded.

        Raises:
            MachineIdLostError: another instance holds the id, or no instance does, or another call
                of this instance took it again; nothing was written.
            MachineIdQuarantineError: the store may have lost the record that another instance now
                holds it; the id's entry was not written.
            StoreError: the store refuses or cannot be reached.
        """

    async def reassert(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Renew an id whose lease is certainly valid; in a quarantine, write it again.

        Outside a quarantine it does the same as `renew`, which is the default.  In a quarantine it
        writes again what the store may have lost, and the id stays ours unless an instance that
        took it earlier also reclaims it.  It is one atomic step, and may safely be applied twice.

        Use it only for an id that was granted to this object, and only while its lease has not
        ended by the monotonic clock: until then no other instance can have been granted it.

        Args:
            machine_id: the id that was granted to this instance.
            now_ms: our wall clock.
            fence_ms: no id with a later time will be issued before the next call has succeeded.

        Raises:
            MachineIdLostError: as for `renew`; in a quarantine, an instance that took it earlier
                has reclaimed it, and the id's entry was not written.
            StoreError: the store refuses or cannot be reached.
        """
        await self.renew(machine_id, now_ms=now_ms, fence_ms=fence_ms)

    @abstractmethod
    async def release(self, machine_id: int, *, last_ms: int) -> None:
        """Release the id; does nothing if this call's owner no longer holds it.

        If a later call took the id again, after a restart or from another process with the same
        instance id, that process keeps the id and its fence.

        It is one atomic step, and may safely be applied twice.  A stable instance stays its owner.

        Args:
            machine_id: the id that was granted to this instance.
            last_ms: the time of the last id that was issued, to which the fence is lowered; -1 if
                none was issued since the id was taken, which leaves the fence as it is.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """

    async def aopen(self) -> None:
        """Prepare for this process and event loop; called whenever a lease on it is opened.

        Raises:
            ForkedError: it uses a client of the parent process.
            MachineIdInUseError: another process holds the operating system's lock on it.
        """

    async def aclose(self) -> None:
        """Release what this object has opened itself; never what the user passed in."""

    def __repr__(self) -> str:
        """Show the namespace and the instance."""
        return f"<{type(self).__name__} {self.namespace} {self.instance_id.text}>"


def check_safe_guard(safe_guard: float | None) -> float:
    """Return the safe guard that a caller names without requesting an id, in seconds; 0 for None.

    Raises:
        InvalidArgumentError: it is not a number of seconds above 0.
    """
    if safe_guard is None:
        return 0.0
    if type(safe_guard) not in {int, float} or not safe_guard > 0:
        raise InvalidArgumentError("safe_guard", safe_guard, "must be a number of seconds above 0")
    return safe_guard


def region_code_of(region: int | None, region_bits: int) -> int:
    """Return a region and its width as one number: the region's bits behind a 1; 1 for no regions.

    Raises:
        InvalidArgumentError: one is given without the other, or outside its range.
    """
    check_integer("region_bits", region_bits, at_least=0, at_most=MAX_MACHINE_BITS - 1)
    if (region is None) != (region_bits == 0):
        rule = f"is required by region_bits={region_bits}; give both or neither"
        if not region_bits:
            rule = "requires region_bits above 0; give both or neither"
        raise InvalidArgumentError("region", region, rule)
    if region is not None:
        check_integer("region", region, at_least=0, at_most=(1 << region_bits) - 1)
    return 1 << region_bits | (region or 0)


def region_ids(bits: int, region_code: int) -> range:
    """Return the machine ids of a region.

    Args:
        bits: the width of the machine ids.
        region_code: as `region_code_of` returns it.

    Raises:
        InvalidArgumentError: the width is not 1 to 31, or the region takes all of it.
    """
    size = check_machine_bits(bits)
    if not 0 < region_code < size:
        region_bits, rule = region_code.bit_length() - 1, f"must be below the {bits} machine bits"
        raise InvalidArgumentError("region_bits", region_bits, rule)
    worker_bits = bits - region_code.bit_length() + 1
    first = (region_code << worker_bits) - size
    return range(first, first + (1 << worker_bits))


def check_same_bits(namespace: str, bits: int, found: int | None, *, remedy: str = "") -> None:
    """Raise `MachineBitsMismatchError` if the recorded width differs from ``bits``."""
    if found is not None and found != bits:
        raise MachineBitsMismatchError(namespace, bits=bits, found=found, remedy=remedy)


def bits_in_use(
    namespace: str, found: int | None, holders: Iterable[str], *, what: str = "the width"
) -> MachineIdInUseError:
    """Return the error for changing width or region while an instance holds a machine id."""
    width = "" if found is None else f", {found} bits,"
    what = f"{what} of the machine ids of namespace {namespace!r}{width}"
    remedy = (
        "close these instances, and free each machine id of a dead one with "
        f"'aiocosid machines evict MACHINE_ID --namespace {quote(namespace)} --store URL'"
    )
    return MachineIdInUseError(what, holder=", ".join(holders), remedy=remedy)
