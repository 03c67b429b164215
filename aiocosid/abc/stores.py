"""The contract of a store: what ``connect(url)`` and the command line work on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from ..errors import UnsupportedByStoreError
from ._ids import DEFAULT_NAMESPACE, DEFAULT_STEP, IdSegmentDistributor
from .leases import MachineIdOptions
from .options import takes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from .machines import Machine, MachineIdDistributor

__all__ = ("Counter", "MachineMarker", "MachineStore", "ServerInfo", "Store")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineMarker:
    """What a store's marker says about the machine ids of one namespace.

    Attributes:
        namespace: its namespace.
        is_created: whether this call has written it, for the store's current identity.
        seconds_left: above 0 in a quarantine: seconds until it ends, by the store's clock; ``inf``
            if it does not end by itself.
        safe_guard: the longest safe guard of any instance so far, in seconds; ``inf`` for ids that
            are never recycled; None if there was none, or if it was not read.
    """

    namespace: str
    is_created: bool = False
    seconds_left: float = 0.0
    safe_guard: float | None = None

    @property
    def is_quarantined(self) -> bool:
        """Whether a quarantine runs, in which no machine id is granted."""
        return self.seconds_left > 0


class MachineStore:
    """The machine ids of a store; a custom store may have none.

    A store that keeps none itself passes the calls on to its `_holder`.
    """

    __slots__ = ()

    @takes(MachineIdOptions)
    def machine_id_distributor(self, options: MachineIdOptions, /) -> MachineIdDistributor:
        """Return a distributor of machine ids on this store's connections; nothing is sent yet.

        Args:
            options: the keyword arguments: see `MachineIdOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            UnsupportedByStoreError: this store has no machine ids.
        """
        return self._holder().machine_id_distributor(**vars(options))

    async def machines(self, *, namespace: str | None = None) -> Sequence[Machine]:
        """Return all machine ids that were ever granted, sorted by namespace and number.

        Args:
            namespace: return only those of this namespace; None for all.

        Raises:
            CorruptMachineStateError: an entry is damaged.
            StoreError: the store refuses or cannot be reached.
        """
        return await self._holder().machines(namespace=namespace)

    async def evict_machine(self, *, namespace: str = DEFAULT_NAMESPACE, machine_id: int) -> None:
        """Take a machine id from its owner: for a stable instance that will not come back.

        The fence stays, so the next owner begins above it.  The owner must have stopped.

        Raises:
            InvalidArgumentError: no instance holds the id.
            StoreError: the store refuses or cannot be reached.
        """
        await self._holder().evict_machine(namespace=namespace, machine_id=machine_id)

    async def raise_machine_fence(
        self, *, namespace: str = DEFAULT_NAMESPACE, machine_id: int, above_ms: int
    ) -> bool:
        """Let the next owner of a machine id begin above a time; never lowers anything.

        It is for a store that lost writes.  It is one atomic step, safe to repeat.  The current
        holder, if any, keeps the id and continues; if it is dead, its id expires at the earliest a
        safe guard after that time.

        Args:
            namespace: the namespace.
            machine_id: 0 to 2^31-1.  A number that no instance ever had counts as released from
                then on; raise such numbers in ascending order, without gaps.
            above_ms: no existing id has a later time; unix time in milliseconds, at least 0 and at
                most a day ahead of this process's clock.  Until then the next owner waits.

        Returns:
            Whether the next owner would have begun earlier.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            CorruptMachineStateError: the id's entry is damaged; nothing was written.
            UnsupportedByStoreError: this store has no machine ids, or keeps no fences.
            StoreError: the store refuses or cannot be reached.
        """
        return await self._holder().raise_machine_fence(
            namespace=namespace, machine_id=machine_id, above_ms=above_ms
        )

    async def repair_machines(self, *, namespace: str = DEFAULT_NAMESPACE) -> Sequence[Machine]:
        """Lower what a wrong clock has written far ahead, so that machine ids are usable again.

        A fence or a renewal more than a day ahead keeps a machine id from every next owner.  Those
        of free ids are set to a minute ahead.  An id that is held is left unchanged: first stop its
        holder, and take the id away with `evict_machine`.  It is one atomic step, safe to repeat.

        Args:
            namespace: the namespace.

        Returns:
            The machine ids that were too far ahead, as they were; those without an ``instance_id``
            were repaired.

        Raises:
            CorruptMachineStateError: an entry is damaged.
            StoreError: the store refuses or cannot be reached.
        """
        return await self._holder().repair_machines(namespace=namespace)

    async def machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE) -> int | None:
        """Return the width of a namespace's machine ids, or None if none is recorded yet.

        Raises:
            CorruptMachineStateError: the record is damaged.
            StoreError: the store refuses or cannot be reached.
        """
        return await self._holder().machine_bits(namespace=namespace)

    async def set_machine_bits(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        bits: int,
        region: int | None = None,
        region_bits: int = 0,
    ) -> None:
        """Change the width of a namespace's machine ids permanently, while no instance holds one.

        It is one atomic step, safe to repeat.  The caller must make sure that the new layout
        repeats no id of the old one.

        Args:
            namespace: the namespace.
            bits: the new width, 1 to 31; the current one changes nothing.
            region: the region that this store has from now on; None for no regions.
            region_bits: how many of the bits name the region.

        Raises:
            MachineIdInUseError: an instance holds a machine id, whether it runs or not; nothing was
                written.
            MachineIdQuarantineError: the store may have lost the record of who holds one.
            InvalidArgumentError: an argument is outside its range.
            StoreError: the store refuses or cannot be reached.
        """
        await self._holder().set_machine_bits(
            namespace=namespace, bits=bits, region=region, region_bits=region_bits
        )

    async def is_initialized(self) -> bool:
        """Tell whether the store has a marker with its current identity: then it has lost nothing.

        Raises:
            UnsupportedByStoreError: this store keeps no marker for all namespaces.
            StoreError: the store refuses, cannot be reached, or hides its identity.
        """
        return await self._holder().is_initialized()

    async def initialize(
        self, *, confirm_no_holders: bool = False, after_loss: bool = False
    ) -> None:
        """Write the store's marker, which says that it has lost nothing.

        From then on counters may be created and every namespace may start; running quarantines end.
        A store that was never initialised and one that was emptied look alike, so do not call it at
        every start, or it would vouch for a store that was just emptied.  A store that already has
        a marker stays as it is unless an argument is given.  It is one atomic step, safe to repeat;
        a cancelled call may have taken effect.

        Where no commit spans all namespaces, as on Redis Cluster, it lets counters be created and
        initializes no namespace; use `initialize_namespace` for that.

        Args:
            confirm_no_holders: write it even if the store has counters or machine ids.  The caller
                must know that no process that was started before holds a machine id, and that no
                counter is lower than an id that was handed out.
            after_loss: write it even though the store has lost something: counters may be created,
                and the machine ids of every namespace are in quarantine for the longest safe guard.

        Raises:
            StoreNotEmptyError: the store has counters or machine ids, and neither argument is
                given.
            UnsupportedByStoreError: this store keeps no marker.
            StoreError: the store refuses, cannot be reached, or hides its identity.
        """
        await self._holder().initialize(
            confirm_no_holders=confirm_no_holders, after_loss=after_loss
        )

    async def forget_namespace(self, *, namespace: str) -> bool:
        """Stop counting a namespace as missing whose machine ids were removed on purpose.

        The store counts its namespaces, and begins a quarantine if one has disappeared.

        Returns:
            Whether a namespace was missing.

        Raises:
            InvalidArgumentError: the namespace still has machine ids.
            UnsupportedByStoreError: this store keeps no machine ids.
            StoreError: the store refuses or cannot be reached.
        """
        return await self._holder().forget_namespace(namespace=namespace)

    async def initialize_namespace(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        confirm_no_holders: bool = False,
        safe_guard: float | None = None,
    ) -> MachineMarker:
        """Write the marker of one namespace, which says that the store has lost nothing of it.

        Use it for one namespace alone, or where `initialize` initializes none, as on Redis Cluster.
        Do not call it at every start, or it would vouch for a store that was just emptied.  It is
        one atomic step, safe to repeat.

        It writes a missing marker.  It does not replace a marker of another identity: then a
        quarantine begins, as in `MachineIdDistributor.distribute` with the given safe guard.  A
        running quarantine continues.

        The marker records the longest safe guard so far, including those of leases, and a
        quarantine lasts that long.  So ``safe_guard`` is only needed before the first lease with it
        is opened, or with ``confirm_no_holders``: only ``confirm_no_holders`` discards a longer
        one.

        Args:
            namespace: the namespace of the machine ids.
            confirm_no_holders: write the marker in any case, and end a quarantine.  The caller must
                know that no process that was started before holds a machine id.
            safe_guard: the longest one of all instances in the namespace, in seconds, above 0;
                ``inf`` for ids that are never recycled.  None leaves the recorded one; if there is
                none, a quarantine lasts `DEFAULT_SAFE_GUARD`, or the first safe guard that a call
                during it names.

        Returns:
            The marker as it is now.

        Raises:
            InvalidArgumentError: the namespace is not a text or is too long, or the safe guard is
                not a number of seconds.
            StoreError: the store refuses, cannot be reached, or hides its identity.
        """
        return await self._holder().initialize_namespace(
            namespace=namespace, confirm_no_holders=confirm_no_holders, safe_guard=safe_guard
        )

    async def machine_markers(self, *, namespace: str | None = None) -> Sequence[MachineMarker]:
        """Return the markers that exist, sorted by namespace; writes nothing.

        Args:
            namespace: return only the one of this namespace; None for all.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        return await self._holder().machine_markers(namespace=namespace)

    async def clock_ms(self) -> int:
        """Return the time by the store's clock, unix time in milliseconds.

        Raises:
            UnsupportedByStoreError: this store has no clock.
            StoreError: the store refuses or cannot be reached.
        """
        return await self._holder().clock_ms()

    def _holder(self) -> MachineStore:
        """Return the store that keeps the machine ids on behalf of this one.

        Raises:
            UnsupportedByStoreError: there is none (the default).
        """
        raise UnsupportedByStoreError(type(self).__name__, "this store hands out no machine ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """One counter as a store has it.

    Attributes:
        namespaced_name: ``{namespace}.{name}``.
        last_max_id: the last max id that was granted; the next id is above it.
        last_fetch_time: unix time in seconds of the last fetch, or None where the store keeps none.
    """

    namespaced_name: str
    last_max_id: int
    last_fetch_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a server reports about itself.

    Attributes:
        version: its name and version, for example ``Redis 8.2.1``; empty if it does not tell.
        durability_warnings: one text for each setting with which it may lose grants: its value,
            what may be lost, and what to set.  None if it was not asked for such settings.
        unproved: one text for each setting that matters and cannot be read.  The server is proved
            to keep its grants only if this and ``durability_warnings`` are both empty.
        migrators: the tables in which migration tools keep their state, alongside the store's own;
            such a tool may drop or empty tables that it does not know.
        is_disposable: whether the store was made for tests, so that what is dropped is created
            again; on a store without a witness, whether this process treats it so.
    """

    version: str
    durability_warnings: Sequence[str] | None = None
    unproved: Sequence[str] = ()
    migrators: Sequence[str] = ()
    is_disposable: bool = False


def is_disposable() -> bool:
    """Return whether new stores are for tests, by ``AIOCOSID_DISPOSABLE`` in the environment.

    The pytest plugin sets it to 1 unless it is already set.

    Raises:
        InvalidSettingsError: the variable is not a truth value.
    """
    from .variables import DISPOSABLE, Variables  # noqa: PLC0415 - needed to create alone

    return Variables.read().flag(DISPOSABLE)


class Store(MachineStore, ABC):
    """One server or file that keeps many counters; what ``connect(url)`` and the CLI work on.

    It is created with your own client, which it never closes, or from a URL.
    """

    __slots__ = ()

    begins_counters: ClassVar[bool] = False
    """Whether a counter of any name is created on first use.  In other systems' tables (the
    default) an operator creates each one."""

    @property
    def durability_warnings(self) -> Sequence[str] | None:
        """The settings of the server with which it may lose what it has granted.

        None if they have not been checked yet, for example before the first call, or cannot be.
        """
        return None

    @property
    def has_witness(self) -> bool:
        """Whether the store can tell what was never there from what was lost.

        Then creating it repeatedly is safe.  It is False by default, and if a part has none.
        """
        parts = self.parts
        return bool(parts) and all(each.has_witness for each in parts)

    @property
    def parts(self) -> Sequence[Store]:
        """The stores that this one consists of; none for a store of one server (the default)."""
        return ()

    async def ask_server(self) -> ServerInfo:
        """Ask the server for its version, and for settings with which it may lose grants.

        It writes nothing, and reads no counter and no machine id.

        Raises:
            UnsupportedByStoreError: this store has no way to ask (the default), or several servers.
            StoreError: the store refuses or cannot be reached.
        """
        raise UnsupportedByStoreError(type(self).__name__, "it cannot ask its server for a version")

    @abstractmethod
    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> IdSegmentDistributor:
        """Return a distributor on this store's connections; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the name is too long.
        """

    @abstractmethod
    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:
        """Create tables or streams that were never there; does nothing on a store without any.

        A store with a witness is complete the first time, and needs no `initialize`.  Tables that
        another program made are used as they are.

        Args:
            disposable: if this call creates the store, it becomes one for tests: whatever is lost
                in it is created and vouched for again.  On a store without a witness each call must
                say so, and is refused if there are keys without a marker.
                ``AIOCOSID_DISPOSABLE=1`` in the environment does the same.
            after_loss: also create what was there and is lost; see `initialize`.  Before that, a
                database's marker is deleted.

        Raises:
            SchemaDroppedError: tables were dropped, and the store is not disposable.
            StoreNotEmptyError: a disposable store was requested, but the store has keys without a
                marker, and no witness.
            StoreError: the store refuses or cannot be reached.
        """

    @abstractmethod
    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, ordered by name.

        Args:
            namespace: return only those of this namespace; None for all.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """

    @abstractmethod
    async def set_floor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        above: int,
        create: bool = True,
    ) -> Counter:
        """Raise a counter so that every further id is above ``above``; never lower it.

        It is one atomic compare-and-raise, safe to repeat.  Generators that hold segments keep
        them, so first close those that may hold ids at or below ``above``.

        Args:
            namespace: the counter's namespace.
            name: the counter's name.
            above: the highest id known to have been handed out, 0 to 2^63-1.
            create: whether a missing counter is created.

        Returns:
            The counter as it is now.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            CounterMissingError: there is no such counter, and ``create`` is False.
            CounterNotCreatedError: it may be created, but a database's table of counters was
                emptied.
            StoreError: the store refuses or cannot be reached.
        """

    async def begin_counter(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, offset: int = 0
    ) -> int:
        """Create a counter whose ids are above ``offset``, and return its last id.

        A store whose counters are created on first use creates it only under its marker, and leaves
        an existing one as it is.  The default raises its floor, so that a lower counter rises.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            CounterNotCreatedError: the store was emptied, or never initialised.
            StoreError: the store refuses or cannot be reached.
        """
        raised = await self.set_floor(namespace=namespace, name=name, above=offset)
        return raised.last_max_id

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections that this store opened itself."""

    async def aopen(self) -> None:
        """Prepare for this process and event loop; connections are opened on first use.

        Raises:
            ForkedError: it uses a client of the parent process.
        """

    async def __aenter__(self) -> Self:
        """Return the store, ready in this process; connections are opened on first use."""
        await self.aopen()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the store."""
        await self.aclose()
