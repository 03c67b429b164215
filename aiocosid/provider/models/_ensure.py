"""Fills the ids of objects that have none; if one object refuses its id, all ids are taken back."""

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
            InvalidArgumentError: the object refuses the id; its own error is the ``__cause__``.
        """
        attribute = field.attribute
        is_unset = attribute not in getattr(of, "__pydantic_fields_set__", (attribute,))
        self._done.append((of, attribute, new_id, _own_value(of, attribute), is_unset))
        try:
            setattr(of, attribute, new_id)
        except Exception as error:
            place = f"{describe(type(of))}.{attribute}"
            rule = "must be an id that the model accepts"
            raise InvalidArgumentError(place, new_id, rule) from error

    def take_back(self) -> None:
        """Restore the objects, except where other code has set a different value."""
        for of, attribute, new_id, old, is_unset in reversed(self._done):
            with suppress(Exception):  # the other objects are restored even if this one fails
                if getattr(of, attribute, None) == new_id:
                    _put_back(of, attribute, old)
                    if is_unset:
                        of.__pydantic_fields_set__.discard(attribute)  # type: ignore[attr-defined]
        self._done.clear()


def _own_value(of: object, attribute: str) -> object:
    """Return the value that an object itself has, not its class's value."""
    own: dict[str, Any] = getattr(of, "__dict__", {})
    if attribute in own:
        return own[attribute]
    is_elsewhere = hasattr(getattr(type(of), attribute, None), "__set__")  # slots or a property
    if is_elsewhere and not hasattr(of, "_sa_instance_state"):
        return getattr(of, attribute, _ABSENT)
    return _ABSENT


def _put_back(of: object, attribute: str, old: object) -> None:
    if old is _ABSENT:
        delattr(of, attribute)
        return
    try:
        object.__setattr__(of, attribute, old)  # bypasses validators, which may refuse the default
    except TypeError:
        setattr(of, attribute, old)


_Places: TypeAlias = list[tuple[object, IdField]]

_GENERATORS: Final[dict[type, type]] = {int: IdGenerator, str: TextIdGenerator}
"""The kind of generator that fills a field of a type; a `TypedId` accepts either."""

_STRETCH: Final = 1000  # objects between two loop turns, about a millisecond


async def ensure_ids(objects: object, provider: Provider | None = None) -> int:
    """Give an id to each object that has none.

    An id is empty if it is None, not positive, or an empty text.  If an object's row is already in
    the database, the object stays unchanged.  Each generator is called once with ``next_ids(n)``,
    or once for each shard, and its ids rise in the order of the objects.  Ids are assigned only
    when all of them are available: a call that fails or is cancelled before that leaves the objects
    unchanged.  If an object refuses its id, for example with a validator, the ids assigned before
    it are taken back.  In both cases the ids are a gap.  An object to which other code assigns an
    id meanwhile keeps that id.

    Args:
        objects: one object, or an iterable of objects, whose classes may differ.
        provider: the provider of the generators; the default provider if None.

    Returns:
        How many ids were assigned.

    Raises:
        InvalidArgumentError: a class has no field annotated with `GeneratedId`, or an invalid one
            (see `id_fields`); the provider has no generator with that name, or one of the other
            type; or an object refuses its id, or returns a shard that its generator does not have.
        NotOpenError: no provider was given, and there is no default provider.
        CosIdError: as for ``next_ids`` of the generators.
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
    """List objects; a single object may itself be iterable, as pydantic's models are."""
    is_model = hasattr(type(objects), "__pydantic_fields__") or bool(id_fields(type(objects)))
    if isinstance(objects, Iterable) and not isinstance(objects, str | Mapping) and not is_model:
        return list(cast("Iterable[object]", objects))
    return [objects]


def _fields(model: type) -> tuple[IdField, ...]:
    found = id_fields(model)
    if not found:
        unknown = ", ".join(unresolved_fields(model))
        hint = f"; correct the annotations that name unknown types: {unknown}" if unknown else ""
        rule = f"must be of a class with a field annotated GeneratedId{hint}"
        raise InvalidArgumentError("objects", model, rule)
    return found


def _generator(of: object, field: IdField, provider: Provider | None) -> AnyGenerator:
    found = field.annotation.generator(provider)
    kind = _GENERATORS.get(field.kind)
    if kind is not None and not isinstance(found, kind):
        place = f"the generator of {describe(type(of))}.{field.attribute}"
        rule = f"must be of type {kind.__name__}: the field has {field.kind.__name__}"
        raise InvalidArgumentError(place, found, rule)
    return found
