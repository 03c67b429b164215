"""For tests: a manual clock, stores that fail on demand, and contracts for your own stores.

Nothing in here imports pytest; the fixtures that pytest finds automatically, `aiocosid_ids`,
`aiocosid_store` and `aiocosid_clock`, use this package.  For readable failures of the contracts,
put this line into your ``conftest.py``, before anything that imports them::

    pytest.register_assert_rewrite("aiocosid.testing")
"""

from __future__ import annotations

from ._clock import ManualClock as ManualClock
from ._clock import use_clock as use_clock
from ._counting import CountingProvider as CountingProvider
from ._counting import GivenIds as GivenIds
from ._distributor_contract import DistributorFactory as DistributorFactory
from ._distributor_contract import IdSegmentDistributorContract as IdSegmentDistributorContract
from ._evenness import assert_even as assert_even
from ._failing_store import FailingStore as FailingStore
from ._failing_store import use_store as use_store
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
    "CountingProvider",
    "DistributorFactory",
    "FailingDistributor",
    "FailingStore",
    "GatedDistributor",
    "GivenIds",
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
    "assert_even",
    "settle",
    "use_clock",
    "use_store",
)
