"""CosId's own generator: the sequencer of Snowflake ids, on fields that fit no int64, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import anyio

from ._cosid_state import RADIX62, CosIdState
from ._snowflake_id import SnowflakeId

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.abc import TaskStatus

    from ..abc import Clock, MachineIdDistributor
    from ..events import Instrument
    from ..machine import MachineIdLease
    from ._cosid_state import CosIdText
    from ._statistics import SnowflakeStatistics

__all__ = ("CosIdGenerator",)


class CosIdGenerator:
    """Text ids of 44 bits of time, 20 of machine id and 16 of sequence: CosIdGenerator's.

    It has the contract of every generator, for text.  Radix 62 and 36 sort as they were made.

    Attributes:
        text: how the ids are written, and read back with ``text.as_state(id)``.
    """

    __slots__ = ("__weakref__", "_inner", "text")

    def __init__(
        self,
        machine: MachineIdDistributor | MachineIdLease,
        *,
        name: str = "__share__",
        text: CosIdText = RADIX62,
        broken_threshold: float | None = 2.0,
        sequence_reset_threshold: int | None = -1,
        wait_timeout: float = 5.0,
        close_timeout: float = 5.0,
        instrument: Instrument | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Describe a generator; the arguments are `SnowflakeId`'s, with ``text`` for ``layout``.

        Args:
            machine: where the machine id comes from, 20 bits of it by default.
            name: the generator's name.
            text: `RADIX62` (15 characters), `RADIX36` (17), or a `CosIdFriendlyText`.
            broken_threshold: seconds that a call waits for a clock that stepped back.
            sequence_reset_threshold: as for `SnowflakeId`.
            wait_timeout: seconds that a call waits for a lease that allows no ids.
            close_timeout: seconds that closing may take.
            instrument: receives events.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        self.text = text
        self._inner = SnowflakeId(
            machine,
            name=name,
            layout=text.layout,
            broken_threshold=broken_threshold,
            sequence_reset_threshold=sequence_reset_threshold,
            wait_timeout=wait_timeout,
            close_timeout=close_timeout,
            instrument=instrument,
            clock=clock,
        )

    async def next_id(self) -> str:
        """Return the next id as text; see `SnowflakeId.next_id`."""
        return self._written(await self._inner.next_id())

    async def next_ids(self, n: int) -> list[str]:
        """Return exactly ``n`` ids as text; see `SnowflakeId.next_ids`."""
        return [self._written(each) for each in await self._inner.next_ids(n)]

    def next_id_nowait(self) -> str:
        """Return the next id as text if it can be stamped now; raises `WouldBlock` otherwise."""
        return self._written(self._inner.next_id_nowait())

    async def next_state(self) -> CosIdState:
        """Return the next id as its three fields."""
        return self._state(await self._inner.next_id())

    def statistics(self) -> SnowflakeStatistics:
        """Return a frozen picture of the generator; cheap, and never waits."""
        return self._inner.statistics()

    async def run(self, *, task_status: TaskStatus[Any] = anyio.TASK_STATUS_IGNORED) -> None:
        """Open in the calling task, and stay until closed or cancelled."""
        await self._inner.run(task_status=_Stand(task_status, self))

    async def aclose(self) -> None:
        """Close; see `aiocosid.abc.IdGenerator.aclose`."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        """Open; returns when it can hand out ids."""
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        await self._inner.aclose()

    def __repr__(self) -> str:
        """Say what it writes and on what."""
        return f"<{type(self).__name__} {self.text!r} on {self._inner!r}>"

    def _state(self, packed: int) -> CosIdState:
        layout = self.text.layout
        sequence = packed & layout.max_sequence
        machine_id = packed >> layout.sequence_bits & layout.machine_count - 1
        timestamp = packed >> layout.sequence_bits + layout.machine_bits
        return CosIdState(timestamp, machine_id, sequence)

    def _written(self, packed: int) -> str:
        return self.text.as_text(self._state(packed))


class _Stand:
    """Tells the task group about the generator instead of the one inside of it."""

    def __init__(self, status: TaskStatus[Any], generator: CosIdGenerator) -> None:
        self._status = status
        self._generator = generator

    def started(self, value: object = None) -> None:
        """Pass it on."""
        del value
        self._status.started(self._generator)
