"""Worker ids as Twitter's snowflake of 2010 takes them: ephemeral nodes of ZooKeeper.

Requires the ``zookeeper`` extra.  The node is Twitter's: ``/snowflake-servers/<worker id>`` holds
``host:port`` and goes with the session of the process that made it.  The ids are made by
`aiocosid.snowflake.TWITTER`.
"""

from __future__ import annotations

from ._store import TwitterStore as TwitterStore
from ._worker_ids import TwitterMachineIdDistributor as TwitterMachineIdDistributor

__all__ = ("TwitterMachineIdDistributor", "TwitterStore")
