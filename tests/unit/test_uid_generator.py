"""What of uid-generator needs no database: its epochs, what it prints, and where it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from aiocosid.compat.uid_generator import epoch_of, parse
from aiocosid.compat.uid_generator._worker_node import endpoint_of
from aiocosid.errors import InvalidArgumentError, InvalidIdError
from aiocosid.snowflake import UID_GENERATOR, UID_GENERATOR_2016_09, UID_GENERATOR_SPRING

CHINA = timezone(timedelta(hours=8))


def test_ids_that_they_printed() -> None:
    """The README's and the fork's, key by key."""
    assert parse(180363646902239241, UID_GENERATOR_2016_09, zone="Asia/Shanghai") == {
        "UID": "180363646902239241",
        "timestamp": "2017-01-19 12:15:46",
        "workerId": "4",
        "sequence": "9",
    }
    assert parse(450795408770, UID_GENERATOR_SPRING, zone=CHINA) == {
        "UID": "450795408770",
        "timestamp": "2019-02-20 14:55:39",
        "workerId": "27",
        "sequence": "2",
    }
    with pytest.raises(InvalidIdError):
        parse(-(2**62), UID_GENERATOR, zone="UTC")


def test_an_epoch_has_a_zone() -> None:
    """Explicitly: Java's is the host's; ours does not depend on it: N25."""
    assert epoch_of("2016-05-20", zone="Asia/Shanghai") == UID_GENERATOR.epoch
    assert epoch_of("2016-05-20", zone=UTC) == datetime(2016, 5, 20, tzinfo=UTC)
    assert epoch_of("2019-02-20", zone="+08:00") == UID_GENERATOR_SPRING.epoch
    for bad in ("", "2016-5-20", "2016-02-30", "2016-05-20 00:00:00"):
        with pytest.raises(InvalidArgumentError) as caught:
            epoch_of(bad, zone="UTC")
        assert caught.value.argument == "epoch_str"
    with pytest.raises(InvalidArgumentError) as caught:
        epoch_of("0001-01-01", zone="Asia/Shanghai")  # in UTC before the first year
    assert caught.value.argument == "epoch_str"
    with pytest.raises(InvalidArgumentError):
        epoch_of("2016-05-20", zone="Nowhere/City")
    code = (
        "from aiocosid.compat.uid_generator import *; from aiocosid.snowflake import *;"
        "print(epoch_of('2016-05-20', zone='+08:00'), UID_GENERATOR.parse(2**62).timestamp_ms)"
    )
    said = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "TZ": zone})
        for zone in ("UTC", "Asia/Shanghai")
    }
    assert len(said) == 1


def test_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given, else a container's variables, both or none of them; else this host."""
    for name in ("JPAAS_HOST", "JPAAS_HTTP_PORT", "JPAAS_HOST_PORT_8080"):
        monkeypatch.delenv(name, raising=False)
    assert endpoint_of("a", 8080, container=None) == ("a", "8080", 2)
    assert endpoint_of("a", "x", container=True) == ("a", "x", 1)
    host, port, kind = endpoint_of(None, None, container=None)
    assert (bool(host), port, kind) == (True, None, 2)
    monkeypatch.setenv("JPAAS_HOST", "10.0.0.1")
    with pytest.raises(InvalidArgumentError, match="JPAAS"):
        endpoint_of(None, None, container=None)
    assert endpoint_of(None, None, container=False) == (host, None, 2)
    monkeypatch.setenv("JPAAS_HOST_PORT_8080", "32768")
    assert endpoint_of(None, None, container=None) == ("10.0.0.1", "32768", 1)
    monkeypatch.setenv("JPAAS_HTTP_PORT", "32769")
    assert endpoint_of(None, None, container=None) == ("10.0.0.1", "32769", 1)
    assert endpoint_of("a", None, container=None) == ("a", None, 2)
    monkeypatch.delenv("JPAAS_HOST")
    with pytest.raises(InvalidArgumentError, match="JPAAS"):
        endpoint_of(None, None, container=None)
    bad: list[tuple[str, Any]] = [("a" * 65, None), ("a", 1.5), ("", 1)]
    for where, number in bad:
        with pytest.raises(InvalidArgumentError):
            endpoint_of(where, number, container=None)
