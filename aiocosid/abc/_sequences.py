"""The contract of a distributor of sequences, which many processes share within each second."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, TypeAlias

from ._ids import DEFAULT_NAMESPACE
from .checks import check_integer, check_text

__all__ = (
    "DEFAULT_MAX_SEQUENCE",
    "DEFAULT_TOLERANCE",
    "MAX_SECOND",
    "SecondFenced",
    "SecondSpent",
    "SequenceDistributor",
    "SequenceGrant",
    "SequenceReply",
)

DEFAULT_MAX_SEQUENCE: Final = 2**19 - 1
"""The highest sequence of the Redis generator's layout, whose sequences begin at 1."""

DEFAULT_TOLERANCE: Final = 2
"""Seconds by which the clocks of hosts and store may disagree."""

MAX_TOLERANCE: Final = 3600
MOST_SEQUENCES: Final = 2**53 - 1  # the largest exact number in Lua

MAX_SECOND: Final = 2**43
"""The latest second; Lua can also represent its milliseconds exactly."""


@dataclass(frozen=True, slots=True)
class SequenceGrant:
    """Sequences of one second that belong to the caller alone.

    Attributes:
        second: the second since 1970-01-01T00:00Z; the sequences are valid only in this one.
        first: the first sequence, at least 1.
        last: the last one, at least `first`; lower than requested if the second has no more.
    """

    second: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SecondSpent:
    """All sequences of the second have been granted; nothing was written.

    Attributes:
        second: the second.
    """

    second: int


@dataclass(frozen=True, slots=True)
class SecondFenced:
    """The store may have lost its grants of this second, so it grants no sequence of it.

    Attributes:
        opens: the first second in which it grants sequences again.
        now: the store's own second.
    """

    opens: int
    now: int


SequenceReply: TypeAlias = SequenceGrant | SecondSpent | SecondFenced
"""What a store answers."""


class SequenceDistributor(ABC):
    """Grants sequences to all processes under one name, each sequence once per second.

    A custom subclass calls ``super().__init__`` and implements `grant`.

    Attributes:
        namespace: groups the names of one system.
        name: the name under which each sequence is granted once within a second.
        max_sequence: the highest sequence that is granted.
        tolerance: seconds by which a second may differ from the store's own.
    """

    __slots__ = ("__weakref__", "max_sequence", "name", "namespace", "tolerance")

    store: str = "store"
    """The kind of store, for error messages."""

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        max_sequence: int = DEFAULT_MAX_SEQUENCE,
        tolerance: int = DEFAULT_TOLERANCE,
    ) -> None:
        """Describe a sequence; nothing is read or written yet.

        Args:
            namespace: not empty, without NUL.
            name: not empty, without NUL.
            max_sequence: the highest sequence, at least 1; the same on all nodes.
            tolerance: whole seconds, 1 to 3600; the same on all nodes.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        check_text("namespace", namespace)
        check_text("name", name)
        check_integer("max_sequence", max_sequence, at_least=1, at_most=MOST_SEQUENCES)
        check_integer("tolerance", tolerance, at_least=1, at_most=MAX_TOLERANCE)
        self.namespace: str = namespace
        self.name: str = name
        self.max_sequence: int = max_sequence
        self.tolerance: int = tolerance

    @property
    def namespaced_name(self) -> str:
        """``{namespace}.{name}``."""
        return f"{self.namespace}.{self.name}"

    @abstractmethod
    async def grant(self, second: int, size: int) -> SequenceReply:
        """Take the next ``size`` sequences of a second.

        It takes effect in one atomic operation.  Applying it twice must be safe, because drivers
        resend: that may waste sequences, but must never grant one again.  A cancelled call may have
        taken effect; its connection must not go back to a pool.

        Args:
            second: since 1970-01-01T00:00Z, 0 to 2^43.
            size: how many, 1 to `max_sequence`; fewer are granted if the second has no more.

        Raises:
            InvalidArgumentError: an argument is outside its range; nothing was written.
            ClockSkewError: the store's clock differs from ``second`` by more than `tolerance`;
                nothing was written.
            StoreUnavailableError: the store cannot be reached or does not answer.
            StoreError: the store refuses.
        """

    def _check(self, second: int, size: int) -> None:
        """Raise unless the arguments of `grant` are in their ranges."""
        check_integer("second", second, at_least=0, at_most=MAX_SECOND)
        check_integer("size", size, at_least=1, at_most=self.max_sequence)

    async def aopen(self) -> None:
        """Prepare for this process and event loop; called whenever a generator on it is opened.

        Raises:
            ForkedError: it uses a client of the parent process.
        """

    async def aclose(self) -> None:
        """Release what this object has opened itself; never what the user passed in."""

    def __repr__(self) -> str:
        """Show the sequence."""
        return f"<{type(self).__name__} {self.namespaced_name}>"
