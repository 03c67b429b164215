"""The annotation of an id, and the fields of a class that have it; imports no framework."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, field
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NewType,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from weakref import WeakKeyDictionary

from ...abc import SHARE, AnyGenerator
from ...abc.shards import ShardRule, shard_of
from ...converter import TypedId
from ...errors import InvalidArgumentError
from ..default import generator_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...abc import Provider

__all__ = (
    "GeneratedId",
    "IdField",
    "Unresolved",
    "annotation_of",
    "annotations_of",
    "cosid",
    "describe",
    "id_fields",
    "is_assignable",
    "unresolved_fields",
    "unwrapped",
)

_T = TypeVar("_T")
_Bindings: TypeAlias = dict[type, dict[Any, Any]]


class Unresolved:
    """Stands for an annotation whose name cannot be found in its module."""


def annotations_of(model: type) -> Iterator[tuple[str, Any]]:
    """Iterate over the fields of a class, nearest definition first, without repeating a name.

    Each annotation is an object, not text.  Type variables are replaced by their bounds in the
    class, and a field that `cosid` names has its `GeneratedId`.
    """
    named = dict(pair for cls in reversed(model.__mro__) if (pair := _named.get(cls)))
    for name, note in _written_in(model):
        is_named = name in named and note is not Unresolved
        yield name, Annotated[note, named[name]] if is_named else note


def _written_in(model: type) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for name, info in getattr(model, "__pydantic_fields__", {}).items():
        # Pydantic has already resolved names and type variables, and split Annotated.
        seen.add(name)
        yield name, Annotated[info.annotation, *info.metadata, None]
    bindings: _Bindings = {}
    _bind(model, {}, bindings)
    for cls in model.__mro__:
        for name, note in _own_annotations(cls).items():
            if name not in seen:
                seen.add(name)
                yield name, _resolved(cls, name, note, bindings.get(cls, {}))


def _own_annotations(cls: type) -> dict[str, Any]:
    """Return a class's own annotations; since Python 3.14 they may name what does not exist yet."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.get_annotations(cls, format=Format.FORWARDREF)
    return inspect.get_annotations(cls)


def unwrapped(annotation: object) -> tuple[object, list[object]]:
    """Remove ``Annotated``, ``Mapped``, ``NewType`` and ``| None`` from an annotation.

    Returns:
        The innermost type, and all metadata around it.
    """
    origin, args = get_origin(annotation), get_args(annotation)
    inner: object
    if isinstance(annotation, NewType):
        inner, found = unwrapped(annotation.__supertype__)
    elif type(annotation).__name__ == "TypeAliasType":  # ``type X = ...``, from Python 3.12 on
        inner, found = unwrapped(getattr(annotation, "__value__", None))
    elif origin is Annotated:
        inner, found = unwrapped(args[0])
        found += args[1:]
    elif origin in (Union, UnionType):
        parts = [unwrapped(each) for each in args if each is not NoneType]
        inner = parts[0][0] if len(parts) == 1 else annotation
        found = [mark for _, marks in parts for mark in marks]
    elif len(args) == 1 and _is_mapped(origin):
        inner, found = unwrapped(args[0])
    else:
        inner, found = annotation, []
    return inner, found


def is_assignable(model: type, attribute: str) -> bool:
    """Return whether an attribute of a class's objects can be set."""
    slot = inspect.getattr_static(model, attribute, None)
    info = getattr(model, "__pydantic_fields__", {}).get(attribute)
    frozen = (
        issubclass(model, tuple),
        isinstance(slot, property) and slot.fset is None,
        getattr(getattr(model, "__dataclass_params__", None), "frozen", False),
        getattr(getattr(model, "__struct_config__", None), "frozen", False),  # msgspec
        model.__setattr__.__name__ == "_frozen_setattrs",  # attrs
        getattr(info, "frozen", False),
        info is not None and getattr(model, "model_config", {}).get("frozen", False),
    )
    return not any(frozen)


def describe(model: type) -> str:
    """Name a class for an error message."""
    return f"{model.__module__}.{model.__qualname__}"


def _is_mapped(origin: object) -> bool:
    """Return whether a type is SQLAlchemy's ``Mapped`` or a similar one."""
    return getattr(origin, "__module__", "").startswith("sqlalchemy.")


