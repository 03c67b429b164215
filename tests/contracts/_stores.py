"""The stores that the contracts run on, and how each is reached behind a distributor's back.

A new store takes its place in `STORES`, with a class that opens it and writes its counters.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final, Self
from urllib.parse import quote

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aiocosid import store_from_url
from aiocosid._life.clock import SystemClock
from aiocosid.abc import IdSegmentDistributor, Store
from aiocosid.errors import StoreNotEmptyError
from aiocosid.machine.cells import Marker, NamespaceRecord
from aiocosid.stores._engine_url import _OPTIONS
from aiocosid.stores._sequence_rules import SequenceAnswer, SequenceState
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.nats import BIAS
from aiocosid.stores.sqlalchemy import SqlAlchemyStore
from aiocosid.stores.zookeeper._backend import Cells
from aiocosid.stores.zookeeper.tree import Node, Nodes
from tests import sql_cells
from tests.integration._sequences import open_fence
from tests.machine_marks import (
    etcd_root,
    initialize_namespace,
    mariadb_run,
    mark_etcd,
    mark_mariadb,
    mark_nats,
    mark_postgres,
    mark_zookeeper,
    nats_key,
)
from tests.servers import (
    CosIdProxy,
    CosIdService,
    EtcdServer,
    MariadbServer,
    NatsCluster,
    NatsServer,
    PostgresServer,
    ValkeyServer,
    ZookeeperServer,
)


class Backend(ABC):
    """One kind of store; made for one test."""

    @abstractmethod
    def __init__(self, request: pytest.FixtureRequest) -> None:
        """Have running what has to run, by asking for its fixture."""

    @property
    @abstractmethod
    def url(self) -> str:
        """What names it."""

    def open(self) -> Store:
        """Return the store, on the loop that is running."""
        return store_from_url(self.url)

    async def prepare(self, store: Store) -> None:
        """Create what is missing, also where another test has left keys and no marker."""
        try:
            await store.create_schema(disposable=True)
        except StoreNotEmptyError:
            await store.initialize(confirm_no_holders=True)

    @abstractmethod
    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        """Write a counter without anybody's knowledge."""

    def age(self, namespace: str, seconds: float) -> None:
        """Make the last renewal of all machine ids of a namespace older; keep the marks.

        And a quarantine.
        """
        raise NotImplementedError

    def mark(self, namespace: str) -> None:  # noqa: B027 - most need nothing
        """Mark the store for a namespace, as ``aiocosid init`` does, if it does not itself."""

    def forget(self, namespace: str, *, everything: bool) -> None:
        """Lose all of a namespace's machine ids, or become another store that has the same."""
        pytest.skip("this store has no marker yet")

    def open_fence(self, full_name: str) -> None:  # noqa: B027 - one in memory is open
        """Have nothing forgotten of a name's sequences; a new name makes its callers wait."""

    def lose_sequences(self, namespace: str, name: str) -> None:
        """Lose a name's sequences behind the store's back."""
        raise NotImplementedError

    def vanish(self, namespace: str) -> None:
        """Remove each key of a namespace, its count too; the store's marker stays."""
        pytest.skip("this store cannot lose a namespace's count alone, or its own tests do so")


