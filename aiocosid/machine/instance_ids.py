"""Names under which an instance requests a machine id."""

from __future__ import annotations

import os
import secrets
import socket
from typing import TYPE_CHECKING, Final

from ..abc import InstanceId
from ..abc.checks import check_integer, check_text
from ..abc.machines import INSTANCE_ID_WIDTH
from ..errors import InvalidArgumentError, MachineIdInUseError

if TYPE_CHECKING:
    from ..abc import MachineIdDistributor

__all__ = (
    "as_instance_id",
    "host_port_instance_id",
    "namesake",
    "this_host",
    "unique_instance_id",
)

HOST_WIDTH: Final = 63
"""Characters kept of a host name: a DNS label; a process id and a nonce fit behind it."""

NONCE_BYTES: Final = 8

MAX_PORT: Final = 2**31 - 1
"""The largest ``int`` of Java: CosId uses the process id as port where none is set."""


def this_host() -> str:
    """Return this host's name, shortened to fit."""
    # A name that is not UTF-8 contains lone surrogates, which no store can hold.
    name = socket.gethostname().encode(errors="replace").decode()
    return name[:HOST_WIDTH] or "localhost"


def unique_instance_id() -> InstanceId:
    """Return an instance id that is unique: host name, process id and a new random nonce.

    Only the nonce makes it unique.  Two containers may both be pid 1 with the same host name and
    address, and CosId's ``address:pid`` then gives both the same machine id.
    """
    return InstanceId(f"{this_host()}:{os.getpid()}-{secrets.token_hex(NONCE_BYTES)}")


def host_port_instance_id(host: str, port: int, *, stable: bool = False) -> InstanceId:
    """Return CosId's usual instance id, ``host:port``.

    Use it only for an address that no other instance of the namespace has at the same time.

    Args:
        host: a name or an address, not empty.
        port: 0 to 2^31-1.
        stable: whether the same instance comes back under the same address.

    Raises:
        InvalidArgumentError: an argument is outside its range, or the text is too long.
    """
    check_text("host", host)
    check_integer("port", port, at_least=0, at_most=MAX_PORT)
    return as_instance_id(InstanceId(f"{host}:{port}", stable=stable))


def as_instance_id(value: InstanceId | str | None) -> InstanceId:
    """Return an instance id: as it is, from a text as one that is not stable, or for None unique.

    Raises:
        InvalidArgumentError: the text is empty or too long, or no store could hold it.
    """
    if value is None:
        return unique_instance_id()
    instance_id = InstanceId(value) if isinstance(value, str) else value
    if not isinstance(instance_id, InstanceId):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
        raise InvalidArgumentError("instance_id", value, "must be an InstanceId, a string or None")
    check_text("instance_id", instance_id.text, at_most=INSTANCE_ID_WIDTH)
    return instance_id


def namesake(asked: MachineIdDistributor, does: str) -> MachineIdInUseError:
    """Return the error for an instance whose id another process also uses.

    Args:
        asked: the distributor of the instance.
        does: what the other process did that revealed it.
    """
    return MachineIdInUseError(
        f"instance id {asked.instance_id.text!r} of namespace {asked.namespace!r}",
        holder=f"another process, which {does}",
        remedy="give each process an instance id of its own",
    )
