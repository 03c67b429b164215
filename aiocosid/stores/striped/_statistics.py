"""Statistics of a striped distributor."""

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
        store: the kind of store.
        place: its place in the list, from 0.
        is_healthy: whether its last call succeeded.
        has_ended: whether its counter went backwards; then it is not asked any more.
        segments: segments that it granted.
        raises: how often its counter was raised because it was behind the others.
        failures: failed calls, including those of other counters of the `StripedStore`.
        last_error: its last error; None after an answer.
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
    """The state of a `StripedStore`'s distributor at one moment; it counts its own calls.

    Attributes:
        stores: one entry for each store, in their order.
        home: the place of the store that is asked first.
    """

    stores: tuple[StripeStatistics, ...]
    home: int