class Later(SystemClock):
    """The system's clock, some seconds later."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


LATER: Final = Later()


class Memory(Backend):
    """The store that this process shares."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        """Nothing has to run: this process keeps the counters."""

    @property
    def url(self) -> str:
        return "memory://"

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        MemoryStore.from_url(self.url)._backend._counters[distributor.namespaced_name] = to

    def age(self, namespace: str, seconds: float) -> None:
        # A time before the machine was booted cannot be stored.
        LATER.ahead += seconds
        MemoryStore.from_url(self.url)._backend._clock = LATER

    def forget(self, namespace: str, *, everything: bool) -> None:
        store = MemoryStore.from_url(self.url)
        store.forget_machines(namespace=namespace, everything=everything)

    def lose_sequences(self, namespace: str, name: str) -> None:
        MemoryStore.from_url(self.url).forget_machines(namespace=namespace)


class Sqlite(Backend):
    """A file of the test's own."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        folder: Path = request.getfixturevalue("tmp_path")
        # Thirty-two connections may stand in line for one lock, on a machine that is busy as well.
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        patch.setattr("aiocosid.stores._sqlite.BUSY_TIMEOUT", 15)
        self.file = folder / "ids.db"
        self.file.touch()

    @property
    def url(self) -> str:
        return f"sqlite:///{self.file}"

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute(
                "update cosid set last_max_id = ? where name = ?", (to, distributor.namespaced_name)
            )

    def age(self, namespace: str, seconds: float) -> None:
        sql_cells.age(self._run, namespace, seconds)

    def forget(self, namespace: str, *, everything: bool) -> None:
        sql_cells.forget(self._run, namespace, everything=everything)

    def open_fence(self, full_name: str) -> None:
        text = SequenceState(str(self.file.stat().st_ino)).text(SequenceAnswer(0, 1, 1, 0, 0))
        row = f"'sequence/{full_name}', '{text}', 0"
        self._run(f"insert into aiocosid_cell values ({row})")  # noqa: S608 - names of a test

    def lose_sequences(self, namespace: str, name: str) -> None:
        cell = f"sequence/{namespace}.{name}"
        self._run(f"delete from aiocosid_cell where name = '{cell}'")  # noqa: S608 - as above

    def _run(self, sql: str) -> Sequence[Sequence[object]]:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            return connection.execute(sql).fetchall()


MARKER: Final = "aiocosid:marker"


class Valkey(Backend):
    """The session's Valkey."""

    fixture: ClassVar[str] = "valkey"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: ValkeyServer = request.getfixturevalue(self.fixture)

    @property
    def url(self) -> str:
        # uvloop looks at its timers first: a busy machine must not have them end what was answered.
        return self.server.patient_url

    def open_fence(self, full_name: str) -> None:
        open_fence(self.server, f"aiocosid:{{{full_name}}}:<second>")

    def lose_sequences(self, namespace: str, name: str) -> None:
        self.server.call("DEL", f"aiocosid:{{{namespace}.{name}}}:fence")

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.server.call("SET", f"cosid:{{{distributor.namespaced_name}}}.adder", to)

    def age(self, namespace: str, seconds: float) -> None:
        older = int(seconds * 1000)
        seen = f"cosid:{{{namespace}}}:seen"
        for machine_id in self.server.call("HKEYS", seen) or ():  # type: ignore[union-attr]  # texts
            self.server.call("HINCRBY", seen, str(machine_id), -older)
        key = f"cosid:{{{namespace}}}:itc_idx"
        for instance in self.server.call("HKEYS", key) or ():  # type: ignore[union-attr]  # texts
            entry = str(self.server.call("HGET", key, str(instance)))
            machine_id, _, stamp = entry.partition("|")
            self.server.call("HSET", key, str(instance), f"{machine_id}|{int(stamp) - older}")
        space = self._space(namespace)
        if space.quarantine:
            self._put(namespace, replace(space, since_ms=space.since_ms - older))

    def mark(self, namespace: str) -> None:
        initialize_namespace(self.server, namespace)

    def forget(self, namespace: str, *, everything: bool) -> None:
        if not everything:
            self._put(namespace, replace(self._space(namespace), identity="another one"))
            return
        for suffix in ("itc_idx", "adder", "revert", "note", "seen", "space"):
            self.server.call("DEL", f"cosid:{{{namespace}}}:{suffix}")
        self.server.call("HDEL", MARKER, f"count:{namespace}")
        # Without a cell it would be sound, for the store is marked as a whole.
        marker = self.server.call("HGET", MARKER, "store")
        self._put(namespace, NamespaceRecord("another one", Marker.read(f"{marker}").marker_id))

    def _space(self, namespace: str) -> NamespaceRecord:
        return NamespaceRecord.read(str(self.server.call("GET", f"cosid:{{{namespace}}}:space")))

    def _put(self, namespace: str, space: NamespaceRecord) -> None:
        self.server.call("SET", f"cosid:{{{namespace}}}:space", space.text())


