"""Distributed ids for asyncio: unique, rising, compact, and there before they are needed.

    async with aiocosid.connect("sqlite:///ids.db") as ids:
        orders = await ids.segment_chain("order")
        await orders.next_id()
"""

from __future__ import annotations

from .errors import ClosedError as ClosedError
from .errors import CosIdError as CosIdError
from .errors import ForkedError as ForkedError
from .errors import IdOverflowError as IdOverflowError
from .errors import InvalidArgumentError as InvalidArgumentError
from .errors import SegmentUnavailableError as SegmentUnavailableError
from .errors import StoreError as StoreError
from .errors import StoreRolledBackError as StoreRolledBackError
from .errors import StoreUnavailableError as StoreUnavailableError
from .errors import WouldBlock as WouldBlock
from .events import Instrument as Instrument
from .provider import IdProvider as IdProvider
from .provider import connect as connect
from .provider import open_store as open_store
from .segment import IdSegment as IdSegment
from .segment import SegmentChainId as SegmentChainId
from .segment import SegmentId as SegmentId
from .segment import SegmentStatistics as SegmentStatistics

__all__ = (
    "ClosedError",
    "CosIdError",
    "ForkedError",
    "IdOverflowError",
    "IdProvider",
    "IdSegment",
    "Instrument",
    "InvalidArgumentError",
    "SegmentChainId",
    "SegmentId",
    "SegmentStatistics",
    "SegmentUnavailableError",
    "StoreError",
    "StoreRolledBackError",
    "StoreUnavailableError",
    "WouldBlock",
    "connect",
    "open_store",
)
