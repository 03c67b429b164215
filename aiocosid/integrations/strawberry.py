"""Strawberry: scalars for ids, which GraphQL's ``Int`` of 32 bits does not hold.

::

    config = StrawberryConfig(scalar_map=id_scalars(OrderId))
    schema = strawberry.Schema(query=Query, config=config)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NewType

import strawberry

from ..converter import Int64Text, TypedId

if TYPE_CHECKING:
    from collections.abc import Callable

    from strawberry.types.scalar import ScalarDefinition

__all__ = ("BigInt", "id_scalars")

BigInt = NewType("BigInt", int)
"""An id from 0 to 2^63-1: an `int` in Python, its decimal digits as a string in GraphQL."""


def id_scalars(*kinds: type[TypedId]) -> dict[object, ScalarDefinition]:
    """Return the scalars of ids for ``StrawberryConfig(scalar_map=...)``: `BigInt`, and of classes.

    A scalar has the name of its class.  A text with another prefix is an error of the request.

    Args:
        kinds: classes of `TypedId` that the schema uses.
    """
    scalars: dict[object, ScalarDefinition] = {
        kind: strawberry.scalar(
            name=kind.__name__,
            description=f"The text of an id, as {kind(42)!s}.",
            serialize=_text_by(kind),
            parse_value=kind.parse,
        )
        for kind in kinds
    }
    scalars[BigInt] = strawberry.scalar(
        name="BigInt",
        description="An integer from 0 to 2^63-1, as a string of its decimal digits.",
        serialize=_text_by(Int64Text),
        parse_value=lambda value: int(Int64Text(value)),
    )
    return scalars


def _text_by(kind: type[TypedId]) -> Callable[[Any], str]:
    return lambda value: str(kind(value))
