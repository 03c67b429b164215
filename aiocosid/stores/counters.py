"""What a distributor keeps of the counters that it asks for ids.

How high it has seen one, so that it notices a store that lost writes; and whether a store answers.
"""

# ruff: noqa: PLC0414 - re-exported

from __future__ import annotations

from ._watermark import HighWater as HighWater
from .striped._health import StoreHealth as StoreHealth

__all__ = ("HighWater", "StoreHealth")
