"""SQL on a SQLAlchemy engine: what a statement has come to, on each driver."""

# ruff: noqa: S608 - a table of the test's own

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import StaticPool

from aiocosid.errors import InvalidArgumentError, SchemaMissingError, StoreError
from aiocosid.stores._executor import OutOfRangeError
from aiocosid.stores.sql import SqlExecutor, executor_of, executor_on
from tests.integration._engines import DRIVERS, url_of

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

TABLE = {
    "sqlite": "create table {t} (id integer primary key, v bigint not null)",
    "postgresql": "create table {t} (id bigint primary key, v bigint not null)",
    "mysql": "create table {t} (id bigint auto_increment primary key, v bigint not null)",
}


@pytest.fixture(params=DRIVERS)
def url(request: pytest.FixtureRequest) -> str:
    """A database, by each driver."""
    return url_of(request, request.param)


@pytest.fixture
def t(namespace: str) -> str:
    """The name of a table."""
    return namespace


@pytest_asyncio.fixture
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    """The user's engine."""
    engine = create_async_engine(url)
    yield engine
    await engine.dispose()


@pytest_asyncio.fixture(params=["own", "user's"])
async def sql(
    request: pytest.FixtureRequest, url: str, engine: AsyncEngine, t: str
) -> AsyncIterator[SqlExecutor]:
    """An executor, and the table."""
    is_own = request.param == "own"
    executor: SqlExecutor = executor_of(url) if is_own else executor_on(engine)
    await executor.run(TABLE[executor.dialect_name].format(t=t))
    yield executor
    await executor.run(f"drop table {t}")
    await executor.aclose()


async def test_outcomes(sql: SqlExecutor, t: str) -> None:
    """Rows, how many matched, and the number that the database made."""
    made = await sql.run(f"insert into {t} (id, v) values (7, :v)", v=2**40)
    assert (list(made.rows), made.matched) == ([], 1)
    assert made.inserted_id == {"mysql": 7, "sqlite": 7, "postgresql": None}[sql.dialect_name]
    raised = await sql.run(f"update {t} set v = :v where id = :id and v < :v", id=7, v=2**40 + 1)
    assert (list(raised.rows), raised.matched, raised.inserted_id) == ([], 1, None)
    assert (await sql.run(f"update {t} set v = :v where id = :id", id=7, v=2**40 + 1)).matched == 1
    assert (await sql.run(f"update {t} set v = v + 1 where id = :id", id=8)).matched == 0
    found = await sql.run(f"select v, 'a%b', '\\:x' from {t} where id = :id", id=7)
    assert [tuple(row) for row in found.rows] == [(2**40 + 1, "a%b", ":x")]
    assert not (await sql.run(f"select v from {t} where id = :id", id=9)).rows
    assert type(found.rows[0][0]) is int


async def test_refusals(sql: SqlExecutor, t: str) -> None:
    """A table that is missing is named; a number that does not fit has its own error."""
    with pytest.raises(SchemaMissingError) as missing:
        await sql.run("select v from elsewhere where id = :id", id=1)
    assert missing.value.table == "elsewhere"
    with pytest.raises(StoreError, match="syntax"):
        await sql.run("selekt 1")
    if sql.dialect_name != "sqlite":
        await sql.run(f"insert into {t} (id, v) values (1, :v)", v=2**63 - 1)
        with pytest.raises(OutOfRangeError):
            await sql.run(f"update {t} set v = v + 1 where id = 1")
    assert (await sql.run(f"select count(*) from {t}")).rows[0][0] == (sql.dialect_name != "sqlite")


async def test_outside_of_the_transaction(engine: AsyncEngine, t: str) -> None:
    """What was granted stays so, whatever becomes of the user's transaction."""
    sql = executor_on(engine)
    await sql.run(TABLE[sql.dialect_name].format(t=t))
    await sql.run(f"insert into {t} (id, v) values (1, 1)")
    async with engine.connect() as connection:
        await connection.exec_driver_sql(f"select v from {t}")
        await sql.run(f"update {t} set v = 2 where id = 1")
        await connection.rollback()
    assert (await sql.run(f"select v from {t}")).rows[0][0] == 2
    async with engine.connect() as connection:  # as it was before, for its owner
        await connection.exec_driver_sql(f"update {t} set v = 3")
        await connection.rollback()
    assert (await sql.run(f"select v from {t}")).rows[0][0] == 2
    await sql.run(f"drop table {t}")


async def test_engines_that_will_not_do(url: str) -> None:
    """No engine, one on another database, and one connection for all."""
    with pytest.raises(InvalidArgumentError, match="AsyncEngine"):
        executor_on(url)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="AsyncEngine"):
        executor_on(create_async_engine(url).sync_engine)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="all share one"):
        executor_on(create_async_engine(url, poolclass=StaticPool))
