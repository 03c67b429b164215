"""Every error that aiocosid raises, on one page.

All of them are `CosIdError`.  An error carries its facts as attributes and builds its sentence
from them; the sentence says what happened, which limit was met, and what to do.  A driver's own
exception is never raised to the user: it is the ``__cause__``.
"""

from __future__ import annotations

from ._general import BusyError as BusyError
from ._general import ClockSkewError as ClockSkewError
from ._general import ClockTooFarForwardError as ClockTooFarForwardError
from ._general import ClockTooManyBackwardsError as ClockTooManyBackwardsError
from ._general import ClosedError as ClosedError
from ._general import CorruptCounterError as CorruptCounterError
from ._general import CorruptMachineStateError as CorruptMachineStateError
from ._general import CosIdError as CosIdError
from ._general import CounterMissingError as CounterMissingError
from ._general import ForkedError as ForkedError
from ._general import IdOverflowError as IdOverflowError
from ._general import InvalidArgumentError as InvalidArgumentError
from ._general import InvalidIdError as InvalidIdError
from ._general import InvalidSettingsError as InvalidSettingsError
from ._general import LayoutExpiredError as LayoutExpiredError
from ._general import LeafWorkerIdsUsedUpError as LeafWorkerIdsUsedUpError
from ._general import MachineBitsMismatchError as MachineBitsMismatchError
from ._general import MachineIdInUseError as MachineIdInUseError
from ._general import MachineIdLostError as MachineIdLostError
from ._general import MachineIdOverflowError as MachineIdOverflowError
from ._general import MachineIdQuarantineError as MachineIdQuarantineError
from ._general import MachineIdUnavailableError as MachineIdUnavailableError
from ._general import MissingExtraError as MissingExtraError
from ._general import NameTooLongError as NameTooLongError
from ._general import NotOpenError as NotOpenError
from ._general import RingEmptyError as RingEmptyError
from ._general import SchemaMissingError as SchemaMissingError
from ._general import SegmentUnavailableError as SegmentUnavailableError
from ._general import SequenceExhaustedError as SequenceExhaustedError
from ._general import SequenceUnavailableError as SequenceUnavailableError
from ._general import StoreAuthenticationError as StoreAuthenticationError
from ._general import StoreError as StoreError
from ._general import StoreIdentityHiddenError as StoreIdentityHiddenError
from ._general import StoreNotInitializedError as StoreNotInitializedError
from ._general import StoreRolledBackError as StoreRolledBackError
from ._general import StoreUnavailableError as StoreUnavailableError
from ._general import UnsupportedByStoreError as UnsupportedByStoreError
from ._general import UnsupportedRuntimeError as UnsupportedRuntimeError
from ._general import WorkerIdsUsedUpError as WorkerIdsUsedUpError
from ._general import WouldBlock as WouldBlock
from ._general import WrongLoopError as WrongLoopError

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
    "ForkedError",
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
    "SchemaMissingError",
    "SegmentUnavailableError",
    "SequenceExhaustedError",
    "SequenceUnavailableError",
    "StoreAuthenticationError",
    "StoreError",
    "StoreIdentityHiddenError",
    "StoreNotInitializedError",
    "StoreRolledBackError",
    "StoreUnavailableError",
    "UnsupportedByStoreError",
    "UnsupportedRuntimeError",
    "WorkerIdsUsedUpError",
    "WouldBlock",
    "WrongLoopError",
)
