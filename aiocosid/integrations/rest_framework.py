"""Django REST framework: serializers and serializer fields that show ids as text."""

# pyright: basic
# In strict mode each name of the framework would be an error, because it has no annotations.

from __future__ import annotations

from typing import Any

from django.db.models import BigIntegerField
from rest_framework import serializers

from ..converter import Int64Text, TypedId
from ..errors import InvalidIdError
from .django._fields import source_of

__all__ = ("IdModelSerializer", "Int64StrField", "TypedIdField")


_Field: Any = serializers.Field  # the framework has no types
_ModelSerializer: Any = serializers.ModelSerializer


class _IdField(_Field):  # type: ignore[misc]  # as above
    """Turns a value that an id class refuses into an error of the field."""

    default_error_messages = {"invalid": "{reason}"}  # noqa: RUF012 - the framework's convention

    def to_internal_value(self, data: object) -> object:
        """Return the id for a value in a request."""
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
        return int(Int64Text.parse(data))

    def to_representation(self, value: int) -> str:
        """Return the digits."""
        return str(Int64Text(value))


class TypedIdField(_IdField):
    """An id of a `TypedId` class; the model's field may hold the id or its number."""

    def __init__(self, kind: type[TypedId], **options: object) -> None:
        """Describe the field.

        Args:
            kind: the class of its ids.
            options: the options of every serializer field.
        """
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]  # as above
        self.kind = kind

    def read(self, data: object) -> TypedId:
        """Return the id for a text with the prefix."""
        return self.kind.parse(data)

    def to_representation(self, value: int | str) -> str:
        """Return the text of an id or of its number."""
        return str(self.kind(value))


class IdModelSerializer(_ModelSerializer):  # type: ignore[misc]  # as above
    """A `ModelSerializer` that shows aiocosid's ids as text, also in relations to their rows.

    These are the model's fields that are a `CosIdField`, or a ``BigIntegerField`` with a
    `CosIdDefault`.  Each gets an `Int64StrField`; a relation to such a primary key gets one as the
    ``pk_field`` of its `PrimaryKeyRelatedField`.  Fields that the class declares stay unchanged.
    """

    def build_standard_field(
        self, field_name: str, model_field: object
    ) -> tuple[type, dict[str, Any]]:
        """Return the class and the options of a field of the model."""
        field_class, options = super().build_standard_field(field_name, model_field)
        if not _is_id(model_field):
            return field_class, options
        bounds = {"max_value", "min_value"}  # 64-bit bounds; the field has its own
        return Int64StrField, {key: options[key] for key in options.keys() - bounds}

    def build_relational_field(
        self,
        field_name: str,
        relation_info: Any,  # noqa: ANN401 - the framework's
    ) -> tuple[type, dict[str, Any]]:
        """Return the class and the options of a relation."""
        field_class, options = super().build_relational_field(field_name, relation_info)
        key = relation_info.related_model._meta.pk
        while key.remote_field:  # the key of a model that inherits from another model
            key = key.target_field
        if _is_id(key) and issubclass(field_class, serializers.PrimaryKeyRelatedField):
            options["pk_field"] = Int64StrField()
        return field_class, options


def _is_id(field: object) -> bool:
    return isinstance(field, BigIntegerField) and source_of(field) is not None
