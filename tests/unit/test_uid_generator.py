"""What of uid-generator needs no database: its epochs, what it prints, and where it runs."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from aiocosid.compat.uid_generator import UidGeneratorStore, epoch_of, parse
from aiocosid.errors import InvalidArgumentError, InvalidIdError
from aiocosid.snowflake import UID_GENERATOR, UID_GENERATOR_2016_09, UID_GENERATOR_SPRING
from tests.script import run_python

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
        "print([epoch_of('2016-05-20', zone='+08:00').timestamp(),"
        "UID_GENERATOR.parse(2**62).timestamp_ms])"
    )
    here, there = (run_python(code, TZ=zone) for zone in ("UTC", "Asia/Shanghai"))
    assert here == there


def start(
    path: Path, host: str | None = None, port: Any = None, *, container: bool | None = None
) -> tuple[str, str, int]:
    """Take a worker id, and return HOST_NAME, PORT and TYPE of its row."""

    async def take() -> None:
        async with UidGeneratorStore.from_url(f"uid-generator+sqlite:///{path}") as store:
            await store.create_schema()
            described: dict[str, Any] = {"host": host, "port": port, "container": container}
            distributor = store.machine_id_distributor(**described)
            await distributor.distribute(22, now_ms=1, latest_ms=-1)

    asyncio.run(take())
    with closing(sqlite3.connect(path)) as database:
        newest = "SELECT HOST_NAME, PORT, TYPE FROM WORKER_NODE ORDER BY ID DESC"
        row: tuple[str, str, int] = database.execute(newest).fetchone()
    return row


def test_where_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is given, else a container's variables, both or none of them; else this host."""
    path = tmp_path / "uid.db"
    for name in ("JPAAS_HOST", "JPAAS_HTTP_PORT", "JPAAS_HOST_PORT_8080"):
        monkeypatch.delenv(name, raising=False)
    assert start(path, "a", 8080) == ("a", "8080", 2)
    assert start(path, "a", "x", container=True) == ("a", "x", 1)
    host, port, kind = start(path)
    assert (bool(host), port[:2], kind) == (True, "1-", 2), "a time and a random number were due"
    monkeypatch.setenv("JPAAS_HOST", "10.0.0.1")
    with pytest.raises(InvalidArgumentError, match="JPAAS"):
        start(path)
    assert start(path, container=False)[::2] == (host, 2)
    monkeypatch.setenv("JPAAS_HOST_PORT_8080", "32768")
    assert start(path) == ("10.0.0.1", "32768", 1)
    monkeypatch.setenv("JPAAS_HTTP_PORT", "32769")
    assert start(path) == ("10.0.0.1", "32769", 1)
    assert start(path, "a")[::2] == ("a", 2)
    monkeypatch.delenv("JPAAS_HOST")
    with pytest.raises(InvalidArgumentError, match="JPAAS"):
        start(path)
    bad: list[tuple[str, Any]] = [("a" * 65, None), ("a", 1.5), ("", 1)]
    for where, number in bad:
        with pytest.raises(InvalidArgumentError):
            start(path, where, number)
