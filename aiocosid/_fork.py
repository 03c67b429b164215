"""What a forked child must forget.

One hook for the whole package.  Whoever owns tasks registers itself; everybody else compares
`generation` before it trusts what it remembers.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Final, Protocol

generation: int = 0
"""Counts the forks between this process and the one that imported the package."""

abandoned: Final[list[Any]] = []
"""Connections of the parent: kept alive in the child, so that no destructor says good-bye on a
socket or a file that the parent still uses."""


class _Forgetful(Protocol):
    def _forget(self) -> None:
        """Runs in the child, before anything else does; must not wait or touch a loop."""


_owners: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def watch(owner: _Forgetful) -> None:
    """Have ``owner._forget()`` called in every child forked from now on."""
    _owners.add(owner)


def _after_fork_in_child() -> None:
    global generation  # noqa: PLW0603 - a fact of the process, like its pid
    generation += 1
    for owner in tuple(_owners):
        owner._forget()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork either
    os.register_at_fork(after_in_child=_after_fork_in_child)
