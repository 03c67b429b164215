"""Named generators, opened and closed together: asked for one by one, or built from settings."""

from __future__ import annotations

from .._provider_options import SegmentChainOptions as SegmentChainOptions
from .._provider_options import SegmentIdOptions as SegmentIdOptions
from .._provider_options import SnowflakeOptions as SnowflakeOptions
from .._store_urls import open_store as open_store
from ._configured import ConfiguredProvider as ConfiguredProvider
from ._configured import configure as configure
from ._id_provider import IdProvider as IdProvider
from ._id_provider import connect as connect

__all__ = (
    "ConfiguredProvider",
    "IdProvider",
    "SegmentChainOptions",
    "SegmentIdOptions",
    "SnowflakeOptions",
    "configure",
    "connect",
    "open_store",
)
