"""What a ZooKeeper store does about machine ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...abc import DEFAULT_GUARD_INTERVAL, DEFAULT_NAMESPACE, DEFAULT_SAFE_GUARD, Store
from ._machine import ZookeeperMachineIdDistributor
from ._machine_admin import (
    machine_bits,
    machine_markers,
    machines,
    mark_machines,
    revert_machine,
    set_machine_bits,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...abc import InstanceId, Machine, MachineMarker
    from ._link import Link

__all__ = ("ZookeeperMachineStore",)


class ZookeeperMachineStore(Store):
    """The machine ids of all namespaces on one deployment; `ZookeeperStore` inherits it."""

    __slots__ = ()

    _link: Link

    def machine_id_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> ZookeeperMachineIdDistributor:
        """Return a distributor of machine ids in this store's session; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return ZookeeperMachineIdDistributor(
            self._link,
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
        )

    async def machines(self, *, namespace: str | None = None) -> Sequence[Machine]:
        """Return the machine ids that were ever handed out; for all looks at every node.

        Raises:
            InvalidArgumentError: the namespace is no text, or too long.
            CorruptMachineStateError: a node is damaged.
            StoreError: the server refuses or cannot be reached.
            ForkedError: the session is the parent's.
        """
        return await machines(self._link, namespace)

    async def revert_machine(self, *, namespace: str = DEFAULT_NAMESPACE, machine_id: int) -> None:
        """Take a machine id from its owner; whoever took it in the meantime keeps it.

        A cancelled call may have taken effect.

        Raises:
            InvalidArgumentError: nobody holds the id.
            CorruptMachineStateError: a node is damaged; nothing was written.
            StoreError: the server refuses or cannot be reached.
            ForkedError: the session is the parent's.
        """
        await revert_machine(self._link, namespace, machine_id)

    async def machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE) -> int | None:
        """Return the width of a namespace's machine ids, or None if none is noted yet.

        Raises:
            InvalidArgumentError: the namespace is no text, or too long.
            CorruptMachineStateError: the marker is damaged.
            StoreError: the server refuses or cannot be reached.
            ForkedError: the session is the parent's.
        """
        return await machine_bits(self._link, namespace)

    async def set_machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE, bits: int) -> None:
        """Change the width of a namespace's machine ids, while nobody holds one.

        A cancelled call may have taken effect.

        Raises:
            MachineIdInUseError: somebody does; nothing was written.
            MachineIdQuarantineError: the server may have forgotten who does.
            InvalidArgumentError: an argument is outside its range.
            CorruptMachineStateError: the marker is damaged; nothing was written.
            StoreError: the server refuses or cannot be reached.
            ForkedError: the session is the parent's.
        """
        await set_machine_bits(self._link, namespace, bits)

    async def mark_machines(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        is_new: bool = False,
        safe_guard: float | None = None,
    ) -> MachineMarker:
        """Mark the server as one that has forgotten nothing; see `aiocosid.abc.Store`.

        A cancelled call may have taken effect.

        Raises:
            InvalidArgumentError: the namespace is no text, or too long, or the safe guard no time.
            CorruptMachineStateError: the marker is damaged; nothing was written.
            StoreError: the server refuses or cannot be reached.
            ForkedError: the session is the parent's.
        """
        return await mark_machines(self._link, namespace, is_new=is_new, safe_guard=safe_guard)

    async def machine_markers(self, *, namespace: str | None = None) -> Sequence[MachineMarker]:
        """Return the markers, by namespace.

        Raises:
            InvalidArgumentError: the namespace is no text, or too long.
            CorruptMachineStateError: a marker is damaged.
            StoreError: the server refuses or cannot be reached.
            ForkedError: the session is the parent's.
        """
        return await machine_markers(self._link, namespace)
