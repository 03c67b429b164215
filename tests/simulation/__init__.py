"""A deterministic world, in virtual time, in which generators and stores meet every misfortune.

A `World` has one seed.  In it each `Node` runs processes that crash, are stopped and come back,
with clocks that are wrong, over a `Link` that loses, delays and repeats calls.  A `Witness` watches
each call.  What goes wrong is found again by its seed::

    python -m tests.simulation segment_chain_faults --seed 7
"""

from __future__ import annotations

from ._cancellation import Cancelled as Cancelled
from ._cancellation import cancel_at as cancel_at
from ._cancellation import cancel_everywhere as cancel_everywhere
from ._catalogue import SCENARIOS as SCENARIOS
from ._churn import ROUGH as ROUGH
from ._churn import MakeGenerator as MakeGenerator
from ._churn import churn as churn
from ._clock import NodeClock as NodeClock
from ._clock import WorldClock as WorldClock
from ._errors import NothingLeftError as NothingLeftError
from ._errors import SimulationError as SimulationError
from ._faults import CALM as CALM
from ._faults import Faults as Faults
from ._java import JavaSegmentId as JavaSegmentId
from ._java import JavaSnowflakeId as JavaSnowflakeId
from ._java import jdbc_counter as jdbc_counter
from ._java import redis_counter as redis_counter
from ._ledger import Ledger as Ledger
from ._link import Link as Link
from ._loop import VirtualTimeLoop as VirtualTimeLoop
from ._node import Node as Node
from ._redis import SimulatedRedis as SimulatedRedis
from ._store import SimulatedStore as SimulatedStore
from ._store_trouble import redis_trouble as redis_trouble
from ._trouble import ACTS as ACTS
from ._trouble import trouble as trouble
from ._witness import Witness as Witness
from ._world import Report as Report
from ._world import Scenario as Scenario
from ._world import World as World
from ._world import first_failure as first_failure
from ._world import simulate as simulate

__all__ = (
    "ACTS",
    "CALM",
    "ROUGH",
    "SCENARIOS",
    "Cancelled",
    "Faults",
    "JavaSegmentId",
    "JavaSnowflakeId",
    "Ledger",
    "Link",
    "MakeGenerator",
    "Node",
    "NodeClock",
    "NothingLeftError",
    "Report",
    "Scenario",
    "SimulatedRedis",
    "SimulatedStore",
    "SimulationError",
    "VirtualTimeLoop",
    "Witness",
    "World",
    "WorldClock",
    "cancel_at",
    "cancel_everywhere",
    "churn",
    "first_failure",
    "jdbc_counter",
    "redis_counter",
    "redis_trouble",
    "simulate",
    "trouble",
)
