"""What the memory store does about machine ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ..abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    MachineMarker,
    Store,
)
from ..abc._ids import check_text
from ..abc._machine import NAME_WIDTH, check_safe_guard
from ._memory_machines import MachinePool

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from ..abc import Clock, InstanceId, Machine
    from .memory import MemoryMachineIdDistributor

__all__ = ("MemoryMachineStore",)


class MemoryMachineStore(Store):
    """The machine ids of all namespaces in one memory; `MemoryStore` inherits it."""

    __slots__ = ()

    machine_distributor: ClassVar[type[MemoryMachineIdDistributor]]

    _clock: Clock
    _lock: threading.RLock
    _pools: dict[str, MachinePool]

    def machine_id_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> MemoryMachineIdDistributor:
        """Return a distributor of this store's machine ids."""
        return self.machine_distributor(
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
            memory=self,  # type: ignore[arg-type]  # which inherits this
        )

    async def machines(self, *, namespace: str | None = None) -> Sequence[Machine]:
        """Return the machine ids that were ever handed out, by namespace and number."""
        with self._lock:
            return [
                machine
                for name, pool in sorted(self._pools.items())
                if namespace in {None, name}
                for machine in pool.machines()
            ]

    async def revert_machine(self, *, namespace: str = DEFAULT_NAMESPACE, machine_id: int) -> None:
        """Take a machine id from its owner; its mark stays.

        Raises:
            InvalidArgumentError: nobody holds the id.
            ForkedError: the machine ids are the parent's.
        """
        self._refuse_child()
        with self._lock:
            self._pools.get(namespace, MachinePool(namespace)).take_away(machine_id)

    async def machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE) -> int | None:
        """Return the width of a namespace's machine ids, or None if none was handed out yet."""
        return self._pools.get(namespace, MachinePool(namespace)).bits

    async def set_machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE, bits: int) -> None:
        """Change the width of a namespace's machine ids, while nobody holds one.

        Raises:
            MachineIdInUseError: somebody does.
            MachineIdQuarantineError: a test made the store forget.
            InvalidArgumentError: an argument is outside its range.
            ForkedError: the machine ids are the parent's.
        """
        self._refuse_child()
        with self._lock:
            self._pool(namespace).set_bits(bits, seen=self._clock.monotonic())

    async def mark_machines(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        is_new: bool = False,
        safe_guard: float | None = None,
    ) -> MachineMarker:
        """Answer that it is marked: it always is, unless a test made it forget.

        Raises:
            InvalidArgumentError: the namespace is no text, or too long, or the safe guard no time.
            ForkedError: the machine ids are the parent's.
        """
        self._refuse_child()
        named = check_safe_guard(safe_guard)
        with self._lock:
            marker, now = self._pool(namespace).marker, self._clock.monotonic()
            written = marker.mark(now, named, is_new=is_new)
            left = marker.left(now)
        return MachineMarker(namespace=namespace, is_new=written, seconds_left=left)

    async def machine_markers(self, *, namespace: str | None = None) -> Sequence[MachineMarker]:
        """Return a marker for each namespace that was used."""
        with self._lock:
            now = self._clock.monotonic()
            return [
                MachineMarker(namespace=name, seconds_left=pool.marker.left(now))
                for name, pool in sorted(self._pools.items())
                if namespace in {None, name}
            ]

    def forget_machines(
        self, *, namespace: str = DEFAULT_NAMESPACE, everything: bool = True
    ) -> None:
        """Do as a server that was emptied; for tests of what a program does then.

        Args:
            namespace: whose machine ids are forgotten.
            everything: False for a server that was restored, or failed over, and lost nothing: all
                is there, and may be as it was once.

        Raises:
            InvalidArgumentError: the namespace is no text, or too long.
            ForkedError: the machine ids are the parent's.
        """
        self._refuse_child()
        with self._lock:
            self._pool(namespace).forget(everything=everything)

    def _pool(self, namespace: str) -> MachinePool:
        check_text("namespace", namespace, at_most=NAME_WIDTH)
        return self._pools.setdefault(namespace, MachinePool(namespace))

    def _refuse_child(self) -> None:
        raise NotImplementedError
