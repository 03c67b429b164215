"""Marks a server for a namespace of machine ids, behind everybody's back."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

from aiocosid.stores._mysql_markers import IDENTITY as MYSQL_IDENTITY
from aiocosid.stores._postgres_markers import IDENTITY
from aiocosid.stores.zookeeper._machine_nodes import MachineNodes
from aiocosid.stores.zookeeper._machine_texts import Marker
from tests.servers import (
    EtcdServer,
    MariadbServer,
    PostgresServer,
    ValkeyServer,
    ZookeeperServer,
)

__all__ = (
    "etcd_root",
    "identity",
    "mark_etcd",
    "mark_machines",
    "mark_mariadb",
    "mark_postgres",
    "mark_zookeeper",
)


def identity(server: ValkeyServer) -> str:
    """What the scripts take for the identity of a server."""
    info = f"{server.call('INFO', 'server')}{server.call('INFO', 'replication')}"
    found = [re.search(f"{name}:([0-9a-f]+)", info) for name in ("run_id", "master_replid")]
    return " ".join(each.group(1) for each in found if each is not None)


def mark_machines(server: ValkeyServer, *namespaces: str) -> None:
    """Do as ``aiocosid init``, without a loop."""
    for namespace in namespaces:
        server.call("HSET", f"cosid:{{{namespace}}}:marker", "identity", identity(server))


def mark_postgres(server: PostgresServer, *namespaces: str, database: str | None = None) -> None:
    """The same for PostgreSQL."""
    texts = ", ".join("('{}')".format(namespace.replace("'", "''")) for namespace in namespaces)
    server.execute(
        "insert into aiocosid_machine_marker (namespace, identity) "  # noqa: S608 - ours
        f"select namespace, {IDENTITY} from (values {texts}) as of (namespace) "
        "on conflict (namespace) do update set identity = excluded.identity, since = 0",
        database=database,
    )


def mark_mariadb(server: MariadbServer, *namespaces: str, database: str = "test") -> None:
    """The same for MariaDB."""
    for namespace in namespaces:
        quoted = namespace.replace("\\", "\\\\").replace("'", "''")
        server.execute(
            "insert into aiocosid_machine_marker (namespace, identity) "  # noqa: S608 - ours
            f"values ('{quoted}', {MYSQL_IDENTITY}) "
            f"on duplicate key update identity = {MYSQL_IDENTITY}, since = 0",
            database=database,
        )


def etcd_root(namespace: str) -> str:
    """What all keys of a namespace's machine ids begin with."""
    return f"/cosid/machine/{quote(namespace, safe='').replace('.', '%2E')}/"


def mark_etcd(server: EtcdServer, *namespaces: str) -> None:
    """The same for etcd."""
    header = server.call("kv/range", key="Lw==")["header"]
    for namespace in namespaces:
        marker = {
            "cluster": f"{int(header['cluster_id']):x}",
            "term": int(header["raft_term"]),
            "bits": 0,
            "guard": 0,
            "quarantine": "",
        }
        server.put(f"{etcd_root(namespace)}marker", json.dumps(marker))


def mark_zookeeper(server: ZookeeperServer, *namespaces: str) -> None:
    """The same for ZooKeeper."""
    for namespace in namespaces:
        at = MachineNodes(namespace)
        server.behind.ensure_path(at.entries)
        marker = Marker(identity=f"{server.behind.exists(at.entries).czxid:x}")
        server.behind.ensure_path(at.marker)
        server.behind.set(at.marker, marker.data())