class Redis(Valkey):
    """The session's Redis."""

    fixture = "redis_server"


class Postgres(Backend):
    """The session's PostgreSQL."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: PostgresServer = request.getfixturevalue("postgres")

    @property
    def url(self) -> str:
        return self.server.url

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        name = distributor.namespaced_name
        sql = f"update cosid set last_max_id = {to} where name = '{name}'"  # noqa: S608 - ours
        self.server.execute(sql)

    def age(self, namespace: str, seconds: float) -> None:
        sql_cells.age(self.server.rows, namespace, seconds)

    def mark(self, namespace: str) -> None:
        if "\0" not in namespace:  # which no distributor takes
            mark_postgres(self.server, namespace)

    def forget(self, namespace: str, *, everything: bool) -> None:
        sql_cells.forget(self.server.rows, namespace, everything=everything)


class Mariadb(Backend):
    """The session's MariaDB."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: MariadbServer = request.getfixturevalue("mariadb")

    @property
    def url(self) -> str:
        return self.server.url

    def open(self) -> Store:
        from aiocosid.stores.mysql import MysqlStore

        return MysqlStore.from_url(self.url)

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        name = distributor.namespaced_name
        sql = f"update cosid set last_max_id = {to} where name = '{name}'"  # noqa: S608 - ours
        self.server.execute(sql)

    def age(self, namespace: str, seconds: float) -> None:
        sql_cells.age(mariadb_run(self.server), namespace, seconds)

    def mark(self, namespace: str) -> None:
        if "\0" not in namespace:  # which no distributor takes
            mark_mariadb(self.server, namespace)

    def forget(self, namespace: str, *, everything: bool) -> None:
        sql_cells.forget(mariadb_run(self.server), namespace, everything=everything)


