"""The store that all servers share: counters and machine ids over a `Backend`."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar

from .._life.clock import SYSTEM_CLOCK
from .._life.fork import NotCopyable
from ..abc import (
    DEFAULT_NAMESPACE,
    DEFAULT_STEP,
    Counter,
    MachineMarker,
    Store,
)
from ..abc.checks import check_above, check_integer, check_text
from ..abc.leases import MachineIdOptions
from ..abc.machines import NAME_WIDTH, check_safe_guard, region_code_of, region_ids
from ..abc.options import takes
from ..abc.stores import is_disposable
from ..errors import (
    CounterMissingError,
    InvalidArgumentError,
    StoreNotEmptyError,
    UnsupportedByStoreError,
)
from ..machine import administration, rules
from ..machine.cells import ENDLESS_MS, ReadRequest
from ..machine.distributor import (
    MAX_MACHINE_ID,
    CellMachineIdDistributor,
    guard_ms_of,
    nonce,
    read_cells,
    transact,
)
from ..machine.losses import doubt
from ..machine.rules import Caller, Decision
from ._url import address_of
from .counters import CounterDistributor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..abc import Machine, ServerInfo
    from ..machine.cells import Snapshot
    from .backend import Backend

    Rule: TypeAlias = Callable[[Snapshot, Caller], Decision]

__all__ = ("BackendStore", "backend_of")

logger = logging.getLogger("aiocosid")

TREATED_AS_DISPOSABLE: Final = (
    "it is treated as disposable: if it is emptied, its ids are issued again; in production unset "
    "AIOCOSID_DISPOSABLE, and create it without 'disposable'"
)

B = TypeVar("B", bound="Backend")


WHOLE: Final = ReadRequest(is_complete=True)

EVERYWHERE: Final = "cosid"
"""The namespace under which the store's marker is read."""


