"""Marks a server for a namespace of machine ids, behind everybody's back."""

from __future__ import annotations

import re

from aiocosid.stores._postgres_markers import IDENTITY
from tests.servers import PostgresServer, ValkeyServer

__all__ = ("identity", "mark_machines", "mark_postgres")


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