class Zookeeper(Backend):
    """The session's ZooKeeper."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: ZookeeperServer = request.getfixturevalue("zookeeper")
        self.patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        self.ages: list[tuple[str, int, int]] = []

    @property
    def url(self) -> str:
        return self.server.url

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        path = f"/cosid/{distributor.namespaced_name}"
        self.server.behind.set(path, to.to_bytes(8, "big"))

    def age(self, namespace: str, seconds: float) -> None:
        older, at = int(seconds * 1000), Cells("", namespace)
        space = NamespaceRecord.read(self._text(at.space))
        if space.quarantine:
            self._write(at.space, replace(space, since_ms=space.since_ms - older).text())
        if not self.ages:
            self._show_ages()
        # The server alone says when a node was written: what is read of it is older from now on.
        written_ms: int = self.server.behind.set("/aiocosid/clock", b"").mtime
        self.ages += [(f"{at.records}/", written_ms, older), (f"{at.entries}/", written_ms, older)]
        while self.server.behind.set("/aiocosid/clock", b"").mtime == written_ms:
            pass

    def _show_ages(self) -> None:
        get, ages = Nodes.get, self.ages

        def shown(path: str, node: Node | None) -> Node | None:
            if node is None:
                return None
            silent_ms = sum(
                older
                for below, at_ms, older in ages
                if path.startswith(below) and node.changed_ms <= at_ms
            )
            machine_id, found, stamp = node.data.partition(b"|")
            data = b"%s|%d" % (machine_id, int(stamp) - silent_ms) if found else node.data
            return replace(node, data=data, changed_ms=node.changed_ms - silent_ms)

        async def aged(nodes: Nodes, *paths: str) -> list[Node | None]:
            found = await get(nodes, *paths)
            return [shown(path, node) for path, node in zip(paths, found, strict=True)]

        self.patch.setattr(Nodes, "get", aged)

    def mark(self, namespace: str) -> None:
        if "\0" not in namespace:  # which no distributor takes
            mark_zookeeper(self.server, namespace)

    def forget(self, namespace: str, *, everything: bool) -> None:
        at = Cells("", namespace)
        space = NamespaceRecord.read(self._text(at.space))
        if everything:
            for path in (at.space.rpartition("/")[0], at.entries.rpartition("/")[0]):
                self.server.behind.delete(path, recursive=True)
            # Without a cell it would be sound, for the store is marked as a whole.
            marker = self.server.behind.exists("/aiocosid/marker")
            space = NamespaceRecord(
                marker_id=Marker.read(self._text("/aiocosid/marker")).marker_id if marker else ""
            )
            for path in (at.entries, at.pool, at.records, at.space):
                self.server.behind.ensure_path(path)
        self._write(at.space, replace(space, identity="another").text())

    def _text(self, path: str) -> str:
        return str(self.server.behind.get(path)[0].decode())

    def _write(self, path: str, text: str) -> None:
        self.server.behind.set(path, text.encode())

    def vanish(self, namespace: str) -> None:
        at = Cells("", namespace)
        for path in (at.space.rpartition("/")[0], at.entries.rpartition("/")[0], at.count):
            self.server.behind.delete(path, recursive=True)


class Etcd(Backend):
    """The session's etcd."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: EtcdServer = request.getfixturevalue("etcd")

    @property
    def url(self) -> str:
        # Thirty-two may be about to change one key, on a machine that is busy as well.
        return f"{self.server.url}?timeout=15"

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.server.put(f"/cosid/{distributor.namespaced_name}", str(to))

    def age(self, namespace: str, seconds: float) -> None:
        for key, (value, lease) in self.server.keys(etcd_root(namespace)).items():
            if lease:
                self.server.shorten(key, value, lease, seconds)

    def mark(self, namespace: str) -> None:
        if "\0" not in namespace:  # which no distributor takes
            mark_etcd(self.server, namespace)

    def forget(self, namespace: str, *, everything: bool) -> None:
        root = etcd_root(namespace)
        space = NamespaceRecord.read(self.server.get(f"{root}space") or "")
        if everything:
            self.server.delete(root)
            # Without a cell it would be sound, for the store is marked as a whole.
            marker = self.server.get(etcd_root("").replace("ns//", "store/marker"))
            space = NamespaceRecord(marker_id=Marker.read(marker).marker_id if marker else "")
        self.server.put(f"{root}space", replace(space, identity="another").text())

    def vanish(self, namespace: str) -> None:
        root = etcd_root(namespace)
        for below in ("ns/", "store/count/", "store/further/"):
            key = root.replace("ns/", below, 1)
            self.server.delete(key)
            self.server.delete(key[:-1])


class Nats(Backend):
    """The session's NATS."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: NatsServer = request.getfixturevalue("nats")

    @property
    def url(self) -> str:
        return f"{self.server.url}?timeout=15"

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        subject = f"aiocosid.counter.{quote(distributor.namespaced_name).replace('.', '%2E')}"
        self.server.purge("aiocosid_counters", subject)
        self.server.put(subject, headers={"Nats-Incr": f"+{BIAS + to}"})

    def age(self, namespace: str, seconds: float) -> None:
        older = int(seconds * 1000)
        slots = nats_key(namespace, "id", "*")
        for key in self.server.subjects("aiocosid_cells", slots):
            text, seen = self._text(key)
            record, stamp, *noted = text.split("\n")
            seen = int(noted[0]) if noted else seen
            self.server.put(key, f"{record}\n{stamp}\n{seen - older}".encode())
        space = self._space(namespace)
        if space.quarantine:
            self._write(namespace, replace(space, since_ms=space.since_ms - older))

    def mark(self, namespace: str) -> None:
        if "\0" not in namespace and not self._epoch():  # else the store is marked as a whole
            mark_nats(self.server, namespace)

    def forget(self, namespace: str, *, everything: bool) -> None:
        space = NamespaceRecord() if everything else self._space(namespace)
        if everything:
            self.server.purge("aiocosid_cells", nats_key(namespace, ">"))
        # Without a cell it would be sound, for the store is marked as a whole.
        self._write(namespace, replace(space, identity="another", marker_id=self._epoch()))

    def vanish(self, namespace: str) -> None:
        count = nats_key(namespace, "*").replace(".ns.", ".store.count.")
        for below in (nats_key(namespace, ">"), count):
            self.server.purge("aiocosid_cells", below)

    def _epoch(self) -> str:
        marker = "aiocosid.cell.store.marker"
        is_there = marker in self.server.subjects("aiocosid_cells", marker)
        return Marker.read(self._text(marker)[0]).marker_id if is_there else ""

    def _space(self, namespace: str) -> NamespaceRecord:
        return NamespaceRecord.read(self._text(nats_key(namespace, "space"))[0])

    def _write(self, namespace: str, space: NamespaceRecord) -> None:
        self.server.put(nats_key(namespace, "space"), space.text().encode())

    def _text(self, key: str) -> tuple[str, int]:
        """What a cell holds, by the stream's leader, and when it was written."""
        found = self.server.call("STREAM.MSG.GET.aiocosid_cells", last_by_subj=key)["message"]
        written = datetime.fromisoformat(found["time"])
        return b64decode(found["data"]).decode(), int(written.timestamp() * 1000)


