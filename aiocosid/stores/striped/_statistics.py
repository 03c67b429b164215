"""What a striped distributor can say about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...errors import CosIdError

__all__ = ("StripeStatistics", "StripedStatistics")


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeStatistics:
    """One of the stores of a `StripedStore`'s distributor.

    Attributes:
        store: which kind it is.
        place: its place in the list, from 0.
        is_healthy: whether it answered when it was asked last.
        has_ended: whether its counter went backwards: it is not asked any more.
        segments: segments that it gave.
        raises: times that its counter was raised, because it was behind the others.
        failures: calls that failed, also of the other counters of a `StripedStore`.
        last_error: what it raised last; None since it has answered.
    """

    store: str
    place: int
    is_healthy: bool
    has_ended: bool
    segments: int
    raises: int
    failures: int
    last_error: CosIdError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StripedStatistics:
    """A picture of a `StripedStore`'s distributor at one moment; it counts what went through it.

    Attributes:
        stores: one for each, in their order.
        home: the place that is asked first.
    """

    stores: tuple[StripeStatistics, ...]
    home: int
