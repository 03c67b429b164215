"""A Valkey master with a replica, watched by three sentinels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from ._process import Group, wait_until
from ._resp import RespError
from .valkey import ValkeyServer

SERVICE: Final = "ids"  # the name under which the sentinels know the master
DOWN_AFTER_MS: Final = 500
FAILOVER_TIMEOUT_MS: Final = 3000  # to be seen as done; and twice that until the next attempt
QUORUM: Final = 2
FORMING_DEADLINE: Final = 30.0  # seconds; sentinels greet each other every two
FAILOVER_DEADLINE: Final = 60.0  # seconds; it takes about two, and on a busy machine several tries


class SentinelServer(ValkeyServer):
    """One sentinel: the same program in another mode."""

    name = "sentinel"

    def __init__(self, master: ValkeyServer, down_after_ms: int) -> None:
        super().__init__()
        self._master = master
        self._down_after_ms = down_after_ms

    def prepare(self) -> None:
        """Write the configuration; a sentinel rewrites it, so it must be a file."""
        lines = [
            f"port {self.port}",
            f"bind {self.host}",
            f"dir {self.directory}",
            f"sentinel monitor {SERVICE} {self._master.host} {self._master.port} {QUORUM}",
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after_ms}",
            f"sentinel failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}",
        ]
        (self.directory / "sentinel.conf").write_text("\n".join(lines) + "\n")

    def argv(self) -> Sequence[str | Path]:
        """The configuration stands in the file."""
        return [self.binary, "sentinel.conf", "--sentinel"]


class ValkeySentinel(Group):
    """One master, one replica, three sentinels; a context manager.

    Args:
        down_after_ms: silence after which a sentinel takes a master for dead.

    Attributes:
        master: the server that was the master at the start.
        replica: the one that follows it at the start.
        service: the name under which the sentinels know the master.
    """

    service = SERVICE

    def __init__(self, *, down_after_ms: int = DOWN_AFTER_MS) -> None:
        super().__init__()
        quick = ("--repl-diskless-sync-delay", "0")
        self.master = ValkeyServer(*quick)
        self.replica = ValkeyServer("--replicaof", f"{self.master.host} {self.master.port}", *quick)
        self.sentinels = [SentinelServer(self.master, down_after_ms) for _ in range(3)]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.service!r} at {self.sentinels}>"

    @property
    def servers(self) -> Sequence[ValkeyServer]:
        """All of them."""
        return [self.master, self.replica, *self.sentinels]

    @property
    def url(self) -> str:
        """A redis+sentinel:// URL that names every sentinel."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.addresses)
        return f"redis+sentinel://{hosts}/{self.service}"

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """The sentinels, in the form that redis-py's Sentinel takes."""
        return [(sentinel.host, sentinel.port) for sentinel in self.sentinels]

    def current_master(self) -> ValkeyServer:
        """Whom the sentinels call the master now."""
        asked = next(sentinel for sentinel in self.sentinels if sentinel.running)
        address = asked.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        assert isinstance(address, list)
        return next(s for s in (self.master, self.replica) if str(s.port) == address[1])

    def fail_over(self, *, until: Callable[[], bool]) -> None:
        """Ask for a fail-over, and again, until it is done.

        It cannot begin while one is going on or when the replica was not heard of lately, and
        what has begun may break off for that reason too; nobody but us begins it again.
        """

        def is_done() -> bool:
            done = until()
            if not done:
                with suppress(RespError):
                    self.sentinels[0].call("SENTINEL", "FAILOVER", self.service)
            return done

        wait_until(is_done, "the replica is the master", deadline=FAILOVER_DEADLINE)

    def begin(self, stack: ExitStack) -> None:
        """Start all, and leave to the stack how they end."""
        for server in self.servers:
            stack.enter_context(server)
        wait_until(self._in_service, "the sentinels agree", deadline=FORMING_DEADLINE)

    def _in_service(self) -> bool:
        """Would a failover be possible now?"""
        return all(self._sees_everybody(sentinel) for sentinel in self.sentinels)

    def _sees_everybody(self, sentinel: ValkeyServer) -> bool:
        try:
            reply = sentinel.call("SENTINEL", "MASTER", self.service)
        except (OSError, RespError):
            return False
        assert isinstance(reply, list)
        facts = dict(zip(reply[::2], reply[1::2], strict=True))
        others = str(len(self.sentinels) - 1)
        seen = (facts["flags"], facts["num-slaves"], facts["num-other-sentinels"])
        return seen == ("master", "1", others)
