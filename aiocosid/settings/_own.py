"""What is a user's own, made of a class or function that settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import CosIdError, InvalidArgumentError

if TYPE_CHECKING:
    from ._models import ConverterSettings, OwnStoreSettings

__all__ = ("make_own",)


def make_own(section: OwnStoreSettings | ConverterSettings, kind: type[Any], what: str) -> Any:  # noqa: ANN401 - of that kind
    """Return what ``make`` makes with its ``options``.

    Args:
        section: the table that has both.
        kind: the class of which it has to be.
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
