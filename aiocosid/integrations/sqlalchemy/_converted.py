"""Text in Python, a number in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger
from sqlalchemy.types import TypeDecorator

from ...errors import CosIdError, InvalidIdError
from ._defaults import BIGINT, passing

if TYPE_CHECKING:
    from sqlalchemy import Dialect
    from sqlalchemy.sql.operators import OperatorType
    from sqlalchemy.types import TypeEngine

    from ...abc import IdConverter
    from ...converter import TypedId

__all__ = ("ConvertedId", "TypedIdType")


class ConvertedId(TypeDecorator[str]):
    """A column of 64-bit integers whose values are text in Python.

    The database keeps 8 bytes and the order of the numbers; a default for the column is a generator
    of texts that come from the same converter.  An expression with an ``int`` means the number
    itself: ``Order.id > 1000``.
    """

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = BigInteger
    cache_ok: bool | None = True

    def __init__(self, converter: IdConverter) -> None:
        """Describe the column.

        Args:
            converter: writes the texts and reads them.
        """
        super().__init__()
        self.converter = converter

    @property
    def python_type(self) -> type[str]:
        """The Python type of the values."""
        return str

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the type in the database."""
        return dialect.type_descriptor(BIGINT)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        """Return the number of a text.

        Raises:
            InvalidIdError: the converter does not write such a text, though it may read it: two
                texts of one row would be two objects in a session.
        """
        if value is None:
            return None
        try:
            if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
                raise InvalidIdError("id", value, expected=f"a text of {self.converter!r}")
            number = self.converter.as_int(value)
            written = self.converter.as_str(number)
            if written != value:
                expected = f"written {written!r}; see IdConverter.as_str(as_int(text))"
                raise InvalidIdError("id", value, expected=expected)
        except CosIdError as error:
            raise passing(error) from error.__cause__
        return number

    def process_literal_param(self, value: str | None, dialect: Dialect) -> str:
        """Return the number of a text as SQL."""
        return str(self.process_bind_param(value, dialect))

    def process_result_value(self, value: int | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Return the text of a number."""
        return None if value is None else self.converter.as_str(value)

    def coerce_compared_value(self, op: OperatorType | None, value: object) -> TypeEngine[Any]:  # noqa: ARG002
        """Let numbers be numbers."""
        return BIGINT if isinstance(value, int) else self


class TypedIdType(ConvertedId):
    """A column of 64-bit integers whose values are of one class of `TypedId`.

    A default for the column may be a generator of numbers.  In an expression the text means the
    same as the id: ``Order.id == "ord_000000000001a"``; a text with another prefix is refused.
    """

    cache_ok: bool | None = True

    def __init__(self, kind: type[TypedId]) -> None:
        """Describe the column.

        Args:
            kind: the class of its values.
        """
        super().__init__(kind.converter)
        self.kind = kind

    @property
    def python_type(self) -> type[str]:
        """The Python type of the values."""
        return self.kind

    def process_bind_param(self, value: str | None, dialect: Dialect) -> int | None:
        """Return the number of an id or of its text.

        Raises:
            InvalidIdError: it is a number, or the text of another class.
        """
        if isinstance(value, self.kind):
            return int(value)
        return super().process_bind_param(value, dialect)

    def process_result_value(self, value: int | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Return the id of a number."""
        return None if value is None else self.kind(value)
