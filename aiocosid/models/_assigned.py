"""Ids that were assigned, until it is sure that they stay."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidArgumentError
from ._annotations import describe

if TYPE_CHECKING:
    from ._fields import IdField

__all__ = ("Assigned",)

_ABSENT: Final = object()  # an attribute that was not set


class Assigned:
    """Assigns ids, and takes them back if a later one is refused."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done: list[tuple[object, str, object, object, bool]] = []

    def __len__(self) -> int:
        return len(self._done)

    def assign(self, of: object, field: IdField, new_id: object) -> None:
        """Assign an id.

        Raises:
            InvalidArgumentError: the object does not take it; its own error is the ``__cause__``.
        """
        attribute = field.attribute
        is_unset = attribute not in getattr(of, "__pydantic_fields_set__", (attribute,))
        self._done.append((of, attribute, new_id, _own_value(of, attribute), is_unset))
        try:
            setattr(of, attribute, new_id)
        except Exception as error:
            place = f"{describe(type(of))}.{attribute}"
            expected = "an id that the model accepts"
            raise InvalidArgumentError(place, new_id, expected=expected) from error

    def take_back(self) -> None:
        """Leave the objects as they were, except where somebody has set another value."""
        for of, attribute, new_id, old, is_unset in reversed(self._done):
            with suppress(Exception):  # the others' turn comes, whatever this one does
                if getattr(of, attribute, None) == new_id:
                    _put_back(of, attribute, old)
                    if is_unset:
                        of.__pydantic_fields_set__.discard(attribute)  # type: ignore[attr-defined]
        self._done.clear()


def _own_value(of: object, attribute: str) -> object:
    """Return what an object has itself, and not its class."""
    own: dict[str, Any] = getattr(of, "__dict__", {})
    if attribute in own:
        return own[attribute]
    is_elsewhere = hasattr(getattr(type(of), attribute, None), "__set__")  # slots, a property
    if is_elsewhere and not hasattr(of, "_sa_instance_state"):
        return getattr(of, attribute, _ABSENT)
    return _ABSENT


def _put_back(of: object, attribute: str, old: object) -> None:
    if old is _ABSENT:
        delattr(of, attribute)
        return
    try:
        object.__setattr__(of, attribute, old)  # past validators: the default may be against them
    except TypeError:
        setattr(of, attribute, old)
