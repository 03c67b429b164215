"""Ids as text in pydantic models, and so in the JSON and the URLs of FastAPI.

JavaScript reads integers of at most 53 bits exactly, so an id is sent as a string.  In Python it is
an `int`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from ..abc import MAX_ID, IdConverter
from ..errors import InvalidArgumentError, InvalidIdError, MissingExtraError

try:
    from pydantic_core import PydanticCustomError
    from pydantic_core import core_schema as cs
except ModuleNotFoundError as _error:
    raise MissingExtraError("pydantic", extra="settings") from _error

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue

__all__ = ("ConvertedId", "Int64Str")

_DECIMAL: Final = re.compile("0|[1-9][0-9]{0,18}")
_DIGITS: Final[dict[int, str]] = {
    36: "[0-9A-Z]",
    62: "[0-9A-Za-z]",
}
"""The digits of a radix."""
_SYNTAX: Final = re.compile(r"[\^$\\.*+?()[\]{}|/]")  # of ECMA-262; re.escape knows Python's only
_EXAMPLE: Final = 42


@dataclass(frozen=True, slots=True)
class _DecimalText:
    """The annotation of `Int64Str`; see there."""

    def __get_pydantic_core_schema__(
        self, _source: object, _handler: GetCoreSchemaHandler
    ) -> cs.CoreSchema:
        """Validate an integer or its decimal digits."""
        inner = cs.int_schema(strict=True, ge=0, le=MAX_ID)
        return cs.no_info_before_validator_function(
            _from_decimal, inner, serialization=cs.to_string_ser_schema(when_used="json")
        )

    def __get_pydantic_json_schema__(
        self, _schema: cs.CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the string."""
        return {"type": "string", "format": "int64", "pattern": f"^(?:{_DECIMAL.pattern})$"}


Int64Str: TypeAlias = Annotated[int, _DecimalText()]
"""An id from 0 to 2^63-1: an `int` in Python, its decimal digits in JSON.

Read from an integer or from digits without sign, space or leading zeros, so that an id has one
text.  OpenAPI: ``type: string``, ``format: int64``.
"""


def _from_decimal(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not _DECIMAL.fullmatch(value):
        expected = "Input should be an integer from 0 to {most} in decimal digits"
        raise PydanticCustomError("int64_text", expected, {"most": MAX_ID})
    return int(value)


@dataclass(frozen=True, slots=True)
class ConvertedId:
    """Marks ids that are an `int` in Python, and a converter's text in JSON and URLs.

    An annotation::

        OrderId = Annotated[int, ConvertedId(Radix62IdConverter())]

    A value is read from that text, and in Python also from an integer, as in ``Order(id=42)``.
    FastAPI validates request bodies in Python mode, so clients may send the number there too.

    Attributes:
        converter: of `aiocosid.converter`, or your own.
        text_only: whether numbers are refused in Python as well: for models of client input if the
            numbers are secret, as with an opaque converter.
    """

    converter: IdConverter
    text_only: bool = False

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` unless there is a converter."""
        if not isinstance(self.converter, IdConverter):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            expected = "an IdConverter, as Radix62IdConverter()"  # type: ignore[unreachable]
            raise InvalidArgumentError("converter", self.converter, expected=expected)

    def __get_pydantic_core_schema__(
        self, _source: object, _handler: GetCoreSchemaHandler
    ) -> cs.CoreSchema:
        """Validate a text, or an integer."""
        write = cs.plain_serializer_function_ser_schema(
            self.converter.as_str, return_schema=cs.str_schema(), when_used="json"
        )
        return cs.with_info_plain_validator_function(self._read, serialization=write)

    def __get_pydantic_json_schema__(
        self, _schema: cs.CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the text, as far as the converter is known."""
        return {"type": "string", **_described(self.converter)}

    def _read(self, value: object, info: cs.ValidationInfo) -> int:
        if isinstance(value, str):
            try:
                return _checked(value, self.converter.as_int(value))
            except InvalidIdError as error:
                raise PydanticCustomError("id_text", "{reason}", {"reason": str(error)}) from error
        takes_number = info.mode == "python" and not self.text_only
        # Itself, not a plain integer: an id may know its group.
        if takes_number and isinstance(value, int) and not isinstance(value, bool):
            if 0 <= value <= MAX_ID:
                return value
            expected = "Input should be an integer from 0 to {most}"
            raise PydanticCustomError("int64", expected, {"most": MAX_ID})
        raise PydanticCustomError("id_text", "Input should be the text of an id")


def _checked(text: str, new_id: int) -> int:
    """Return the argument; raise unless it is an id, since a decimal converter may read a sign."""
    if not 0 <= new_id <= MAX_ID:
        raise InvalidIdError("id", text, expected=f"the text of an id from 0 to {MAX_ID}")
    return new_id


def _described(converter: IdConverter) -> dict[str, Any]:
    """Return pattern and example, or neither for a text that depends on the day or on a key."""
    pattern = _pattern(converter.as_tree())
    if pattern is None:
        return {}
    known: dict[str, Any] = {"pattern": f"^{pattern}$"}
    with suppress(InvalidIdError):
        known["examples"] = [converter.as_str(_EXAMPLE)]
    return known


def _pattern(tree: dict[str, Any]) -> str | None:
    """Return a regular expression for what a converter writes, by what it says about itself."""
    match tree:
        case {"radix": radix, "charSize": size, "padStart": pad} if digits := _DIGITS.get(radix):
            return f"{digits}{{{'' if pad else '1,'}{size}}}"
        case {"kind": "ToStringIdConverter", "padStart": pad, "charSize": size}:
            return f"[0-9]{{{size},}}" if pad else "[0-9]{1,19}"
        case {"prefix": str(affix), "actual": inner}:
            rest = _pattern(inner)
            return rest and _SYNTAX.sub(r"\\\g<0>", affix) + rest
        case {"suffix": str(affix), "actual": inner}:
            rest = _pattern(inner)
            return rest and rest + _SYNTAX.sub(r"\\\g<0>", affix)
        case {"kind": "JavaScriptSafeIdConverter", "actual": inner}:
            return _pattern(inner)
        case _:
            return None
