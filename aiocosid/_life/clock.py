"""The only module that reads a clock or sleeps; it also bounds calls of foreign code in time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from ..abc import Clock
from ..errors import CosIdError, StoreError, StoreUnavailableError
from .loop import is_stray_cancellation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

__all__ = ("SYSTEM_CLOCK", "SystemClock", "as_cosid_error", "boot_ms", "call_bounded")

T = TypeVar("T")


class SystemClock(Clock):
    """The operating system's clocks and the event loop's timers."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Return the system's monotonic time in seconds."""
        return time.monotonic()

    def now_ms(self) -> int:
        """Return the system's wall clock in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def wall_reader(self) -> Callable[[], int]:
        """Return the system call itself."""
        return time.time_ns

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task on the event loop's timer."""
        await anyio.sleep(seconds)

    def move_on_after(
        self, seconds: float, *, shield: bool = False
    ) -> AbstractContextManager[anyio.CancelScope]:
        """Return a cancel scope with a deadline on the event loop's clock."""
        return anyio.move_on_after(seconds, shield=shield)


SYSTEM_CLOCK: Final = SystemClock()


def boot_ms() -> int:
    """Return milliseconds since the machine was booted, sleep included; 0 if that is unknown.

    All processes of a machine read the same value.
    """
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)  # only Linux has it
    return 0 if clock is None else time.clock_gettime_ns(clock) // 1_000_000


async def call_bounded(
    call: Callable[[], Awaitable[T]],
    *,
    store: str,
    clock: Clock,
    within: float,
    shield: bool = False,
    began: Callable[[anyio.CancelScope], object] | None = None,
) -> T | CosIdError:
    """Make a call; return its answer, or its error.  Only a cancellation is raised.

    Args:
        call: the call.
        store: the store that is called, for the error.
        clock: counts the seconds.
        within: seconds that the call may take.
        shield: whether only its end, and a holder of the scope, can cancel it.
        began: receives the scope.
    """
    answers: list[T | CosIdError] = []
    try:
        with clock.move_on_after(within, shield=shield) as scope:
            if began is not None:
                began(scope)
            answers.append(await call())
    # Outside the scope, which recognizes only its own cancellation: a driver may raise another one
    # in its place.
    except BaseException as error:  # noqa: BLE001 - foreign code may raise anything
        answers.append(as_cosid_error(store, error))
    if answers:
        return answers[0]
    return StoreUnavailableError(store, f"no answer within {round(within, 3):g} s")


def as_cosid_error(store: str, error: BaseException) -> CosIdError:
    """Return a `CosIdError` whose cause is what was raised; raise a cancellation again.

    A CancelledError without a cancelled task comes from a driver whose own task ended.
    """
    if isinstance(error, CosIdError):
        return error
    ours: CosIdError
    if is_stray_cancellation(error):
        ours = StoreUnavailableError(store, "its call was cancelled")
    elif isinstance(error, Exception):
        ours = StoreError(store, f"{type(error).__name__}: {error}")
    else:
        raise error
    ours.__cause__ = error
    return ours
