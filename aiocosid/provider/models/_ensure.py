"""Fills the ids of objects that have none; all of them are taken back if one is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from anyio.lowlevel import checkpoint

from ...abc import AnyGenerator, IdGenerator, TextIdGenerator
from ...errors import InvalidArgumentError
from ._fields import IdField, describe, id_fields, unresolved_fields

if TYPE_CHECKING:
    from ...abc import Provider

__all__ = ("Assigned", "ensure_ids")

_ABSENT: Final = object()  # an attribute that was not set


class Assigned:
    """Assigns ids, and takes them back if a later one is refused."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done: list[tuple[object, str, object, object, bool]] = []

    def __len__(self) -> int:
        return len(self._done)

    def assign(self, of: object, field: IdField, new_id: object) -> None:
        """Assign an id.

        Raises:
            InvalidArgumentError: the object does not take it; its own error is the ``__cause__``.
        """
        attribute = field.attribute
        is_unset = attribute not in getattr(of, "__pydantic_fields_set__", (attribute,))
        self._done.append((of, attribute, new_id, _own_value(of, attribute), is_unset))
        try:
            setattr(of, attribute, new_id)
        except Exception as error:
            place = f"{describe(type(of))}.{attribute}"
            expected = "an id that the model accepts"
            raise InvalidArgumentError(place, new_id, expected=expected) from error

    def take_back(self) -> None:
        """Restore the objects, except where other code has set another value."""
        for of, attribute, new_id, old, is_unset in reversed(self._done):
            with suppress(Exception):  # the others' turn comes, whatever this one does
                if getattr(of, attribute, None) == new_id:
                    _put_back(of, attribute, old)
                    if is_unset:
                        of.__pydantic_fields_set__.discard(attribute)  # type: ignore[attr-defined]
        self._done.clear()


def _own_value(of: object, attribute: str) -> object:
    """Return the value that an object has itself, not that of its class."""
    own: dict[str, Any] = getattr(of, "__dict__", {})
    if attribute in own:
        return own[attribute]
    is_elsewhere = hasattr(getattr(type(of), attribute, None), "__set__")  # slots, a property
    if is_elsewhere and not hasattr(of, "_sa_instance_state"):
        return getattr(of, attribute, _ABSENT)
    return _ABSENT


def _put_back(of: object, attribute: str, old: object) -> None:
    if old is _ABSENT:
        delattr(of, attribute)
        return
    try:
        object.__setattr__(of, attribute, old)  # past validators: the default may be against them
    except TypeError:
        setattr(of, attribute, old)


_Places: TypeAlias = list[tuple[object, IdField]]

_GENERATORS: Final[dict[type, type]] = {int: IdGenerator, str: TextIdGenerator}
"""What fills a field of a type; a `TypedId` takes either."""

_STRETCH: Final = 1000  # objects between two turns of the event loop, about a millisecond


async def ensure_ids(objects: object, provider: Provider | None = None) -> int:
    """Give an id to each object that has none.

    An id is empty if it is None, not positive, or an empty text.  If an object's row is already in
    the database, the object stays unchanged.  Each generator is asked once, by ``next_ids(n)``, or
    once for each shard, and its ids rise in the order of the objects.  Ids are assigned only when
    all of them are there: a call that fails or is cancelled before leaves the objects as they were.
    If an object refuses its id, as a validator may, the ids that were assigned before are taken
    back.  In both cases the ids are a gap.  An object that other code fills meanwhile keeps that
    id.

    Args:
        objects: one object, or an iterable of objects, whose classes may differ.
        provider: has the generators; the default provider if none is given.

    Returns:
        How many ids were given.

    Raises:
        InvalidArgumentError: a class has no field marked `GeneratedId`, or a wrong one (see
            `id_fields`); or the provider has no generator of that name, or one of the other type;
            or an object refuses its id, or tells no shard that its generator has.
        NotOpenError: no provider was given, and there is no default one.
        CosIdError: as ``next_ids`` of the generators.
    """
    taken = [
        (places, await generator.next_ids(len(places), *shard))
        for (generator, *shard), places in (await _wanted(_listed(objects), provider)).items()
    ]
    done = Assigned()
    try:
        for places, ids in taken:
            for at, ((each, field), new_id) in enumerate(zip(places, ids, strict=True), 1):
                if field.is_empty(each):
                    done.assign(each, field, field.value_of(new_id))
                if not at % _STRETCH:
                    await checkpoint()
    except BaseException:
        done.take_back()
        raise
    return len(done)


async def _wanted(objects: list[object], provider: Provider | None) -> dict[Any, _Places]:
    """Return the fields to fill, by generator, or by generator and sharding id."""
    wanted: dict[Any, _Places] = {}
    found: dict[type, tuple[IdField, ...]] = {}
    for at, each in enumerate(objects, 1):
        model = type(each)
        if model not in found:
            found[model] = _fields(model)
        for field in found[model]:
            if field.is_empty(each):
                generator = _generator(each, field, provider)
                shard = field.shard_of(each, generator)
                key = (generator,) if shard is None else (generator, shard)
                wanted.setdefault(key, []).append((each, field))
        if not at % _STRETCH:
            await checkpoint()
    return wanted


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
    found = field.annotation.generator(provider)
    kind = _GENERATORS.get(field.kind)
    if kind is not None and not isinstance(found, kind):
        place = f"the generator of {describe(type(of))}.{field.attribute}"
        expected = f"{kind.__name__}, for a field of type {field.kind.__name__}"
        raise InvalidArgumentError(place, found, expected=expected)
    return found
