"""A store's data file with a page torn, a record cut off, or a bit turned while it was down.

What comes of it is a table in docs/explanation/evidence.md, which is read from there and checked.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from aiocosid import store_from_url
from aiocosid.abc import Store
from aiocosid.errors import CosIdError
from tests.servers import (
    EtcdServer,
    NatsServer,
    PostgresServer,
    RedisServer,
    Server,
    ServerStartError,
    ZookeeperServer,
)

pytestmark = [pytest.mark.nightly, pytest.mark.integration, pytest.mark.timeout(180)]

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "evidence.md"
STEP, GRANTS = 1000, 31
LAST: Final = STEP * GRANTS  # 0x7918
SECTOR: Final = 512  # bytes; what a disk writes as a whole
START: Final = 20.0  # seconds in which a server starts, or does not
LATER: Final = 2**53  # ms
SUBJECTS: Final = ("counter", "machine id")
HOLDER: Final = rb"holder-(b)"


class PlainPages(PostgresServer):
    """PostgreSQL without checksums, as versions before 18 are by default."""

    def prepare(self) -> None:
        """Turn them off."""
        super().prepare()
        argv = self._program("pg_checksums", "--disable", "--no-sync", "-D", "data")
        log = self.directory / "checksums.log"
        assert self.account.popen(argv, directory=self.directory, log=log).wait() == 0


@dataclass(frozen=True)
class Kind:
    """A data file.

    Attributes:
        make: makes the server; None for a SQLite file.
        files: finds the file below the server's directory.
        number: matches the record with the counter's number, whose highest digit is the group.
        bit: the bit of it that is turned, so that the number is lower.
        damages: what happens to it.
        is_orderly: whether the server has to stop by itself to write the file.
        is_wal: whether a user's connection has set WAL mode.
    """

    make: Callable[[], Server] | None
    files: str
    number: bytes
    bit: int = 1
    damages: tuple[str, ...] = ("torn", "cut", "bit")
    is_orderly: bool = False
    is_wal: bool = False


PAGES: Final = ("torn", "bit")  # no record ends a file of pages
# Otherwise etcd writes its database, too, within a tenth of a second.
LOG_ALONE: Final = ("--backend-batch-interval", "1h", "--backend-batch-limit", "1000000")
KINDS: Final = {
    "SQLite, the file": Kind(None, "ids.db", rb"cosid\.order(\x79)\x18", 0x10, PAGES),
    "SQLite, your own connection's WAL": Kind(
        None, "ids.db-wal", rb"cosid\.order(\x79)\x18", 0x10, is_wal=True
    ),
    "Redis, append-only file": Kind(
        lambda: RedisServer(persistent=True), "*.incr.aof", rb"order\}\.adder\r\n\$4\r\n(1)000\r\n"
    ),
    "PostgreSQL, page with checksums": Kind(
        PostgresServer, "data/base/*/*", rb"cosid\.order\0*\x18(\x79)\0{6}", 0x10, PAGES, True
    ),
    "PostgreSQL, page without checksums": Kind(
        PlainPages, "data/base/*/*", rb"cosid\.order\0*\x18(\x79)\0{6}", 0x10, PAGES, True
    ),
    "etcd, log": Kind(lambda: EtcdServer(*LOG_ALONE), "*.wal", rb"cosid\.order\x12\x05(3)1000"),
    "etcd, its database": Kind(
        EtcdServer, "snap/db", rb"cosid\.order.{4,12}\*\x05(3)1000", 1, PAGES, True
    ),
    "ZooKeeper, log": Kind(
        ZookeeperServer, "version-2/log.*", rb"cosid\.order\0{3}\x08\0{6}(\x79)\x18", 0x10
    ),
    "NATS, block": Kind(NatsServer, "msgs/*.blk", rb'0{9}(3)1000"\}'),
}
DAMAGES: Final = {"torn": "a page torn", "cut": "a record cut off", "bit": "a bit turned"}
CASES: Final = [(file, each) for file, kind in KINDS.items() for each in kind.damages]


def table() -> dict[tuple[str, str], tuple[str, ...]]:
    """What the page says of the subjects, by file and damage; a row may have several damages."""
    text = PAGE.read_text().partition("## Damaged files")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    return {
        (file, damage): tuple(found)
        for file, damages, *found in rows[1:]
        for damage in damages.split(", ")
    }


def damage_file(folder: Path, kind: Kind, damage: str, subject: str) -> None:
    """Damage the last record of a counter's number or a machine id's holder."""
    pattern, bit = (kind.number, kind.bit) if subject == "counter" else (HOLDER, 1)
    for path in sorted(folder.rglob(kind.files)):
        data = bytearray(path.read_bytes())
        if not (found := list(re.finditer(pattern, data, re.DOTALL))):
            continue
        at = found[-1].start(1)
        if damage == "cut":
            del data[at:]
        elif damage == "bit":
            data[at] ^= bit
        else:
            sector = at // SECTOR * SECTOR
            data[sector : sector + SECTOR] = bytes(len(data[sector : sector + SECTOR]))
        with path.open("r+b") as file:  # it stays its owner's
            file.truncate(len(data))
            file.write(data)
        return
    raise AssertionError(f"no record in {kind.files}")


async def write(url: str, subject: str) -> None:
    """Take machine ids and ids of a counter; what is damaged comes last."""
    async with store_from_url(url) as store:
        await store.create_schema()
        await store.initialize()
        for each in sorted(SUBJECTS, key=lambda each: each == subject):
            if each == "counter":
                counter = store.segment_distributor(name="order", step=STEP)
                granted = [await counter.next_max_id(STEP) for _ in range(GRANTS)]
                assert granted[-1] == LAST
            else:
                assert [await take_machine(store, name) for name in "ab"] == [0, 1]


async def take_machine(store: Store, name: str) -> int:
    """Take a machine id, as the instance of that name."""
    machine = store.machine_id_distributor(namespace="shop", instance_id=f"holder-{name}")
    grant = await machine.distribute(10, now_ms=int(time.time() * 1000), latest_ms=LATER)
    return grant.machine_id


async def read(url: str, subject: str) -> str:
    """Tell what a process finds that starts afterwards."""
    try:
        async with store_from_url(url) as store:
            if subject == "machine id":
                is_lost = await take_machine(store, "z") < 2
                return "**comes twice**" if is_lost else "is not lost"
            found = await store.segment_distributor(name="order").next_max_id(STEP)
    except CosIdError as error:
        return f"`{type(error).__name__}`"
    if found <= LAST:
        return "**comes twice**"
    return "is not lost" if found == LAST + STEP else "has a gap"


def found_on_server(kind: Kind, damage: str, subject: str, server: Server) -> str:
    """Break the file of a server that is down."""
    with server:
        url: str = server.url  # type: ignore[attr-defined]  # each of them has one
        asyncio.run(write(url, subject))
        (server.stop if kind.is_orderly else server.kill)()
        damage_file(server.directory, kind, damage, subject)
        server.spawn()
        try:
            server.wait_ready(deadline=START)
        except ServerStartError:
            return "does not start"
        return asyncio.run(read(url, subject))


def found_in_sqlite(kind: Kind, damage: str, subject: str, folder: Path) -> str:
    """Break the files as a process leaves them that is killed."""
    path = folder / "ids.db"
    url = f"sqlite:///{path}"
    with closing(sqlite3.connect(path)) as user:
        if kind.is_wal:
            user.execute("PRAGMA journal_mode = WAL").fetchall()
            user.execute("CREATE TABLE kept (n)")
        asyncio.run(write(url, subject))
        left = {each: each.read_bytes() for each in folder.iterdir() if each.suffix != ".db-shm"}
    for each, data in left.items():
        each.write_bytes(data)  # the same file as before: another one would be noticed as such
    damage_file(folder, kind, damage, subject)
    return asyncio.run(read(url, subject))


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize(("file", "damage"), CASES)
def test_a_damaged_file(file: str, damage: str, subject: str, tmp_path: Path) -> None:
    """The page says what comes of it."""
    kind = KINDS[file]
    if kind.make is None:
        found = found_in_sqlite(kind, damage, subject, tmp_path)
    else:
        found = found_on_server(kind, damage, subject, kind.make())
    assert found == table()[file, DAMAGES[damage]][SUBJECTS.index(subject)]


def test_the_table_is_whole() -> None:
    """It has a row for each file and damage, and no others."""
    assert list(table()) == [(file, DAMAGES[damage]) for file, damage in CASES]
