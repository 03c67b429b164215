"""What is there once: a copy would hand out the same ids again, and not be told of a fork."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

__all__ = ("NotCopyable", "refuse_copy")


def refuse_copy(found: object) -> NoReturn:
    """Raise `TypeError`: for a class's ``__reduce_ex__``, by which copies and pickles are made."""
    raise TypeError(
        f"{type(found).__name__} cannot be copied or pickled; "
        "share it in a process, and make one in each process"
    )


class NotCopyable:
    """Refuses `copy`, `pickle` and what builds on them, such as `dataclasses.asdict`."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        """Refuse."""
        refuse_copy(self)
