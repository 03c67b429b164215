"""Distributed ids for asyncio: unique, rising, compact, and there before they are needed.

    async with connect("sqlite:///ids.db", create=True) as ids:
        orders = await ids.segment_chain("order")
        number = await orders.next_id()

`connect` opens a store and gives its generators by name, and `configure` those of a file.  By hand:
`SegmentChainId` and `SnowflakeId` on a store of `aiocosid.stores`.  Errors are in
`aiocosid.errors`, the interfaces that you may implement in `aiocosid.abc`, and test helpers in
`aiocosid.testing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import errors as errors
from .abc.lazy import later
from .errors import CosIdError as CosIdError
from .errors import WouldBlock as WouldBlock
from .provider.default import default_provider as default_provider
from .provider.default import generator_named as generator_named
from .provider.default import use_provider as use_provider

if TYPE_CHECKING:
    from .abc.events import Instrument as Instrument
    from .generators.text import StringIdGenerator as StringIdGenerator
    from .machine import MachineIdLease as MachineIdLease
    from .provider import ConfiguredProvider as ConfiguredProvider
    from .provider import IdProvider as IdProvider
    from .provider import configure as configure
    from .provider import connect as connect
    from .provider import store_from_url as store_from_url
    from .provider.models import GeneratedId as GeneratedId
    from .provider.models import cosid as cosid
    from .provider.models import ensure_ids as ensure_ids
    from .segment import GroupBy as GroupBy
    from .segment import GroupedSegmentId as GroupedSegmentId
    from .segment import IdSegment as IdSegment
    from .segment import SegmentChainId as SegmentChainId
    from .segment import SegmentId as SegmentId
    from .segment import SegmentStatistics as SegmentStatistics
    from .snowflake import CosIdGenerator as CosIdGenerator
    from .snowflake import SnowflakeId as SnowflakeId
    from .snowflake import SnowflakeLayout as SnowflakeLayout

__version__ = "0.1.0"

__all__ = (
    "ConfiguredProvider",
    "CosIdError",
    "CosIdGenerator",
    "GeneratedId",
    "GroupBy",
    "GroupedSegmentId",
    "IdProvider",
    "IdSegment",
    "Instrument",
    "MachineIdLease",
    "SegmentChainId",
    "SegmentId",
    "SegmentStatistics",
    "SnowflakeId",
    "SnowflakeLayout",
    "StringIdGenerator",
    "WouldBlock",
    "configure",
    "connect",
    "cosid",
    "default_provider",
    "ensure_ids",
    "errors",
    "generator_named",
    "store_from_url",
    "use_provider",
)

if not TYPE_CHECKING:  # else every name would be one of ours
    _find, __dir__ = later(
        __name__,
        {
            ".generators.text": "StringIdGenerator",
            ".abc.events": "Instrument",
            ".machine": "MachineIdLease",
            ".provider.models": "GeneratedId cosid ensure_ids",
            ".provider": "ConfiguredProvider IdProvider configure connect store_from_url",
            ".segment": (
                "GroupBy GroupedSegmentId IdSegment SegmentChainId SegmentId SegmentStatistics"
            ),
            ".snowflake": "CosIdGenerator SnowflakeId SnowflakeLayout",
        },
    )

    def __getattr__(name: str) -> object:
        if name in errors.__all__:
            raise AttributeError(f"{name} is in aiocosid.errors, not in aiocosid", name=name)
        return _find(name)
