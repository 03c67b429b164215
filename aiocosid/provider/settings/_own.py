"""Creates the user's own stores, converters and generators with functions that settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._life.component import Component
from ...abc import IdGenerator, TextIdGenerator
from ...errors import CosIdError, InvalidArgumentError

if TYPE_CHECKING:
    from ...abc import AnyGenerator
    from ._generators import OwnGeneratorSettings
    from ._models import OwnStoreSettings
    from ._texts import ConverterSettings

    Own = ConverterSettings | OwnGeneratorSettings | OwnStoreSettings

__all__ = ("make_generator", "make_own")


def make_own(section: Own, kind: Any, what: str) -> Any:  # noqa: ANN401 - of that kind
    """Call ``make`` with the ``options``, and return the result.

    Args:
        section: the table that has both keys.
        kind: the class, or union of classes, that the result must have.
        what: that class in words, for errors.

    Raises:
        InvalidArgumentError: the call failed, or returned something else.
    """
    if section.make is None:
        raise InvalidArgumentError("make", None, f"is required: it makes {what}")
    try:
        result = section.make(**section.options)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        # The text of an error that is not about arguments may show a password.
        is_harmless = isinstance(error, CosIdError | TypeError)
        reason = str(error) if is_harmless else type(error).__name__
        rule = f"must make {what}: it failed: {reason}"
        raise InvalidArgumentError("make", section.make, rule) from None
    if not isinstance(result, kind):
        rule = f"must make {what}: it made an object of {type(result).__name__}"
        raise InvalidArgumentError("make", section.make, rule)
    return result


def make_generator(section: OwnGeneratorSettings) -> AnyGenerator:
    """Return the user's own generator, which a provider can open.

    Raises:
        InvalidArgumentError: the call failed, or returned something else.
    """
    generator: AnyGenerator = make_own(section, IdGenerator | TextIdGenerator, "a generator")
    found: object = generator
    while not isinstance(found, Component):
        found = getattr(found, "_inner", None)
        if found is None:
            rule = "must make a generator of this library, or one that wraps such a generator"
            raise InvalidArgumentError("make", section.make, rule)
    return generator
