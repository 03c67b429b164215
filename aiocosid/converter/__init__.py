"""Ids as text and back: CosId's converters, and ids that cannot be guessed, misread or rounded.

A converter is a value: it compares, hashes and shows its settings, and never changes.  It never
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
from ._decimal import JavaScriptSafeIdConverter as JavaScriptSafeIdConverter
from ._decimal import ToStringIdConverter as ToStringIdConverter
from ._friendly import SnowflakeFriendlyIdConverter as SnowflakeFriendlyIdConverter
from ._opaque import OpaqueIdConverter as OpaqueIdConverter
from ._radix import CrockfordIdConverter as CrockfordIdConverter
from ._radix import Radix36IdConverter as Radix36IdConverter
from ._radix import Radix62IdConverter as Radix62IdConverter

__all__ = (
    "CrockfordIdConverter",
    "DatePrefix",
    "DatePrefixIdConverter",
    "GroupPrefix",
    "GroupedPrefixIdConverter",
    "JavaScriptSafeIdConverter",
    "OpaqueIdConverter",
    "PrefixIdConverter",
    "Radix36IdConverter",
    "Radix62IdConverter",
    "SnowflakeFriendlyIdConverter",
    "SuffixIdConverter",
    "ToStringIdConverter",
    "compose",
)
