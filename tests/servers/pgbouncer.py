"""PgBouncer in transaction mode, in front of a PostgreSQL of ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ._process import Server, find_program, unprivileged
from .postgres import OWNER, PostgresServer


def pgbouncer_binary() -> Path:
    """The system's pgbouncer."""
    return find_program("pgbouncer", remedy="apt-get install pgbouncer")


class PgBouncerServer(Server):
    """Each transaction goes to whichever of ``pool_size`` connections is free.

    Attributes:
        postgres: the server behind it; every client acts as its owner.
    """

    name = "pgbouncer"

    def __init__(self, postgres: PostgresServer, *, pool_size: int = 4) -> None:
        self.binary = pgbouncer_binary()
        super().__init__()
        self.account = unprivileged()
        self.postgres = postgres
        self.pool_size = pool_size

    @property
    def url(self) -> str:
        """A postgresql:// URL through the bouncer."""
        return self.url_for()

    def url_for(self, *, database: str | None = None) -> str:
        """A URL of another database of the same server."""
        return f"postgresql://{OWNER}@{self.host}:{self.port}/{database or self.postgres.database}"

    def prepare(self) -> None:
        """Write the configuration."""
        behind = f"host={self.postgres.host} port={self.postgres.port} user={OWNER}"
        settings = {
            "listen_addr": self.host,
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "max_client_conn": 500,
            "default_pool_size": self.pool_size,
            # The tests make PostgreSQL fail; a bouncer that remembers it for 15 s only hides it.
            "server_login_retry": 0.2,
        }
        lines = ["[databases]", f"* = {behind}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        config = self.directory / "pgbouncer.ini"
        config.write_text("\n".join(lines) + "\n")
        self.account.own(self.directory, config)

    def argv(self) -> Sequence[str | Path]:
        """In the foreground, so that it is ours to stop."""
        return [self.binary, "pgbouncer.ini"]

    def is_ready(self) -> bool:
        """The bouncer answers and has reached PostgreSQL."""
        return self.postgres.answers(self.url)
