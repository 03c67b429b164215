"""What a distributor knows about its counters.

The highest value of each, to detect a store that lost writes; what a column holds; and whether a
store answers.
"""

# ruff: noqa: PLC0414 - re-exported

from __future__ import annotations

from typing import TYPE_CHECKING

from ._sql_cells import integer as as_integer
from ._watermark import HighWater as HighWater
from .striped._stripe import StoreHealth as StoreHealth

if TYPE_CHECKING:
    from ..abc import IdSegmentDistributor

__all__ = ("HighWater", "StoreHealth", "as_integer", "reached_by")


def reached_by(distributor: IdSegmentDistributor) -> int | None:
    """Return the highest value of its counter that a distributor has seen; None at first."""
    water: HighWater | None = getattr(distributor, "_water", None)
    return None if water is None else water.baseline()
