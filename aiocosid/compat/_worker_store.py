"""Another system's worker ids as a store that has no counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

from .._uncopied import Uncopied
from ..abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    DEFAULT_STEP,
    Store,
)
from ..errors import UnsupportedByStoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..abc import Counter, IdSegmentDistributor, InstanceId, MachineIdDistributor

__all__ = ("NoCounters", "WorkerIdStore")


class NoCounters(Uncopied, Store):
    """Worker ids alone."""

    __slots__ = ()

    _why: ClassVar[str] = "it keeps worker ids alone"

    @property
    def _where(self) -> str:
        """The place, without credentials."""
        raise NotImplementedError

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,  # noqa: ARG002 - there is none
        name: str,  # noqa: ARG002 - there is none
        offset: int = 0,  # noqa: ARG002 - there is none
        step: int = DEFAULT_STEP,  # noqa: ARG002 - there is none
    ) -> IdSegmentDistributor:
        """Raise `UnsupportedByStoreError`: there are worker ids alone."""
        self._refuse()

    async def create_schema(self) -> None:
        """Do nothing: what is missing is made when a worker id is taken."""

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:  # noqa: ARG002 - there are none
        """Return nothing: there are no counters."""
        return ()

    async def set_floor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,  # noqa: ARG002 - there is none
        name: str,  # noqa: ARG002 - there is none
        above: int,  # noqa: ARG002 - there is none
    ) -> Counter:
        """Raise `UnsupportedByStoreError`: there are worker ids alone."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnsupportedByStoreError(self._where, self._why)


class WorkerIdStore(NoCounters):
    """One registry, one address: one worker id, whoever of this process asks."""

    __slots__ = ("_machine",)

    def __init__(self, machine: MachineIdDistributor) -> None:
        self._machine = machine

    def __repr__(self) -> str:
        """Name the registry and the address."""
        machine = self._machine
        return f"<{type(self).__name__} {machine.namespace} {machine.instance_id.text}>"

    @property
    def _where(self) -> str:
        return self._machine.store

    def machine_id_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,  # noqa: ARG002 - the registry has none
        instance_id: InstanceId | str | None = None,  # noqa: ARG002 - the address is
        safe_guard: float = DEFAULT_SAFE_GUARD,  # noqa: ARG002 - the system's
        interval: float = DEFAULT_GUARD_INTERVAL,  # noqa: ARG002 - the system's
    ) -> MachineIdDistributor:
        """Return the distributor of this address; the same each time, as there is one worker id.

        Args:
            namespace: not used; the registry has none.
            instance_id: not used; it is the address.
            safe_guard: not used; it is the system's.
            interval: not used; it is the system's.
        """
        return self._machine

    async def aopen(self) -> None:
        """Get ready in this process.

        Raises:
            ForkedError: what was passed in is the parent's.
        """
        await self._machine.aopen()

    async def aclose(self) -> None:
        """Close what was opened here."""
        await self._machine.aclose()
