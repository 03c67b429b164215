"""Lets aiocosid's errors pass through SQLAlchemy unwrapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.exc import DontWrapMixin

if TYPE_CHECKING:
    from ...errors import CosIdError

__all__ = ("passing",)

_kinds: Final[dict[type, type[CosIdError]]] = {}


class _Passing(DontWrapMixin):
    """Makes an error pass through SQLAlchemy, which puts others into a ``StatementError``."""

    def __reduce__(self) -> Any:  # noqa: ANN401 - as CosIdError's
        """Pickle as the error that it was made from."""
        facts: Any = super().__reduce__()
        rebuild, (kind, *others) = facts
        return rebuild, (kind.__bases__[1], *others)


def passing(error: CosIdError) -> CosIdError:
    """Return a copy of an error that SQLAlchemy lets through; raise it from the same cause."""
    kind = type(error)
    if kind not in _kinds:
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        _kinds[kind] = type(kind.__name__, (_Passing, kind), names)
    copy = error.again()
    copy.__class__ = _kinds[kind]
    return copy
