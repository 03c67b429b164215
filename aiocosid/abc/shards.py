"""Which shard a row is on, and whether a generator puts it into its ids.  Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from inspect import signature
from typing import Any, Final, NoReturn, TypeAlias

from ..errors import InvalidArgumentError
from .checks import check_integer

__all__ = ("ShardRule", "check_shard", "refuse_shard", "shard_of")

ShardRule: TypeAlias = str | Callable[[Any], int]
"""The name of the row's attribute that contains its sharding id, or a function of the row."""

MOST: Final = 2**31 - 1  # the highest one of the widest layout


def check_shard(generator: Any, shard: object, argument: str = "shard") -> None:  # noqa: ANN401 - of a user, perhaps
    """Raise unless a generator makes ids with that sharding id.

    Args:
        generator: of any kind.  If another process has its layout, that process refuses a number
            that is outside the layout.
        shard: the sharding id.
        argument: names it in the error.

    Raises:
        InvalidArgumentError: the generator's ids contain no shard, or the shard is outside its
            bits.
    """
    while True:
        if not _takes_shards(generator.__class__):
            refuse_shard(shard, argument)
        if (inner := getattr(generator, "inner", None)) is None:
            break
        generator = inner
    layout = getattr(generator, "layout", None)
    check_integer(argument, shard, at_least=0, at_most=getattr(layout, "max_sharding_id", MOST))


def refuse_shard(shard: object, argument: str) -> NoReturn:
    """Raise `InvalidArgumentError`, because a generator's ids contain no shard."""
    rule = "cannot be given: the ids of this generator carry no shard"
    raise InvalidArgumentError(argument, shard, rule)


@lru_cache(64)
def _takes_shards(kind: Any) -> bool:  # noqa: ANN401 - a class with the method
    return "sharding_id" in signature(kind.next_id).parameters


def shard_of(row: object, rule: ShardRule, generator: object, place: str) -> int:
    """Return the sharding id of a row, for its id.

    Args:
        row: has the row's values as attributes.
        rule: says where the row is.
        generator: makes the id.
        place: names the id in errors.

    Raises:
        InvalidArgumentError: the row has no such attribute, or its value is not a sharding id of
            the generator; or the generator's ids contain no shard.
    """
    if not isinstance(rule, str):
        found: Any = rule(row)
        check_shard(generator, found, f"the shard of {place}")
    else:
        try:
            found = getattr(row, rule)
        except AttributeError:
            missing = f"is not set on {type(row).__name__}; set it before the id is taken"
            raise InvalidArgumentError(f"the shard of {place}", rule, missing) from None
        check_shard(generator, found, f"{rule}, the shard of {place},")
    return int(found)
