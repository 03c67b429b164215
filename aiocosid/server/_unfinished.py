"""The received bytes of incomplete requests, over all connections of a process."""

from __future__ import annotations

import socket
import struct
from collections import OrderedDict
from typing import Any, Final

__all__ = ("Unfinished", "reset")

MOST: Final = 16 << 20
"""Maximum bytes over all connections; each has at most 64 kB, but there may be thousands."""

AT_ONCE: Final = struct.pack("ii", 1, 0)  # linger for zero seconds


class Unfinished:
    """Closes the connections that have waited longest, if all together hold too much.

    A client that sends its request at once is not closed, however many others there are.
    """

    __slots__ = ("_at_most", "_sizes", "_total")

    def __init__(self, at_most: int = MOST) -> None:
        self._at_most = at_most
        self._total = 0
        self._sizes: OrderedDict[Any, int] = OrderedDict()  # ordered by when they began

    def note(self, connection: Any, size: int) -> None:  # noqa: ANN401 - any protocol
        """Record how many bytes of an incomplete request a connection holds; 0 for none."""
        if not size:
            self._total -= self._sizes.pop(connection, 0)
            return
        self._total += size - self._sizes.get(connection, 0)
        self._sizes[connection] = size
        while self._total > self._at_most:
            oldest, size = self._sizes.popitem(last=False)
            self._total -= size
            oldest.abort()


def reset(transport: Any) -> None:  # noqa: ANN401 - of either loop
    """Close a connection at once; the kernel does not keep an answer that is never read."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    transport.abort()
