"""What people do to a store by mistake, while processes take ids from it."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import aiocosid
from aiocosid.cli import main
from aiocosid.errors import CosIdError
from aiocosid.stores.nats import BIAS
from tests.servers import (
    EtcdServer,
    IdService,
    MariadbServer,
    NatsServer,
    PostgresServer,
    ServerStartError,
    ValkeyCluster,
    ValkeyServer,
    ZookeeperServer,
)

from ._accidents import highest
from ._arena import Arena
from ._fleet import forkserver
from ._history import HISTORY, History
from ._job import NAMESPACE, Place

Command: TypeAlias = tuple[Any, ...]
"""A method of the server and its arguments."""

COUNTER: Final = f"{NAMESPACE}.ids"
COMMANDS: Final = (("init",), ("init", "--disposable"), ("init", "--yes"))
CREATE: Final = (True, "2999-12-31", "disposable")
QUIET: Final[dict[str, Any]] = {"step": 50, "batch": 20, "singles": 5, "pause": 0.01}


@dataclass(frozen=True, kw_only=True)
class Store:
    """How a store is had, and what people do to it.

    Attributes:
        make: starts it.
        url: what names it.
        acts: by name, what is done while processes run.  The marker goes first: a counter that is
            deleted under it begins again, as the guarantees say.
        restored: done while none runs, as docs/howto/operate.md asks: the marker is
            deleted, then the counter has an older value.
        emptied: acts after which nothing in the store shows that it was used.  There all options
            are a person's word, and the guarantees name what comes of a wrong one: only the first
            of the commands, and the first of ``CREATE``, are tried.
        scope: options with which ``init`` marks it for machine ids.
        behind: whether workers reach it through an id service alone.
    """

    make: Callable[[Arena], Any]
    url: Callable[[Any], str] = attrgetter("url")
    acts: Mapping[str, Sequence[Command]]
    restored: Sequence[Command]
    emptied: Collection[str] = ()
    scope: Sequence[str] = ()
    behind: bool = False


def _sql(*statements: str) -> Sequence[Command]:
    return [("execute", each) for each in statements]


MARKER_ROW: Final = "delete from aiocosid_cell where name = 'marker'"
SQL: Final[dict[str, Sequence[Command]]] = {
    "dropped": _sql(
        *(
            f"drop table {each}"
            for each in ("cosid", "cosid_machine", "aiocosid_cell", "aiocosid_series")
        )
    ),
    "counters dropped": _sql("drop table cosid"),
    "machines dropped": _sql("drop table cosid_machine"),
    "renamed": _sql("drop table if exists was_cosid", "alter table cosid rename to was_cosid"),
    "counters emptied": _sql("delete from cosid"),
    "emptied": _sql("delete from cosid", "delete from cosid_machine", "delete from aiocosid_cell"),
    "counters and cells emptied": _sql("delete from cosid", "delete from aiocosid_cell"),
    "namespace lost": _sql(
        f"delete from cosid_machine where namespace = '{NAMESPACE}'",
        f"delete from aiocosid_cell where name like '%{NAMESPACE}%'",
    ),
}
TRUNCATED: Final = {**SQL, "truncated": _sql("truncate table cosid")}
RENAMED: Final = [  # with the name of its key, which the next table needs
    *SQL["renamed"],
    *_sql("alter table was_cosid rename constraint cosid_pk to was_cosid_pk"),
]
POSTGRES: Final = {**TRUNCATED, "renamed": RENAMED}
SQL_RESTORED: Final = _sql(MARKER_ROW, f"update cosid set last_max_id = 7 where name = '{COUNTER}'")

REDIS_COUNTER: Final = f"cosid:{{{COUNTER}}}.adder"
REDIS_MARKER: Final = "aiocosid:marker"
REDIS_SPACE: Final = [
    f"cosid:{{{NAMESPACE}}}:{each}"
    for each in ("itc_idx", "adder", "revert", "note", "seen", "space", "count")
]
SWAP: Final = "redis.call('SWAPDB', 0, 1) redis.call('SELECT', 1) return redis.call('FLUSHDB')"

ETCD: Final = "/cosid/machine"
ETCD_LOST: Final = [
    ("delete", f"{ETCD}/{each}")
    for each in (f"ns/{NAMESPACE}/", f"store/count/{NAMESPACE}", f"store/further/{NAMESPACE}")
]
ZOOKEEPER_LOST: Final = [
    ("delete", each)
    for each in (
        f"/aiocosid/{NAMESPACE}",
        f"/cosid/{NAMESPACE}",
        f"/aiocosid/counts/{NAMESPACE}",
    )
]
NATS_COUNTER: Final = ("aiocosid_counters", f"aiocosid.counter.{COUNTER.replace('.', '%2E')}")
NATS_MARKER: Final = ("aiocosid_cells", "aiocosid.cell.store.marker")


class _File:
    """A SQLite file."""

    def __init__(self, arena: Arena) -> None:
        self.path = arena.folder / "ids.db"
        self.url = f"sqlite:///{self.path}"

    def execute(self, sql: str) -> None:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
            connection.execute(sql)

    def link(self) -> None:
        """Give it a second name for a while, as ``ln`` does."""
        other = self.path.with_name("other.db")
        os.link(self.path, other)
        time.sleep(0.5)
        other.unlink()


class _Cluster(ValkeyCluster):
    """Three masters."""

    def flush(self) -> None:
        for each in self.masters:
            each.call("FLUSHALL")

    def call(self, word: str, *keys: str) -> None:
        for each in keys:
            self.owner(each).call(word, each)

    def put(self, key: str, value: str) -> None:
        self.owner(key).call("SET", key, value)


def _by_driver(driver: str) -> Callable[[Any], str]:
    return lambda server: server.url.replace(":", f"+{driver}:", 1)


def _entered(kind: Callable[[], Any]) -> Callable[[Arena], Any]:
    return lambda arena: arena.enter(kind())


STORES: Final[Mapping[str, Store]] = {
    "sqlite": Store(make=_File, acts={**SQL, "linked": [("link",)]}, restored=SQL_RESTORED),
    "postgres": Store(make=_entered(PostgresServer), acts=POSTGRES, restored=SQL_RESTORED),
    "mariadb": Store(make=_entered(MariadbServer), acts=TRUNCATED, restored=SQL_RESTORED),
    "engine": Store(
        make=_entered(MariadbServer),
        url=_by_driver("asyncmy"),
        acts=TRUNCATED,
        restored=SQL_RESTORED,
    ),
    "service": Store(
        make=_entered(PostgresServer), acts=POSTGRES, restored=SQL_RESTORED, behind=True
    ),
    "valkey": Store(
        make=_entered(lambda: ValkeyServer(persistent=True)),
        acts={
            "emptied": [("call", "FLUSHALL")],
            "swapped": [("call", "EVAL", SWAP, 0)],
            "restarted without data": [("call", "FLUSHALL"), ("restart",)],
            "counter and marker deleted": [("call", "DEL", REDIS_MARKER, REDIS_COUNTER)],
            "namespace lost": [("call", "DEL", *REDIS_SPACE)],
        },
        emptied={"emptied", "swapped", "restarted without data"},
        restored=[("call", "DEL", REDIS_MARKER), ("call", "SET", REDIS_COUNTER, "7")],
    ),
    "cluster": Store(
        make=_entered(_Cluster),
        acts={
            "emptied": [("flush",)],
            "counter and marker deleted": [("call", "DEL", REDIS_MARKER, REDIS_COUNTER)],
            "namespace lost": [("call", "DEL", *REDIS_SPACE)],
        },
        emptied={"emptied"},
        restored=[("call", "DEL", REDIS_MARKER, REDIS_SPACE[-1]), ("put", REDIS_COUNTER, "7")],
        scope=("--namespace", NAMESPACE),
    ),
    "etcd": Store(
        make=_entered(EtcdServer),
        acts={
            "emptied": [("delete", "/cosid/")],
            "another cluster": [("wipe",)],
            "counter and marker deleted": [
                ("delete", f"{ETCD}/store/marker"),
                ("delete", f"/cosid/{COUNTER}"),
            ],
            "namespace lost": ETCD_LOST,
        },
        emptied={"emptied", "another cluster"},
        restored=[("delete", f"{ETCD}/store/marker"), ("put", f"/cosid/{COUNTER}", "7")],
    ),
    "zookeeper": Store(
        make=_entered(ZookeeperServer),
        acts={
            "emptied": [("delete", "/aiocosid"), ("delete", "/cosid")],
            "another server": [("kill",), ("wipe",), ("start",)],
            "counter and marker deleted": [
                ("delete", "/aiocosid/marker"),
                ("delete", f"/cosid/{COUNTER}"),
            ],
            "namespace lost": ZOOKEEPER_LOST,
        },
        emptied={"emptied", "another server"},
        restored=[
            ("delete", "/aiocosid/marker"),
            ("behind.set", f"/cosid/{COUNTER}", (7).to_bytes(8, "big")),
        ],
    ),
    "nats": Store(
        make=_entered(NatsServer),
        acts={
            "purged": [("purge", "aiocosid_cells"), ("purge", "aiocosid_counters")],
            "streams deleted": [
                ("call", "STREAM.DELETE.aiocosid_cells"),
                ("call", "STREAM.DELETE.aiocosid_counters"),
            ],
            "another server": [("wipe",)],
            "counter and marker deleted": [("purge", *NATS_MARKER), ("purge", *NATS_COUNTER)],
            "namespace lost": [
                ("purge", "aiocosid_cells", f"aiocosid.cell.ns.{NAMESPACE}.>"),
                ("purge", "aiocosid_cells", f"aiocosid.cell.store.count.{NAMESPACE}.*"),
            ],
        },
        emptied={"purged", "streams deleted", "another server"},
        restored=[
            ("purge", *NATS_MARKER),
            ("purge", *NATS_COUNTER),
            ("put", NATS_COUNTER[1], b"", {"Nats-Incr": f"+{BIAS + 7}"}),
        ],
    ),
}


def people(arena: Arena) -> None:
    """Lose the store, or a part of it, beside living processes; then try all that creates.

    Alembic's autogenerate proposes to drop tables that it does not know; 173,561 ids came twice
    after that and an ``init`` that made the tables again.  Then a person stops all processes, says
    the highest id, and that no process holds a machine id.
    """
    hurry = _Hurry(arena, STORES[arena.options.store])
    count = max(1, arena.options.processes // 2)
    with (
        arena.workers(hurry.stamps, count=count) as stamps,
        arena.workers(hurry.counts, count=count) as counts,
    ):
        stamps.may_end = counts.may_end = True  # a process that starts without its counter
        arena.begin()
        every, left = [*hurry.store.acts, "restored"], list[str]()
        while arena.goes_on():
            arena.pause(arena.between(0.3, 0.8))
            left = left or arena.draw.sample(every, len(every))
            act = left.pop()
            if act != "restored":
                hurry.do(hurry.store.acts[act])
                hurry.try_doors(is_emptied=act in hurry.store.emptied)
                stamps.kill_one()
                counts.kill_one()
                arena.pause(arena.between(0.5, 1.0))
            with stamps.nobody_there(), counts.nobody_there():
                hurry.recover(hurry.store.restored if act == "restored" else ())
            stamps.wait_for_more(f"after {act}", deadline=60)
            counts.wait_for_more(f"after {act}", deadline=60)
            arena.faults[act] += 1


def aiocosid_command(*words: str) -> tuple[int | None, str, str]:
    """Run a command as a person does: a process of its own; its exit code, output and errors."""
    with TemporaryDirectory(prefix="people-") as folder:
        told = Path(folder, "out"), Path(folder, "err")
        process = forkserver().Process(target=_command, args=(words, told))
        process.start()
        process.join()
        out, err = (each.read_text() for each in told)
        return process.exitcode, out, err


def _command(words: Sequence[str], told: Sequence[Path]) -> None:
    for stream, path in enumerate(told, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    sys.argv = ["aiocosid", *words]
    main()


class _Hurry:
    """One store, and the people who use it."""

    def __init__(self, arena: Arena, store: Store) -> None:
        self.arena = arena
        self.store = store
        self.server = store.make(arena)
        self.url = store.url(self.server)
        self.must("init", "--confirm-no-holders", *store.scope)
        self.service = arena.enter(IdService(self.url)) if store.behind else None
        place = Place(url=self.service.url if self.service else self.url)
        # Leases are lost with the store: what the dead had not used is granted once more.
        self.counts = arena.job(place, leased=False, worker="c", **QUIET)
        self.stamps = replace(
            self.counts,
            worker="s",
            kind="snowflake",
            counter=f"{self.counts.counter}.stamps",
            safe_guard=3.0,
            interval=0.6,
        )
        self.folder = arena.histories
        self.history = History(self.folder / f"c-next{HISTORY}")

    def do(self, commands: Sequence[Command]) -> None:
        """Do it behind everybody's back."""
        for name, *arguments in commands:
            attrgetter(name)(self.server)(*arguments)

    def must(self, *words: str) -> None:
        """Run a command that has to succeed."""
        code, _, said = aiocosid_command(*words, "--store", self.url)
        if code:
            self.arena.complaints.append(f"{' '.join(words)}: {said}")

    def try_doors(self, *, is_emptied: bool) -> None:
        """Try all that creates; each may refuse, and none may vouch for what was lost."""
        for words in COMMANDS[:1] if is_emptied else COMMANDS:
            aiocosid_command(*words, *self.store.scope, "--store", self.url)
        for create in CREATE[:1] if is_emptied else CREATE:
            asyncio.run(self._open(create))
        if self.service is not None:
            self.service.kill()
            with suppress(ServerStartError):
                self.service.start()
        self._take()

    async def _open(self, create: bool | str) -> None:
        with suppress(CosIdError):
            async with aiocosid.connect(self.url, namespace=NAMESPACE, create=create):
                pass

    def _take(self) -> None:
        """Take ids with the command that creates a counter on first use, and write them down."""
        self.counts.history(self.history, "next")
        begin, n = time.monotonic_ns(), "5"
        where = ("--namespace", NAMESPACE, "--store", self.url)
        _, told, _ = aiocosid_command("next", self.counts.name, "-n", n, *where)
        if ids := [int(each) for each in told.split()]:
            self.history.called(begin, [(ids[0], ids[-1])])

    def recover(self, restored: Sequence[Command]) -> None:
        """Do as docs/howto/operate.md says; all processes are stopped."""
        if self.service is not None:
            self.service.kill()
        self.do(restored)
        floor = f"{self.counts.name}={highest(self.folder, self.counts.worker)}"
        self.must("init", "--after-loss", "--yes", "--floor", floor, "--namespace", NAMESPACE)
        self.must("init", "--confirm-no-holders", *self.store.scope)
        if self.service is not None:
            self.service.start()
