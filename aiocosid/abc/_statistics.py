"""A picture of a generator."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Statistics",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What every generator can say about itself.  A frozen picture of one moment.

    Attributes:
        kind: the generator's class name.
        namespace: the namespace of its counter.
        name: its name in the namespace.
    """

    kind: str
    namespace: str
    name: str

    def as_tree(self) -> dict[str, Any]:
        """Return the picture as CosId's actuator shows a generator's, ready for JSON.

        A kind of generator that CosId has not either shows all that it knows, in camelCase.
        """
        return _facts(self)


def _facts(statistics: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass of any kind
    # Not asdict(), which copies errors too, down to their causes.
    return {_camel(f.name): _plain(getattr(statistics, f.name)) for f in fields(statistics)}


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(map(str.capitalize, rest))


def _plain(value: object) -> object:
    """Return what JSON has a word for: an error or an enum as text."""
    if is_dataclass(value):
        return _facts(value)
    if isinstance(value, list | tuple):
        return list(map(_plain, cast("Sequence[object]", value)))
    if isinstance(value, float) and not isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)
