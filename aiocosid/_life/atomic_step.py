"""Steps during which no other code may take an id.  Pure.

Python runs signal handlers, finalizers, log filters and instruments between any two lines of a
function, in the same thread.  If one of them takes an id while a step moves a generator's position,
it starts from where the step started, and both hand out the same id.  A lock does not help, because
the handler would wait for the very step that it interrupts.  So a step marks its object as busy.

`refuse_reentry` makes a method raise `WouldBlock` if its object is busy::

    if self._busy:
        raise WouldBlock
    try:
        self._busy = True
        ...  # the step
    finally:
        self._busy = False

`atomic_step` hides the buffered ids until the step ends, and treats a step within a step as part of
it.  Callers find nothing to take meanwhile.

The flag is set inside ``try``, because a handler may also raise between any two lines, and the flag
must then be reset.  For the same reason the end of a step makes no calls: a handler may raise in
each of them, and at the recursion limit all of them fail.  These lines are repeated elsewhere where
another call per id would cost too much, and where a busy object is handled in another way.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, Protocol, TypeVar

from ..errors import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..errors import CosIdError

__all__ = ("EMPTY", "atomic_step", "refuse_reentry")

EMPTY: Final[Iterator[int]] = iter(range(0))
"""What callers find while there are no ids to take."""


class _Busy(Protocol):
    _busy: bool


class _Hand(Protocol):
    busy: bool
    exposed: Iterator[int]  # what callers take from: the piece, or EMPTY
    piece: Iterator[int]


class _Home(Protocol):
    ended: CosIdError | None  # an attribute, because the end of a step makes no calls


class _Life(Protocol):
    @property
    def home(self) -> _Home: ...


class _Exposing(Protocol):
    @property
    def hand(self) -> _Hand: ...

    @property
    def life(self) -> _Life: ...


B = TypeVar("B", bound=_Busy)
E = TypeVar("E", bound=_Exposing)
P = ParamSpec("P")
R = TypeVar("R")


def refuse_reentry(method: Callable[Concatenate[B, P], R]) -> Callable[Concatenate[B, P], R]:
    """Make a method raise `WouldBlock` if it is called during another step of its object."""

    @wraps(method)
    def step(self: B, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._busy:
            raise WouldBlock
        try:
            self._busy = True
            return method(self, *args, **kwargs)
        finally:
            self._busy = False

    return step


def atomic_step(method: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """Let callers find no ids while a method runs that changes the buffered ids."""

    @wraps(method)
    def step(self: E, /, *args: P.args, **kwargs: P.kwargs) -> R:
        hand, home = self.hand, self.life.home
        if hand.busy:  # a step within a step, or within the last line of one
            hand.exposed = EMPTY
            return method(self, *args, **kwargs)
        try:
            hand.busy = True
            hand.exposed = EMPTY
            return method(self, *args, **kwargs)
        finally:
            # Python may have forked meanwhile, and then the buffered ids are the parent's.
            hand.exposed = hand.piece if home.ended is None else EMPTY
            hand.busy = False

    return step
