"""Keeps a step whole.  Pure.

Python runs signal handlers, finalizers, log filters and instruments between any two lines of ours,
and each of them may take an id.  What counts ids and then takes them must not be met half done: it
is a *step*, during which nobody finds anything to take.

The end of a step has no calls: a handler may raise in each of them, and out of recursion they all
fail.  Where a decorator would cost too much, the same lines stand in the function itself.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ("EMPTY", "atomic_step")

EMPTY: Final[Iterator[int]] = iter(range(0))
"""What callers find while there is nothing to take."""


class Hand(Protocol):
    """What is in hand."""

    piece: Iterator[int]


class Outlet(Protocol):
    """Where callers take ids.

    Attributes:
        _exposed: the piece in hand, or `EMPTY`.
        _opening: whose ids they are.
    """

    _exposed: Iterator[int]

    @property
    def _opening(self) -> object: ...


class Exposing(Protocol):
    """What has steps.

    Attributes:
        busy: a step is under way.
        hand: the ids in hand.
        is_over: nobody is to get them any more.
    """

    busy: bool

    @property
    def hand(self) -> Hand: ...

    @property
    def generator(self) -> Outlet: ...

    @property
    def is_over(self) -> bool: ...


S = TypeVar("S", bound=Exposing)
P = ParamSpec("P")
R = TypeVar("R")


def atomic_step(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method a step: callers find nothing to take until it ends.

    A step within a step is a part of it.
    """

    @wraps(method)
    def step(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        generator = self.generator
        if self.busy:  # a step within a step, or in the last line of one
            generator._exposed = EMPTY
            return method(self, *args, **kwargs)
        try:
            self.busy = True
            generator._exposed = EMPTY
            return method(self, *args, **kwargs)
        finally:
            # Python may have forked meanwhile: what is in hand is the parent's then.
            if generator._opening is self:
                generator._exposed = EMPTY if self.is_over else self.hand.piece
            self.busy = False

    return step
