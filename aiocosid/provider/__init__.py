"""Named generators, opened and closed together: asked for one by one, or built from settings."""

from __future__ import annotations

from ._id_provider import IdProvider as IdProvider
from ._id_provider import connect as connect
from .._provider_options import SegmentChainOptions as SegmentChainOptions
from .._provider_options import SegmentIdOptions as SegmentIdOptions
from .._provider_options import SnowflakeOptions as SnowflakeOptions
from ._stores import open_store as open_store

__all__ = (
    "IdProvider",
    "SegmentChainOptions",
    "SegmentIdOptions",
    "SnowflakeOptions",
    "connect",
    "open_store",
)
