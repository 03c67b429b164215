"""Ids that are text where a program shows them, and 64 bits where it stores them.  No I/O.

They are a `str` and not an `int`, because JSON writers write an `int`, and any subclass, as a
number, and JavaScript rounds numbers above 2^53.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from types import new_class
from typing import TYPE_CHECKING, ClassVar, Final, Self

from ..abc import MAX_ID, IdConverter
from ..abc.checks import check_integer, is_integer
from ..errors import InvalidArgumentError, InvalidIdError
from ._affix import PrefixIdConverter
from ._checks import check_converter
from ._decimal import ToStringIdConverter
from ._pattern import pattern_of
from ._radix import DIGITS, CrockfordIdConverter

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

__all__ = ("Int64Text", "TypedId", "check_prefix")

_PREFIX: Final = re.compile("[a-z](?:[a-z_]{0,61}[a-z])?")  # TypeID's
_PREFIX_RULE: Final = "must be 1 to 63 letters from a to z, with underscores only between them"
_DIGIT: Final = f"[{DIGITS.lower()}]"
_EXAMPLE: Final = 42
_INNER: Final = CrockfordIdConverter(check=False, lower_case=True)


def check_prefix(prefix: object) -> None:
    """Raise `InvalidArgumentError` unless TypeID allows this prefix."""
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise InvalidArgumentError("prefix", prefix, _PREFIX_RULE)


class TypedId(str):
    """An id whose text says what it identifies, for example ``ord_0000000000016``.

    Create a class for each kind of id, and use it in annotations::

        class OrderId(TypedId, prefix="ord"): ...

    ``OrderId(42)`` creates an id from a number, ``OrderId("ord_0000000000016")`` reads a text, and
    ``int(order_id)`` is the number: 63 bits, for a column of 64.  All texts of a class have the
    same length and sort like their numbers, and only the text that `OrderId` writes can be read.

    An id is a `str`, so in JSON it is text; msgspec needs a hook to write it.  It equals its text,
    but neither its number nor an id with a different prefix.

    With a converter and no prefix the text is the converter's::

        class PublicId(TypedId, inner=Radix62IdConverter()): ...

    Without a type checker, ``TypedId["ord"]`` is also such a class, always the same one.

    Attributes:
        prefix: the beginning of a text, before the underscore; empty if there is none.
        converter: formats and reads the texts; pass it to a generator that issues texts.
        pattern: a regular expression for a whole text, also valid in ECMA-262.
        max_id: the highest number of an id.
    """

    __slots__ = ("_number",)

    prefix: ClassVar[str] = ""
    converter: ClassVar[IdConverter]
    pattern: ClassVar[str]
    max_id: ClassVar[int] = MAX_ID

    _number: int

    def __init_subclass__(
        cls,
        *,
        prefix: str | None = None,
        inner: IdConverter | None = None,
        max_id: int | None = None,
    ) -> None:
        """Choose the format of a class's ids.

        Args:
            prefix: 1 to 63 letters from a to z, with underscores between them; a class without a
                prefix inherits its parent's, unless it has an ``inner``.
            inner: formats the number after prefix and underscore, for example an
                `OpaqueIdConverter`, which hides it; by default a `CrockfordIdConverter` in lower
                case.
            max_id: the highest number of an id, up to 2^63-1; 2^53-1 for JavaScript's numbers.  A
                class without it inherits its parent's.

        Raises:
            InvalidArgumentError: TypeID does not allow this prefix, or another argument is not
                valid.
        """
        super().__init_subclass__()
        if max_id is not None:
            check_integer("max_id", max_id, at_least=1, at_most=MAX_ID)
            cls.max_id = max_id
        if inner is not None:
            check_converter(inner)
        if prefix is not None:
            check_prefix(prefix)
            cls.prefix = prefix
            cls.converter = PrefixIdConverter(f"{prefix}_", inner or _INNER)
            rest = (pattern_of(inner.as_tree()) or ".+") if inner else f"[0-7]{_DIGIT}{{12}}"
            cls.pattern = f"{prefix}_{rest}"
        elif inner is not None:
            cls.prefix = ""
            cls.converter = inner
            cls.pattern = pattern_of(inner.as_tree()) or ".+"

    def __class_getitem__(cls, prefix: str) -> type[TypedId]:
        """Return a class for a prefix, always the same one for the same prefix.

        Raises:
            InvalidArgumentError: TypeID does not allow this prefix.
        """
        check_prefix(prefix)
        return _class_of(cls, prefix)

    def __new__(cls, value: int | str) -> Self:
        """Create an id from a number, 0 to `max_id`, or read a text.

        Raises:
            InvalidIdError: the value is neither, or the text has a different prefix or form.
            InvalidArgumentError: the class has no prefix.
        """
        if type(value) is cls:
            return value
        converter: IdConverter | None = getattr(cls, "converter", None)
        if converter is None:
            rule = f"is required; define class OrderId({cls.__name__}, prefix='ord'), for example"
            raise InvalidArgumentError("prefix", None, rule)
        try:
            number = converter.as_int(value) if isinstance(value, str) else _number_of(value)
            text = converter.as_str(number)
        except InvalidIdError as error:
            raise cls._refusal(value, error.rule) from None
        if not 0 <= number <= cls.max_id or (isinstance(value, str) and text != value):
            raise cls._refusal(value)
        self = super().__new__(cls, text)
        self._number = number
        return self

    @classmethod
    def _refusal(cls, value: object, rule: str = "") -> InvalidIdError:
        head = cls.prefix and f"{cls.prefix}_"
        if isinstance(value, str) and value.startswith(head) and (head or not rule):
            rule = f"must be a complete text{cls._example()}, for a number up to {cls.max_id}"
        return InvalidIdError(cls.__name__, value, rule or f"must be from 0 to {cls.max_id}")

    @classmethod
    def _example(cls) -> str:
        """Return a text for a message; empty if a plain number has no text, as with a group."""
        try:
            return f" such as '{cls(min(_EXAMPLE, cls.max_id))!s}'"
        except InvalidIdError:
            return ""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return an id of this class, or read a text that came from outside.

        A number is refused, because it does not say what it identifies.

        Raises:
            InvalidIdError: the value is neither, or the text has a different prefix or form.
        """
        if not isinstance(value, str):
            raise InvalidIdError(cls.__name__, value, f"must be a string{cls._example()}")
        return cls(value)

    def __int__(self) -> int:
        """Return the number, from 0 to 2^63-1."""
        return int(self._number)

    def __conform__(self, _protocol: object) -> int:
        """Let sqlite3 store the number."""
        return int(self._number)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the class and the number."""
        return type(self), (self._number,)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Validate a text; in JSON it is the text."""
        from pydantic_core import PydanticCustomError  # noqa: PLC0415 - pydantic calls this, so it is installed
        from pydantic_core import core_schema as cs  # noqa: PLC0415 - as above

        def read(value: object) -> TypedId:
            try:
                return cls.parse(value)
            except InvalidIdError as error:
                raise PydanticCustomError("id_text", "{reason}", {"reason": str(error)}) from error

        write = cs.to_string_ser_schema(when_used="json")
        return cs.no_info_plain_validator_function(read, serialization=write)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the text."""
        return cls.json_schema()

    @classmethod
    def json_schema(cls) -> dict[str, object]:
        """Return a JSON Schema of the texts, which is also valid in OpenAPI."""
        schema: dict[str, object] = {"type": "string", "pattern": f"^(?:{cls.pattern})$"}
        with suppress(InvalidIdError):
            schema["examples"] = [str(cls(min(_EXAMPLE, cls.max_id)))]
        return schema


class Int64Text(TypedId):
    """An id as its decimal digits: text without a prefix, for interfaces that already show numbers.

    It is created and read like a `TypedId`, and ``int(text)`` is the number.  `parse` also accepts
    a number, since its digits are equivalent.  Texts have no sign, no space and no leading zeros,
    so they do not sort like numbers.
    """

    __slots__ = ()

    converter: ClassVar[IdConverter] = ToStringIdConverter()
    pattern: ClassVar[str] = "0|[1-9][0-9]{0,18}"

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return an id of this class, or read digits or a number that came from outside.

        Raises:
            InvalidIdError: the value is none of these, or is written in another form.
        """
        return cls(value)  # type: ignore[arg-type]  # it refuses the others

    @classmethod
    def json_schema(cls) -> dict[str, object]:
        """Return a JSON Schema of the texts, which is also valid in OpenAPI."""
        return super().json_schema() | {"format": "int64"}


def _number_of(value: object) -> int:
    """Return an integer unchanged, since it may have a group; raise for anything else."""
    if not is_integer(value):
        raise InvalidIdError("id", value, f"must be a string or an integer from 0 to {MAX_ID}")
    return value  # type: ignore[return-value]  # it is an integer


@cache
def _class_of(parent: type[TypedId], prefix: str) -> type[TypedId]:
    """Return the class of ``parent[prefix]``; its ids are pickled through that expression."""

    def reduce(self: TypedId) -> tuple[object, ...]:
        return _unpickled, (parent, prefix, self._number)

    name = f'{parent.__name__}["{prefix}"]'
    body = {"__slots__": (), "__module__": parent.__module__, "__reduce__": reduce}
    made: type[TypedId] = new_class(name, (parent,), {"prefix": prefix}, lambda it: it.update(body))
    return made


def _unpickled(parent: type[TypedId], prefix: str, number: int) -> TypedId:
    return _class_of(parent, prefix)(number)
