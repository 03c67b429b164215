"""The instance that takes a worker id: a given address and port, never guessed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...abc import InstanceId
from ...abc.checks import check_integer, check_text
from ...errors import InvalidArgumentError

if TYPE_CHECKING:
    from .._url import Options

__all__ = (
    "ADDRESS",
    "INTERVAL",
    "NAMED",
    "OFFLINE",
    "WHY",
    "WORKER_BITS",
    "LeafAddress",
    "check_leaf_name",
)

WIDTH: Final = 100  # characters of address and port together; Leaf's table holds 127
WHY: Final = "it has worker ids only; Leaf's segments are another store, leaf+mysql://"
ADDRESS: Final[Options] = {"ip": str, "port": str}  # the URL's options for this process
NAMED: Final[Options] = {"name": str, **ADDRESS}
OFFLINE: Final[Options] = {"state_dir": str, "offline": float}  # for a start without the registry
WORKER_BITS: Final = 10  # the width of Leaf's worker ids
INTERVAL: Final = 3.0  # seconds; Leaf reports its time with the same interval

_NODE: Final = re.compile(r"(?!\.{1,2}$)[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff]+")


@dataclass(frozen=True, slots=True)
class LeafAddress:
    """An address and a port in Leaf's notation.

    Attributes:
        ip: the address, or any text in its place.
        port: the port, as text.
    """

    ip: str
    port: str

    @classmethod
    def of(cls, ip: str, port: int | str) -> LeafAddress:
        """Check the address and the port.

        Raises:
            InvalidArgumentError: the address is empty, or cannot be the name of a node; or the port
                is not 1 to 65535.
        """
        check_text("ip", ip, at_most=WIDTH - 6)
        if not _NODE.fullmatch(ip):
            raise InvalidArgumentError("ip", ip, "must be this host's address without a slash")
        number = int(port) if isinstance(port, str) and re.fullmatch("[0-9]{1,5}", port) else port
        check_integer("port", number, at_least=1, at_most=2**16 - 1)
        return cls(ip, str(number))

    def __str__(self) -> str:
        """Return Leaf's key, ``ip:port``."""
        return f"{self.ip}:{self.port}"

    @property
    def instance_id(self) -> InstanceId:
        """The instance that takes the worker id; its address keeps the number."""
        return InstanceId(str(self), stable=True)


def check_leaf_name(name: str) -> str:
    """Return ``leaf.name`` if it can be the name of a node and a directory.

    Raises:
        InvalidArgumentError: it cannot.
    """
    check_text("name", name, at_most=WIDTH)
    if not _NODE.fullmatch(name):
        raise InvalidArgumentError("name", name, "must be Leaf's leaf.name without a slash")
    return name