class NatsOnThree(Nats):
    """The session's three servers, each with a replica of all."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.cluster: NatsCluster = request.getfixturevalue("nats_three")
        self.server = self.cluster.members[0]

    @property
    def url(self) -> str:
        return f"{self.cluster.url}?timeout=15"


class EngineStore(SqlAlchemyStore):
    """On an engine of the test's, which ends with it."""

    __slots__ = ("engine",)

    engine: AsyncEngine

    @classmethod
    def on(cls, url: str) -> Self:
        """Make the engine."""
        engine = create_async_engine(url)
        made = cls(engine)
        made.engine = engine
        return made

    async def aclose(self) -> None:
        await super().aclose()
        await self.engine.dispose()


class OnEngine(Backend):
    """SQLAlchemy; what shares a store is on the test's engine, the others on their own."""

    def open(self) -> Store:
        return EngineStore.on(self.url)


class EngineOnSqlite(OnEngine, Sqlite):
    """SQLAlchemy on a file of the test's own."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        patch.setitem(_OPTIONS, "aiosqlite", {"timeout": 15})

    @property
    def url(self) -> str:
        return f"sqlite+aiosqlite:///{self.file}?timeout=15"


class EngineOnPostgres(OnEngine, Postgres):
    """SQLAlchemy by asyncpg on the session's PostgreSQL."""

    driver: ClassVar[str] = "asyncpg"

    @property
    def url(self) -> str:
        return self.server.url.replace(":", f"+{self.driver}:", 1)


class EngineByPsycopg(EngineOnPostgres):
    """SQLAlchemy by psycopg."""

    driver = "psycopg"


class EngineOnMariadb(OnEngine, Mariadb):
    """SQLAlchemy by asyncmy on the session's MariaDB."""

    driver: ClassVar[str] = "asyncmy"

    @property
    def url(self) -> str:
        return self.server.url.replace(":", f"+{self.driver}:", 1)


class EngineByAiomysql(EngineOnMariadb):
    """SQLAlchemy by aiomysql."""

    driver = "aiomysql"


class TieredOnSqlite(Backend):
    """The session's Valkey on a file of the test's own."""

    root_type: ClassVar[type[Backend]] = Sqlite

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.root = self.root_type(request)
        # A busy machine must not have a second span opened: there would be a gap.
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        patch.setattr("aiocosid.stores.redis._span.CLAIM_MS", 15_000)
        # A step above the span comes from the root, so that it leaves a gap.
        has_great_steps = "test_each_call_has_its_own_step" in request.node.name
        self.span = 2**60 if has_great_steps else 1_000_000
        patch.setattr("aiocosid.stores.tiered.MAX_SPAN", 2**60)
        self.cache = Valkey(request)

    @property
    def url(self) -> str:
        root, cache = quote(self.root.url, safe=""), quote(self.cache.url, safe="")
        return f"tiered:?root={root}&cache={cache}&span={self.span}&cache_timeout=15"

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.root.set_counter(distributor, to)
        self.cache.server.call("DEL", f"aiocosid:{{{distributor.namespaced_name}}}:span")

    def mark(self, namespace: str) -> None:
        self.root.mark(namespace)


