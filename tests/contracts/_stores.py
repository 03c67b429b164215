"""The stores that the contracts run on, and how each is reached behind a distributor's back.

A new store takes its place in `STORES`, with a class that opens it and writes its counters.
"""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar, Final, Protocol, Self
from urllib.parse import parse_qsl, quote

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aiocosid import open_store
from aiocosid.abc import IdSegmentDistributor, InstanceId, MachineIdDistributor, Store
from aiocosid.stores._engine_url import _OPTIONS
from aiocosid.stores.memory import (
    MemoryIdSegmentDistributor,
    MemoryMachineIdDistributor,
    MemoryStore,
)
from aiocosid.stores.sqlalchemy import (
    SqlAlchemyIdSegmentDistributor,
    SqlAlchemyMachineIdDistributor,
    SqlAlchemyStore,
)
from tests.machine_marks import (
    etcd_root,
    mark_etcd,
    mark_machines,
    mark_mariadb,
    mark_postgres,
    mark_zookeeper,
)
from tests.servers import (
    CosIdProxy,
    EtcdServer,
    MariadbServer,
    PostgresServer,
    ValkeyServer,
    ZookeeperServer,
)

SUFFIXES: Final = (
    *("itc_idx", "adder", "revert", "mark", "stable", "token", "seen", "bits", "marker", "claim"),
)


class Distributor(Protocol):
    """What all classes of distributors offer besides the contract."""

    @classmethod
    def from_url(
        cls, url: str, *, namespace: str, name: str, offset: int = 0, step: int = 100
    ) -> IdSegmentDistributor:
        """Make one with connections of its own."""
        raise NotImplementedError


class MachineDistributor(Protocol):
    """What all classes of distributors of machine ids offer besides the contract."""

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        namespace: str,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = 300,
        interval: float = 60,
    ) -> MachineIdDistributor:
        """Make one with connections of its own."""
        raise NotImplementedError