def _resolved(cls: type, name: str, note: object, bound: dict[Any, Any]) -> object:
    names = vars(sys.modules.get(cls.__module__, sys))
    own = {each.__name__: each for each in getattr(cls, "__type_params__", ())} | dict(vars(cls))
    holder = SimpleNamespace(__annotations__={name: note})
    try:
        found = get_type_hints(holder, names, own, include_extras=True)[name]
    except (NameError, AttributeError):
        return Unresolved
    except TypeError:
        return None  # ClassVar and similar annotations are not fields
    return _substituted(found, bound)


def _substituted(annotation: Any, bound: dict[Any, Any]) -> Any:  # noqa: ANN401 - any annotation
    if isinstance(annotation, TypeVar):
        return bound.get(annotation, annotation)
    free: tuple[Any, ...] = getattr(annotation, "__parameters__", ())
    if not free or isinstance(annotation, type):
        return annotation
    return annotation[tuple(bound.get(each, each) for each in free)]


def _bind(cls: type, bound: dict[Any, Any], bindings: _Bindings) -> None:
    """Record the types for which the type variables of a class and its bases stand."""
    bindings.setdefault(cls, bound)
    for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
        origin = get_origin(base) or base
        if isinstance(origin, type):
            free = getattr(origin, "__parameters__", ())
            args = [_substituted(each, bound) for each in get_args(base)]
            _bind(origin, dict(zip(free, args, strict=False)), bindings)


@dataclass(frozen=True, slots=True)
class GeneratedId:
    """Annotates a model's field as its id: ``id: Annotated[int, GeneratedId("order")] = 0``.

    The field is an ``int``, filled by an `IdGenerator`; a ``str``, filled by a `TextIdGenerator`;
    or a subclass of `TypedId`, filled by either.  The type may also allow ``None``.

    Attributes:
        name: the generator's name in the provider.
        shard: for a generator whose ids contain their shard: the name of the object's attribute
            that holds the sharding id, or a function that returns it for an object; by default the
            generator's own sharding id.
    """

    name: str = SHARE
    shard: ShardRule | None = field(default=None, hash=False)

    def generator(self, provider: Provider | None = None) -> AnyGenerator:
        """Return the generator that fills the field; see `aiocosid.generator_named`."""
        return generator_named(self.name, provider)


_named: Final[WeakKeyDictionary[type, tuple[str, GeneratedId]]] = WeakKeyDictionary()


def cosid(name: str = SHARE, *, field: str = "id") -> Callable[[type[_T]], type[_T]]:
    """Declare a class's field as its id without changing its annotation, like CosId's ``@CosId``.

    Write it above other decorators, for example ``@dataclass``.  A subclass inherits the
    declaration, unless it is decorated itself.

    Args:
        name: the generator's name in the provider.
        field: the field, with an annotation as for `GeneratedId`, in the class or in a base.

    Raises:
        InvalidArgumentError: the class has no annotated field with that name.
    """

    def decorate(model: type[_T]) -> type[_T]:
        if field not in (names := dict(annotations_of(model))):
            listed = ", ".join(names) or "it has none"
            rule = f"must be an annotated field of {describe(model)} ({listed})"
            raise InvalidArgumentError("field", field, rule)
        _named[model] = field, GeneratedId(name)
        _known.pop(model, None)
        return model

    return decorate


@dataclass(frozen=True, slots=True)
class IdField:
    """A field that `ensure_ids` fills.

    Attributes:
        attribute: the field's name.
        kind: the type of its ids: ``int``, ``str`` or a subclass of `TypedId`.
        annotation: the `GeneratedId` that finds their generator.
    """

    attribute: str
    kind: type[int | str]
    annotation: GeneratedId

    def shard_of(self, of: object, generator: AnyGenerator) -> int | None:
        """Return the sharding id of an object; None for the generator's own.

        Raises:
            InvalidArgumentError: the object returns a sharding id that the generator does not have.
        """
        if self.annotation.shard is None:
            return None
        return shard_of(
            of, self.annotation.shard, generator, f"{describe(type(of))}.{self.attribute}"
        )

    def value_of(self, new_id: object) -> object:
        """Return the field's value for an id of its generator.

        Raises:
            InvalidIdError: the id is a text that the field's `TypedId` class would not write.
        """
        return self.kind(cast("str", new_id)) if issubclass(self.kind, TypedId) else new_id

    def is_empty(self, of: object) -> bool:
        """Return whether an object has no id yet: None, not positive, or an empty text."""
        state = getattr(of, "_sa_instance_state", None)
        if state is not None and state.key is not None:
            return False  # SQLAlchemy knows this row, and reading it might load it
        value = getattr(of, self.attribute, None)
        if isinstance(value, int):
            return value <= 0
        return value is None or (isinstance(value, str) and not value)