class TieredOnPostgres(TieredOnSqlite):
    """The session's Valkey on the session's PostgreSQL."""

    root_type = Postgres


class Http(Backend):
    """The session's CosId proxy."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: CosIdProxy = request.getfixturevalue("cosid_proxy")

    @property
    def url(self) -> str:
        return f"cosid+{self.server.url}"

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.server.counters[distributor.namespaced_name] = to


class Service(Backend):
    """The id service as CosId's proxy, on a store in memory."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: CosIdService = request.getfixturevalue("cosid_service")

    @property
    def url(self) -> str:
        return f"cosid+{self.server.url}"

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.server.set_counter(distributor.namespaced_name, to)


class Remote(Backend):
    """A server on the store that this process shares, by HTTP."""

    behind: ClassVar[type[Backend]] = Memory
    is_unix: ClassVar[bool] = False

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.root = self.behind(request)
        server: Callable[[str, bool], str] = request.getfixturevalue("id_server")
        self._url = server(self.root.url, self.is_unix)

    @property
    def url(self) -> str:
        # A busy machine must not have a call repeated: there would be a gap.
        return f"{self._url}?timeout=15"

    async def prepare(self, store: Store) -> None:
        async with self.root.open() as root:
            await self.root.prepare(root)
        await super().prepare(store)

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.root.set_counter(distributor, to)

    def age(self, namespace: str, seconds: float) -> None:
        self.root.age(namespace, seconds)

    def mark(self, namespace: str) -> None:
        self.root.mark(namespace)

    def forget(self, namespace: str, *, everything: bool) -> None:
        self.root.forget(namespace, everything=everything)

    def vanish(self, namespace: str) -> None:
        self.root.vanish(namespace)


class RemoteOnValkey(Remote):
    """A server on the session's Valkey, by its Unix socket."""

    behind = Valkey
    is_unix = True


class RemoteOnPostgres(Remote):
    """A server on the session's PostgreSQL, by HTTP."""

    behind = Postgres


class RemoteOnEtcd(Remote):
    """A server on the session's etcd, whose identity has a part that rises, by its Unix socket."""

    behind = Etcd
    is_unix = True


class RemoteOnNats(Remote):
    """A server on the session's NATS, whose counts are in parts, by its Unix socket."""

    behind = Nats
    is_unix = True


class RemoteOnZookeeper(Remote):
    """A server on the session's ZooKeeper, by its Unix socket."""

    behind = Zookeeper
    is_unix = True


STORES: Final[dict[str, type[Backend]]] = {
    "memory": Memory,
    "sqlite": Sqlite,
    "valkey": Valkey,
    "redis": Redis,
    "postgres": Postgres,
    "mariadb": Mariadb,
    "etcd": Etcd,
    "nats": Nats,
    "nats_three": NatsOnThree,
    "zookeeper": Zookeeper,
    "tiered": TieredOnSqlite,
    "tiered_pg": TieredOnPostgres,
    "http": Http,
    "service": Service,
    "remote": Remote,
    "remote_valkey": RemoteOnValkey,
    "remote_pg": RemoteOnPostgres,
    "remote_etcd": RemoteOnEtcd,
    "remote_nats": RemoteOnNats,
    "remote_zookeeper": RemoteOnZookeeper,
}

ENGINES: Final[dict[str, type[Backend]]] = {
    "engine_sqlite": EngineOnSqlite,
    "engine_pg": EngineOnPostgres,
    "engine_psycopg": EngineByPsycopg,
    "engine_my": EngineOnMariadb,
    "engine_aiomysql": EngineByAiomysql,
}
"""Whose statements are the others': they take part where these go through SQLAlchemy."""

KEEP_MACHINES: Final = [
    *(name for name, kind in STORES.items() if kind.age is not Backend.age),
    *("engine_psycopg", "engine_aiomysql"),
]
"""Those that hand out machine ids."""
