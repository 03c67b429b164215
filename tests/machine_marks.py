"""Marks a server for a namespace of machine ids, behind everybody's back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from urllib.parse import quote

from aiocosid.machine.cells import Marker, NamespaceRecord
from aiocosid.stores._mysql import IDENTITY as MYSQL_IDENTITY
from aiocosid.stores._postgres import IDENTITY
from aiocosid.stores.zookeeper._backend import Cells
from tests import sql_cells
from tests.servers import (
    EtcdServer,
    MariadbServer,
    NatsServer,
    PostgresServer,
    ValkeyServer,
    ZookeeperServer,
)

__all__ = (
    "etcd_identity",
    "etcd_root",
    "identity",
    "initialize_namespace",
    "mariadb_run",
    "mark_etcd",
    "mark_etcd_store",
    "mark_mariadb",
    "mark_nats",
    "mark_postgres",
    "mark_zookeeper",
    "mark_zookeeper_store",
    "nats_key",
)


def identity(server: ValkeyServer) -> str:
    """What the scripts take for the identity of a server."""
    info = f"{server.call('INFO', 'server')}{server.call('INFO', 'replication')}"
    found = [re.search(f"{name}:([0-9a-f]+)", info) for name in ("run_id", "master_replid")]
    swaps = re.search(r"cmdstat_swapdb:calls=(\d+)", f"{server.call('INFO', 'commandstats')}")
    return " ".join(each.group(1) for each in (*found, swaps) if each is not None)


def initialize_namespace(server: ValkeyServer, *namespaces: str) -> None:
    """Do as ``aiocosid init``, without a loop."""
    for namespace in namespaces:
        server.call("SET", f"cosid:{{{namespace}}}:space", NamespaceRecord(identity(server)).text())


def mark_postgres(server: PostgresServer, *namespaces: str, database: str | None = None) -> None:
    """The same for PostgreSQL."""

    def run(sql: str) -> list[list[str]]:
        return server.rows(sql, database=database)

    ((found,),) = run(f"select {IDENTITY}")
    for namespace in namespaces:
        sql_cells.mark(run, namespace, found)


def mark_mariadb(server: MariadbServer, *namespaces: str, database: str | None = None) -> None:
    """The same for MariaDB."""
    run = mariadb_run(server, database)
    identity = str(run(f"select {MYSQL_IDENTITY}")[0][0])
    for namespace in namespaces:
        sql_cells.mark(run, namespace, identity)


def mariadb_run(server: MariadbServer, database: str | None = None) -> sql_cells.Run:
    """Run statements in which a backslash is one."""
    return partial(_run_on_mariadb, server, database)


def _run_on_mariadb(
    server: MariadbServer, database: str | None, sql: str
) -> Sequence[Sequence[object]]:
    return server.rows(f"set sql_mode = 'NO_BACKSLASH_ESCAPES'; {sql}", database=database)


def etcd_root(namespace: str) -> str:
    """What all keys of a namespace's machine ids begin with."""
    return f"/cosid/machine/ns/{quote(namespace, safe='').replace('.', '%2E')}/"


def etcd_identity(server: EtcdServer) -> str:
    """What the store takes for the identity of a cluster."""
    header = server.call("kv/range", key="Lw==")["header"]
    return f"{int(header['cluster_id']):x} {header['raft_term']}"


def mark_etcd(server: EtcdServer, *namespaces: str) -> None:
    """The same for etcd."""
    for namespace in namespaces:
        server.put(
            f"{etcd_root(namespace)}space", NamespaceRecord(identity=etcd_identity(server)).text()
        )


def mark_etcd_store(server: EtcdServer, prefix: str = "/cosid") -> None:
    """Let counters be created; it vouches for no machine id."""
    server.put(f"{prefix}/machine/store/marker", Marker().text())


def mark_zookeeper_store(server: ZookeeperServer) -> None:
    """The same for ZooKeeper."""
    server.behind.ensure_path("/aiocosid/marker")
    server.behind.set("/aiocosid/marker", Marker().text().encode())


def mark_nats(server: NatsServer, *namespaces: str) -> None:
    """The same for NATS."""
    identity = server.call("STREAM.INFO.aiocosid_cells")["created"]
    for namespace in namespaces:
        server.put(nats_key(namespace, "space"), NamespaceRecord(identity).text().encode())


def nats_key(namespace: str, *words: str) -> str:
    """The subject of a cell of a namespace."""
    quoted = quote(namespace, safe="").replace(".", "%2E")
    return ".".join(("aiocosid.cell.ns", quoted, *words))


def mark_zookeeper(server: ZookeeperServer, *namespaces: str) -> None:
    """The same for ZooKeeper."""
    server.behind.ensure_path("/aiocosid")
    identity = f"{server.behind.exists('/aiocosid').czxid:x}"
    for namespace in namespaces:
        at = Cells("", namespace)
        for path in (at.entries, at.pool, at.records, at.space):  # the last one is the newest
            server.behind.ensure_path(path)
        server.behind.set(at.space, NamespaceRecord(identity).text().encode())
