"""What a distributor knows about its counters.

The highest value of each, to detect a store that lost writes; and whether a store answers.
"""

# ruff: noqa: PLC0414 - re-exported

from __future__ import annotations

from ._watermark import HighWater as HighWater
from .striped._stripe import StoreHealth as StoreHealth

__all__ = ("HighWater", "StoreHealth")
