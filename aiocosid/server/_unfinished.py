"""What has arrived of requests that are not whole, of all connections of a process."""

from __future__ import annotations

import socket
import struct
from collections import OrderedDict
from typing import Any, Final

__all__ = ("Unfinished", "reset")

MOST: Final = 16 << 20
"""Bytes of all connections; a connection has 64 kB at most, but there may be thousands."""

AT_ONCE: Final = struct.pack("ii", 1, 0)  # linger for no second


class Unfinished:
    """Ends those connections that have waited longest, when all together hold too much.

    Who sends a request at once is not among them for long, however many others are.
    """

    __slots__ = ("_at_most", "_sizes", "_total")

    def __init__(self, at_most: int = MOST) -> None:
        self._at_most = at_most
        self._total = 0
        self._sizes: OrderedDict[Any, int] = OrderedDict()  # the first to begin is the first

    def note(self, connection: Any, size: int) -> None:  # noqa: ANN401 - of any protocol
        """Say how many bytes a connection holds of what has not arrived whole; 0 if it has."""
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
    """Close a connection at once; the kernel does not keep an answer that nobody reads."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    transport.abort()
