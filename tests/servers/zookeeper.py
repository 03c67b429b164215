"""The system's ZooKeeper: one server, or an ensemble of three."""

from __future__ import annotations

import random
import shutil
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from ._process import (
    HOST,
    Group,
    Server,
    ServerMissingError,
    chosen_program,
    find_program,
    free_port,
    wait_until,
)

JAR: Final = chosen_program("zookeeper.jar") or Path("/usr/share/java/zookeeper.jar")
TICK_MS: Final = 500  # a session lives for 2 to 20 of them
QUICK_TICK_MS: Final = 200  # of an ensemble: how soon a lost leader is noticed
MEMBERS: Final = 3
FORMING_DEADLINE: Final = 30.0  # seconds


def java() -> Path:
    """The program that runs it; ServerMissingError where it, or ZooKeeper, is missing."""
    if not JAR.is_file():
        raise ServerMissingError("zookeeper", remedy="apt-get install libzookeeper-java")
    return find_program("java", remedy="apt-get install default-jre-headless")


class ZookeeperServer(Server):
    """One ZooKeeper server.  What it was told outlives a kill -9 and a restart.

    Attributes:
        settings: lines of its configuration besides the usual ones.
        number: who it is among the members of an ensemble; 0 for none.
        chroot: the tree that it is for this process.
    """

    name = "zookeeper"

    def __init__(self, *settings: str, tick_ms: int = TICK_MS, number: int = 0) -> None:
        self.java = java()
        super().__init__()
        self.settings = settings
        self.tick_ms = tick_ms
        self.number = number
        self.chroot = ""
        self._behind: Any = None

    @property
    def hosts(self) -> str:
        """What the driver takes."""
        return f"{self.host}:{self.port}{self.chroot}"

    @property
    def url(self) -> str:
        """A zookeeper:// URL."""
        return f"zookeeper://{self.hosts}"

    @property
    def data(self) -> Path:
        """Where its data lies; to be copied, put back or removed while it is down."""
        return self.directory / "data"

    def prepare(self) -> None:
        """Write the configuration."""
        self.data.mkdir()
        if self.number:
            (self.data / "myid").write_text(f"{self.number}\n")
        lines = [
            f"tickTime={self.tick_ms}",
            f"dataDir={self.data}",
            f"clientPort={self.port}",
            f"clientPortAddress={self.host}",
            "admin.enableServer=false",
            "4lw.commands.whitelist=*",
            "maxClientCnxns=0",
            *self.settings,
        ]
        (self.directory / "zoo.cfg").write_text("\n".join(lines) + "\n")

    def argv(self) -> Sequence[str | Path]:
        """A small JVM, quick to start, that does not wait for the disk."""
        return [
            *(self.java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Dzookeeper.admin.enableServer=false", "-Dzookeeper.forceSync=no"),
            *("-cp", JAR, "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"),
        ]

    def settle_in(self, part: str) -> None:
        """Have a tree of one's own."""
        self.behind.ensure_path(f"/{part}")
        self.leave()
        self.chroot = f"/{part}"

    def ask(self, word: str, *, timeout: float = 1.0) -> str:
        """Answer one of the four-letter words."""
        with socket.create_connection((self.host, self.port), timeout) as connection:
            connection.sendall(word.encode())
            parts = iter(lambda: connection.recv(1 << 16), b"")
            return b"".join(parts).decode()

    @property
    def behind(self) -> Any:
        """A client of the driver's, with a session of its own: what the server really holds."""
        from kazoo.client import KazooClient  # type: ignore[import-untyped]
        from kazoo.protocol import connection  # type: ignore[import-untyped]

        # Its thread draws jitter: hypothesis takes that for a strategy that is not its own.
        connection.random = random.Random()  # noqa: S311 - it spreads load

        if self._behind is None:
            self._behind = KazooClient(self.hosts)
            self._behind.start()
        return self._behind

    def delete(self, path: str) -> None:
        """Remove a node and all below it, as ``deleteall`` does; others may write meanwhile."""
        from kazoo.exceptions import NotEmptyError  # type: ignore[import-untyped]

        for _ in range(100):
            with suppress(NotEmptyError):
                self.behind.delete(path, recursive=True)
                return
        raise TimeoutError(f"{path} is never empty")

    def mode(self) -> str:
        """Answer ``standalone``, ``leader`` or ``follower``; nothing while it does not serve."""
        try:
            lines = self.ask("srvr").splitlines()
        except OSError:
            return ""
        return next((line[6:] for line in lines if line.startswith("Mode: ")), "")

    def is_ready(self) -> bool:
        """Serve; a member of an ensemble, which may still look for the others, says it is well.

        ``ruok`` is answered before sessions are: a client that came then would be turned away.
        """
        if not self.number:
            return bool(self.mode())
        try:
            return self.ask("ruok") == "imok"
        except OSError:
            return False

    def wipe(self) -> None:
        """Forget everything, while it is down."""
        assert not self.running, f"{self!r} is running"
        shutil.rmtree(self.data / "version-2", ignore_errors=True)

    def close(self) -> None:
        """Without the farewell: the data goes anyway."""
        self.leave()
        self.kill()
        super().close()

    def leave(self) -> None:
        """End the session of `behind`."""
        if self._behind is not None:
            self._behind.stop()
            self._behind.close()
            self._behind = None


class ZookeeperEnsemble(Group):
    """Three servers, of which any two are enough; a context manager."""

    def __init__(self) -> None:
        super().__init__()
        java()
        peers = [
            f"server.{number}={HOST}:{free_port()}:{free_port()}"
            for number in range(1, MEMBERS + 1)
        ]
        settings = ("initLimit=20", "syncLimit=10", *peers)
        self.members = [
            ZookeeperServer(*settings, tick_ms=QUICK_TICK_MS, number=number)
            for number in range(1, MEMBERS + 1)
        ]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.members}>"

    @property
    def servers(self) -> Sequence[ZookeeperServer]:
        """All of them."""
        return self.members

    @property
    def hosts(self) -> str:
        """What the driver takes."""
        return ",".join(member.hosts for member in self.members)

    @property
    def url(self) -> str:
        """A zookeeper:// URL that names every member."""
        return f"zookeeper://{self.hosts}"

    def leader(self) -> ZookeeperServer | None:
        """Whom a majority follows now."""
        return next((each for each in self.members if each.mode() == "leader"), None)

    def serves(self) -> bool:
        """Is there a leader, and does every running member follow it?"""
        modes = sorted(each.mode() for each in self.members if each.running)
        return modes.count("leader") == 1 and set(modes) <= {"leader", "follower"}

    def wait_until_it_serves(self) -> None:
        """Return when there is a leader whom all follow that are running."""
        wait_until(self.serves, f"{self!r} has a leader", deadline=FORMING_DEADLINE)

    def kill_leader(self) -> ZookeeperServer:
        """Kill -9 the leader; return it, to be started again."""
        wait_until(lambda: self.leader() is not None, "a leader", deadline=FORMING_DEADLINE)
        leader = self.leader()
        assert leader is not None
        leader.kill()
        return leader

    def restart(self, member: ZookeeperServer) -> None:
        """Start a member that was killed; return when all that are running serve."""
        member.start()
        self.wait_until_it_serves()

    def begin(self, stack: ExitStack) -> None:
        """Start all, and leave to the stack how they end."""
        self.spawn_all(stack, *self.members)
        self.wait_until_it_serves()
