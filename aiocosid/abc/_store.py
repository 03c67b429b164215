"""The contract of a store: what ``connect(url)`` and the command line work on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ..errors import StoreError
from ._ids import DEFAULT_NAMESPACE, DEFAULT_STEP, IdSegmentDistributor
from ._machine import DEFAULT_GUARD_INTERVAL, DEFAULT_SAFE_GUARD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from ._machine import InstanceId, Machine, MachineIdDistributor

__all__ = ("Counter", "Store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """One counter as it lies in a store.

    Attributes:
        namespaced_name: ``{namespace}.{name}``.
        last_max_id: the last max id handed out; the next id is above it.
        last_fetch_time: unix time in seconds of the last fetch, or None where the store keeps none.
    """

    namespaced_name: str
    last_max_id: int
    last_fetch_time: int | None = None


class Store(ABC):
    """One server or file that keeps many counters; what ``connect(url)`` and the CLI work on.

    Made from the user's client, which it then never closes, or from a URL.
    """

    __slots__ = ()

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

    def machine_id_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> MachineIdDistributor:
        """Return a distributor of machine ids on this store's connections; nothing is sent yet.

        Args:
            namespace: the namespace of the machine ids, at most 91 characters.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            StoreError: this store has no machine ids, as one of your own may not.
        """
        raise self._has_no_machine_ids()

    async def machines(self, *, namespace: str | None = None) -> Sequence[Machine]:
        """Return the machine ids that were ever handed out, by namespace and number.

        Args:
            namespace: only this one's; None for all.

        Raises:
            CorruptMachineStateError: an entry is damaged.
            StoreError: the store refuses or cannot be reached.
        """
        raise self._has_no_machine_ids()

    async def revert_machine(self, *, namespace: str = DEFAULT_NAMESPACE, machine_id: int) -> None:
        """Take a machine id from its owner, whoever that is: for one that died and is stable.

        Its mark stays, so that the next owner begins above it.  The owner must not run any more.

        Raises:
            InvalidArgumentError: nobody holds the id.
            StoreError: the store refuses or cannot be reached.
        """
        raise self._has_no_machine_ids()

    async def machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE) -> int | None:
        """Return the width of a namespace's machine ids, or None if none is noted yet.

        Raises:
            CorruptMachineStateError: the note is damaged.
            StoreError: the store refuses or cannot be reached.
        """
        raise self._has_no_machine_ids()

    async def set_machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE, bits: int) -> None:
        """Change the width of a namespace's machine ids for good, while nobody holds one.

        One atomic step, safe to repeat.  That the new layout makes no id again that the old one has
        made is the caller's to see to.

        Args:
            namespace: the namespace.
            bits: the new width, 1 to 31; the present one changes nothing.

        Raises:
            MachineIdInUseError: somebody holds a machine id, dead or alive; nothing was written.
            InvalidArgumentError: ``bits`` is outside its range.
            StoreError: the store refuses or cannot be reached.
        """
        raise self._has_no_machine_ids()

    def _has_no_machine_ids(self) -> StoreError:
        return StoreError(type(self).__name__, "this store hands out no machine ids")

    @abstractmethod
    async def create_schema(self) -> None:
        """Create the tables if they are missing; does nothing on a store without any.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """

    @abstractmethod
    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, ordered by name.

        Args:
            namespace: only the ones of this namespace; None for all.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """

    @abstractmethod
    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        """Raise a counter so that every further id is above ``above``; never lower it.

        One atomic compare-and-raise, safe to repeat; creates a missing counter.  Generators that
        hold segments keep them: close those that may hold ids at or below ``above`` first.

        Args:
            namespace: the counter's namespace.
            name: the counter's name.
            above: the highest id known to have been handed out, 0 to 2^63-1.

        Returns:
            The counter as it is now.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            StoreError: the store refuses or cannot be reached.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections that this store opened itself."""

    async def aopen(self) -> None:
        """Get ready in this process and loop; connections are opened on first use.

        Raises:
            ForkedError: it lives on a client of the parent process.
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
