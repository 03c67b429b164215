"""Grants a namespace's machine ids on any store: read, decide, commit; repeat on conflict."""

from __future__ import annotations

import random
from collections import deque
from contextlib import nullcontext
from dataclasses import replace
from math import ceil, inf
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import anyio

from .._life import fork
from .._life.clock import SYSTEM_CLOCK
from .._life.fork import NotCopyable
from .._life.loop import running_loop
from ..abc import (
    DEFAULT_GUARD_INTERVAL,
    MachineIdDistributor,
)
from ..abc.checks import check_integer
from ..abc.leases import MachineIdOptions
from ..abc.machines import STABLE_GUARD_INTERVAL, region_code_of, region_ids
from ..abc.options import takes
from ..errors import (
    ForkedError,
    InvalidArgumentError,
    MachineIdInUseError,
    StoreUnavailableError,
)
from . import operations, rules
from .cells import ENDLESS_MS, MAX_MS, token_of
from .instance_ids import as_instance_id, namesake
from .operations import ReleaseOperation, Renewed, RenewOperation, TakeOperation, Took
from .restart import has_proof
from .restart_file import restart_file
from .rules import Decision, GrantReceipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..abc import InstanceId, MachineGrant
    from ..abc.restart import RestartPlace
    from .cells import CellBackend, ReadRequest, Snapshot

__all__ = ("CellMachineIdDistributor", "guard_ms_of", "read_cells", "transact")

MAX_MACHINE_ID: Final = 2**31 - 1
NONCE_BYTES: Final = 8

FIRST_PAUSE: Final = 0.002  # seconds after the first conflict, doubled by each further one
LONGEST_PAUSE: Final = 0.1  # seconds
LONGEST_TRY: Final = 10.0  # seconds; the timeout of a lease's calls is shorter
SPREAD: Final = 4  # doublings of the candidates for each conflict: 16 after the first
MOST_SPREAD: Final = 8  # most doublings: 256 candidates

MOST_ALARMS: Final = 9  # alarms in a row, within a second, before one counts

STAMPS_REMEMBERED: Final = 4096


def guard_ms_of(seconds: float) -> int:
    """Return the seconds of a safe guard as the milliseconds that cells store."""
    return ENDLESS_MS if seconds == inf else min(ceil(seconds * 1000), ENDLESS_MS)


def nonce() -> str:
    """Return a unique name."""
    return token_hex(NONCE_BYTES)


def twin(namespace: str, instance: str, took: Took) -> MachineIdInUseError:
    """Return the error for another process that may issue ids under our id without the store."""
    left = took.twin_ms / 1000
    return MachineIdInUseError(
        f"instance id {instance!r} of namespace {namespace!r}",
        holder=(
            "a process with a different state_dir, of which this one may be a copy; that process "
            f"may issue ids for {left:g} s more, even without the store or after a restart"
        ),
        remedy=(
            "give each process an instance id and a state_dir of its own; if that process "
            "never starts again, wait that long"
        ),
    )


async def read_cells(backend: CellBackend, namespace: str, need: ReadRequest) -> Snapshot:
    """Read a namespace's cells; see `CellBackend.read`.

    Raises:
        StoreFormatError: another version of this library keeps its cells in the store.
            CosIdError: `CellBackend.read` fails.
    """
    snapshot = await backend.read(namespace, need)
    rules.check_format(snapshot)
    return snapshot


async def transact(
    backend: CellBackend,
    namespace: str,
    need: ReadRequest,
    decide: Callable[[Snapshot, int], Decision],
    snapshot: Snapshot | None = None,
) -> tuple[Any, Snapshot]:
    """Read, decide and commit, again after each conflict; return the answer.

    It is one atomic step on the store, and may safely be applied twice.  A cancelled call may have
    taken effect.

    Args:
        backend: the store.
        namespace: the namespace of the cells.
        need: what the first read must return.
        decide: takes a snapshot and the number of conflicts so far; it may be called several times.
        snapshot: used instead of the first read.

    Returns:
        The decision's answer, and the snapshot as it is after the commit.

    Raises:
        CosIdError: the decision's error, raised after the decision's changes were written.
        StoreUnavailableError: every commit conflicted with another one.
        StoreError: the store refuses or cannot be reached.
    """
    conflicts, alarms, remembered, first = 0, 0, snapshot, need
    moving: frozenset[int] = frozenset()
    until = SYSTEM_CLOCK.monotonic() + LONGEST_TRY
    while True:
        if snapshot is None:
            snapshot = await read_cells(backend, namespace, need)
            snapshot.moving = moving
        decision = decide(snapshot, conflicts)
        if decision.need is not None:
            need, snapshot = decision.need, None
            continue
        if decision.is_alarm and alarms < MOST_ALARMS:
            # A CosId peer may have been between its two steps while this was read.  Where peers
            # move one id after the other, no single read finds all of them.
            moving |= {number for number, slot in snapshot.slots.items() if slot.is_noted}
            await SYSTEM_CLOCK.sleep(FIRST_PAUSE * (2**alarms - 1))
            alarms, snapshot = alarms + 1, None
            need = replace(need, is_complete=True, sample=0)
            continue
        if not decision.changes or await backend.commit(snapshot, decision.changes):
            if decision.error is not None:
                raise decision.error
            snapshot.moving = frozenset()
            return decision.answer, snapshot
        if snapshot is remembered:  # an outdated snapshot is not a conflict
            snapshot = remembered = None
            continue
        snapshot = None
        conflicts += 1
        # A small read is enough: the process that committed first has written what was missing.
        need = replace(first, sample=_widened(first.sample, conflicts))
        if SYSTEM_CLOCK.monotonic() > until:
            reason = f"other processes changed the machine ids of {namespace!r} at each try"
            raise StoreUnavailableError(backend.label, reason, remedy="try again")
        longest = min(FIRST_PAUSE * 2**conflicts, LONGEST_PAUSE)
        await SYSTEM_CLOCK.sleep(random.uniform(0, longest))  # noqa: S311 - no secret


