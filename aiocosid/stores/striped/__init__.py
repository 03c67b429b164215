"""Several independent stores that share one sequence of ids: any one of them is enough.

Each store has a residue class of its own, as with tinyid's delta and remainder, or Flickr's
tickets.  So the stores need no connection to each other, and no two can hand out the same id.
"""

from __future__ import annotations

from ._store import StripedStore as StripedStore
from ._stripe import StripedStatistics as StripedStatistics
from ._stripe import StripeStatistics as StripeStatistics

__all__ = ("StripeStatistics", "StripedStatistics", "StripedStore")
