"""Counters and machine ids on etcd.

Requires the ``etcd`` extra.  The keys are ours, named as CosId's on other stores, and never expire:
``/cosid/<namespace>.<name>`` holds the last max id handed out, as decimal text,
and what lies beneath ``/cosid/machine/<namespace>/`` the machine ids, as JSON.
"""

from __future__ import annotations

from ._machine import EtcdMachineIdDistributor as EtcdMachineIdDistributor
from ._segment import EtcdIdSegmentDistributor as EtcdIdSegmentDistributor
from ._store import EtcdStore as EtcdStore

__all__ = ("EtcdIdSegmentDistributor", "EtcdMachineIdDistributor", "EtcdStore")
