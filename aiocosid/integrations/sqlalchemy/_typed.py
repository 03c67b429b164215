"""Text in Python, a number in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger
from sqlalchemy.types import TypeDecorator

from ...errors import CosIdError
from ._defaults import BIGINT, passing

if TYPE_CHECKING:
    from sqlalchemy import Dialect
    from sqlalchemy.sql.operators import OperatorType
    from sqlalchemy.types import TypeEngine

    from ...converter import TypedId

__all__ = ("TypedIdType",)


class TypedIdType(TypeDecorator[str]):
    """A column of 64-bit integers whose values belong to one `TypedId` class.

    The database stores 8 bytes and keeps the order of the numbers; the column's default may be a
    generator of numbers, or of texts of that class.  In an expression a text means the same as the
    id: ``Order.id == "ord_000000000001a"``; a text in another form is refused.  An ``int`` means
    the number itself: ``Order.id > 1000``.
    """

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = BigInteger
    cache_ok: bool | None = True

    def __init__(self, kind: type[TypedId]) -> None:
        """Describe the column.

        Args:
            kind: the class of its values.
        """
        super().__init__()
        self.kind = kind

    @property
    def python_type(self) -> type[str]:
        """The Python type of the values."""
        return self.kind

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the type in the database."""
        return dialect.type_descriptor(BIGINT)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        """Return the number for an id or its text.

        Raises:
            InvalidIdError: the value is a number of a class whose texts contain more; or the class
                would not write such a text, because two texts of one row would be two objects in a
                session.
        """
        if value is None:
            return None
        try:
            return int(self.kind.parse(value))
        except CosIdError as error:
            raise passing(error) from error.__cause__

    def process_literal_param(self, value: str | None, dialect: Dialect) -> str:
        """Return the number of a text as SQL."""
        return str(self.process_bind_param(value, dialect))

    def process_result_value(self, value: int | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Return the id for a number."""
        return None if value is None else self.kind(value)

    def coerce_compared_value(self, op: OperatorType | None, value: object) -> TypeEngine[Any]:  # noqa: ARG002
        """Compare numbers as numbers."""
        return BIGINT if isinstance(value, int) else self
