"""The machine ids of a tiered store are its root's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...abc import DEFAULT_GUARD_INTERVAL, DEFAULT_NAMESPACE, DEFAULT_SAFE_GUARD, Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...abc import InstanceId, Machine, MachineIdDistributor, MachineMarker

__all__ = ("TieredMachineStore",)


class TieredMachineStore(Store):
    """Hands on to a root; `TieredStore` inherits it."""

    __slots__ = ()

    _root: Store

    def machine_id_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> MachineIdDistributor:
        """Return the root's.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return self._root.machine_id_distributor(
            namespace=namespace, instance_id=instance_id, safe_guard=safe_guard, interval=interval
        )

    async def machines(self, *, namespace: str | None = None) -> Sequence[Machine]:
        """Return the root's machine ids.

        Raises:
            CosIdError: as the root's.
        """
        return await self._root.machines(namespace=namespace)

    async def revert_machine(self, *, namespace: str = DEFAULT_NAMESPACE, machine_id: int) -> None:
        """Take a machine id from its owner, in the root.

        Raises:
            CosIdError: as the root's.
        """
        await self._root.revert_machine(namespace=namespace, machine_id=machine_id)

    async def machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE) -> int | None:
        """Return the width of a namespace's machine ids in the root.

        Raises:
            CosIdError: as the root's.
        """
        return await self._root.machine_bits(namespace=namespace)

    async def set_machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE, bits: int) -> None:
        """Change the width of a namespace's machine ids in the root.

        Raises:
            CosIdError: as the root's.
        """
        await self._root.set_machine_bits(namespace=namespace, bits=bits)

    async def mark_machines(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        is_new: bool = False,
        safe_guard: float | None = None,
    ) -> MachineMarker:
        """Mark the root as one that has forgotten nothing; see `aiocosid.abc.Store`.

        Raises:
            CosIdError: as the root's.
        """
        return await self._root.mark_machines(
            namespace=namespace, is_new=is_new, safe_guard=safe_guard
        )

    async def machine_markers(self, *, namespace: str | None = None) -> Sequence[MachineMarker]:
        """Return the root's markers.

        Raises:
            CosIdError: as the root's.
        """
        return await self._root.machine_markers(namespace=namespace)
