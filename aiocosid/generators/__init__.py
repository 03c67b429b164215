"""Other generators with the same contract: narrower ids, blurred ids, counters and UUIDs."""

from __future__ import annotations

from ._local import CounterId as CounterId
from ._uuid import Uuid4Id as Uuid4Id
from ._uuid import Uuid7Id as Uuid7Id
from .wrapped import MAX_INT32 as MAX_INT32
from .wrapped import IntegerIdGenerator as IntegerIdGenerator
from .wrapped import UncertaintyIdGenerator as UncertaintyIdGenerator
from .wrapped import WrappedStatistics as WrappedStatistics

__all__ = (
    "MAX_INT32",
    "CounterId",
    "IntegerIdGenerator",
    "UncertaintyIdGenerator",
    "Uuid4Id",
    "Uuid7Id",
    "WrappedStatistics",
)