def _widened(choice: int, conflicts: int) -> int:
    return min(choice << min(SPREAD * conflicts, MOST_SPREAD), 1 << MOST_SPREAD)


_slots: Final[WeakKeyDictionary[Any, dict[tuple[object, str], anyio.Lock]]] = WeakKeyDictionary()
"""One lock per backend, loop and namespace, since two grants in one process would conflict."""


def _turn(backend: CellBackend, namespace: str) -> anyio.Lock | nullcontext[None]:
    if backend.is_local:
        return nullcontext()
    locks = _slots.setdefault(backend, {})
    turn_key = running_loop(), namespace
    if turn_key not in locks:
        for stale in [key for key, lock in locks.items() if not lock.locked()]:
            del locks[stale]
        locks[turn_key] = anyio.Lock()
    return locks[turn_key]


class CellMachineIdDistributor(NotCopyable, MachineIdDistributor):
    """The machine ids of one namespace on a store, for one instance.

    A store's ``machine_id_distributor`` creates it.  Each call is one atomic step on the store: it
    reads, decides by the rules that all stores share, and writes if nothing has changed since.  A
    renewal uses what was read last, and takes one round trip.
    """

    __slots__ = (
        *("_asked", "_backend", "_fork_generation", "_foreign", "_is_unique", "_receipt", "_sent"),
        *("_snapshot", "_taken", "_token", "offline", "offline_beside_cosid", "region"),
        *("region_bits", "region_code", "restart", "state_dir", "store"),
    )

    is_remote: bool = False
    """Whether a server decides, because only the server reads the cells."""

    @takes(MachineIdOptions)
    def __init__(self, backend: CellBackend, options: MachineIdOptions, /) -> None:
        """Describe the instance; nothing is sent yet.

        Args:
            backend: the store; the caller closes it.
            options: the keyword arguments: see `MachineIdOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range, ``state_dir`` is given for an
                instance that is not stable, ``offline`` without ``state_dir``, or one of ``region``
                and ``region_bits`` without the other, or on a store that does not store them.
        """
        who, where = as_instance_id(options.instance_id), options.state_dir
        is_stable = who.stable and self.keeps_fences
        usual = STABLE_GUARD_INTERVAL if is_stable else DEFAULT_GUARD_INTERVAL
        super().__init__(
            namespace=options.namespace,
            instance_id=who,
            safe_guard=options.safe_guard,
            interval=usual if options.interval is None else options.interval,
        )
        if where is not None and not is_stable:
            rule = "requires a stable instance_id, and a store that keeps fences"
            raise InvalidArgumentError("state_dir", where, rule)
        self.region: int | None = options.region
        self.region_bits: int = options.region_bits
        self.region_code: int = region_code_of(options.region, options.region_bits)
        if options.region_bits and not self.keeps_fences:
            rule = "cannot be given on this store, which keeps no regions of a namespace"
            raise InvalidArgumentError("region", options.region, rule)
        self.state_dir: Path | None = None if where is None else Path(where)
        self.restart: RestartPlace | None = restart_file(
            options,
            interval=self.interval,
            store=backend.name,
            address=backend.address,
            namespace=self.namespace,
            instance=who.text,
        )
        self.offline: float = options.offline
        self.offline_beside_cosid: bool = options.offline_beside_cosid
        self.store: str = backend.label
        self._backend = backend
        self._is_unique = options.instance_id is None
        self._fork_generation = fork.generation
        self._forget()

    def _forget(self) -> None:
        self._token = ""  # of the last call that was granted an id
        self._asked = ""  # of the calls after it, whose answers may have been lost
        self._taken: GrantReceipt | None = None  # of that grant, unless the id was released
        self._receipt = ""  # a server's proof of that grant
        self._snapshot: Snapshot | None = None  # after the last call
        self._sent: deque[int] = deque(maxlen=STAMPS_REMEMBERED)  # stamps that this lease wrote
        self._foreign = -1  # a stamp of our own instance that this lease did not write

    @property
    def session(self) -> int:
        """The number of the session with the store; it changes at each interruption."""
        return int(getattr(self._backend, "session", 0))

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take a machine id; see `aiocosid.abc.MachineIdDistributor.distribute`.

        Raises:
            MachineBitsMismatchError: the namespace has another width or region; nothing was
                written.
            MachineIdOverflowError: all are held.
            MachineIdInUseError: a process with another ``state_dir`` may issue ids under our id
                without the store, or CosId holds ids outside our region; nothing was written.
            MachineIdQuarantineError: the store may have lost the record of who holds which id.
            StoreNotInitializedError: the store was never initialised, or has been emptied.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: the entry of this instance, or a cell of aiocosid, is damaged.
            StoreUnavailableError: the store cannot be reached.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            ForkedError: the connections belong to the parent process.
        """
        region_ids(bits, self.region_code)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("latest_ms", latest_ms, at_least=-1)
        described = self._described()
        self._asked = self._asked or nonce()
        asked = TakeOperation(
            **described,
            bits=bits,
            now_ms=now_ms,
            latest_ms=min(latest_ms, MAX_MS),
            token=self._asked,
            former=self._token,
            offline_ms=guard_ms_of(self.offline),
            beside_cosid=self.offline_beside_cosid,
            region_code=self.region_code,
        )
        took = await self.ask_take(asked)
        while took.twin_ms:
            former = self._revealed(took.former)
            if former == asked.over or not self._is_over(former):
                break
            asked = replace(asked, over=former)
            took = await self.ask_take(asked)
        if took.twin_ms:
            raise twin(self.namespace, self.instance_id.text, took)
        self._note_former(took)
        snapshot = self._snapshot
        self._forget()
        self._snapshot = snapshot
        self._token, self._receipt = took.token, took.receipt
        self._taken = GrantReceipt(took.machine_id, now_ms, bits, took.token, self.region_code)
        self._sent.append(took.stamp_ms)
        return took.grant

    def _note_former(self, took: Took) -> None:
        # If this very call wrote last, it has already taken the id, and its answer was lost.
        if self.restart is not None and not (took.is_again or took.twin_ms):
            self.restart.former = took.former

    def _revealed(self, former: str) -> str:
        restart = self.restart
        if restart is None:
            return former
        record = None if restart.found is None else restart.found.record
        known = "" if record is None else record.renewal
        return operations.revealed(former, known, restart.renewal)

    def _is_over(self, former: str) -> bool:
        """Return whether the process that last had our id has ended, or is this one."""
        restart = self.restart
        return restart is not None and has_proof(restart.found, restart.renewal, former)

    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Renew the id; see `aiocosid.abc.MachineIdDistributor.renew`.

        Raises:
            MachineIdLostError: another instance holds the id, or none does, or it was granted again
                to the same instance; nothing was written about it.
            MachineIdInUseError: another process renews the id under the same instance id.
            MachineIdQuarantineError: the store may have lost the record that another process holds
                the id.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: the id's cell is damaged; nothing was written.
            StoreUnavailableError: the store cannot be reached.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            ForkedError: the connections belong to the parent process.
        """
        await self._renew(machine_id, now_ms, fence_ms, is_valid=False)

    async def reassert(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Renew an id of a valid lease; see `aiocosid.abc.MachineIdDistributor.reassert`.

        Raises:
            CosIdError: as for `renew`; `MachineIdQuarantineError` only if this object was not
                granted the id, or has released it.
        """
        await self._renew(machine_id, now_ms, fence_ms, is_valid=True)

    async def _renew(self, machine_id: int, now_ms: int, fence_ms: int, *, is_valid: bool) -> None:
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("fence_ms", fence_ms, at_least=-1, at_most=MAX_MS)
        own = self._token or ("" if self.restart is None else token_of(self.restart.renewal))
        taken = self._taken
        if taken is not None and (taken.machine_id, taken.token) != (machine_id, own):
            taken = None
        asked = RenewOperation(
            **self._described(),
            machine_id=machine_id,
            now_ms=now_ms,
            fence_ms=fence_ms,
            token=own,
            asked=self._asked,
            bits=0 if taken is None else taken.bits,
            requested_ms=0 if taken is None else taken.requested_ms,
            is_valid=is_valid,
            receipt=self._receipt,
            region_code=1 if taken is None else taken.region_code,
        )
        done = await self.ask_renew(asked)
        self._receipt = done.receipt or self._receipt
        if self.restart is not None:
            self.restart.renewal = done.renewal

    async def release(self, machine_id: int, *, last_ms: int) -> None:
        """Release the id; see `aiocosid.abc.MachineIdDistributor.release`.

        Raises:
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: the id's cell is damaged; nothing was written.
            StoreUnavailableError: the store cannot be reached.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            ForkedError: the connections belong to the parent process.
        """
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        check_integer("last_ms", last_ms, at_least=-1, at_most=MAX_MS)
        self._snapshot = None
        if self._taken is not None and self._taken.machine_id == machine_id:
            self._taken = None
        asked = ReleaseOperation(
            **self._described(), machine_id=machine_id, last_ms=last_ms, token=self._token
        )
        await self.ask_release(asked)

    # Operations on the store; a server calls these methods, too.

    async def ask_take(self, asked: TakeOperation) -> Took:
        """Grant a machine id.

        Raises:
            CosIdError: as for `distribute`.
        """
        caller = asked.caller(nonce())

        def is_over(former: str) -> bool:
            return former == asked.over or self._is_over(former)

        def decide(snapshot: Snapshot, conflicts: int) -> Decision:
            spread = random.randrange(_widened(1, conflicts)) if conflicts else 0  # noqa: S311
            decision = operations.hand_out(asked, snapshot, caller, spread=spread, is_over=is_over)
            if decision.answer is not None:
                self._note_former(decision.answer)
            return decision

        took: Took
        async with _turn(self._backend, self.namespace):
            took, snapshot = await transact(self._backend, self.namespace, asked.need, decide)
        self._snapshot = snapshot.narrowed(took.machine_id)
        return took

    async def ask_renew(self, asked: RenewOperation) -> Renewed:
        """Renew a machine id.

        Raises:
            CosIdError: as for `renew`.
        """
        caller = asked.caller(nonce())
        known, self._snapshot = self._snapshot, None  # used only once: the call may be cancelled

        def decide(snapshot: Snapshot, _: int) -> Decision:
            decision = operations.renew(asked, snapshot, caller)
            if snapshot is not known:
                self._look_for_namesake(decision.answer)
            if asked.machine_id in decision.changes.slots:
                self._sent.append(decision.answer.stamp_ms)
            return decision

        done: Renewed
        done, snapshot = await transact(self._backend, self.namespace, asked.need, decide, known)
        self._snapshot = snapshot.narrowed(asked.machine_id)
        return done

    async def ask_release(self, asked: ReleaseOperation) -> None:
        """Release a machine id.

        Raises:
            CosIdError: as for `release`.
        """
        caller = asked.caller(nonce())
        await transact(
            self._backend,
            self.namespace,
            asked.need,
            lambda snapshot, _: operations.give_back(asked, snapshot, caller),
        )

    # Detecting that two processes use one instance id.

    def _look_for_namesake(self, done: Renewed) -> None:
        """Raise if another process with our instance id wrote two stamps in a row."""
        if self._taken is None or done.found_ms == -1 or done.found_ms in self._sent:
            return
        before, self._foreign = self._foreign, done.found_ms
        if before not in {-1, self._foreign}:
            raise namesake(self, "renews its machine id")

    # Shared by all calls.

    def _described(self) -> dict[str, Any]:
        """Return the fields of a `Requester` that describe this process."""
        self._ensure_own()
        who = self.instance_id
        return {
            "instance": who.text,
            "stable": who.stable,
            "guard_ms": guard_ms_of(self.safe_guard),
        }

    def _ensure_own(self) -> None:
        if self._fork_generation != fork.generation:
            raise ForkedError(repr(self), remedy=self._backend.fork_remedy)

    async def aopen(self) -> None:
        """Prepare for use in this process; a forked child becomes a new instance.

        The child uses connections of its own.

        Raises:
            ForkedError: the client was passed in, and belongs to the parent process.
        """
        await self._backend.aopen()
        if self._fork_generation != fork.generation:
            # The parent keeps the old name.  A name given by the user stays; if parent and child
            # both use it, the one that takes the id last has it.
            self._fork_generation = fork.generation
            self._forget()
            if self._is_unique:
                self.instance_id: InstanceId = as_instance_id(None)

    async def aclose(self) -> None:
        """Unlock the ``state_dir``; the store stays open."""
        if self.restart is not None:
            self._token = self._asked = ""  # the next opening learns again who last had the id
            await self.restart.leave()
