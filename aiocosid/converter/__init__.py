"""Ids as text and back: CosId's converters, other formats, and ids that cannot be mixed up.

A converter is an immutable value, with comparison, hash and a repr of its settings.  It never
shortens an id: an id without a text raises `InvalidIdError`.
"""

from __future__ import annotations

from ._affix import DatePrefix as DatePrefix
from ._affix import DatePrefixIdConverter as DatePrefixIdConverter
from ._affix import GroupedPrefixIdConverter as GroupedPrefixIdConverter
from ._affix import GroupPrefix as GroupPrefix
from ._affix import PrefixIdConverter as PrefixIdConverter
from ._affix import SuffixIdConverter as SuffixIdConverter
from ._affix import compose as compose
from ._decimal import ToStringIdConverter as ToStringIdConverter
from ._formats import SqidsConverter as SqidsConverter
from ._formats import TypeIdConverter as TypeIdConverter
from ._formats import UlidConverter as UlidConverter
from ._formats import UuidConverter as UuidConverter
from ._friendly import ShardedTextConverter as ShardedTextConverter
from ._friendly import SnowflakeFriendlyIdConverter as SnowflakeFriendlyIdConverter
from ._opaque import OpaqueIdConverter as OpaqueIdConverter
from ._radix import CrockfordIdConverter as CrockfordIdConverter
from ._radix import Radix36IdConverter as Radix36IdConverter
from ._radix import Radix62IdConverter as Radix62IdConverter
from ._scatter import ScatterIdConverter as ScatterIdConverter
from ._typed import Int64Text as Int64Text
from ._typed import TypedId as TypedId

__all__ = (
    "CrockfordIdConverter",
    "DatePrefix",
    "DatePrefixIdConverter",
    "GroupPrefix",
    "GroupedPrefixIdConverter",
    "Int64Text",
    "OpaqueIdConverter",
    "PrefixIdConverter",
    "Radix36IdConverter",
    "Radix62IdConverter",
    "ScatterIdConverter",
    "ShardedTextConverter",
    "SnowflakeFriendlyIdConverter",
    "SqidsConverter",
    "SuffixIdConverter",
    "ToStringIdConverter",
    "TypeIdConverter",
    "TypedId",
    "UlidConverter",
    "UuidConverter",
    "compose",
)
