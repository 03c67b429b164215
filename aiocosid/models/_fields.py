"""The mark of an id, and the fields of a class that carry it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from .._default import generator_named
from ..abc import SHARE, AnyGenerator
from ..errors import InvalidArgumentError
from ._annotations import Unresolved, annotations_of, describe, is_assignable, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..abc import Provider

__all__ = ("CosId", "IdField", "id_fields", "unresolved_fields")


@dataclass(frozen=True, slots=True)
class CosId:
    """Marks a model's field as its id: ``id: Annotated[int, CosId("order")] = 0``.

    The field is an ``int``, filled by an `IdGenerator`, or a ``str``, filled by a
    `TextIdGenerator`; ``None`` may be allowed beside.

    Attributes:
        name: the generator's name in the provider.
    """

    name: str = SHARE

    def generator(self, provider: Provider | None = None) -> AnyGenerator:
        """Return the generator that fills the field; see `aiocosid.generator_named`."""
        return generator_named(self.name, provider)


@dataclass(frozen=True, slots=True)
class IdField:
    """A field that `ensure_ids` fills.

    Attributes:
        attribute: the field's name.
        kind: what its ids are.
        mark: what finds their generator.
    """

    attribute: str
    kind: type[int | str]
    mark: CosId

    def is_empty(self, of: object) -> bool:
        """Tell whether an object has no id yet: None, not positive, or an empty text."""
        state = getattr(of, "_sa_instance_state", None)
        if state is not None and state.key is not None:
            return False  # a row that SQLAlchemy knows; to look at it might load it
        value = getattr(of, self.attribute, None)
        if isinstance(value, int):
            return value <= 0
        return value is None or (isinstance(value, str) and not value)


_known: Final[WeakKeyDictionary[type, tuple[IdField, ...]]] = WeakKeyDictionary()


def id_fields(model: type) -> tuple[IdField, ...]:
    """Return the fields of a class that `ensure_ids` fills.

    That is the one field marked `CosId`, its own or a base's; and in a class mapped by SQLAlchemy
    the columns with a `cosid_default` too.  A class is looked through once.

    Args:
        model: a dataclass, a model of pydantic, SQLModel or SQLAlchemy, a class of attrs or
            msgspec, or any other class with annotations.

    Raises:
        InvalidArgumentError: two fields are marked, or one that cannot be assigned to, or that is
            neither ``int`` nor ``str``.
    """
    found = _known.get(model)
    if found is None:
        notes = dict(annotations_of(model))
        found = tuple(_found(model, notes))
        if found or Unresolved not in notes.values():  # what it names may come to be
            _known[model] = found
    return found


def unresolved_fields(model: type) -> list[str]:
    """Name the fields whose annotations name something that cannot be found."""
    return [name for name, note in annotations_of(model) if note is Unresolved]


def _found(model: type, notes: dict[str, Any]) -> Iterator[IdField]:
    marked = {name: found for name, note in notes.items() if (found := _marks(note))}
    if len(marked) > 1:
        place = f"CosId on {describe(model)}"
        raise InvalidArgumentError(place, sorted(marked), expected="on one field")
    columns = {column.attribute: column for column in _columns(model)}
    for name, (kind, marks) in marked.items():
        column = columns.get(name)
        names = {mark.name for mark in (*marks, *([column.mark] if column else ()))}
        if len(names) > 1:
            place = f"CosId on {describe(model)}.{name}"
            raise InvalidArgumentError(place, sorted(names), expected="of one name")
        yield column or _checked(model, name, kind, marks[0])
    yield from (column for name, column in columns.items() if name not in marked)


def _marks(annotation: object) -> tuple[object, list[CosId]] | None:
    kind, metadata = unwrapped(annotation)
    marks = [each for each in metadata if isinstance(each, CosId)]
    return (kind, marks) if marks else None


def _columns(model: type) -> Iterator[IdField]:
    """Iterate over the columns of a mapped class whose default is a mark of ours."""
    mapper: Any = getattr(model, "__mapper__", None)
    for found in mapper.column_attrs if mapper is not None else ():
        for column in found.columns:
            mark = getattr(getattr(column, "default", None), "arg", None)
            if isinstance(mark, CosId):
                yield _checked(model, found.key, column.type.python_type, mark)
                break


def _checked(model: type, name: str, kind: Any, mark: CosId) -> IdField:  # noqa: ANN401 - any type
    place = f"CosId on {describe(model)}.{name}"
    if kind not in (int, str):
        raise InvalidArgumentError(place, kind, expected="on a field of type int or str")
    if not is_assignable(model, name):
        raise InvalidArgumentError(place, "frozen", expected="on a field that can be assigned to")
    return IdField(name, kind, mark)
