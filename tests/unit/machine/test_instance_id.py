"""Who asks for a machine id."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from aiocosid.abc import InstanceId
from aiocosid.errors import InvalidArgumentError
from aiocosid.machine import as_instance_id, host_port_instance_id, unique_instance_id


def test_no_two_unique_ones_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in one process, and not in two containers of one name where both are process 1."""
    monkeypatch.setattr(socket, "gethostname", lambda: "web")
    monkeypatch.setattr(os, "getpid", lambda: 1)
    made = {unique_instance_id() for _ in range(1000)}
    assert len(made) == 1000
    assert all(each.text.startswith("web:1-") and not each.stable for each in made)


@pytest.mark.parametrize("host", ["h" * 300, "\udcff\udcfe", "", "命" * 300])
def test_a_host_of_any_name(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Too long, none, or no UTF-8: the text fits every store all the same."""
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    made = unique_instance_id()
    assert as_instance_id(made) is made
    assert as_instance_id(None) != made


def test_what_is_given_is_kept() -> None:
    """An instance as it is; a text is one that is not stable."""
    stable = InstanceId("web-3", stable=True)
    assert as_instance_id(stable) is stable
    assert as_instance_id("10.0.0.1:8080") == InstanceId("10.0.0.1:8080", stable=False)


@pytest.mark.parametrize("bad", ["", "a\0b", "i" * 101, "\ud800", 5, b"web", InstanceId("")])
def test_what_no_store_could_hold(bad: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="instance_id"):
        as_instance_id(bad)


@pytest.mark.parametrize(("host", "port"), [("", 1), ("web", -1), ("web", True), ("web", 2**31)])
def test_a_host_and_port_that_are_none(host: str, port: int) -> None:
    with pytest.raises(InvalidArgumentError, match=r"host|port"):
        host_port_instance_id(host, port)


def test_a_host_that_is_too_long() -> None:
    with pytest.raises(InvalidArgumentError, match=r"has 101 characters \(maximum 100\)"):
        host_port_instance_id("h" * 98, 80)
