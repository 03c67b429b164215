"""Settings fields from options that are declared elsewhere: type, range, default and text."""

from __future__ import annotations

from inspect import Parameter
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, cast

from pydantic import BaseModel, Field, create_model

from ...abc.options import declared, words_of
from ._values import Flag, Seconds, Whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...abc.options import Declared, Options

__all__ = ("having",)

M = TypeVar("M", bound=BaseModel)

FROM_TEXT: Final[dict[Any, Any]] = {int: Whole, float: Seconds, bool: Flag}


def having(options: type[Options], *names: str) -> Callable[[type[M]], type[M]]:
    """Add the keys that a class of options declares to a table of settings.

    The table's own keys, and those of its bases, stay unchanged.

    Args:
        options: the class.
        *names: the options; by default all that a file can hold.
    """
    words = words_of(options)

    def decorate(table: type[M]) -> type[M]:
        known = table.model_fields
        own: dict[str, Any] = {
            key: (known[key].annotation, known[key])
            for key in table.__annotations__
            if key in known
        }
        found = {
            name: each
            for name, each in declared(options).items()
            if name not in known and _fits(each) and (name in names or not names)
        }
        told = table.__doc__ or ""
        described = {name: None if f"    {name}: " in told else words.get(name) for name in found}
        for name, each in found.items():
            own[name] = _type(each), Field(default=each.default, description=described[name])
        made: Any = cast("Any", create_model)(
            table.__name__,
            __base__=table.__bases__,
            __module__=table.__module__,
            __doc__=table.__doc__,
            __cls_kwargs__={**table.model_config},
            **own,
        )
        made.__annotations__ = {**made.__annotations__, **table.__annotations__}  # as written
        return cast("type[M]", made)

    return decorate


def _fits(option: Declared) -> bool:
    """Return whether a file can hold an option: a number with its bounds, a flag or a word."""
    return option.default is not Parameter.empty and not isinstance(option.type, str)


def _type(option: Declared) -> Any:  # noqa: ANN401 - a type's
    """Return an option's type for pydantic; ``inf`` stands for None if the default is a number."""
    kind: Any = FROM_TEXT.get(option.type, option.type)
    bounds = option.bounds
    is_inf = option.optional and option.default is not None
    if bounds is not None:
        ends: dict[str, Any] = {"gt" if bounds.above else "ge": bounds.at_least}
        if bounds.at_most != inf:
            ends["lt" if bounds.below else "le"] = bounds.at_most
        if not option.is_whole and not is_inf:
            ends["allow_inf_nan"] = False
        kind = cast("Any", Annotated[kind, Field(**ends)])
    return kind | None if option.optional and not is_inf else kind
