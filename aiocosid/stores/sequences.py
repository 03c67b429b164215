"""Sequences of a second on stores that need no server: memory and SQLite."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, TypeVar

from .._life.fork import NotCopyable
from ..abc import (
    DEFAULT_MAX_SEQUENCE,
    DEFAULT_NAMESPACE,
    DEFAULT_TOLERANCE,
    SequenceDistributor,
)
from ..errors import InvalidArgumentError
from ._sequence_rules import DEFAULT_TTL, SequenceRequest, check_reach
from .backend import Backend
from .base import BackendStore

if TYPE_CHECKING:
    from ..abc import SequenceReply
    from ._sequence_rules import SequenceAnswer

__all__ = ("BackendSequenceDistributor", "SequenceBackend", "SequenceStore")


class SequenceBackend(Backend):
    """A backend that also keeps one value for each sequence name."""

    __slots__ = ()

    @abstractmethod
    async def grant_sequences(self, name: str, request: SequenceRequest) -> SequenceAnswer:
        """Decide with `_sequence_rules.grant`, and store the new state, in one atomic step.

        Raises:
            CorruptCounterError: the stored value is not a sequence state; nothing was written.
            StoreError: the store refuses or cannot be reached.
        """


class BackendSequenceDistributor(NotCopyable, SequenceDistributor):
    """Sequences of a second on a store in this process or on this machine, without a server.

    `MemoryStore.sequence_distributor` and `SqliteStore.sequence_distributor` create it.
    """

    __slots__ = ("_backend", "_margin", "store")

    def __init__(
        self,
        backend: SequenceBackend,
        *,
        namespace: str,
        name: str,
        max_sequence: int,
        tolerance: int,
        margin: int = 0,
    ) -> None:
        """Describe the sequences; see `SequenceStore.sequence_distributor`."""
        super().__init__(
            namespace=namespace, name=name, max_sequence=max_sequence, tolerance=tolerance
        )
        self._backend, self._margin = backend, margin
        self.store: str = backend.label

    async def grant(self, second: int, size: int) -> SequenceReply:
        """Reserve sequences; see `aiocosid.abc.SequenceDistributor.grant`.

        Raises:
            InvalidArgumentError: an argument is outside its range; nothing was written.
            ClockSkewError: the second is further from the clock than the tolerance.
            CorruptCounterError: the stored value is not a sequence state; nothing was written.
            SchemaDroppedError: the store's tables were dropped.
            StoreUnavailableError: the store cannot be reached.
            ForkedError: the store belongs to the parent process.
            WouldBlock: a signal handler or finalizer called this during another call.
        """
        self._check(second, size)
        request = SequenceRequest(second, size, self.max_sequence, self.tolerance, self._margin)
        answer = await self._backend.grant_sequences(self.namespaced_name, request)
        return answer.reply_to(self, second)

    async def aopen(self) -> None:
        """Get ready in this process; connections are opened on first use.

        Raises:
            ForkedError: the store belongs to the parent process.
        """
        await self._backend.aopen()


B = TypeVar("B", bound=SequenceBackend)


class SequenceStore(BackendStore[B]):
    """A store that grants sequences of a second, in addition to counters and machine ids."""

    __slots__ = ()

    def sequence_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        key: str | None = None,
        max_sequence: int = DEFAULT_MAX_SEQUENCE,
        tolerance: int = DEFAULT_TOLERANCE,
        margin: int = 0,
        ttl: int = DEFAULT_TTL,
    ) -> BackendSequenceDistributor:
        """Return a distributor of sequences of a second; nothing is sent yet.

        Args:
            namespace: a common prefix for the names of one system.
            name: the name; sequences are unique under it.
            key: for Redis and Valkey only; a memory store, which replaces them in tests, ignores
                it.
            max_sequence: the highest sequence; the same in all processes.
            tolerance: seconds by which a second may differ from the store's, 1 to 3600.
            margin: seconds by which a clock may be wrong after the store was restored on another
                machine, 0 to 3600.
            ttl: as on Redis.  Here no counter expires, so the value is checked but not used.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        if key is not None and not self._backend.is_local:
            rule = "requires Redis or Valkey, whose keys other programs may share"
            raise InvalidArgumentError("key", key, rule)
        made = BackendSequenceDistributor(
            self._backend,
            margin=margin,
            namespace=namespace,
            name=name,
            max_sequence=max_sequence,
            tolerance=tolerance,
        )
        check_reach(tolerance, margin, ttl)
        return made