# In SQL: the stamps of CosId's table, and when the store itself saw the instance last.
AGE: Final = (
    "update cosid_machine set last_timestamp = last_timestamp - {ms} where namespace = '{of}'",
    "update aiocosid_machine set seen = seen - {ms} where name like '{of}.%'",
    "update aiocosid_machine_marker set since = since - {ms} where since > 0 and namespace='{of}'",
)
FORGET: Final = (
    "delete from cosid_machine where namespace = '{of}'",
    "delete from aiocosid_machine where name like '{of}.%'",
    "delete from aiocosid_machine_bits where namespace = '{of}'",
    "delete from aiocosid_machine_marker where namespace = '{of}'",
)
ANOTHER: Final = (
    (
        "insert into aiocosid_machine_marker (namespace, identity) values ('{of}', 'another') "
        "on conflict (namespace) do update set identity = excluded.identity"
    ),
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

    @property
    @abstractmethod
    def distributor(self) -> type[Distributor]:
        """The class of its distributors, which make connections of their own from a URL."""

    def open(self) -> Store:
        """Return the store, on the loop that is running."""
        return open_store(self.url)

    @abstractmethod
    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        """Write a counter without anybody's knowledge."""

    @property
    def machine_distributor(self) -> type[MachineDistributor]:
        """The class of its distributors of machine ids, if it has one: it takes part by `age`."""
        raise NotImplementedError

    def age(self, namespace: str, seconds: float) -> None:
        """Make the last sign of life of all machine ids of a namespace older; keep the marks.

        And a quarantine.
        """
        raise NotImplementedError

    def mark(self, namespace: str) -> None:  # noqa: B027 - most need nothing
        """Mark the store for a namespace, as ``aiocosid init`` does, if it does not itself."""

    def forget(self, namespace: str, *, everything: bool) -> None:
        """Lose all of a namespace's machine ids, or become another store that has the same."""
        pytest.skip("this store has no marker yet")


class Memory(Backend):
    """The store that this process shares."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        """Nothing has to run: this process keeps the counters."""

    @property
    def url(self) -> str:
        return "memory://"

    @property
    def distributor(self) -> type[Distributor]:
        return MemoryIdSegmentDistributor

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        MemoryStore.from_url(self.url)._counters[distributor.namespaced_name] = to

    @property
    def machine_distributor(self) -> type[MachineDistributor]:
        return MemoryMachineIdDistributor

    def age(self, namespace: str, seconds: float) -> None:
        for entry in MemoryStore.from_url(self.url)._pools[namespace].entries.values():
            entry.seen -= seconds
        marker = MemoryStore.from_url(self.url)._pools[namespace].marker
        if marker.since is not None:
            marker.since -= seconds

    def forget(self, namespace: str, *, everything: bool) -> None:
        store = MemoryStore.from_url(self.url)
        store.forget_machines(namespace=namespace, everything=everything)


class Sqlite(Backend):
    """A file of the test's own."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        folder: Path = request.getfixturevalue("tmp_path")
        # Thirty-two connections may stand in line for one lock, on a machine that is busy as well.
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        patch.setattr("aiocosid.stores._sqlite_door.BUSY_TIMEOUT", 15)
        self.file = folder / "ids.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.file}"

    @property
    def distributor(self) -> type[Distributor]:
        from aiocosid.stores.sqlite import SqliteIdSegmentDistributor

        return SqliteIdSegmentDistributor

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute(
                "update cosid set last_max_id = ? where name = ?", (to, distributor.namespaced_name)
            )

    @property
    def machine_distributor(self) -> type[MachineDistributor]:
        from aiocosid.stores.sqlite import SqliteMachineIdDistributor

        return SqliteMachineIdDistributor

    def age(self, namespace: str, seconds: float) -> None:
        self._execute(AGE, ms=int(seconds * 1000), of=namespace)

    def forget(self, namespace: str, *, everything: bool) -> None:
        # Without a marker of its own the namespace would have that of the file.
        self._execute(FORGET + ANOTHER if everything else ANOTHER, of=namespace)

    def _execute(self, statements: Sequence[str], **about: object) -> None:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            for statement in statements:
                connection.execute(statement.format(**about))


class Valkey(Backend):
    """The session's Valkey."""

    fixture: ClassVar[str] = "valkey"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: ValkeyServer = request.getfixturevalue(self.fixture)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def distributor(self) -> type[Distributor]:
        from aiocosid.stores.redis import RedisIdSegmentDistributor

        return RedisIdSegmentDistributor

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.server.call("SET", f"cosid:{{{distributor.namespaced_name}}}.adder", to)

    @property
    def machine_distributor(self) -> type[MachineDistributor]:
        from aiocosid.stores.redis import RedisMachineIdDistributor

        return RedisMachineIdDistributor

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
        marker = f"cosid:{{{namespace}}}:marker"
        if self.server.call("HEXISTS", marker, "since"):
            self.server.call("HINCRBY", marker, "since", -older)

    def mark(self, namespace: str) -> None:
        mark_machines(self.server, namespace)

    def forget(self, namespace: str, *, everything: bool) -> None:
        if not everything:
            self.server.call("HSET", f"cosid:{{{namespace}}}:marker", "identity", "another one")
            return
        for suffix in SUFFIXES:
            self.server.call("DEL", f"cosid:{{{namespace}}}:{suffix}")


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

    @property
    def distributor(self) -> type[Distributor]:
        from aiocosid.stores.postgres import PostgresIdSegmentDistributor

        return PostgresIdSegmentDistributor

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        name = distributor.namespaced_name
        sql = f"update cosid set last_max_id = {to} where name = '{name}'"  # noqa: S608 - ours
        self.server.execute(sql)

    @property
    def machine_distributor(self) -> type[MachineDistributor]:
        from aiocosid.stores.postgres import PostgresMachineIdDistributor

        return PostgresMachineIdDistributor

    def age(self, namespace: str, seconds: float) -> None:
        self._execute(AGE, ms=int(seconds * 1000), of=namespace)

    def mark(self, namespace: str) -> None:
        if "\0" not in namespace:  # which no distributor takes
            mark_postgres(self.server, namespace)

    def forget(self, namespace: str, *, everything: bool) -> None:
        self._execute(FORGET if everything else ANOTHER, of=namespace)

    def _execute(self, statements: Sequence[str], **about: object) -> None:
        self.server.execute(";\n".join(statements).format(**about))


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

    @property
    def distributor(self) -> type[Distributor]:
        from aiocosid.stores.mysql import MysqlIdSegmentDistributor

        return MysqlIdSegmentDistributor

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        name = distributor.namespaced_name
        sql = f"update cosid set last_max_id = {to} where name = '{name}'"  # noqa: S608 - ours
        self.server.execute(sql)

    @property
    def machine_distributor(self) -> type[MachineDistributor]:
        from aiocosid.stores.mysql import MysqlMachineIdDistributor

        return MysqlMachineIdDistributor

    def age(self, namespace: str, seconds: float) -> None:
        self._execute(AGE, ms=int(seconds * 1000), of=namespace)

    def mark(self, namespace: str) -> None:
        if "\0" not in namespace:  # which no distributor takes
            mark_mariadb(self.server, namespace)

    def forget(self, namespace: str, *, everything: bool) -> None:
        another = ANOTHER[0].replace(
            "on conflict (namespace) do update set", "on duplicate key update"
        )
        self._execute(
            FORGET if everything else [another.replace("excluded.identity", "'another'")],
            of=namespace,
        )

    def _execute(self, statements: Sequence[str], **about: object) -> None:
        self.server.execute(";\n".join(statements).format(**about))


class Zookeeper(Backend):
    """The session's ZooKeeper."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: ZookeeperServer = request.getfixturevalue("zookeeper")

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def distributor(self) -> type[Distributor]:
        from aiocosid.stores.zookeeper import ZookeeperIdSegmentDistributor

        return ZookeeperIdSegmentDistributor

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        path = f"/cosid/{distributor.namespaced_name}"
        self.server.behind.set(path, to.to_bytes(8, "big"))

    @property
    def machine_distributor(self) -> type[MachineDistributor]:
        from aiocosid.stores.zookeeper import ZookeeperMachineIdDistributor

        return ZookeeperMachineIdDistributor

    def age(self, namespace: str, seconds: float) -> None:
        older = int(seconds * 1000)
        entries, ours = f"/cosid/{namespace}/__itc_idx", f"/aiocosid/{namespace}"
        for path in self._below(entries):
            machine_id, _, stamp = self._text(path).partition("|")
            self._write(path, f"{machine_id}|{int(stamp) - older}")
        for path in (*self._below(f"{ours}/notes"), f"{ours}/marker"):
            told = json.loads(self._text(path))
            for name in {"seen", "since"} & told.keys():
                told[name] = told[name] - older if (told[name] or -1) > 0 else told[name]
            self._write(path, json.dumps(told))

    def mark(self, namespace: str) -> None:
        if "\0" not in namespace:  # which no distributor takes
            mark_zookeeper(self.server, namespace)

    def forget(self, namespace: str, *, everything: bool) -> None:
        if everything:
            for path in (f"/cosid/{namespace}", f"/aiocosid/{namespace}"):
                self.server.behind.delete(path, recursive=True)
        else:
            path = f"/aiocosid/{namespace}/marker"
            self._write(path, json.dumps({**json.loads(self._text(path)), "identity": "another"}))

    def _below(self, path: str) -> list[str]:
        return [f"{path}/{name}" for name in self.server.behind.get_children(path)]

    def _text(self, path: str) -> str:
        return str(self.server.behind.get(path)[0].decode())

    def _write(self, path: str, text: str) -> None:
        self.server.behind.set(path, text.encode())


class Etcd(Backend):
    """The session's etcd."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: EtcdServer = request.getfixturevalue("etcd")

    @property
    def url(self) -> str:
        # Thirty-two may be about to change one key, on a machine that is busy as well.
        return f"{self.server.url}?timeout=15"

    @property
    def distributor(self) -> type[Distributor]:
        from aiocosid.stores.etcd import EtcdIdSegmentDistributor

        return EtcdIdSegmentDistributor

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.server.put(f"/cosid/{distributor.namespaced_name}", str(to))

    @property
    def machine_distributor(self) -> type[MachineDistributor]:
        from aiocosid.stores.etcd import EtcdMachineIdDistributor

        return EtcdMachineIdDistributor

    def age(self, namespace: str, seconds: float) -> None:
        for key, (value, lease) in self.server.keys(etcd_root(namespace)).items():
            if lease:
                self.server.shorten(key, value, lease, seconds)

    def mark(self, namespace: str) -> None:
        if "\0" not in namespace:  # which no distributor takes
            mark_etcd(self.server, namespace)

    def forget(self, namespace: str, *, everything: bool) -> None:
        root = etcd_root(namespace)
        if everything:
            self.server.delete(root)
            return
        marker = self.server.get(f"{root}marker")
        assert marker is not None
        self.server.put(f"{root}marker", json.dumps({**json.loads(marker), "cluster": "other"}))


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

    @property
    def distributor(self) -> type[Distributor]:
        return SqlAlchemyIdSegmentDistributor

    @property
    def machine_distributor(self) -> type[MachineDistributor]:
        return SqlAlchemyMachineIdDistributor

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
        for module in ("_distributor", "_store"):
            patch.setattr(f"aiocosid.stores.tiered.{module}.MAX_SPAN", 2**60)
        self.cache = Valkey(request)

    @property
    def url(self) -> str:
        root, cache = quote(self.root.url, safe=""), quote(self.cache.url, safe="")
        return f"tiered:?root={root}&cache={cache}&span={self.span}&cache_timeout=15"

    @property
    def distributor(self) -> type[Distributor]:
        return OwnTiered

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.root.set_counter(distributor, to)
        self.cache.server.call("DEL", f"aiocosid:{{{distributor.namespaced_name}}}:span")

    def mark(self, namespace: str) -> None:
        self.root.mark(namespace)


class TieredOnPostgres(TieredOnSqlite):
    """The session's Valkey on the session's PostgreSQL."""

    root_type = Postgres


class OwnTiered:
    """A tiered distributor on two that have connections of their own."""

    @classmethod
    def from_url(
        cls, url: str, *, namespace: str, name: str, offset: int = 0, step: int = 100
    ) -> IdSegmentDistributor:
        """Read a tiered store's URL."""
        from aiocosid.stores.redis import RedisIdSegmentDistributor
        from aiocosid.stores.tiered import TieredIdSegmentDistributor

        told = dict(parse_qsl(url.partition("?")[2]))
        kinds: dict[str, type[Backend]] = {"sqlite": Sqlite, "postgresql": Postgres}
        kind = kinds[told["root"].partition(":")[0]]
        root_class = kind.distributor.fget(None)  # type: ignore[attr-defined]  # of no instance
        return TieredIdSegmentDistributor(
            root_class.from_url(
                told["root"], namespace=namespace, name=name, offset=offset, step=step
            ),
            RedisIdSegmentDistributor.from_url(told["cache"], namespace=namespace, name=name),
            span=int(told["span"]),
            cache_timeout=float(told["cache_timeout"]),
            root_name=told["root"],
        )


class Http(Backend):
    """The session's CosId proxy."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: CosIdProxy = request.getfixturevalue("cosid_proxy")

    @property
    def url(self) -> str:
        return f"cosid+{self.server.url}"

    @property
    def distributor(self) -> type[Distributor]:
        from aiocosid.stores.http import HttpIdSegmentDistributor

        return HttpIdSegmentDistributor

    def set_counter(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.server.counters[distributor.namespaced_name] = to


STORES: Final[dict[str, type[Backend]]] = {
    "memory": Memory,
    "sqlite": Sqlite,
    "valkey": Valkey,
    "redis": Redis,
    "postgres": Postgres,
    "mariadb": Mariadb,
    "etcd": Etcd,
    "zookeeper": Zookeeper,
    "tiered": TieredOnSqlite,
    "tiered_pg": TieredOnPostgres,
    "http": Http,
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
