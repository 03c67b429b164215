"""The contract of a store: what ``connect(url)`` and the command line work on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ._ids import DEFAULT_NAMESPACE, DEFAULT_STEP, IdSegmentDistributor
from ._machine_store import MachineStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

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


class Store(MachineStore, ABC):
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

    @abstractmethod
    async def create_schema(self) -> None:
        """Create the tables if they are missing; does nothing on a store without any.

        What this very call has created needs no `initialize`; what was there does.

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
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        above: int,
        create: bool = True,
    ) -> Counter:
        """Raise a counter so that every further id is above ``above``; never lower it.

        One atomic compare-and-raise, safe to repeat.  Generators that hold segments keep them:
        close those that may hold ids at or below ``above`` first.

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
