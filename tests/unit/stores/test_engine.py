"""A SQLAlchemy engine without a server: URLs, notations, and what errors mean."""

from __future__ import annotations

import sqlite3
import ssl
import subprocess
import sys
from typing import Any

import pymysql  # type: ignore[import-untyped]
import pytest
from sqlalchemy import exc, text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.ext.asyncio import create_async_engine

from aiocosid.errors import (
    InvalidArgumentError,
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from aiocosid.machine.cells import (
    Changes,
    MachineRecord,
    MachineSlot,
    NamespaceRecord,
    Owner,
    Snapshot,
)
from aiocosid.stores._dialect import Schema, creation_of
from aiocosid.stores._engine_url import engine_of
from aiocosid.stores._executor import PARAMETER, OutOfRangeError, as_store_error, is_stale
from aiocosid.stores._postgres import POSTGRES
from aiocosid.stores._sql import CommitBuilder, SqlRaw
from aiocosid.stores.sql import _marked, executor_of
from aiocosid.stores.sqlalchemy import SqlAlchemyStore

SECRET = "s3cret"  # noqa: S105 - nobody has it

URLS = {
    f"mysql://me:{SECRET}@db/shop": ("mysql+asyncmy", "mysql"),
    "mariadb://db/shop": ("mysql+asyncmy", "mysql"),
    "mariadb+aiomysql://db/shop": ("mariadb+aiomysql", "mysql"),
    f"postgres://me:{SECRET}@db/shop": ("postgresql+asyncpg", "postgresql"),
    "postgresql://db/shop": ("postgresql+asyncpg", "postgresql"),
    "postgresql+psycopg://db/shop": ("postgresql+psycopg", "postgresql"),
    "sqlite:///ids.db": ("sqlite+aiosqlite", "sqlite"),
}


def test_urls() -> None:
    """Without a driver it is the one of the store's own; labels hold no secret."""
    for url, (driver, dialect) in URLS.items():
        engine = engine_of(url)
        assert engine.url.drivername == driver
        executor = executor_of(url)
        assert executor.dialect_name == dialect
        assert SECRET not in executor.label
        assert SECRET not in repr(SqlAlchemyStore.from_url(url))


@pytest.mark.parametrize(
    "url",
    [
        f"oracle+oracledb://me:{SECRET}@db/shop",
        f"postgresql+psycopg2://me:{SECRET}@db/shop",
        f"mysql+nothing://me:{SECRET}@db/shop",
        f"postgresql://me:{SECRET}@db:port/shop",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite+aiosqlite:///file:ids?mode=memory&uri=true",
        "ids.db",
        "",
        None,
        7,
    ],
)
def test_urls_that_will_not_do(url: Any) -> None:
    """The sentence says what will, and holds no secret."""
    for make in (executor_of, SqlAlchemyStore.from_url):
        with pytest.raises(InvalidArgumentError, match=r"postgresql\+asyncpg://") as refused:
            make(url)
        assert SECRET not in str(refused.value)
        assert refused.value.__cause__ is None


def test_a_password_that_is_not_encoded() -> None:
    """What stands in front of its ``@`` would be the password, and the rest a part of the host."""
    with pytest.raises(
        InvalidArgumentError, match=r"^url 'postgresql:\.\.\.' must have user, password.*'@' is %40"
    ) as refused:
        SqlAlchemyStore.from_url(f"postgresql://me:p@{SECRET}@db/shop")
    assert SECRET not in str(refused.value)


def test_a_url_does_not_replace_what_sessions_are_set_to() -> None:
    """Ours cut no number: what else they are to be set to is for an engine of the user's."""
    for driver in ("mysql", "mysql+asyncmy", "mariadb+aiomysql"):
        url = f"{driver}://me:{SECRET}@db/shop?init_command=SET%20time_zone=0"
        with pytest.raises(
            InvalidArgumentError, match=r"cannot have init_command.*your own engine"
        ) as refused:
            SqlAlchemyStore.from_url(url)
        assert SECRET not in str(refused.value)


def test_engines_that_will_not_do() -> None:
    """A word that is none, and a database that there are no statements for."""
    engine = create_async_engine("sqlite+aiosqlite:///ids.db")
    with pytest.raises(InvalidArgumentError, match="durability"):
        SqlAlchemyStore(engine, durability="maybe")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="durability"):
        SqlAlchemyStore.from_url("sqlite+aiosqlite:///ids.db?durability=maybe")
    with pytest.raises(InvalidArgumentError, match="step"):
        SqlAlchemyStore(engine).segment_distributor(name="order", step=0)


def test_timeouts_of_a_url_count() -> None:
    """What the URL says is not overridden."""
    engine = engine_of("sqlite+aiosqlite:///ids.db?timeout=7")
    _, arguments = engine.dialect.create_connect_args(engine.url)
    assert arguments["timeout"] == 7


def test_notation() -> None:
    """Casts, remainders and dollars come out as they went in, whatever the driver's notation."""
    creation = creation_of(Schema(frozenset()), store="a", disposable=False, after_loss=False)
    assert creation is not None
    statements = [*POSTGRES.add, *POSTGRES.raise_to, POSTGRES.create(creation)]
    statements += [POSTGRES.schema, POSTGRES.read]
    slot = MachineSlot((Owner("a", 1),), MachineRecord("a"))
    changes = Changes("a", space=NamespaceRecord(), slots={0: slot}, own={"a": 0})
    built = CommitBuilder(POSTGRES, Snapshot("dev", "x", raw=SqlRaw()), changes)
    statements.append(POSTGRES.commit(built.commit))
    for statement in statements:
        named = _marked(statement)
        dollars = postgresql.asyncpg.dialect()  # type: ignore[no-untyped-call]
        compiled = text(named).compile(dialect=dollars)
        # Numbered in the order in which they come: by name again they are what they were.
        numbers = {f"${place}": name for place, name in enumerate(compiled.positiontup or (), 1)}
        found = str(compiled)
        for place in sorted(numbers, key=len, reverse=True):
            found = found.replace(place, f"<{numbers[place]}>")
        assert found == PARAMETER.sub(r"<\1>", statement)
    percent = text(_marked("SELECT :v1::bigint % 2")).compile(dialect=mysql.asyncmy.dialect())
    assert str(percent) == "SELECT %s::bigint %% 2"


