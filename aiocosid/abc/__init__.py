"""The contracts: what a generator, a distributor, a store and a clock promise to each other.

Bring your own store by writing one class with one coroutine; see `IdSegmentDistributor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._ids import DEFAULT_NAMESPACE as DEFAULT_NAMESPACE
from ._ids import DEFAULT_STEP as DEFAULT_STEP
from ._ids import MAX_ID as MAX_ID
from ._ids import SHARE as SHARE
from ._ids import AnyGenerator as AnyGenerator
from ._ids import Clock as Clock
from ._ids import GroupedId as GroupedId
from ._ids import IdConverter as IdConverter
from ._ids import IdGenerator as IdGenerator
from ._ids import IdSegmentDistributor as IdSegmentDistributor
from ._ids import Provider as Provider
from ._ids import Statistics as Statistics
from ._ids import TextIdGenerator as TextIdGenerator
from .checks import refuse_loops as refuse_loops
from .lazy import later
from .machines import DEFAULT_GUARD_INTERVAL as DEFAULT_GUARD_INTERVAL
from .machines import DEFAULT_SAFE_GUARD as DEFAULT_SAFE_GUARD
from .machines import InstanceId as InstanceId
from .machines import Machine as Machine
from .machines import MachineGrant as MachineGrant
from .machines import MachineIdDistributor as MachineIdDistributor

if TYPE_CHECKING:
    from ._sequences import DEFAULT_MAX_SEQUENCE as DEFAULT_MAX_SEQUENCE
    from ._sequences import DEFAULT_TOLERANCE as DEFAULT_TOLERANCE
    from ._sequences import SecondFenced as SecondFenced
    from ._sequences import SecondSpent as SecondSpent
    from ._sequences import SequenceDistributor as SequenceDistributor
    from ._sequences import SequenceGrant as SequenceGrant
    from ._sequences import SequenceReply as SequenceReply
    from .stores import Counter as Counter
    from .stores import MachineMarker as MachineMarker
    from .stores import ServerInfo as ServerInfo
    from .stores import Store as Store

__all__ = (
    "DEFAULT_GUARD_INTERVAL",
    "DEFAULT_MAX_SEQUENCE",
    "DEFAULT_NAMESPACE",
    "DEFAULT_SAFE_GUARD",
    "DEFAULT_STEP",
    "DEFAULT_TOLERANCE",
    "MAX_ID",
    "SHARE",
    "AnyGenerator",
    "Clock",
    "Counter",
    "GroupedId",
    "IdConverter",
    "IdGenerator",
    "IdSegmentDistributor",
    "InstanceId",
    "Machine",
    "MachineGrant",
    "MachineIdDistributor",
    "MachineMarker",
    "Provider",
    "SecondFenced",
    "SecondSpent",
    "SequenceDistributor",
    "SequenceGrant",
    "SequenceReply",
    "ServerInfo",
    "Statistics",
    "Store",
    "TextIdGenerator",
    "refuse_loops",
)

if not TYPE_CHECKING:  # for a type checker, a module `__getattr__` would make every name valid
    __getattr__, __dir__ = later(
        __name__,
        {
            "._sequences": (
                "DEFAULT_MAX_SEQUENCE DEFAULT_TOLERANCE SecondFenced SecondSpent "
                "SequenceDistributor SequenceGrant SequenceReply"
            ),
            ".stores": "Counter MachineMarker ServerInfo Store",
        },
    )
