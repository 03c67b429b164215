"""Machine ids from IP and MAC: which bits, what is refused, and what the warning says."""

from __future__ import annotations

import random
import re
import socket
import uuid
from pathlib import Path

import pytest

from aiocosid.errors import InvalidArgumentError, MachineIdInUseError
from aiocosid.machine import (
    IpMachineIdDistributor,
    MacMachineIdDistributor,
    SharedMachineIdWarning,
    collision_chance,
)
from aiocosid.snowflake import SONYFLAKE_V1, SnowflakeId


def test_the_low_bits_of_an_address() -> None:
    """Sonyflake's TestLower16BitPrivateIP, the last byte alone, and Seata's ten bits."""
    for address, bits, machine_id in (
        ("192.168.0.1", 16, 1),
        ("10.1.2.3", 16, 0x0203),
        ("172.16.255.254", 16, 0xFFFE),
        ("10.1.2.3", 8, 3),
        ("8.8.4.4", 10, 0x004),
    ):
        with pytest.warns(SharedMachineIdWarning):
            by_ip = IpMachineIdDistributor(address=address, bits=bits)
        assert (by_ip.machine_id, str(by_ip.address)) == (machine_id, address)
    for address, bits, machine_id in (
        ("02:42:ac:11:07:ff", 10, 0x3FF),
        ("0242AC110402", 10, 0x002),
        ("02-42-ac-11-00-02", 8, 2),
    ):
        with pytest.warns(SharedMachineIdWarning):
            by_mac = MacMachineIdDistributor(address=address, bits=bits)
        assert by_mac.machine_id == machine_id
        assert by_mac.address.replace(":", "") == re.sub("[:-]", "", address.lower())


def test_the_warning_says_how_likely_it_is() -> None:
    """At construction, where the choice is made, with capacity and chance."""
    with pytest.warns(SharedMachineIdWarning, match=r"1024 values.* of 38 .* 50 %") as caught:
        MacMachineIdDistributor(address="02:42:ac:11:00:02")
    assert caught[0].filename == __file__
    with pytest.warns(SharedMachineIdWarning, match=r"65536 values.* of 302 .* 50 %"):
        IpMachineIdDistributor(address="10.0.0.1")


def test_the_chance() -> None:
    """Against counting, and at the ends."""
    assert collision_chance(1, bits=10) == 0
    assert collision_chance(2, bits=10) == pytest.approx(1 / 1024)
    assert collision_chance(1025, bits=10) == 1
    assert collision_chance(2**31, bits=31) == 1  # at once: minutes, if each were counted
    draw = random.Random(1)  # noqa: S311 - to count with
    runs = [len({draw.randrange(256) for _ in range(19)}) < 19 for _ in range(4000)]
    assert collision_chance(19, bits=8) == pytest.approx(sum(runs) / 4000, abs=0.03)


def test_bad_addresses_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where there is none, none is made up."""
    for address in ("", "10.0.0", "::1", "10.0.0.256"):
        with pytest.raises(InvalidArgumentError):
            IpMachineIdDistributor(address=address)
    for address in ("", "02:42", "02:42:ac:11:00:0g", "02:42:ac:11:00:02:03"):
        with pytest.raises(InvalidArgumentError):
            MacMachineIdDistributor(address=address)
    for bits in (0, 32, True):
        with pytest.raises(InvalidArgumentError):
            IpMachineIdDistributor(address="10.0.0.1", bits=bits)
    monkeypatch.setattr(uuid, "getnode", lambda: 0x0102_0304_0506)
    with pytest.raises(InvalidArgumentError, match="none is found"):
        MacMachineIdDistributor()
    monkeypatch.setattr(uuid, "getnode", lambda: 0x0242_AC11_0002)
    with pytest.warns(SharedMachineIdWarning):
        assert MacMachineIdDistributor().machine_id == 2


def test_this_hosts_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A private one, or none: sonyflake's TestPrivateIPv4."""
    found = [""]

    class Line:
        def __init__(self, *_: object) -> None:
            pass

        def connect(self, _: object) -> None:
            if not found[0]:
                raise OSError

        def getsockname(self) -> tuple[str, int]:
            return found[0], 1

        def close(self) -> None:
            pass

    monkeypatch.setattr(socket, "socket", Line)
    for found[0] in ("", "8.8.8.8", "172.32.0.1", "127.0.0.1"):
        with pytest.raises(InvalidArgumentError, match="private"):
            IpMachineIdDistributor()
    for found[0] in ("10.9.8.7", "172.31.1.2", "192.168.3.4", "169.254.1.1"):
        with pytest.warns(SharedMachineIdWarning):
            assert str(IpMachineIdDistributor().address) == found[0]


@pytest.mark.asyncio
async def test_two_on_one_host_are_noticed(tmp_path: Path) -> None:
    """By the lock; on two hosts nobody would: N20."""
    with pytest.warns(SharedMachineIdWarning):
        one, two = (
            IpMachineIdDistributor(address=address, state_dir=tmp_path)
            for address in ("10.0.7.7", "192.168.7.7")
        )
    async with SnowflakeId(one, layout=SONYFLAKE_V1) as gen:
        assert SONYFLAKE_V1.parse(await gen.next_id()).machine_id == 0x0707
        with pytest.raises(MachineIdInUseError):
            await SnowflakeId(two, layout=SONYFLAKE_V1).__aenter__()