class FromServer(Exception):  # noqa: N818 - a driver's
    """An error with a SQLSTATE, as asyncpg's and psycopg's are."""

    def __init__(self, sqlstate: str, reason: str = "x") -> None:
        super().__init__(reason)
        self.sqlstate = sqlstate


def wrapped(error: Exception) -> Exception:
    """As SQLAlchemy raises it, with its statement and values."""
    return exc.OperationalError("SELECT 1", {"a": SECRET}, error)


MEANINGS = [
    (wrapped(FromServer("22003")), OutOfRangeError),
    (wrapped(FromServer("25006")), StoreUnavailableError),
    (wrapped(FromServer("28P01")), StoreAuthenticationError),
    (wrapped(FromServer("42601")), StoreError),
    (wrapped(FromServer("0A000", "cached statement plan is invalid")), StoreUnavailableError),
    (wrapped(FromServer("0A000")), StoreError),
    (wrapped(pymysql.OperationalError(1213, "x")), StoreUnavailableError),
    (wrapped(pymysql.OperationalError(1045, "x")), StoreAuthenticationError),
    (wrapped(pymysql.DataError(1264, "x")), OutOfRangeError),
    (wrapped(pymysql.OperationalError(167, "x")), OutOfRangeError),
    (pymysql.OperationalError(2013, "x"), StoreUnavailableError),
    (pymysql.OperationalError(2059, "plugin not configured"), StoreAuthenticationError),
    (pymysql.OperationalError(2061, "plugin requires TLS"), StoreAuthenticationError),
    (pymysql.ProgrammingError(1064, "x"), StoreError),
    (wrapped(Exception('FATAL:  role "me" does not exist')), StoreAuthenticationError),
    (wrapped(Exception('FATAL:  database "x" does not exist')), StoreError),
    (wrapped(Exception("connection refused")), StoreUnavailableError),
    (exc.ProgrammingError("SELECT 1", {}, Exception("x")), StoreError),
    (exc.ProgrammingError("x", {}, Exception("x"), connection_invalidated=True), None),
    (exc.TimeoutError("QueuePool limit"), StoreUnavailableError),
    (exc.InvalidRequestError("x"), StoreError),
    (ssl.SSLCertVerificationError("self-signed"), StoreError),
    (ConnectionRefusedError("x"), StoreUnavailableError),
    (TimeoutError(), StoreUnavailableError),
    (RuntimeError("x"), StoreError),
]


def test_meanings() -> None:
    """Retryable is what passes by itself; what is told is the driver's own sentence."""
    for raised, meaning in MEANINGS:
        error = as_store_error("here", raised)
        assert type(error) is (meaning or StoreUnavailableError), raised
        assert error.reason
        assert SECRET not in str(error)


def test_tables_that_are_missing() -> None:
    """Other systems' as well, in a schema, in another language."""
    no_table = sqlite3.OperationalError("no such table: main.leaf_alloc")
    for raised in (
        wrapped(FromServer("42P01", 'relation "leaf_alloc" does not exist')),
        wrapped(FromServer("42P01", "Relation »leaf_alloc« existiert nicht")),
        wrapped(FromServer("42P01", 'relation "public.leaf_alloc" does not exist')),
        wrapped(pymysql.ProgrammingError(1146, "Table 'shop.leaf_alloc' doesn't exist")),
        no_table,
    ):
        error = as_store_error("here", raised)
        assert isinstance(error, SchemaMissingError), raised
        assert error.table == "leaf_alloc"


def test_sessions_of_no_use() -> None:
    """The server has become a replica, or the file was replaced."""
    replaced = sqlite3.OperationalError("user-defined function raised exception")
    for raised in (wrapped(FromServer("25006")), pymysql.OperationalError(1290, "x"), replaced):
        assert is_stale(raised)
    assert not is_stale(wrapped(FromServer("40001")))
    assert not is_stale(wrapped(pymysql.OperationalError(1213, "x")))


WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1:]))
from aiocosid.stores.sqlalchemy import SqlAlchemyStore
SqlAlchemyStore.from_url("sqlite:///ids.db")
for url in ("postgresql://db/shop", "mysql://db/shop", "postgresql+psycopg://db/shop"):
    try:
        SqlAlchemyStore.from_url(url)
    except Exception as exc:
        print(exc)
"""


def without(*packages: str) -> subprocess.CompletedProcess[str]:
    """Run it where they are not installed."""
    argv = [sys.executable, "-c", WITHOUT, *packages]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)


def test_without_a_driver() -> None:
    """What to install is said at once; and no other driver is needed."""
    done = without("asyncpg", "asyncmy", "aiomysql", "psycopg")
    install = "is not installed; install it with: pip install"
    assert done.stdout.splitlines() == [
        f"asyncpg {install} 'aiocosid[postgres]'",
        f"asyncmy {install} 'aiocosid[mysql]'",
        (
            "aiocosid cannot run here: psycopg is not installed, which the URL names; install it: "
            "pip install psycopg"
        ),
    ]


def test_without_sqlalchemy() -> None:
    """The module is imported by name, and says at once what to install."""
    assert "pip install 'aiocosid[sqlalchemy]'" in without("sqlalchemy").stderr
