"""Several independent stores that share one sequence of ids: any one of them alive is enough.

Each store has a residue class of its own, as with tinyid's delta and remainder, or Flickr's
tickets.  So none has to know of another, and no id can come from two.
"""

from __future__ import annotations

from ._statistics import StripedStatistics as StripedStatistics
from ._statistics import StripeStatistics as StripeStatistics
from ._store import StripedStore as StripedStore

__all__ = ("StripeStatistics", "StripedStatistics", "StripedStore")
