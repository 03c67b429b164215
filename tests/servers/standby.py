"""A PostgreSQL primary with a streaming standby, which may be promoted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final
from urllib.parse import urlsplit

from ._process import Group, wait_until
from .postgres import OWNER, PostgresServer

PROMOTION_SECONDS: Final = 10
RETRY: Final = "wal_retrieve_retry_interval=100ms"  # by its default a promotion takes 5 s


class PostgresStandby(PostgresServer):
    """A copy of a running primary that follows it until it is promoted."""

    name = "standby"

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__("-c", RETRY, *primary.options, database=primary.database)
        self._primary = primary

    def prepare(self) -> None:
        """Copy the primary, and keep a slot there that holds back its log."""
        self.account.own(self.directory)
        self.home = self._primary.home
        words = ("-R", "-X", "stream", "-c", "fast", "--no-sync", "-C", "-S", self._slot)
        source = f"host={self.host} port={self._primary.port} user={OWNER}"
        argv = self._program("pg_basebackup", "-D", "data", "-d", source, *words)
        log = self.directory / "basebackup.log"
        if self.account.popen(argv, directory=self.directory, log=log).wait() != 0:
            raise RuntimeError(f"pg_basebackup failed:\n{log.read_text()}")
        (self.directory / "data").chmod(0o700)

    def promote(self) -> None:
        """Become a primary, on a timeline of its own; returns when it takes writes."""
        done = self.execute(f"SELECT pg_promote(true, {PROMOTION_SECONDS})")
        assert done == "t", f"{self!r} was not promoted:\n{self.log()}"

    def cut(self) -> None:
        """Stop to follow the primary: what it writes from now on is not here."""
        self.execute("ALTER SYSTEM SET primary_conninfo = ''")
        self.execute("SELECT pg_reload_conf()")
        receiving = "SELECT count(*) FROM pg_stat_wal_receiver"
        wait_until(lambda: self.execute(receiving) == "0", f"{self!r} has stopped to follow")

    @property
    def _slot(self) -> str:
        return f"standby_{self.port}"


class PostgresPair(Group):
    """A primary and its standby; a context manager.

    Attributes:
        primary: the server that is the primary at the start.
        standby: the one that follows it at the start.
    """

    def __init__(self, *options: str, synchronous: bool = False) -> None:
        """Describe the two.

        Args:
            *options: of the command line of both.
            synchronous: whether a commit waits until the standby has it on its disk.
        """
        super().__init__()
        self._synchronous = synchronous
        self.primary = PostgresServer(*options)
        self.standby = PostgresStandby(self.primary)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.primary!r} {self.standby!r}>"

    @property
    def servers(self) -> Sequence[PostgresServer]:
        """All of them."""
        return [self.primary, self.standby]

    @property
    def url(self) -> str:
        """A postgresql:// URL of both, which connects to whichever takes writes."""
        first, second = urlsplit(self.primary.url), urlsplit(self.standby.url)
        login, _, host = first.netloc.rpartition("@")
        other = second.netloc.rpartition("@")[2]
        return f"postgresql://{login}@{host},{other}{first.path}?target_session_attrs=read-write"

    def catch_up(self) -> None:
        """Wait until the standby has replayed what the primary has written."""
        written = self.primary.execute("SELECT pg_current_wal_lsn()")
        behind = f"SELECT pg_wal_lsn_diff('{written}', pg_last_wal_replay_lsn()) <= 0"
        wait_until(lambda: self.standby.execute(behind) == "t", "the standby has caught up")

    def fail_over(self) -> None:
        """Kill -9 the primary and promote the standby."""
        self.primary.kill()
        self.standby.promote()

    def begin(self, stack: ExitStack) -> None:
        """Start all, and leave to the stack how they end."""
        for server in self.servers:
            stack.enter_context(server)
        wait_until(self._streams, "the standby follows")
        if self._synchronous:
            self.primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.primary.execute("SELECT pg_reload_conf()")
            wait_until(self._is_synchronous, "the primary waits for the standby")

    def _streams(self) -> bool:
        return self._asked("state") == "streaming"

    def _is_synchronous(self) -> bool:
        return self._asked("sync_state") == "sync"

    def _asked(self, column: str) -> str:
        # The copy itself is a sender, too, for a moment.
        return self.primary.execute(
            f"SELECT {column} FROM pg_stat_replication WHERE state = 'streaming'"  # noqa: S608
        )
