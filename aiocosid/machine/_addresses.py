"""Machine ids from addresses of the network: chosen, with their capacity, never guessed."""

from __future__ import annotations

import re
import socket
import uuid
import warnings
from contextlib import closing
from ipaddress import IPv4Address, ip_network
from math import ceil, exp, log, log1p, sqrt
from typing import TYPE_CHECKING, Final

from ..abc import DEFAULT_NAMESPACE, InstanceId
from ..abc._ids import check_integer
from ..abc._machine import check_machine_bits
from ..errors import InvalidArgumentError
from ._manual import DEFAULT_MARK_INTERVAL, ManualMachineIdDistributor

if TYPE_CHECKING:
    import os

__all__ = (
    "IpMachineIdDistributor",
    "MacMachineIdDistributor",
    "SharedMachineIdWarning",
    "collision_chance",
)

PRIVATE: Final = tuple(
    map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"))
)
"""The networks that sonyflake treats as private."""

IP_BITS: Final = 16
MAC_BITS: Final = 10
CERTAIN: Final = 40  # 1 - exp(-40) is 1.0
MADE_UP: Final = 1 << 40  # the bit that marks a MAC as one of a group: no device has it

MAC: Final = re.compile(r"(?:[0-9A-Fa-f]{2}[:-]?){5}[0-9A-Fa-f]{2}")
ELSEWHERE: Final = ("192.0.2.1", 9)  # belongs to no host (RFC 5737); nothing is sent


class SharedMachineIdWarning(UserWarning):
    """Two hosts may get the same machine id, and then issue the same ids: nothing prevents it."""


class IpMachineIdDistributor(ManualMachineIdDistributor):
    """The low bits of this host's private IPv4 address: sonyflake's machine id, with 16.

    Unique within one ``/16`` network.  Two hosts of different networks may get the same machine id,
    and containers with addresses of a bridge do; nothing detects it, so it warns with
    `SharedMachineIdWarning`.  All else, including the lock on this host, is as in
    `ManualMachineIdDistributor`.

    Attributes:
        address: the address that the machine id is from.
    """

    __slots__ = ("address",)

    def __init__(
        self,
        *,
        bits: int = IP_BITS,
        address: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        interval: float = DEFAULT_MARK_INTERVAL,
    ) -> None:
        """Read the address; nothing is locked yet.

        Args:
            bits: how many low bits, 1 to 31; the machine bits of the layout.  8 are the last byte.
            address: an IPv4 address, private or not; by default the one from which this host
                reaches others, which has to be private.
            namespace: as for `ManualMachineIdDistributor`.
            instance_id: as for `ManualMachineIdDistributor`.
            state_dir: as for `ManualMachineIdDistributor`.
            interval: as for `ManualMachineIdDistributor`.

        Raises:
            InvalidArgumentError: there is no private address, or an argument is outside its range.

        Warns:
            SharedMachineIdWarning: always; it names the capacity.
        """
        check_machine_bits(bits)
        self.address: IPv4Address = _given(address) if address is not None else _private()
        _warn("an IPv4 address", bits)
        super().__init__(
            int(self.address) & (1 << bits) - 1,
            namespace=namespace,
            instance_id=instance_id,
            state_dir=state_dir,
            interval=interval,
        )


class MacMachineIdDistributor(ManualMachineIdDistributor):
    """The low bits of this host's MAC address: Seata's worker id, with 10.

    Two hosts with equal low bits issue the same ids, and nothing detects it, so it warns with
    `SharedMachineIdWarning`.  The addresses of virtual machines and containers may be invented.
    All else is as in `ManualMachineIdDistributor`.

    Attributes:
        address: the address that the machine id is from, as ``02:42:ac:11:00:02``.
    """

    __slots__ = ("address",)

    def __init__(
        self,
        *,
        bits: int = MAC_BITS,
        address: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        interval: float = DEFAULT_MARK_INTERVAL,
    ) -> None:
        """Read the address, which may run a program of the system; nothing is locked yet.

        Args:
            bits: how many low bits, 1 to 31; the machine bits of the layout.
            address: a MAC address; by default one that `uuid.getnode` finds.
            namespace: as for `ManualMachineIdDistributor`.
            instance_id: as for `ManualMachineIdDistributor`.
            state_dir: as for `ManualMachineIdDistributor`.
            interval: as for `ManualMachineIdDistributor`.

        Raises:
            InvalidArgumentError: no address is found, or an argument is outside its range.

        Warns:
            SharedMachineIdWarning: always; it names the capacity.
        """
        check_machine_bits(bits)
        number = _number(address) if address is not None else _found()
        self.address: str = number.to_bytes(6, "big").hex(":")
        _warn("a MAC address", bits)
        super().__init__(
            number & (1 << bits) - 1,
            namespace=namespace,
            instance_id=instance_id,
            state_dir=state_dir,
            interval=interval,
        )


def collision_chance(hosts: int, *, bits: int) -> float:
    """Return the probability, 0 to 1, that two of so many hosts have the same random low bits.

    Args:
        hosts: how many there are at once, at least 1.
        bits: how many low bits, 1 to 31.

    Raises:
        InvalidArgumentError: an argument is outside its range.
    """
    check_integer("hosts", hosts, at_least=1)
    size = check_machine_bits(bits)
    if hosts > size or hosts * (hosts - 1) > CERTAIN * 2 * size:
        return 1.0
    # The birthday problem: the n-th host differs from those before it.
    # Each term is at most -n / size.
    return 1 - exp(sum(log1p(-n / size) for n in range(hosts)))


def _warn(what: str, bits: int) -> None:
    size = 1 << bits
    few, half = (ceil(sqrt(-2 * size * log(1 - chance))) for chance in (0.01, 0.5))
    warnings.warn(
        f"machine ids from the low {bits} bits of {what}: {size} values, and nothing keeps two "
        f"hosts apart; of {few} hosts with random bits two collide with a probability of 1 %, of "
        f"{half} with 50 %; lease machine ids from a store to be safe",
        SharedMachineIdWarning,
        stacklevel=3,
    )


def _given(address: str) -> IPv4Address:
    try:
        return IPv4Address(address)
    except ValueError:
        raise InvalidArgumentError("address", address, expected="an IPv4 address") from None


def _private() -> IPv4Address:
    """Return this host's address towards other hosts, without sending anything."""
    try:
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as line:
            line.connect(ELSEWHERE)
            found = IPv4Address(line.getsockname()[0])
    except OSError:
        found = IPv4Address(0)
    if any(found in network for network in PRIVATE):
        return found
    expected = f"a private IPv4 address; this host has {found}, so give the one to take"
    raise InvalidArgumentError("address", None, expected=expected)


def _number(address: str) -> int:
    if MAC.fullmatch(address) is None:
        expected = "a MAC address as 02:42:ac:11:00:02"
        raise InvalidArgumentError("address", address, expected=expected)
    return int(re.sub("[:-]", "", address), 16)


def _found() -> int:
    number = uuid.getnode()
    if number & MADE_UP:
        expected = "a MAC address: none is found here, so give the one to take"
        raise InvalidArgumentError("address", None, expected=expected)
    return number