_known: Final[WeakKeyDictionary[type, tuple[IdField, ...]]] = WeakKeyDictionary()


def id_fields(model: type) -> tuple[IdField, ...]:
    """Return the fields of a class that `ensure_ids` fills.

    That is the one field annotated with `GeneratedId`, in the class or a base; in a class mapped by
    SQLAlchemy, also the columns with a `cosid_default`.  The result is cached for each class.

    Args:
        model: a dataclass, a model of pydantic, SQLModel or SQLAlchemy, a class of attrs or
            msgspec, or any other class with annotations.

    Raises:
        InvalidArgumentError: two fields are annotated, or the field cannot be assigned to or is
            neither ``int`` nor ``str``.
    """
    found = _known.get(model)
    if found is None:
        notes = dict(annotations_of(model))
        found = tuple(_found(model, notes))
        if found or Unresolved not in notes.values():  # the missing name may exist later
            _known[model] = found
    return found


def annotation_of(model: type, attribute: str) -> GeneratedId | None:
    """Return the `GeneratedId` in the annotation of a class's field; None if it has none.

    Args:
        model: a class as for `id_fields`.  A mapped class need not be configured yet.
        attribute: the field's name.
    """
    found = _marks(dict(annotations_of(model)).get(attribute))
    return found[1][0] if found else None


def unresolved_fields(model: type) -> list[str]:
    """Return the fields whose annotations contain a name that cannot be found."""
    return [name for name, note in annotations_of(model) if note is Unresolved]


def _found(model: type, notes: dict[str, Any]) -> Iterator[IdField]:
    marked = {name: found for name, note in notes.items() if (found := _marks(note))}
    if len(marked) > 1:
        place = f"GeneratedId on {describe(model)}"
        raise InvalidArgumentError(place, sorted(marked), "is on several fields; mark only one")
    columns = {column.attribute: column for column in _columns(model)}
    for name, (kind, marks) in marked.items():
        column = columns.get(name)
        every = [*marks, *([column.annotation] if column else ())]
        if any((mark.name, mark.shard) != (every[0].name, every[0].shard) for mark in every):
            place, names = f"GeneratedId on {describe(model)}.{name}", {mark.name for mark in every}
            raise InvalidArgumentError(place, sorted(names), "has several names or shards")
        yield column or _checked(model, name, kind, marks[0])
    yield from (column for name, column in columns.items() if name not in marked)


def _marks(annotation: object) -> tuple[object, list[GeneratedId]] | None:
    kind, metadata = unwrapped(annotation)
    marks = [each for each in metadata if isinstance(each, GeneratedId)]
    return (kind, marks) if marks else None


def _columns(model: type) -> Iterator[IdField]:
    """Iterate over the columns of a mapped class whose default is a `GeneratedId`."""
    mapper: Any = getattr(model, "__mapper__", None)
    for found in mapper.column_attrs if mapper is not None else ():
        for column in found.columns:
            mark = getattr(getattr(column, "default", None), "arg", None)
            if isinstance(mark, GeneratedId):
                yield _checked(model, found.key, column.type.python_type, mark)
                break


def _checked(model: type, name: str, kind: Any, mark: GeneratedId) -> IdField:  # noqa: ANN401 - any type
    place = f"GeneratedId on {describe(model)}.{name}"
    is_typed = inspect.isclass(kind) and issubclass(kind, TypedId)
    if kind not in (int, str) and not is_typed:
        raise InvalidArgumentError(place, kind, "must be on a field of type int, str or a TypedId")
    if not is_assignable(model, name):
        raise InvalidArgumentError(place, None, "requires a field that can be assigned to")
    return IdField(name, cast("type[int | str]", kind), mark)
