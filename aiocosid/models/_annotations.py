"""What the annotations of a class say, whoever made the class; no framework is imported."""

from __future__ import annotations

import inspect
import sys
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NewType,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("Unresolved", "annotations_of", "describe", "is_assignable", "unwrapped")

_Bindings: TypeAlias = dict[type, dict[Any, Any]]


class Unresolved:
    """Stands for an annotation that names something that cannot be found from its module."""


def annotations_of(model: type) -> Iterator[tuple[str, Any]]:
    """Iterate over the fields of a class, nearest definition first, without repeating a name.

    An annotation is an object, no text; type variables are replaced by what they are bound to.
    """
    seen: set[str] = set()
    for name, info in getattr(model, "__pydantic_fields__", {}).items():
        # Pydantic has resolved names and type variables, and taken Annotated apart.
        seen.add(name)
        yield name, Annotated[info.annotation, *info.metadata, None]
    bindings: _Bindings = {}
    _bind(model, {}, bindings)
    for cls in model.__mro__:
        for name, note in inspect.get_annotations(cls).items():
            if name not in seen:
                seen.add(name)
                yield name, _resolved(cls, name, note, bindings.get(cls, {}))


def unwrapped(annotation: object) -> tuple[object, list[object]]:
    """Take off ``Annotated``, ``Mapped``, ``NewType`` and ``| None``.

    Returns:
        The type beneath, and all metadata on the way to it.
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
    """Tell whether an attribute of the objects of a class can be set."""
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
    """Tell whether it is SQLAlchemy's ``Mapped`` or one of its kind."""
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
        return None  # ClassVar and the like: no field
    return _substituted(found, bound)


def _substituted(annotation: Any, bound: dict[Any, Any]) -> Any:  # noqa: ANN401 - annotations
    if isinstance(annotation, TypeVar):
        return bound.get(annotation, annotation)
    free: tuple[Any, ...] = getattr(annotation, "__parameters__", ())
    if not free or isinstance(annotation, type):
        return annotation
    return annotation[tuple(bound.get(each, each) for each in free)]


def _bind(cls: type, bound: dict[Any, Any], bindings: _Bindings) -> None:
    """Note what the type variables of a class and of its bases stand for."""
    bindings.setdefault(cls, bound)
    for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
        origin = get_origin(base) or base
        if isinstance(origin, type):
            free = getattr(origin, "__parameters__", ())
            args = [_substituted(each, bound) for each in get_args(base)]
            _bind(origin, dict(zip(free, args, strict=False)), bindings)
