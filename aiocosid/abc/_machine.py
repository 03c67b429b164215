"""The contract of who hands out machine ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING, Final

from .._checks import MAX_MACHINE_BITS, check_machine_bits, check_text
from .._later import dataclass
from ..errors import InvalidArgumentError, MachineBitsMismatchError, MachineIdInUseError
from ._ids import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = (
    "DEFAULT_GUARD_INTERVAL",
    "DEFAULT_SAFE_GUARD",
    "INSTANCE_ID_WIDTH",
    "MAX_MACHINE_BITS",
    "QUARANTINE_MARGIN",
    "RELEASE_MARGIN",
    "WIDTH_EXPECTED",
    "InstanceId",
    "Machine",
    "MachineGrant",
    "MachineIdDistributor",
    "bits_in_use",
    "check_machine_bits",
    "check_safe_guard",
    "check_same_bits",
)

DEFAULT_SAFE_GUARD: Final = 300.0
"""Seconds; CosId's safe guard duration (``cosid.machine.guarder.safe-guard-duration``, PT5M)."""

DEFAULT_GUARD_INTERVAL: Final = 60.0
"""Seconds; CosId's guarder runs as often."""

QUARANTINE_MARGIN: Final = 5.0
"""Seconds that a quarantine is longer than the longest safe guard that was named."""

RELEASE_MARGIN: Final = 1.0
"""Seconds above its mark: the stamp of an id that was released early."""

NAME_WIDTH: Final = 91
"""Characters; ``{namespace}.{8 digits}`` has to fit CosId's varchar(100)."""

INSTANCE_ID_WIDTH: Final = 100
"""Characters; CosId's varchar(100)."""

WIDTH_EXPECTED: Final = f"a number of machine bits, 1 to {MAX_MACHINE_BITS}"
"""What a note on the width of a namespace has to be."""


@dataclass(frozen=True, slots=True)
class InstanceId:
    """Who holds a machine id: CosId's instance id.

    Attributes:
        text: `host:port`, or any text of 1 to 100 characters that no other instance has.
        stable: whether the same instance comes back under the same text, as a StatefulSet's pod
            does.  A stable instance keeps its machine id when it is closed, and this library gives
            it to no other instance, however long this one is silent.  CosId on Java may.
    """

    text: str
    stable: bool = False


