"""One of Leaf's registries as a store: worker ids, and no counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ..._uncopied import Uncopied
from ...abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    DEFAULT_STEP,
    Store,
)
from ...errors import UnsupportedByStoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...abc import Counter, IdSegmentDistributor, InstanceId, MachineIdDistributor

__all__ = ("WorkerIdStore",)


class WorkerIdStore(Uncopied, Store):
    """One registry, one address: one worker id, whoever of this process asks."""

    __slots__ = ("_machine",)

    def __init__(self, machine: MachineIdDistributor) -> None:
        self._machine = machine

    def __repr__(self) -> str:
        """Name the registry and the address."""
        machine = self._machine
        return f"<{type(self).__name__} {machine.namespace} {machine.instance_id.text}>"

    def machine_id_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,  # noqa: ARG002 - Leaf has none
        instance_id: InstanceId | str | None = None,  # noqa: ARG002 - the address is
        safe_guard: float = DEFAULT_SAFE_GUARD,  # noqa: ARG002 - Leaf's
        interval: float = DEFAULT_GUARD_INTERVAL,  # noqa: ARG002 - Leaf's
    ) -> MachineIdDistributor:
        """Return the distributor of this address; the same each time, as there is one worker id.

        Args:
            namespace: not used; Leaf has none.
            instance_id: not used; it is the address.
            safe_guard: not used; it is Leaf's.
            interval: not used; it is Leaf's 3 seconds.
        """
        return self._machine

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,  # noqa: ARG002 - there is none
        name: str,  # noqa: ARG002 - there is none
        offset: int = 0,  # noqa: ARG002 - there is none
        step: int = DEFAULT_STEP,  # noqa: ARG002 - there is none
    ) -> IdSegmentDistributor:
        """Raise `UnsupportedByStoreError`: there are worker ids alone."""
        self._has_no_counters()

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
        self._has_no_counters()

    def _has_no_counters(self) -> NoReturn:
        reason = (
            "it keeps worker ids alone; Leaf's segments are a store of their own, leaf+mysql://"
        )
        raise UnsupportedByStoreError(self._machine.store, reason)

    async def aclose(self) -> None:
        """Close what was opened here."""
        await self._machine.aclose()
