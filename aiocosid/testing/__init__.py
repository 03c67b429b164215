"""For tests: a manual clock, stores that fail on demand, and contracts for your own stores.

Nothing in here imports pytest.  For readable failures put this line into your ``conftest.py``,
above everything that imports the contracts::

    pytest.register_assert_rewrite("aiocosid.testing")
"""

from __future__ import annotations

from ._clock import ManualClock as ManualClock
from ._distributor_contract import DistributorFactory as DistributorFactory
from ._distributor_contract import IdSegmentDistributorContract as IdSegmentDistributorContract
from ._faults import FailingDistributor as FailingDistributor
from ._faults import GatedDistributor as GatedDistributor
from ._faults import LossyDistributor as LossyDistributor
from ._faults import RolledBackDistributor as RolledBackDistributor
from ._faults import SlowDistributor as SlowDistributor
from ._faults import WrappedDistributor as WrappedDistributor
from ._generator_contract import IdGeneratorContract as IdGeneratorContract
from ._generator_contract import MakeGenerator as MakeGenerator
from ._machine_contract import MachineIdDistributorContract as MachineIdDistributorContract
from ._machine_kit import MakeMachineIdDistributor as MakeMachineIdDistributor
from ._settle import settle as settle
from ._text_contract import MakeTextGenerator as MakeTextGenerator
from ._text_contract import TextIdGeneratorContract as TextIdGeneratorContract

__all__ = (
    "DistributorFactory",
    "FailingDistributor",
    "GatedDistributor",
    "IdGeneratorContract",
    "IdSegmentDistributorContract",
    "LossyDistributor",
    "MachineIdDistributorContract",
    "MakeGenerator",
    "MakeMachineIdDistributor",
    "MakeTextGenerator",
    "ManualClock",
    "RolledBackDistributor",
    "SlowDistributor",
    "TextIdGeneratorContract",
    "WrappedDistributor",
    "settle",
)
