"""Mixins that bring a primary key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from sqlalchemy import BigInteger, Integer, String
from sqlalchemy.orm import Mapped, declared_attr, mapped_column

from ...abc import SHARE
from ...errors import InvalidArgumentError
from ._defaults import cosid_default

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine

__all__ = ("BIGINT", "SegmentPrimaryKey", "SnowflakePrimaryKey", "TextPrimaryKey")

_T = TypeVar("_T")

BIGINT: Final = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits everywhere; on SQLite the one type whose primary key is the table itself."""


class _Key(declared_attr[_T]):
    """May be looked at on a mixin itself, of which SQLAlchemy would warn."""

    if not TYPE_CHECKING:

        def __get__(self, instance: object, owner: type) -> Any:  # noqa: ANN401 - as its parent's
            return self if owner.__module__ == __name__ else super().__get__(instance, owner)


class SegmentPrimaryKey:
    """A mixin: ``id`` is a primary key of 64 bits, from a counter of the table's own.

    Attributes:
        __cosid__: the generator's name; the table's if it is not set.
    """

    __cosid__: ClassVar[str | None] = None

    @_Key
    def id(cls) -> Mapped[int]:  # noqa: N805 - SQLAlchemy calls it with the class
        """The primary key."""
        return _key(BIGINT, _name(cls))


class SnowflakePrimaryKey:
    """A mixin: ``id`` is a primary key of 64 bits, from one generator for all tables.

    Attributes:
        __cosid__: the generator's name; ``__share__`` if it is not set.
    """

    __cosid__: ClassVar[str] = SHARE

    @_Key
    def id(cls) -> Mapped[int]:  # noqa: N805 - as above
        """The primary key."""
        return _key(BIGINT, cls.__cosid__)


class TextPrimaryKey:
    """A mixin: ``id`` is a primary key of text, from a generator of texts.

    On MySQL give the table a binary collation: texts of two ids may differ in case alone.

    Attributes:
        __cosid__: the generator's name; the table's if it is not set.
        __cosid_length__: the column's width in characters.
    """

    __cosid__: ClassVar[str | None] = None
    __cosid_length__: ClassVar[int] = 32

    @_Key
    def id(cls) -> Mapped[str]:  # noqa: N805 - as above
        """The primary key."""
        return _key(String(cls.__cosid_length__), _name(cls))


def _name(cls: Any) -> str:  # noqa: ANN401 - a mapped class
    name: str | None = cls.__cosid__ or getattr(cls, "__tablename__", None)
    if name is None:
        argument = f"__cosid__ of {cls.__module__}.{cls.__qualname__}"
        raise InvalidArgumentError(
            argument, None, expected="a generator's name: it has no table name"
        )
    return name


def _key(kind: TypeEngine[Any], name: str) -> Mapped[Any]:
    default = cosid_default(name)
    return mapped_column(
        kind, primary_key=True, autoincrement=False, default=default, sort_order=-1
    )
