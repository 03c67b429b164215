"""Old Leaf nodes, played step by step as the Java classes do it; nothing of aiocosid is in here."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pymysql  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("LeafNormalNode", "LeafRecycleNode", "LeafSqlNode", "RefusedError", "crash_after")


class RefusedError(Exception):
    """Leaf does not start."""


class LeafNormalNode:
    """`SnowflakeZookeeperHolder`."""

    def __init__(self, client: Any, name: str, ip: str, port: int = 8080) -> None:
        self.client = client
        self.forever = f"/snowflake/{name}/forever"
        self.ip, self.port = ip, port
        self.worker_id = 0
        self.path = ""

    def payload(self, now_ms: int) -> bytes:
        fields = {"ip": self.ip, "port": str(self.port), "timestamp": now_ms}
        return json.dumps(fields, separators=(",", ":")).encode()

    def create(self, now_ms: int) -> str:
        prefix = f"{self.forever}/{self.ip}:{self.port}-"
        made: str = self.client.create(prefix, self.payload(now_ms), sequence=True, makepath=True)
        return made

    def is_first(self) -> bool:
        return self.client.exists(self.forever) is None

    def start(self, now_ms: int) -> int:
        """`init`; that of the very first takes 0, whatever its node says."""
        if self.is_first():
            self.path = self.create(now_ms)
            return self.worker_id
        numbers: dict[str, int] = {}
        nodes: dict[str, str] = {}
        for name in self.client.get_children(self.forever):
            place, number, *_ = name.split("-")
            nodes[place], numbers[place] = name, int(number)
        key = f"{self.ip}:{self.port}"
        if key in numbers:
            self.path, self.worker_id = f"{self.forever}/{nodes[key]}", numbers[key]
            if json.loads(self.client.get(self.path)[0])["timestamp"] > now_ms:
                raise RefusedError
        else:
            self.path = self.create(now_ms)
            self.worker_id = int(self.path.rpartition("-")[2])
        return self.worker_id

    def start_by_file(self, directory: Path, now_ms: int) -> int:
        """The fork's `init` if ZooKeeper raises: `Properties.load`, and both keys."""
        try:
            lines = (directory / "workerID.properties").read_text().splitlines()
            found = dict(line.split("=") for line in lines)
            worker_id, max_timestamp = int(found["workerID"]), int(found["maxTimestamp"])
        except (OSError, KeyError, ValueError):
            raise RefusedError from None
        if now_ms < max_timestamp:
            raise RefusedError
        self.worker_id = worker_id
        return worker_id

    def report(self, now_ms: int) -> None:
        """`updateNewData`, every 3 s."""
        self.client.set(self.path, self.payload(now_ms))


class LeafSqlNode:
    """`SnowflakeMySQLHolder` of the fork."""

    def __init__(self, connection: pymysql.Connection[Any], ip: str, port: int = 8080) -> None:
        self.connection = connection
        self.ip, self.port = ip, port
        self.worker_id = 0

    def execute(self, statement: str, *values: Any) -> Any:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall() or cursor.lastrowid

    def start(self, now_ms: int) -> int:
        """`getOrCreateLeafWorkerIdAlloc`, one transaction."""
        key = f"{self.ip}:{self.port}"
        self.connection.begin()
        found = self.execute("SELECT * FROM leaf_workerid_alloc WHERE ip_port=%s", key)
        if found:
            ((worker_id, _, _, _, max_timestamp, *_),) = found
            self.worker_id = int(worker_id)
        else:
            max_timestamp = now_ms
            self.worker_id = self.execute(
                "INSERT INTO leaf_workerid_alloc (ip, port, ip_port, max_timestamp, create_time) "
                "VALUES (%s, %s, %s, %s, NOW())",
                *(self.ip, str(self.port), key, now_ms),
            )
        self.connection.commit()
        if max_timestamp > now_ms:
            raise RefusedError
        return self.worker_id

    def report(self, now_ms: int) -> None:
        """`updateMaxTimestamp`, every 3 s."""
        self.execute(
            "UPDATE leaf_workerid_alloc SET max_timestamp=%s WHERE id=%s", now_ms, self.worker_id
        )
        self.connection.commit()


class LeafRecycleNode:
    """`RecyclableZookeeperHolder` of the fork; its pool has a number too many."""

    def __init__(self, client: Any, name: str, ip: str, port: int, size: int = 4) -> None:
        self.client = client
        self.pools = f"/snowflake/{name}/recycle"
        self.ip, self.port, self.size = ip, port, size
        self.worker_id = -1

    def payload(
        self, worker_id: int, now_ms: int | None, ip: str | None, port: str | None
    ) -> bytes:
        fields = {
            "workId": worker_id,
            "lastUsedIp": ip,
            "lastUsedPort": port,
            "lastUsedTimestamp": now_ms,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    def make_pool(self) -> None:
        """Where there is none."""
        if self.client.exists(self.pools) is None:
            self.client.ensure_path(f"{self.pools}/inuse")
            for number in range(self.size + 1):
                path = f"{self.pools}/notuse/workId:{number}"
                self.client.create(path, self.payload(number, None, None, None), makepath=True)

    def start(self, now_ms: int) -> int:
        """Move the first that is free: delete, then create, with the old bytes."""
        self.make_pool()
        name = self.client.get_children(f"{self.pools}/notuse")[0]
        data = self.client.get(f"{self.pools}/notuse/{name}")[0]
        if (json.loads(data)["lastUsedTimestamp"] or 0) > now_ms:
            raise RefusedError
        self.client.delete(f"{self.pools}/notuse/{name}")
        self.client.create(f"{self.pools}/inuse/{name}", data)
        self.worker_id = int(name.rpartition(":")[2])
        return self.worker_id

    def report(self, now_ms: int) -> None:
        """Every 3 s, whoever has it."""
        data = self.payload(self.worker_id, now_ms, self.ip, str(self.port))
        self.client.set(f"{self.pools}/inuse/workId:{self.worker_id}", data)

    def reclaim(self, now_ms: int) -> None:
        """Every 2 minutes: what was silent for an hour, and 4 ms, goes back with its old bytes."""
        for name in self.client.get_children(f"{self.pools}/inuse"):
            data = self.client.get(f"{self.pools}/inuse/{name}")[0]
            silent_since = json.loads(data)["lastUsedTimestamp"]
            if silent_since is not None and now_ms - silent_since > 3_600_004:
                self.client.delete(f"{self.pools}/inuse/{name}")
                with contextlib.suppress(Exception):
                    self.client.create(f"{self.pools}/notuse/{name}", data)


class crash_after:  # noqa: N801 - a context manager
    """Have a client answer no more after so many calls, the last of which was sent."""

    def __init__(self, wire: Any, calls: int) -> None:
        self.kind, self.left = type(wire), calls

    def __enter__(self) -> None:
        ask = self.ask = self.kind.ask

        async def mortal(wire: Any, *requests: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise ConnectionAbortedError
            done = await ask(wire, *requests)
            if self.left == 0:
                raise ConnectionAbortedError  # and nobody heard of it
            return done

        self.kind.ask = mortal

    def __exit__(self, *_: object) -> None:
        self.kind.ask = self.ask