@dataclass(frozen=True, slots=True)
class MachineGrant:
    """A machine id that was handed out.

    Attributes:
        machine_id: 0 to ``2^bits - 1``.
        floor_ms: unix time in milliseconds that every id's time has to be *above*: the highest of
            the former owner's last sign of life and time mark; -1 if nobody had it before.
    """

    machine_id: int
    floor_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine id as it lies in a store.

    Attributes:
        namespace: where it counts.
        machine_id: the number.
        instance_id: who holds it; empty if it was given back.
        last_timestamp_ms: the holder's last sign of life, unix time in milliseconds.
        mark_ms: no id was issued with a later time; -1 where the holder keeps no mark (CosId's).
        stable: whether the holder told us that it is stable; CosId keeps no note of it.
    """

    namespace: str
    machine_id: int
    instance_id: str
    last_timestamp_ms: int
    mark_ms: int = -1
    stable: bool = False


class MachineIdDistributor(ABC):
    """Hands out the machine ids of one namespace, each to one instance at a time.

    It is the store's side alone: one atomic step a call, no clock and no task of its own.
    `aiocosid.machine.MachineIdLease` calls it, and knows how long an id may be used.  Check your
    own with `aiocosid.testing.MachineIdDistributorContract`.

    A store may forget: it is emptied, restored, or fails over to a replica that lags.  So the
    namespace has a *marker* in it, with the store's *identity*, which the same atomic step looks at
    first.  If it is missing, or names another identity than the store has now, a **quarantine**
    begins, in that step:

    * It ends when the longest safe guard that was ever named in the namespace, and
      `QUARANTINE_MARGIN`, have passed since its beginning by the *store's* clock.  The marker
      remembers it, before an id is handed out for it; one that is missing knows nothing, and then
      those count who call in the quarantine.  The first call after that marks the store as sound.
    * Until then nobody is handed an id, whatever the store says: `distribute` is
      `MachineIdQuarantineError`.
    * Whoever holds an id, and knows that it is still good, says so by `reassert`, which writes all
      that the store may have forgotten.
    * Of two instances that assert one id the earlier keeps it: the one whose `distribute` was
      called with the lower ``now_ms``, then the one with the lower text.  The other is told by
      `MachineIdLostError`, at once or at its next call.  Of two lives under one text the later has
      it.  What the store says of somebody who has not asserted it in this quarantine counts for
      nothing, but for a Java peer's sign of life since it began: CosId does not observe it, and
      would not yield; and for an id that was handed out before anybody could notice, as on a
      ZooKeeper that was put back: who has it is not silent, the former holder is.

    Attributes:
        namespace: groups the machines of one system.
        instance_id: who asks.
        safe_guard: seconds without a sign of life after which an id whose owner is not stable may
            be handed to somebody else; CosId's default is 300.
        interval: seconds between two signs of life.
    """

    __slots__ = ("__weakref__", "instance_id", "interval", "namespace", "safe_guard")

    store: str = "store"
    """The kind of store, for error messages."""

    is_leased: bool = True
    """Whether an id is lost without a sign of life; False where a lock of the system holds it."""

    keeps_marks: bool = True
    """Whether whoever is handed an id begins above the former owner's time mark.

    False where the mark is not kept, so that the clocks alone tell: no id may be ahead of its
    clock then, and borrowing is refused.
    """

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> None:
        """Describe who asks; nothing is sent yet.

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
            raise InvalidArgumentError("interval", interval, expected="seconds, above 0")
        if not safe_guard > 3 * interval:
            expected = f"seconds, above three intervals of {interval:g} s"
            raise InvalidArgumentError("safe_guard", safe_guard, expected=expected)
        self.namespace: str = namespace
        self.instance_id: InstanceId = instance_id
        self.safe_guard: float = safe_guard
        self.interval: float = interval

    @property
    def session(self) -> int:
        """Another number each time that the session with the store was interrupted.

        A lease is silent from that very moment, until a sign of life that was sent after it has
        succeeded.  Always the same where there is no session (the default).  Never waits.
        """
        return 0

    @abstractmethod
    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take a machine id: the own one, else one given back, else a new one, else an expired one.

        One atomic step.  Safe to be applied twice: the second time the instance finds its own.  A
        cancelled call may have taken effect; the id is found again by the same instance, and is
        recycled after the safe guard duration otherwise.

        Args:
            bits: width of the machine id, 1 to 31; all of a namespace use one width, which the
                first call that hands an id out notes in the same step.
            now_ms: our wall clock, the first sign of life.
            latest_ms: an id that has to wait for a later floor is taken only if there is no other;
                if it is our own, and we are not stable, it is given back then.

        Raises:
            MachineBitsMismatchError: another width is noted; nothing was written.
            MachineIdOverflowError: all ``2^bits`` are held.
            MachineIdQuarantineError: the store may have forgotten who holds which.
            InvalidArgumentError: ``bits`` is outside its range.
            StoreError: the store refuses or cannot be reached.
        """

    @abstractmethod
    async def guard(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Give a sign of life, and raise the time mark; never lowers either.

        One atomic step, safe to be applied twice.

        Args:
            machine_id: the one that was handed out to this instance.
            now_ms: our wall clock.
            mark_ms: no id with a later time will be issued before the next call has succeeded.

        Raises:
            MachineIdLostError: somebody else holds the id, or nobody, or the instance was handed it
                again by another call; nothing was written.
            MachineIdQuarantineError: the store may have forgotten that somebody else has it by now;
                nothing was written of the id.
            StoreError: the store refuses or cannot be reached.
        """

    async def reassert(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Give a sign of life for an id that is surely ours: in a quarantine, take it back.

        As `guard`, which it is where this method is not overridden, but in a quarantine: there the
        store is told again what it may have forgotten, and the id stays ours if nobody who took it
        earlier asserts it too.  One atomic step, safe to be applied twice.

        Only for an id that was handed out to this object, and only while its lease has not ended,
        by a clock that nobody sets: until then nobody else can have been handed it.

        Args:
            machine_id: the one that was handed out to this instance.
            now_ms: our wall clock.
            mark_ms: no id with a later time will be issued before the next call has succeeded.

        Raises:
            MachineIdLostError: as for `guard`; in a quarantine somebody who took it earlier asserts
                it, and nothing was written of the id.
            StoreError: the store refuses or cannot be reached.
        """
        await self.guard(machine_id, now_ms=now_ms, mark_ms=mark_ms)

    @abstractmethod
    async def revert(self, machine_id: int, *, last_ms: int) -> None:
        """Give the id back; does nothing if it is not ours any more.

        Nor if the instance was handed it again by another call, of a later life or of a process of
        the same name: that one keeps the id, and its mark.

        One atomic step, safe to be applied twice.  A stable instance stays its owner.

        Args:
            machine_id: the one that was handed out to this instance.
            last_ms: no id with a later time was issued: the mark is lowered to it; -1 if none was
                issued at all since the id was taken, which leaves the mark as it is.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """

    async def aopen(self) -> None:
        """Get ready in this process and loop; called whenever a lease on it is opened.

        Raises:
            ForkedError: it lives on a client of the parent process.
            MachineIdInUseError: a lock of the system is held by another process.
        """

    async def aclose(self) -> None:
        """Release what this object has opened itself; never what the user passed in."""

    def __repr__(self) -> str:
        """Name the namespace and who asks."""
        return f"<{type(self).__name__} {self.namespace} {self.instance_id.text}>"


def check_safe_guard(safe_guard: float | None) -> float:
    """Return what somebody names who asks for no id, in seconds; 0 for nothing.

    Raises:
        InvalidArgumentError: it is no time.
    """
    if safe_guard is None:
        return 0.0
    if type(safe_guard) not in {int, float} or not safe_guard > 0:
        raise InvalidArgumentError("safe_guard", safe_guard, expected="seconds, above 0")
    return safe_guard


def check_same_bits(namespace: str, bits: int, found: int | None, *, remedy: str = "") -> None:
    """Raise `MachineBitsMismatchError` if another width is noted than ``bits``."""
    if found is not None and found != bits:
        raise MachineBitsMismatchError(namespace, bits=bits, found=found, remedy=remedy)


def bits_in_use(namespace: str, found: int | None, holders: Iterable[str]) -> MachineIdInUseError:
    """Return the error for a width that is to be changed while somebody holds a machine id."""
    width = "" if found is None else f", {found} bits"
    what = f"the width of the machine ids of namespace {namespace!r}{width},"
    remedy = "close them, and free what dead ones hold by 'aiocosid machines revert'"
    return MachineIdInUseError(what, holder=f"{', '.join(holders)}; {remedy}")
