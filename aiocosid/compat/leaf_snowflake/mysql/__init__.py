"""Leaf's registry in MySQL or MariaDB: the fork's mode ``mysql``, table ``leaf_workerid_alloc``.

Requires the ``sqlalchemy`` extra and a driver, such as ``mysql``'s.
"""

from __future__ import annotations

from .._mysql import LeafMysqlMachineIdDistributor as LeafMysqlMachineIdDistributor
from .._mysql import LeafWorkerIdStore as LeafWorkerIdStore

__all__ = ("LeafMysqlMachineIdDistributor", "LeafWorkerIdStore")
