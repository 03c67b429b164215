"""Fills the ids of objects that have none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias, cast

from ..abc import AnyGenerator, IdGenerator, TextIdGenerator
from ..errors import InvalidArgumentError
from ._annotations import describe
from ._fields import IdField, id_fields, unresolved_fields

if TYPE_CHECKING:
    from ..abc import Provider

__all__ = ("ensure_ids",)

_Places: TypeAlias = list[tuple[object, IdField]]


async def ensure_ids(objects: object, provider: Provider | None = None) -> int:
    """Give an id to each object that has none.

    An id is empty if it is None, not positive, or an empty text; a row that is in its database
    already is left alone.  There is one ``next_ids(n)`` for each generator, and the ids rise in the
    order of the objects.  Nothing is assigned before all ids are there: a call that fails on the
    way or is cancelled leaves the objects as they were, and the ids taken for them are a gap.  An
    object that somebody else fills meanwhile keeps what it got.

    Args:
        objects: one object, or an iterable of objects, whose classes may differ.
        provider: where to look for the generators; the default one if none is given.

    Returns:
        How many ids were given.

    Raises:
        InvalidArgumentError: a class has no field marked `CosId`, or a wrong one (see `id_fields`);
            or the provider has no generator of that name, or one of the other type.
        NotOpenError: no provider was given, and there is no default one.
        CosIdError: as ``next_ids`` of the generators.
    """
    wanted: dict[AnyGenerator, _Places] = {}
    for each in _listed(objects):
        for field in _fields(type(each)):
            if field.is_empty(each):
                wanted.setdefault(_generator(each, field, provider), []).append((each, field))
    taken = [(places, await gen.next_ids(len(places))) for gen, places in wanted.items()]
    given = 0
    for places, ids in taken:
        for (each, field), new_id in zip(places, ids, strict=True):
            if field.is_empty(each):
                setattr(each, field.attribute, new_id)
                given += 1
    return given


def _listed(objects: object) -> list[object]:
    """List objects; a single one may be iterable itself, as the models of pydantic are."""
    is_model = hasattr(type(objects), "__pydantic_fields__") or bool(id_fields(type(objects)))
    if isinstance(objects, Iterable) and not isinstance(objects, str | Mapping) and not is_model:
        return list(cast("Iterable[object]", objects))
    return [objects]


def _fields(model: type) -> tuple[IdField, ...]:
    found = id_fields(model)
    if not found:
        unknown = ", ".join(unresolved_fields(model))
        hint = f"; these annotations name what cannot be found: {unknown}" if unknown else ""
        expected = f"of classes with a field marked CosId{hint}"
        raise InvalidArgumentError("objects", model, expected=expected)
    return found


def _generator(of: object, field: IdField, provider: Provider | None) -> AnyGenerator:
    found = field.mark.generator(provider)
    kind = TextIdGenerator if field.kind is str else IdGenerator
    if not isinstance(found, kind):  # pyright: ignore[reportUnnecessaryIsInstance]
        place = f"the generator of {describe(type(of))}.{field.attribute}"
        expected = f"{kind.__name__}, for a field of type {field.kind.__name__}"
        raise InvalidArgumentError(place, found, expected=expected)
    return found
