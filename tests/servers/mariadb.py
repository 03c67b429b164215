"""The system's MariaDB, when there is one, or MySQL where that is chosen."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import pymysql  # type: ignore[import-untyped]
from pymysql.constants import CLIENT  # type: ignore[import-untyped]

from ._certificates import Certificates
from ._process import Account, Server, chosen_program, find_program
from ._shared import made_once

OWNER: Final = "root"  # may do everything, without a password
GUEST: Final = "guest"  # may connect with the password and use what it is granted, which is nothing
GUEST_PASSWORD: Final = "right:horse/battery"  # noqa: S105 - its ':' and '/' must be quoted in a URL
DATABASE: Final = "test"

CHANGES: Final = re.compile(r".*\bset global|revoke all, grant option", re.IGNORECASE | re.DOTALL)
"""What tests in other databases would notice."""

IS_MYSQL: Final = chosen_program("mysqld") is not None

# MySQL warns of the one, and MariaDB has not the other.
PROCESSES: Final = f"{'performance' if IS_MYSQL else 'information'}_schema.processlist"

# Small files, and nothing waits for a disk.
_QUICK: Final = (
    *("--skip-log-bin", "--innodb-flush-method=nosync", "--innodb-doublewrite=0"),
    *("--innodb-stats-persistent=0", "--loose-aria-log-file-size=8M"),
    "--innodb-redo-log-capacity=16M" if IS_MYSQL else "--innodb-log-file-size=4M",
)
# MySQL lets in an owner from localhost, and has to find out that 127.0.0.1 is that.
_KIND: Final = ("--mysqlx=OFF", "--secure-file-priv=NULL") if IS_MYSQL else ("--skip-name-resolve",)
# A switch that only root may use, and has to.
_AS_ROOT: Final = ("--user=root",) if os.geteuid() == 0 else ()


def mariadb_program(name: str) -> Path:
    """One of the system's programs of MariaDB."""
    return find_program(name, remedy="apt-get install mariadb-server-core mariadb-client-core")


def _server_program() -> Path:
    return (chosen_program("mysqld") or mariadb_program("mariadbd")).resolve()


def _home() -> str:
    """Where the server finds its messages and all else, whatever folder it was unpacked into."""
    return f"--basedir={_server_program().parents[1]}"


def _make_template(directory: Path) -> None:
    """Make the data of a new server, by mariadb-install-db or MySQL itself."""
    install: Sequence[str | Path] = _server_program(), "--no-defaults", "--initialize-insecure"
    if not IS_MYSQL:
        mariadb_program("my_print_defaults")  # install-db asks it; a package of the client's has it
        program = mariadb_program("mariadb-install-db")
        install = program, "--no-defaults", "--auth-root-authentication-method=normal"
        install = *install, "--skip-test-db"
    log = directory / "install.log"
    argv = [*install, _home(), f"--datadir={directory / 'data'}", f"--tmpdir={directory}"]
    argv += [*_AS_ROOT, *_QUICK]
    if Account().popen(argv, directory=directory, log=log).wait() != 0:
        raise RuntimeError(f"no data was made:\n{log.read_text()}")


class MariadbServer(Server):
    """One MariaDB server with the database ``test``; keeps its data over kill -9.

    What was committed outlives a kill -9 of the process, though not of the machine.

    Args:
        *options: of mariadbd.
        tls: whether it speaks TLS with those who want to.
    """

    name = "mariadb"

    def __init__(self, *options: str, tls: bool = False) -> None:
        self.program = _server_program()
        super().__init__()
        self.options = options
        self.database = DATABASE
        self.certificates = Certificates(self.directory) if tls else None

    @property
    def ca_path(self) -> Path:
        """The certificate authority that signed the server's certificate."""
        assert self.certificates is not None, f"{self!r} does not speak TLS"
        return self.certificates.ca

    @property
    def stranger_ca_path(self) -> Path:
        """Another one."""
        assert self.certificates is not None, f"{self!r} does not speak TLS"
        return self.certificates.stranger_ca

    @property
    def url(self) -> str:
        """A mysql:// URL of the owner."""
        return self.url_for()

    def url_for(
        self, *, user: str = OWNER, password: str | None = None, database: str | None = None
    ) -> str:
        """A URL with other credentials or another database, right or wrong."""
        login = quote(user) if password is None else f"{quote(user)}:{quote(password, safe='')}"
        return f"mysql://{login}@{self.host}:{self.port}/{database or self.database}"

    def execute(self, sql: str, *, database: str | None = None) -> str:
        """Run SQL, or several statements parted by ``;``, as the owner.

        Returns:
            The last statement's rows as text, fields separated by '|'; NULL is empty.
        """
        return "\n".join(
            "|".join("" if field is None else str(field) for field in row)
            for row in self.rows(sql, database=database)
        )

    def rows(self, sql: str, *, database: str | None = None) -> Sequence[tuple[Any, ...]]:
        """The same with the rows as they are."""
        self._must_be_alone(sql, CHANGES)
        with closing(self.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            rows = cursor.fetchall()
            while cursor.nextset():
                rows = cursor.fetchall()
            return cast("Sequence[tuple[Any, ...]]", rows)

    def connect(self, database: str | None = None) -> Any:
        """A blocking connection of the owner's, in autocommit mode, that counts matched rows."""
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=OWNER,
            database=(self.database if database is None else database) or None,
            client_flag=CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS,
            autocommit=True,
            ssl_disabled=True,  # else it reads all certificates of the system each time
            connect_timeout=5,
            read_timeout=30,
        )

    def settle_in(self, part: str) -> None:
        """Have a database of one's own by default."""
        self.create_database(part)
        self.database = part

    def create_database(self, name: str) -> str:
        """Make an empty database and give its URL."""
        self.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4", database="")
        return self.url_for(database=name)

    def drop_database(self, name: str) -> None:
        """Drop the database, whoever is still connected to it."""
        self.execute(f"DROP DATABASE IF EXISTS `{name}`", database="")

    def prepare(self) -> None:
        """Copy the data of a new server."""
        template = made_once("mariadb-template", _make_template)
        shutil.copytree(template / "data", self.directory / "data")
        if self.certificates is not None:
            self.certificates.make()

    def argv(self) -> Sequence[str | Path]:
        """Nothing is read from the system; no unix socket outside of our directory."""
        argv: list[str | Path]
        argv = [self.program, "--no-defaults", _home(), f"--datadir={self.directory / 'data'}"]
        argv += [f"--bind-address={self.host}", f"--port={self.port}"]
        argv += [f"--socket={self.directory / 's.sock'}", "--pid-file=pid", *_KIND]
        # A server that starts removes what looks like its own from there.
        argv += [f"--tmpdir={self.directory}"]
        argv += ["--max-connections=400", "--innodb-buffer-pool-size=16M", *_AS_ROOT, *_QUICK]
        if self.certificates is not None:
            argv += [f"--ssl-ca={self.certificates.ca}", f"--ssl-key={self.certificates.key}"]
            argv += [f"--ssl-cert={self.certificates.certificate}"]
        return [*argv, *self.options]

    def is_ready(self) -> bool:
        """Is a login answered?"""
        try:
            self.connect("").close()
        except pymysql.err.OperationalError:
            return False
        return True

    def start(self) -> None:
        """Start, and make the database and the guest on the first start."""
        super().start()
        if DATABASE not in self.execute("SHOW DATABASES", database="").split():
            self.create_database(DATABASE)
            self.execute(f"CREATE USER {GUEST} IDENTIFIED BY '{GUEST_PASSWORD}'")
