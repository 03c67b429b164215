"""What belongs to one process: a forked child must forget it, and it cannot be copied.

There is one hook for the whole package.  Objects that own tasks register themselves; all others
compare `generation` before they trust what they remember.
A copy would hand out the same ids again, and would not be told of a fork.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, SupportsIndex

from ..errors import ForkedError
from ..errors.base import REOPEN

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger("aiocosid")

generation: int = 0
"""Counts the forks between this process and the one that imported the package."""

abandoned: Final[list[Any]] = []
"""Connections of the parent, kept alive in the child, so that no destructor closes a session over
a socket or a file that the parent still uses."""


def ensure_own(born: int, what: str, *, remedy: str = REOPEN) -> None:
    """Raise in a child that was forked since.

    Args:
        born: `generation` when this process got hold of the object.  A suspended call passes the
            value from its own beginning, because the child may have reopened the object meanwhile.
        what: names the object in the message.
        remedy: what to do about it.

    Raises:
        ForkedError: the object belongs to the parent process.
    """
    if born != generation:
        raise ForkedError(what, remedy=remedy)


class _Forgetful(Protocol):
    def _forget(self) -> None:
        """Runs in the child before anything else; must not wait or touch a loop."""


_owners: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def watch(owner: _Forgetful) -> None:
    """Make sure that ``owner._forget()`` is called in every child forked from now on."""
    _owners.add(owner)


def silence(sockets: Iterable[Any]) -> None:
    """Redirect the parent's sockets to nowhere, under the numbers that destructors know.

    Args:
        sockets: results of a transport's ``get_extra_info("socket")``; None is skipped.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for socket in sockets:
        if socket is not None and socket.fileno() >= 0:
            os.dup2(nowhere, socket.fileno())
    os.close(nowhere)


def _after_fork_in_child() -> None:
    global generation  # noqa: PLW0603 - a fact of the process, like its pid
    generation += 1
    if generation == 1:  # otherwise the handler is inherited
        atexit.register(_keep_for_ever)
    for owner in tuple(_owners):
        try:
            owner._forget()
        except Exception:  # the others must forget the parent anyway
            logger.exception("after a fork: the child could not reset %r", owner)


def _keep_for_ever() -> None:
    """Keep the list from being destroyed with its module, when much of the interpreter is gone."""
    with suppress(Exception):  # some builds of Python have no ctypes, or forbid it
        ctypes = import_module("ctypes")
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(abandoned))


def refuse_copy(found: object) -> NoReturn:
    """Raise `TypeError`: for a class's ``__reduce_ex__``, which makes copies and pickles."""
    raise TypeError(
        f"{type(found).__name__} cannot be copied or pickled; "
        "share it within a process, and make one in each process"
    )


class NotCopyable:
    """Refuses `copy`, `pickle` and what builds on them, such as `dataclasses.asdict`."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        """Refuse to be copied or pickled."""
        refuse_copy(self)


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_after_fork_in_child)
