"""What a driver's error means, where no server can be made to give it on demand."""

from __future__ import annotations

import re
import sqlite3
import ssl
import subprocess
import sys
from typing import Any

import psycopg
import pytest
from asyncpg import exceptions as _exceptions

from aiocosid.errors import (
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from aiocosid.stores import _postgres
from aiocosid.stores._executor import OutOfRangeError, as_store_error
from aiocosid.stores._url import MYSQL, read_url
from aiocosid.stores._url import POSTGRES as POSTGRES_URL

exceptions: Any = _exceptions  # asyncpg's annotations stop half-way

POSTGRES = [
    (exceptions.ConnectionDoesNotExistError("x"), StoreUnavailableError),
    (exceptions.ProtocolViolationError("server login failed"), StoreUnavailableError),
    (exceptions.InvalidRoleSpecificationError("x"), StoreAuthenticationError),
    (exceptions.NumericValueOutOfRangeError("x"), OutOfRangeError),
    (exceptions.StringDataRightTruncationError("x"), StoreError),
    (exceptions.ReadOnlySQLTransactionError("x"), StoreUnavailableError),
    (exceptions.InvalidAuthorizationSpecificationError("x"), StoreAuthenticationError),
    (exceptions.InvalidPasswordError("x"), StoreAuthenticationError),
    (exceptions.InvalidCatalogNameError("x"), StoreError),
    (exceptions.SerializationError("x"), StoreUnavailableError),
    (exceptions.DeadlockDetectedError("x"), StoreUnavailableError),
    (exceptions.InsufficientPrivilegeError("x"), StoreAuthenticationError),
    (exceptions.UndefinedTableError("x"), SchemaMissingError),
    (exceptions.UndefinedColumnError("x"), StoreError),
    (exceptions.TooManyConnectionsError("x"), StoreUnavailableError),
    (exceptions.DiskFullError("x"), StoreUnavailableError),
    (exceptions.LockNotAvailableError("x"), StoreUnavailableError),
    (exceptions.ObjectInUseError("x"), StoreError),
    (exceptions.QueryCanceledError("x"), StoreUnavailableError),
    (exceptions.AdminShutdownError("x"), StoreUnavailableError),
    (exceptions.CrashShutdownError("x"), StoreUnavailableError),
    (exceptions.CannotConnectNowError("x"), StoreUnavailableError),
    (exceptions.DatabaseDroppedError("x"), StoreError),
    (exceptions.PostgresIOError("x"), StoreUnavailableError),
    (exceptions.UnknownPostgresError("x"), StoreError),
    (exceptions.InterfaceError("connection is closed"), StoreUnavailableError),
    (exceptions.InternalClientError("cannot switch to state 11"), StoreUnavailableError),
    (exceptions.TargetServerAttributeNotMatched("x"), StoreUnavailableError),
    (ConnectionResetError("x"), StoreUnavailableError),
    (TimeoutError(), StoreUnavailableError),
    (ssl.SSLCertVerificationError("self-signed"), StoreError),
    (ssl.SSLEOFError("x"), StoreUnavailableError),
    (RuntimeError("x"), StoreError),
]

SQLITE = [
    (sqlite3.SQLITE_BUSY, StoreUnavailableError),
    (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreUnavailableError),
    (sqlite3.SQLITE_LOCKED, StoreUnavailableError),
    (sqlite3.SQLITE_FULL, StoreUnavailableError),
    (sqlite3.SQLITE_IOERR_FSYNC, StoreUnavailableError),
    (sqlite3.SQLITE_READONLY_DBMOVED, StoreAuthenticationError),
    (sqlite3.SQLITE_PERM, StoreAuthenticationError),
    (sqlite3.SQLITE_CORRUPT, StoreError),
    (sqlite3.SQLITE_NOTADB, StoreError),
    (sqlite3.SQLITE_CANTOPEN, StoreError),
    (sqlite3.SQLITE_MISUSE, StoreError),
]


@pytest.mark.parametrize(("raised", "meaning"), POSTGRES, ids=lambda each: repr(each)[:60])
def test_postgres(raised: Exception, meaning: type[StoreError]) -> None:
    """Retryable is what passes by itself; rights, tables and ends have errors of their own."""
    error = as_store_error("postgres", raised)
    assert type(error) is meaning
    assert error.retryable is (meaning is StoreUnavailableError)
    assert error.reason


ONE: list[dict[str, Any]] = [{}]
PAIR: list[dict[str, Any]] = [{"host": "::1", "port": 5}, {"host": "c", "port": 5432}]
HOSTS: dict[str, tuple[str, list[dict[str, Any]], str]] = {
    "postgresql://db/shop": ("postgresql://db/shop", ONE, "warn"),
    "postgres://me:p,w@[::1]:5,c/x?durability=refuse&y=a,b": (
        *("postgres://me:p,w@[::1]:5,c/x?y=a,b", PAIR, "refuse"),
    ),
    "postgresql://u@x:p@w@db/shop": ("postgresql://u%40x:p%40w@db/shop", ONE, "warn"),
    "postgresql:///shop?host=/run&durability=ignore": (
        *("postgresql:///shop?host=/run", ONE, "ignore"),
    ),
}


@pytest.mark.parametrize(("url", "told"), HOSTS.items())
def test_each_host_of_a_url(url: str, told: tuple[str, list[dict[str, Any]], str]) -> None:
    """Each of several is told beside the URL, of which all but our own option stays as it is."""
    dsn, hosts, found = _postgres.dsn_of(url)
    assert (dsn, hosts, found.options["durability"]) == told


@pytest.mark.parametrize(("code", "meaning"), SQLITE)
def test_sqlite(code: int, meaning: type[StoreError]) -> None:
    """Extended codes mean what the primary ones do."""
    raised = sqlite3.OperationalError("x")
    raised.sqlite_errorcode = code
    assert type(as_store_error("sqlite", raised)) is meaning


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY_SNAPSHOT, sqlite3.SQLITE_LOCKED])
def test_a_locked_file(code: int) -> None:
    """No server is to be checked: another transaction holds the lock, perhaps the caller's."""
    raised = sqlite3.OperationalError("database is locked")
    raised.sqlite_errorcode = code
    text = str(as_store_error("sqlite", raised))
    assert "locked; try again when the other connection's transaction has ended" in text
    assert "server" not in text


