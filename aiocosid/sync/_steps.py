"""Makes short steps of this package atomic: one thread at a time, and no step within another.

A lock alone is not enough: Python runs signal handlers and finalizers between any two lines, and a
handler that requests an id during a step runs in the thread that holds the lock.
"""

from __future__ import annotations

import threading
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from .._life import fork
from ..errors import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("locked_step",)

P = ParamSpec("P")
R = TypeVar("R")


class _Steps:
    """The lock; a forked child gets a new one, since a parent's thread may hold the old one."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self._forget()
        fork.watch(self)

    def _forget(self) -> None:
        self.lock = threading.RLock()


_steps: Final = _Steps()


def locked_step(func: Callable[P, R]) -> Callable[P, R]:
    """Run the function as one step, which waits only for other steps.

    A call during another step of the same thread raises `WouldBlock`.
    """

    @wraps(func)
    def step(*args: P.args, **kwargs: P.kwargs) -> R:
        lock = _steps.lock
        # `threading.Condition` uses the same method of a lock.
        if lock._is_owned():  # type: ignore[attr-defined]  # not in its stubs
            raise WouldBlock
        with lock:
            return func(*args, **kwargs)

    return step
