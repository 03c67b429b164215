"""The only module that reads a clock or sleeps; and calls of others' code, bounded in time."""

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
    """Return milliseconds since the machine was booted, also while it slept; 0 if it cannot tell.

    All processes of a machine read the same.
    """
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)  # Linux's
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
    """Make a call; return what it answers, or why it does not.  Raises a cancellation alone.

    Args:
        call: the call.
        store: whose it is, for the error.
        clock: counts the seconds.
        within: seconds that it has.
        shield: whether only its end, and whoever has the scope, can cancel it.
        began: is told the scope.
    """
    answers: list[T | CosIdError] = []
    try:
        with clock.move_on_after(within, shield=shield) as scope:
            if began is not None:
                began(scope)
            answers.append(await call())
    # Outside of the scope, which knows only its own cancellation: a driver may raise another one in
    # its place.
    except BaseException as error:  # noqa: BLE001 - whatever a stranger raises
        answers.append(as_cosid_error(store, error))
    if answers:
        return answers[0]
    return StoreUnavailableError(store, f"no answer within {round(within, 3):g} s")


def as_cosid_error(store: str, error: BaseException) -> CosIdError:
    """Return an error of ours, with what was raised as its cause; raise a cancellation on.

    A CancelledError although nobody has cancelled the task is a driver's, whose own task ended.
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
