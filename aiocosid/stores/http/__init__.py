"""Counters and machine ids of a CosId proxy.  Requires the ``http`` extra.

CosId's proxy server gives over HTTP what its own store, mostly Redis, hands out.  Runs on asyncio.
"""

from __future__ import annotations

from ._machine import HttpMachineIdDistributor as HttpMachineIdDistributor
from ._segment import HttpIdSegmentDistributor as HttpIdSegmentDistributor
from ._store import HttpStore as HttpStore

__all__ = ("HttpIdSegmentDistributor", "HttpMachineIdDistributor", "HttpStore")
