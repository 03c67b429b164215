"""Machine ids: the instance that requests one, the state it keeps, and ids chosen by hand.

Each store has its own distributor in its own module, for example `aiocosid.stores.memory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..abc.lazy import later

if TYPE_CHECKING:
    from ..abc import InstanceId as InstanceId
    from ._lease import MachineIdLease as MachineIdLease
    from ._lease import MachineIdStatistics as MachineIdStatistics
    from ._lease import lease_of as lease_of
    from ._manual import ManualMachineIdDistributor as ManualMachineIdDistributor
    from ._manual import StatefulSetMachineIdDistributor as StatefulSetMachineIdDistributor
    from .instance_ids import as_instance_id as as_instance_id
    from .instance_ids import host_port_instance_id as host_port_instance_id
    from .instance_ids import unique_instance_id as unique_instance_id

__all__ = (
    "InstanceId",
    "MachineIdLease",
    "MachineIdStatistics",
    "ManualMachineIdDistributor",
    "StatefulSetMachineIdDistributor",
    "as_instance_id",
    "host_port_instance_id",
    "lease_of",
    "unique_instance_id",
)

if not TYPE_CHECKING:  # for a type checker, a module `__getattr__` would make every name valid
    __getattr__, __dir__ = later(
        __name__,
        {
            ".instance_ids": "as_instance_id host_port_instance_id unique_instance_id",
            "..abc": "InstanceId",
            "._lease": "MachineIdLease MachineIdStatistics lease_of",
            "._manual": "ManualMachineIdDistributor StatefulSetMachineIdDistributor",
        },
    )
