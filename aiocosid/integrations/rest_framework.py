"""Django REST framework: serializer fields that show ids as text."""

from __future__ import annotations

from typing import Any, cast

from rest_framework import serializers

from ..converter import Int64Text, TypedId
from ..errors import InvalidIdError

__all__ = ("Int64StrField", "TypedIdField")


_Field: Any = serializers.Field  # the framework has no types


class _IdField(_Field):  # type: ignore[misc]  # as above
    """Turns what a class of ids refuses into an error of the field."""

    default_error_messages = {"invalid": "{reason}"}  # noqa: RUF012 - the framework's own way

    def to_internal_value(self, data: object) -> object:
        """Return the id of a request's value."""
        try:
            return self.read(data)
        except InvalidIdError as error:
            return self.fail("invalid", reason=str(error))  # it raises

    def read(self, data: object) -> object:
        """Return an id, or raise `InvalidIdError`."""
        raise NotImplementedError


class Int64StrField(_IdField):
    """An id from 0 to 2^63-1: an `int` in Python, its decimal digits as a string in JSON.

    It reads digits without sign, space or leading zeros, and integers.
    """

    def read(self, data: object) -> int:
        """Return the number of digits, or an integer itself."""
        return int(Int64Text(cast("int | str", data)))  # it refuses the others

    def to_representation(self, value: int) -> str:
        """Return the digits."""
        return str(Int64Text(value))


class TypedIdField(_IdField):
    """An id of a class of `TypedId`; the model's field may hold the id or its number."""

    def __init__(self, kind: type[TypedId], **options: object) -> None:
        """Describe the field.

        Args:
            kind: the class of its ids.
            options: those of every serializer field.
        """
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]  # as above
        self.kind = kind

    def read(self, data: object) -> TypedId:
        """Return the id of a text with the prefix."""
        return self.kind.parse(data)

    def to_representation(self, value: int | str) -> str:
        """Return the text of an id or of its number."""
        return str(self.kind(value))
