"""Keeps the database from generating numbers in columns that a generator fills.

SQLAlchemy makes a table's only primary key a ``BIGSERIAL`` or ``AUTO_INCREMENT`` column if its type
is a number and it has no default; Alembic's migrations do so even with a default.  A row that is
inserted with plain SQL would then get an id that the generator also issues.  So
``autoincrement=False`` is set unless the model says otherwise.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, PrimaryKeyConstraint, event
from sqlalchemy.orm import Mapper

from ...provider.models import GeneratedId, annotation_of
from ._typed import TypedIdType

__all__ = ()


def _has_generator(column: Column[Any]) -> bool:
    mark = getattr(column.default, "arg", None)
    return isinstance(mark, GeneratedId) or isinstance(column.type, TypedIdType)


@event.listens_for(Column, "after_parent_attach")
def _attached(column: Column[Any], _table: object) -> None:
    if column.primary_key and column.autoincrement == "auto" and _has_generator(column):
        column.autoincrement = False


@event.listens_for(PrimaryKeyConstraint, "after_parent_attach")
def _constrained(constraint: PrimaryKeyConstraint, table: object) -> None:
    for column in constraint.columns:
        _attached(column, table)


@event.listens_for(Mapper, "after_mapper_constructed")
def _mapped(mapper: Mapper[Any], model: type) -> None:
    """Do the same for a key that has only an annotation, as ``Annotated[int, GeneratedId()]``."""
    key, *others = mapper.primary_key
    if others or not isinstance(key, Column) or key.table is not mapper.local_table:
        return  # the mapper of a query or a base class
    name = mapper.get_property_by_column(key).key
    if key.autoincrement == "auto" and annotation_of(model, name) is not None:
        key.autoincrement = False
