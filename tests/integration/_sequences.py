"""What the tests of sequences on Redis share."""

from __future__ import annotations

import re
from typing import Any

from tests.servers import ValkeyServer


def open_fence(server: ValkeyServer, key: str) -> None:
    """Write the fence of a server that has forgotten nothing; a new one makes callers wait."""
    fence = key.replace("<second>", "fence")
    where = f"{told(server, 'run_id')} {told(server, 'master_replid')}"
    server.call("HSET", fence, "server", where, "opens", 0, "seen", 0, "reach", 3)


def told(server: ValkeyServer, fact: str) -> str:
    """A line of INFO."""
    found = re.search(rf"^{fact}:(\S+)", str(server.call("INFO")), re.MULTILINE)
    assert found is not None
    return found[1]


def server_second(server: ValkeyServer) -> int:
    """The server's clock."""
    time: Any = server.call("TIME")
    return int(time[0])
