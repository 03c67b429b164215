"""Every error that aiocosid raises, on one page.

All of them are `CosIdError`.  An error carries its facts as attributes and builds its sentence
from them; the sentence says what happened, which limit was met, and what to do.  A driver's own
exception is never raised to the user: it is the ``__cause__``.
"""

from __future__ import annotations

from ._machine import ClockTooFarForwardError as ClockTooFarForwardError
from ._machine import ClockTooManyBackwardsError as ClockTooManyBackwardsError
from ._machine import CorruptMachineStateError as CorruptMachineStateError
from ._machine import LayoutExpiredError as LayoutExpiredError
from ._machine import LeafWorkerIdsUsedUpError as LeafWorkerIdsUsedUpError
from ._machine import MachineBitsMismatchError as MachineBitsMismatchError
from ._machine import MachineIdInUseError as MachineIdInUseError
from ._machine import MachineIdLostError as MachineIdLostError
from ._machine import MachineIdOverflowError as MachineIdOverflowError
from ._machine import MachineIdQuarantineError as MachineIdQuarantineError
from ._machine import MachineIdUnavailableError as MachineIdUnavailableError
from ._machine import RingEmptyError as RingEmptyError
from ._machine import StoreNotInitializedError as StoreNotInitializedError
from ._machine import WorkerIdsUsedUpError as WorkerIdsUsedUpError
from ._stores import ClockSkewError as ClockSkewError
from ._stores import CorruptCounterError as CorruptCounterError
from ._stores import CounterMissingError as CounterMissingError
from ._stores import CounterNotCreatedError as CounterNotCreatedError
from ._stores import SchemaDroppedError as SchemaDroppedError
from ._stores import SchemaMissingError as SchemaMissingError
from ._stores import SegmentUnavailableError as SegmentUnavailableError
from ._stores import SequenceExhaustedError as SequenceExhaustedError
from ._stores import SequenceUnavailableError as SequenceUnavailableError
from ._stores import SeriesEndedError as SeriesEndedError
from ._stores import SeriesNotOpenError as SeriesNotOpenError
from ._stores import StoreAuthenticationError as StoreAuthenticationError
from ._stores import StoreError as StoreError
from ._stores import StoreFormatError as StoreFormatError
from ._stores import StoreIdentityHiddenError as StoreIdentityHiddenError
from ._stores import StoreNotEmptyError as StoreNotEmptyError
from ._stores import StoreRolledBackError as StoreRolledBackError
from ._stores import StoreUnavailableError as StoreUnavailableError
from ._stores import TransactionConflictError as TransactionConflictError
from ._stores import UnsuitableTransactionError as UnsuitableTransactionError
from ._stores import UnsupportedByStoreError as UnsupportedByStoreError
from .base import BusyError as BusyError
from .base import ClosedError as ClosedError
from .base import CosIdError as CosIdError
from .base import ForkedError as ForkedError
from .base import GeneratorMissingError as GeneratorMissingError
from .base import IdOverflowError as IdOverflowError
from .base import InvalidArgumentError as InvalidArgumentError
from .base import InvalidIdError as InvalidIdError
from .base import InvalidSettingsError as InvalidSettingsError
from .base import MissingExtraError as MissingExtraError
from .base import NameTooLongError as NameTooLongError
from .base import NotOpenError as NotOpenError
from .base import UnsupportedRuntimeError as UnsupportedRuntimeError
from .base import WouldBlock as WouldBlock
from .base import WrongLoopError as WrongLoopError

__all__ = (
    "BusyError",
    "ClockSkewError",
    "ClockTooFarForwardError",
    "ClockTooManyBackwardsError",
    "ClosedError",
    "CorruptCounterError",
    "CorruptMachineStateError",
    "CosIdError",
    "CounterMissingError",
    "CounterNotCreatedError",
    "ForkedError",
    "GeneratorMissingError",
    "IdOverflowError",
    "InvalidArgumentError",
    "InvalidIdError",
    "InvalidSettingsError",
    "LayoutExpiredError",
    "LeafWorkerIdsUsedUpError",
    "MachineBitsMismatchError",
    "MachineIdInUseError",
    "MachineIdLostError",
    "MachineIdOverflowError",
    "MachineIdQuarantineError",
    "MachineIdUnavailableError",
    "MissingExtraError",
    "NameTooLongError",
    "NotOpenError",
    "RingEmptyError",
    "SchemaDroppedError",
    "SchemaMissingError",
    "SegmentUnavailableError",
    "SequenceExhaustedError",
    "SequenceUnavailableError",
    "SeriesEndedError",
    "SeriesNotOpenError",
    "StoreAuthenticationError",
    "StoreError",
    "StoreFormatError",
    "StoreIdentityHiddenError",
    "StoreNotEmptyError",
    "StoreNotInitializedError",
    "StoreRolledBackError",
    "StoreUnavailableError",
    "TransactionConflictError",
    "UnsuitableTransactionError",
    "UnsupportedByStoreError",
    "UnsupportedRuntimeError",
    "WorkerIdsUsedUpError",
    "WouldBlock",
    "WrongLoopError",
)
