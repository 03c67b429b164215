"""Distributed ids for asyncio: unique, rising, compact, and there before they are needed.

Begin with `connect`; compose by hand with `SegmentChainId` and a distributor of
`aiocosid.stores`.  The contracts are in `aiocosid.abc`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._default import default_provider as default_provider
from ._default import generator_named as generator_named
from ._default import use_provider as use_provider
from .errors import BusyError as BusyError
from .errors import ClockSkewError as ClockSkewError
from .errors import ClockTooFarForwardError as ClockTooFarForwardError
from .errors import ClockTooManyBackwardsError as ClockTooManyBackwardsError
from .errors import ClosedError as ClosedError
from .errors import CorruptCounterError as CorruptCounterError
from .errors import CorruptMachineStateError as CorruptMachineStateError
from .errors import CosIdError as CosIdError
from .errors import CounterMissingError as CounterMissingError
from .errors import ForkedError as ForkedError
from .errors import IdOverflowError as IdOverflowError
from .errors import InvalidArgumentError as InvalidArgumentError
from .errors import InvalidIdError as InvalidIdError
from .errors import InvalidSettingsError as InvalidSettingsError
from .errors import LayoutExpiredError as LayoutExpiredError
from .errors import LeafWorkerIdsUsedUpError as LeafWorkerIdsUsedUpError
from .errors import MachineBitsMismatchError as MachineBitsMismatchError
from .errors import MachineIdInUseError as MachineIdInUseError
from .errors import MachineIdLostError as MachineIdLostError
from .errors import MachineIdOverflowError as MachineIdOverflowError
from .errors import MachineIdQuarantineError as MachineIdQuarantineError
from .errors import MachineIdUnavailableError as MachineIdUnavailableError
from .errors import MissingExtraError as MissingExtraError
from .errors import NameTooLongError as NameTooLongError
from .errors import NotOpenError as NotOpenError
from .errors import SchemaMissingError as SchemaMissingError
from .errors import SegmentUnavailableError as SegmentUnavailableError
from .errors import SequenceExhaustedError as SequenceExhaustedError
from .errors import SequenceUnavailableError as SequenceUnavailableError
from .errors import StoreAuthenticationError as StoreAuthenticationError
from .errors import StoreError as StoreError
from .errors import StoreIdentityHiddenError as StoreIdentityHiddenError
from .errors import StoreNotInitializedError as StoreNotInitializedError
from .errors import StoreRolledBackError as StoreRolledBackError
from .errors import StoreUnavailableError as StoreUnavailableError
from .errors import UnsupportedByStoreError as UnsupportedByStoreError
from .errors import UnsupportedRuntimeError as UnsupportedRuntimeError
from .errors import WorkerIdsUsedUpError as WorkerIdsUsedUpError
from .errors import WouldBlock as WouldBlock
from .errors import WrongLoopError as WrongLoopError
from .events import Instrument as Instrument
from .provider import ConfiguredProvider as ConfiguredProvider
from .provider import IdProvider as IdProvider
from .provider import configure as configure
from .provider import connect as connect
from .provider import open_store as open_store
from .segment import GroupBy as GroupBy
from .segment import GroupedSegmentId as GroupedSegmentId
from .segment import IdSegment as IdSegment
from .segment import SegmentChainId as SegmentChainId
from .segment import SegmentId as SegmentId
from .segment import SegmentStatistics as SegmentStatistics

if TYPE_CHECKING:
    from ._text_generator import StringIdGenerator as StringIdGenerator
    from .machine import MachineIdLease as MachineIdLease
    from .models import CosId as CosId
    from .models import ensure_ids as ensure_ids
    from .snowflake import CosIdGenerator as CosIdGenerator
    from .snowflake import SnowflakeId as SnowflakeId
    from .snowflake import SnowflakeLayout as SnowflakeLayout

__all__ = (
    "BusyError",
    "ClockSkewError",
    "ClockTooFarForwardError",
    "ClockTooManyBackwardsError",
    "ClosedError",
    "ConfiguredProvider",
    "CorruptCounterError",
    "CorruptMachineStateError",
    "CosId",
    "CosIdError",
    "CosIdGenerator",
    "CounterMissingError",
    "ForkedError",
    "GroupBy",
    "GroupedSegmentId",
    "IdOverflowError",
    "IdProvider",
    "IdSegment",
    "Instrument",
    "InvalidArgumentError",
    "InvalidIdError",
    "InvalidSettingsError",
    "LayoutExpiredError",
    "LeafWorkerIdsUsedUpError",
    "MachineBitsMismatchError",
    "MachineIdInUseError",
    "MachineIdLease",
    "MachineIdLostError",
    "MachineIdOverflowError",
    "MachineIdQuarantineError",
    "MachineIdUnavailableError",
    "MissingExtraError",
    "NameTooLongError",
    "NotOpenError",
    "SchemaMissingError",
    "SegmentChainId",
    "SegmentId",
    "SegmentStatistics",
    "SegmentUnavailableError",
    "SequenceExhaustedError",
    "SequenceUnavailableError",
    "SnowflakeId",
    "SnowflakeLayout",
    "StoreAuthenticationError",
    "StoreError",
    "StoreIdentityHiddenError",
    "StoreNotInitializedError",
    "StoreRolledBackError",
    "StoreUnavailableError",
    "StringIdGenerator",
    "UnsupportedByStoreError",
    "UnsupportedRuntimeError",
    "WorkerIdsUsedUpError",
    "WouldBlock",
    "WrongLoopError",
    "configure",
    "connect",
    "default_provider",
    "ensure_ids",
    "generator_named",
    "open_store",
    "use_provider",
)

# Loaded when they are asked for: who uses segments alone need not wait for them.
_LATER = {
    "CosId": "models",
    "CosIdGenerator": "snowflake",
    "MachineIdLease": "machine",
    "SnowflakeId": "snowflake",
    "SnowflakeLayout": "snowflake",
    "StringIdGenerator": "_text_generator",
    "ensure_ids": "models",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as the name is
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