class BackendStore(NotCopyable, Store, Generic[B]):
    """Counters and machine ids on one server, file or cluster: the base of each store class."""

    __slots__ = ("_backend",)

    begins_counters = True

    _backend: B
    _counter: ClassVar[type[CounterDistributor]] = CounterDistributor
    _machine: ClassVar[type[CellMachineIdDistributor]] = CellMachineIdDistributor

    @classmethod
    def _on(cls, backend: B, url: str) -> Self:
        """Return the store on the backend that was made for a URL."""
        backend.address = address_of(url)
        store = cls.__new__(cls)
        store._backend = backend
        return store

    def __repr__(self) -> str:
        """Name the servers, without credentials."""
        return f"<{type(self).__name__} {self._backend.name}>"

    @property
    def durability_warnings(self) -> Sequence[str] | None:
        """The server settings that may lose what was granted; None if they are not known."""
        return self._backend.durability.durability_warnings

    async def ask_server(self) -> ServerInfo:
        """Ask the server for its version, and for settings that may lose grants.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        facts = await self._backend.ask_server()
        if self.has_witness or not (self._backend.is_disposable or is_disposable()):
            return facts
        return replace(facts, is_disposable=True)

    # Counters.

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> CounterDistributor:
        """Return a distributor on this store's connections; nothing is sent yet.

        Args:
            namespace: the counter's namespace.
            name: the counter's name in it.
            offset: where a new counter starts; the first id is ``offset + 1``.
            step: ids per segment, at least 1.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            NameTooLongError: ``{namespace}.{name}`` is longer than the store can hold.
        """
        return self._counter(
            self._backend, namespace=namespace, name=name, offset=offset, step=step
        )

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:
        """Create the tables or streams that never existed; see `aiocosid.abc.Store.create_schema`.

        A cancelled call may have taken effect; it is safe to repeat.

        Raises:
            SchemaDroppedError: tables that existed were dropped, and the store is not disposable.
            StoreNotEmptyError: the store has keys, but neither a marker nor a witness.
            StoreError: the store refuses or cannot be reached.
        """
        backend = self._backend
        given = disposable or is_disposable()
        if not await backend.create_schema(disposable=given, after_loss=after_loss):
            return
        if not (backend.has_witness or backend.is_disposable):
            backend.is_disposable = True
            logger.warning("%s: %s", backend.label, TREATED_AS_DISPOSABLE)
        with suppress(UnsupportedByStoreError):  # the store has counters only
            if not backend.has_marker:
                if not await backend.is_in_use():
                    await backend.mark_counters()
                return
            found = await read_cells(backend, EVERYWHERE, ReadRequest())
            if not rules.is_initialized(found):
                # Without a witness or a marker, nothing shows that the existing data was made for
                # tests.
                is_known = backend.has_witness or found.marker is not None
                await self.initialize(confirm_no_holders=is_known)

    @property
    def has_witness(self) -> bool:
        """Whether the store can tell data that never existed from data that was lost."""
        return self._backend.has_witness

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, ordered by name, without damaged ones.

        Args:
            namespace: only counters whose name begins with this and a dot; None for all.

        Raises:
            InvalidArgumentError: ``namespace`` is not a text that a store can hold.
            StoreError: the store refuses or cannot be reached.
        """
        if namespace:  # no counter has an empty namespace
            check_text("namespace", namespace)
        prefix = "" if namespace is None else f"{namespace}."
        found = await self._backend.counters(prefix)
        return sorted(found, key=lambda each: each.namespaced_name)

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int, create: bool = True
    ) -> Counter:
        """Raise a counter to ``above`` if it is lower; see `aiocosid.abc.Store.set_floor`.

        A cancelled call may have taken effect; it is safe to repeat.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            CounterMissingError: there is no such counter, and ``create`` is False.
            CounterNotCreatedError: ``create`` is True, but the database's table of counters was
                emptied.
            CorruptCounterError: the counter holds no integer; nothing was written.
            IdOverflowError: the table's column is too narrow for it; nothing was written.
            StoreError: the store refuses or cannot be reached.
        """
        check_above(above)
        key = self.segment_distributor(namespace=namespace, name=name).namespaced_name
        counter = await self._backend.raise_to(key, above, create=create)
        if counter is None:
            raise CounterMissingError(self._backend.label, counter=key)
        return counter

    async def begin_counter(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, offset: int = 0
    ) -> int:
        """Create a counter whose first id is ``offset + 1``, and return its last id.

        Like the first call for ids, this creates the counter only if the store has its marker; an
        existing counter is left unchanged.  This is one atomic step and safe to repeat.  A
        cancelled call may have taken effect.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            CounterNotCreatedError: the store was emptied or never initialised.
            StoreError: the store refuses or cannot be reached.
        """
        counter = self.segment_distributor(namespace=namespace, name=name, offset=offset)
        return await self._backend.begin(counter.namespaced_name, offset)

    # Machine ids.

    @takes(MachineIdOptions)
    def machine_id_distributor(self, options: MachineIdOptions, /) -> CellMachineIdDistributor:
        """Return a distributor of machine ids on this store's connections; nothing is sent yet.

        Args:
            options: the keyword arguments of `MachineIdOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range, or ``state_dir`` is given for an
                instance that is not stable, or on a store that keeps no fences.
        """
        return self._machine(self._backend, **vars(options))

    async def machines(self, *, namespace: str | None = None) -> Sequence[Machine]:
        """Return all machine ids that were ever granted, by namespace and number.

        Raises:
            InvalidArgumentError: the namespace is not a text, or is too long.
            CorruptMachineStateError: one of aiocosid's cells is damaged.
            StoreError: the store refuses or cannot be reached.
        """
        found = await self._snapshots(namespace)
        return [each for snapshot in found for each in rules.list_machines(snapshot)]

    async def evict_machine(self, *, namespace: str = DEFAULT_NAMESPACE, machine_id: int) -> None:
        """Evict the holder of a machine id, which must no longer run; the id's fence stays.

        A cancelled call may have taken effect.

        Raises:
            InvalidArgumentError: the id is not held, or an argument is outside its range.
            StoreError: the store refuses or cannot be reached.
        """
        _check_namespace(namespace)
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        owner: list[object] = []

        def decide(snapshot: Snapshot, _: int) -> Decision:
            slot = snapshot.slots.get(machine_id)
            found = (slot.holders, slot.record and slot.record.token) if slot is not None else None
            if owner and found != owner[0]:
                return Decision()  # already applied; a new holder of the id keeps it
            owner[:] = [found]
            return rules.take_away(snapshot, machine_id)

        await transact(self._backend, namespace, ReadRequest(machine_id=machine_id), decide)

    async def raise_machine_fence(
        self, *, namespace: str = DEFAULT_NAMESPACE, machine_id: int, above_ms: int
    ) -> bool:
        """Raise the fence of a machine id; see `aiocosid.abc.Store.raise_machine_fence`.

        A cancelled call may have taken effect; it is safe to repeat.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            CorruptMachineStateError: the id's cell is damaged; nothing was written.
            StoreError: the store refuses or cannot be reached.
        """
        _check_namespace(namespace)
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        check_integer("above_ms", above_ms, at_least=0)
        latest_ms = SYSTEM_CLOCK.now_ms() + rules.MOST_AHEAD_MS
        if above_ms > latest_ms:
            rule = (
                f"must be at most {latest_ms}, a day ahead: no id is made until then, and nothing "
                "lowers it"
            )
            raise InvalidArgumentError("above_ms", above_ms, rule)
        is_raised: bool = await self._change(
            namespace,
            lambda snapshot, _: rules.raise_mark(snapshot, machine_id, above_ms),
            need=ReadRequest(machine_id=machine_id),
        )
        return is_raised

    async def repair_machines(self, *, namespace: str = DEFAULT_NAMESPACE) -> Sequence[Machine]:
        """Repair machine ids whose times are far ahead; see `aiocosid.abc.Store.repair_machines`.

        A cancelled call may have taken effect; it is safe to repeat.

        Raises:
            InvalidArgumentError: the namespace is not a text, or is too long.
            CorruptMachineStateError: one of aiocosid's cells is damaged.
            StoreError: the store refuses or cannot be reached.
        """
        _check_namespace(namespace)
        rule = partial(administration.repair, clock_ms=SYSTEM_CLOCK.now_ms())
        found: list[Machine] = await self._change(namespace, rule)
        return found

    async def machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE) -> int | None:
        """Return the width of a namespace's machine ids in bits, or None if none is stored yet.

        Raises:
            InvalidArgumentError: the namespace is not a text, or is too long.
            CorruptMachineStateError: the namespace's cell is damaged.
            StoreError: the store refuses or cannot be reached.
        """
        _check_namespace(namespace)
        space = (await read_cells(self._backend, namespace, ReadRequest())).space
        return space.bits or None if space is not None else None

    async def set_machine_bits(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        bits: int,
        region: int | None = None,
        region_bits: int = 0,
    ) -> None:
        """Change the width of a namespace's machine ids, and its region, while none is held.

        A cancelled call may have taken effect.

        Raises:
            MachineIdInUseError: a machine id is held; nothing was written.
            MachineIdQuarantineError: the store may have lost the record of a holder.
            InvalidArgumentError: an argument is outside its range.
            CorruptMachineStateError: a cell is damaged; nothing was written.
            StoreError: the store refuses or cannot be reached.
        """
        _check_namespace(namespace)
        code = region_code_of(region, region_bits)
        region_ids(bits, code)
        rule = partial(administration.set_bits, bits=bits, region_code=code)
        await self._change(namespace, rule)

    async def is_initialized(self) -> bool:
        """Return whether the store has a marker, written for the store as it is now.

        Raises:
            UnsupportedByStoreError: the store keeps no machine ids, or has no single marker for all
                of them.
            StoreError: the store refuses, cannot be reached, or hides its identity.
        """
        if not self._backend.has_marker:
            reason = "no commit spans its namespaces"
            remedy = "run 'aiocosid init --store URL --namespace NAMESPACE' for each"
            raise UnsupportedByStoreError(type(self).__name__, reason, remedy=remedy)
        return rules.is_initialized(await read_cells(self._backend, EVERYWHERE, ReadRequest()))

    async def initialize(
        self, *, confirm_no_holders: bool = False, after_loss: bool = False
    ) -> None:
        """Write the store's marker; see `aiocosid.abc.Store.initialize`.

        On Redis Cluster this lets counters be created; each namespace of machine ids has its own
        marker, see `initialize_namespace`.  A cancelled call may have taken effect.

        Raises:
            StoreNotEmptyError: the store has keys, and neither argument was given.
            UnsupportedByStoreError: the store keeps no machine ids.
            StoreError: the store refuses, cannot be reached, or hides its identity.
        """
        backend = self._backend
        if not (confirm_no_holders or after_loss):
            is_done = self.is_initialized if backend.has_marker else backend.is_counting
            if await is_done():
                return
            if await backend.is_in_use():
                raise StoreNotEmptyError(backend.label)
        is_loss = after_loss and not confirm_no_holders
        if backend.has_marker:
            rule = partial(administration.mark_store, after_loss=is_loss)
            await self._change(EVERYWHERE, rule, need=ReadRequest(namespaces=True))
            return
        for name in await backend.namespaces() if is_loss else ():
            await self._change(name, lambda snapshot, _: doubt(snapshot))
        await backend.mark_counters()

    async def forget_namespace(self, *, namespace: str) -> bool:
        """Forget that a namespace existed; see `aiocosid.abc.Store.forget_namespace`.

        A cancelled call may have taken effect.

        Raises:
            InvalidArgumentError: the namespace still has machine ids, is not a text, or is too
                long.
            StoreError: the store refuses or cannot be reached.
        """
        _check_namespace(namespace)
        is_forgotten: bool = await self._change(
            namespace,
            lambda snapshot, _: administration.forget(snapshot),
            need=ReadRequest(is_complete=True, namespaces=True),
        )
        return is_forgotten

    async def initialize_namespace(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        confirm_no_holders: bool = False,
        safe_guard: float | None = None,
    ) -> MachineMarker:
        """Confirm that one namespace is complete: the store has lost none of its machine ids.

        Use it on Redis Cluster, where `initialize` covers no namespace, or for a single namespace.
        See `aiocosid.abc.Store.initialize_namespace`.  A cancelled call may have taken effect.

        Raises:
            InvalidArgumentError: the namespace is not a text or is too long, or the safe guard is
                not a valid time.
            CorruptMachineStateError: a cell is damaged; nothing was written.
            StoreError: the store refuses, cannot be reached, or hides its identity.
        """
        _check_namespace(namespace)
        guard_ms = guard_ms_of(check_safe_guard(safe_guard))
        rule = partial(administration.mark, confirm_no_holders=confirm_no_holders)
        marker: MachineMarker = await self._change(namespace, rule, guard_ms=guard_ms)
        if marker.is_created and not self._backend.has_marker:
            await self._backend.mark_counters()
        return marker

    async def machine_markers(self, *, namespace: str | None = None) -> Sequence[MachineMarker]:
        """Return the markers by namespace, without namespaces that have none.  Writes nothing.

        Args:
            namespace: return only this namespace's marker; None for all.

        Raises:
            InvalidArgumentError: the namespace is not a text, or is too long.
            CorruptMachineStateError: a cell is damaged.
            StoreError: the store refuses or cannot be reached.
        """
        return [
            MachineMarker(
                namespace=each.namespace,
                seconds_left=rules.seconds_left(each),
                safe_guard=_safe_guard(each),
            )
            for each in await self._snapshots(namespace)
            if each.space is not None or each.is_marked
        ]

    async def clock_ms(self) -> int:
        """Return the time on the store's clock: unix time in milliseconds.

        Raises:
            UnsupportedByStoreError: this store has no clock to read, or keeps no machine ids.
            StoreError: the store refuses or cannot be reached.
        """
        if not (self._backend.has_clock and self._backend.has_marker):
            raise UnsupportedByStoreError(type(self).__name__, "it does not report its time")
        return (await read_cells(self._backend, EVERYWHERE, ReadRequest())).now_ms

    async def _change(
        self, namespace: str, rule: Rule, *, need: ReadRequest = WHOLE, guard_ms: int = 0
    ) -> Any:  # noqa: ANN401 - the rule's answer
        """Apply a rule's decision for a caller that is not an instance."""
        caller = Caller("", guard_ms=guard_ms, nonce=nonce())
        answer, _ = await transact(
            self._backend, namespace, need, lambda found, _: rule(found, caller)
        )
        return answer

    async def _snapshots(self, namespace: str | None) -> list[Snapshot]:
        if namespace is None:
            names = sorted(await self._backend.namespaces())
        else:
            _check_namespace(namespace)
            names = [namespace]
        return [await read_cells(self._backend, name, WHOLE) for name in names]

    # Lifecycle.

    async def aopen(self) -> None:
        """Get ready in this process; connections are opened on first use.

        Raises:
            ForkedError: the client was passed in and belongs to the parent process.
        """
        await self._backend.aopen()

    async def aclose(self) -> None:
        """Close the connections that were created from a URL; a user's client stays open.

        Raises:
            WrongLoopError: the connections are in use on another event loop.
        """
        await self._backend.aclose()


def backend_of(store: BackendStore[B]) -> B:
    """Return the backend of a store."""
    return store._backend


def _safe_guard(found: Snapshot) -> float | None:
    """Return the longest safe guard on record, in seconds."""
    if found.space is None or not found.space.guard_ms:
        return None
    return inf if found.space.guard_ms >= ENDLESS_MS else found.space.guard_ms / 1000


def _check_namespace(namespace: str) -> None:
    check_text("namespace", namespace, at_most=NAME_WIDTH)
