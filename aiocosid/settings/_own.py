"""What is a user's own, made of a class or function that settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._life.component import Component
from ..abc import IdGenerator, TextIdGenerator
from ..errors import CosIdError, InvalidArgumentError

if TYPE_CHECKING:
    from ..abc import AnyGenerator
    from ._generators import OwnGeneratorSettings
    from ._models import OwnStoreSettings
    from ._texts import ConverterSettings

    Own = ConverterSettings | OwnGeneratorSettings | OwnStoreSettings

__all__ = ("make_generator", "make_own")


def make_own(section: Own, kind: Any, what: str) -> Any:  # noqa: ANN401 - of that kind
    """Return what ``make`` makes with its ``options``.

    Args:
        section: the table that has both.
        kind: the class, or union of classes, of which it has to be.
        what: that class in words, for errors.

    Raises:
        InvalidArgumentError: it is no such thing, or could not be made.
    """
    if section.make is None:
        raise InvalidArgumentError("make", None, expected=f"what makes {what}")
    try:
        made = section.make(**section.options)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        # The text of errors that are not about arguments may show a password.
        is_harmless = isinstance(error, CosIdError | TypeError)
        reason = str(error) if is_harmless else type(error).__name__
        expected = f"what makes {what}; it failed: {reason}"
        raise InvalidArgumentError("make", section.make, expected=expected) from None
    if not isinstance(made, kind):
        expected = f"what makes {what}; it made an object of {type(made).__name__}"
        raise InvalidArgumentError("make", section.make, expected=expected)
    return made


def make_generator(section: OwnGeneratorSettings) -> AnyGenerator:
    """Return a generator of the user's that a provider can open.

    Raises:
        InvalidArgumentError: it is none, or could not be made.
    """
    made: AnyGenerator = make_own(section, IdGenerator | TextIdGenerator, "a generator")
    found: object = made
    while not isinstance(found, Component):
        found = getattr(found, "_inner", None)
        if found is None:
            expected = "what makes a generator of this library, or one that wraps such"
            raise InvalidArgumentError("make", section.make, expected=expected)
    return made