def test_sqlite_without_a_code() -> None:
    """What Python's module raises by itself has none."""
    closed = sqlite3.ProgrammingError("Cannot operate on a closed database.")
    assert type(as_store_error("sqlite", closed)) is StoreError


def test_without_the_driver() -> None:
    """The module is imported by name, and says at once what to install."""
    code = "import sys; sys.modules['asyncpg'] = None; import aiocosid.stores.postgres"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert "asyncpg is not installed; install it with: pip install 'aiocosid[postgres]'" in (
        done.stderr
    )


@pytest.mark.parametrize(
    "text",
    [
        "SSL error: certificate verify failed: self-signed certificate",
        'server certificate for "db" does not match host name "10.0.0.1"',
        'root certificate file "/root/.postgresql/root.crt" does not exist',
        'private key file "key" has group or world access',
    ],
)
def test_certificates_of_libpq(text: str) -> None:
    """No retry makes them right; psycopg reports them as it reports a server that is away."""
    error = as_store_error("postgresql", psycopg.OperationalError(f"connection failed: {text}"))
    assert type(error) is StoreError
    assert "TLS options" in error.remedy


def test_a_server_without_tls() -> None:
    """The options that the remedy names are those of the URLs."""
    error = as_store_error("mysql", OSError("[SSL: WRONG_VERSION_NUMBER] wrong version number"))
    assert type(error) is StoreError
    named = dict(re.findall(r"([a-z-]+)=(\w+)", error.remedy))
    assert named.keys() == {"sslmode", "ssl", "ssl-mode"}
    for url, spec, name in (
        ("mysql://db/shop", MYSQL, "ssl-mode"),
        ("postgresql://db/shop", POSTGRES_URL, "sslmode"),
    ):
        found = read_url(f"{url}?{name}={named[name]}", spec)
        assert found.options[name] == named[name]
