"""What a SQL store does about machine ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ..abc import DEFAULT_GUARD_INTERVAL, DEFAULT_NAMESPACE, DEFAULT_SAFE_GUARD, Store
from ..abc._machine import check_machine_bits
from ._machine_markers import Markers
from ._machine_tables import MachineTables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..abc import InstanceId, Machine, MachineMarker
    from ._executor import Executor
    from ._machine_tables import MachineDialect
    from ._sql_machines import SqlMachineIdDistributor

__all__ = ("SqlMachineStore",)


class SqlMachineStore(Store):
    """The tables of machine ids of one database; `SqlStore` inherits it."""

    __slots__ = ()

    machine_distributor: ClassVar[type[SqlMachineIdDistributor]]

    _executor: Executor

    def machine_id_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> SqlMachineIdDistributor:
        """Return a distributor of machine ids on this store's connections; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return self.machine_distributor._on(
            self._executor,
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
        )

    async def machines(self, *, namespace: str | None = None) -> Sequence[Machine]:
        """Return the machine ids that were ever handed out, by namespace and number.

        Raises:
            CorruptMachineStateError: a row is damaged.
            StoreError: the store refuses or cannot be reached.
        """
        return await self._machine_tables.machines(namespace)

    async def revert_machine(self, *, namespace: str = DEFAULT_NAMESPACE, machine_id: int) -> None:
        """Take a machine id from its owner, who must not run any more; its mark stays.

        A cancelled call may have taken effect.

        Raises:
            InvalidArgumentError: nobody holds the id, or an argument is outside its range.
            StoreError: the store refuses or cannot be reached.
        """
        await self._machine_tables.free(namespace, machine_id)

    async def machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE) -> int | None:
        """Return the width of a namespace's machine ids, or None if none is noted yet.

        Raises:
            InvalidArgumentError: the namespace is no text, or too long.
            CorruptMachineStateError: the note is damaged.
            StoreError: the store refuses or cannot be reached.
        """
        return await self._machine_tables.bits(namespace)

    async def set_machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE, bits: int) -> None:
        """Change the width of a namespace's machine ids, while nobody holds one.

        A cancelled call may have taken effect.

        Raises:
            MachineIdInUseError: somebody does; nothing was written.
            MachineIdQuarantineError: the store may have forgotten who does.
            InvalidArgumentError: an argument is outside its range.
            CorruptMachineStateError: the note is damaged; nothing was written.
            StoreUnavailableError: somebody took a machine id in the meantime, and nothing was
                written; or as always.
            StoreError: the store refuses or cannot be reached.
        """
        check_machine_bits(bits)
        tables = self._machine_tables
        if await tables.bits(namespace) != bits:
            await Markers(tables).check(namespace, 0.0)
            await tables.set_bits(namespace, bits)

    async def mark_machines(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        is_new: bool = False,
        safe_guard: float | None = None,
    ) -> MachineMarker:
        """Mark the database as one that has forgotten nothing of a namespace's machine ids.

        See `aiocosid.abc.Store.mark_machines`.  A cancelled call may have taken effect; it is safe
        to repeat.

        Args:
            namespace: the namespace of the machine ids.
            is_new: write the marker in any case, and end a quarantine: nobody who was started
                before holds a machine id any more, which is yours to know.
            safe_guard: the longest one of all who use the namespace, in seconds, above 0; ``inf``
                for ids that are never recycled, None if it is not known.

        Returns:
            The marker as it is now.

        Raises:
            InvalidArgumentError: the namespace is no text, or too long.
            StoreError: the store refuses or cannot be reached.
        """
        markers = Markers(self._machine_tables)
        return await markers.mark(namespace, is_new=is_new, safe_guard=safe_guard)

    async def machine_markers(self, *, namespace: str | None = None) -> Sequence[MachineMarker]:
        """Return the markers, by namespace; where there is none yet, none.  Writes nothing.

        Args:
            namespace: only this one's; None for all.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        return await Markers(self._machine_tables).all(namespace)

    @property
    def _machine_tables(self) -> MachineTables:
        return MachineTables(self._executor, self._machine_dialect)

    @property
    def _machine_dialect(self) -> MachineDialect:
        return self.machine_distributor.machine_dialect
