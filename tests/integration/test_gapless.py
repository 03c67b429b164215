"""Gapless numbers in the caller's transaction, on each driver of SQLAlchemy's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, String, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as TimeoutError_
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.pool import AsyncAdaptedQueuePool

from aiocosid.errors import (
    InvalidArgumentError,
    SchemaMissingError,
    SeriesEndedError,
    SeriesNotOpenError,
    StoreUnavailableError,
    TransactionConflictError,
    UnsuitableTransactionError,
)
from aiocosid.integrations.sqlalchemy import begin_immediate, gapless, gapless_batch
from aiocosid.stores.series_admin import audit_series, close_series, list_series, open_series
from aiocosid.stores.sqlalchemy import SqlAlchemyStore

from ._engines import EACH_SERVER, SERVERS, url_of

pytestmark = [pytest.mark.asyncio, pytest.mark.integration]

BERLIN = "Europe/Berlin"


class Base(DeclarativeBase):
    """The application's tables."""


class Invoice(Base):
    """An invoice, numbered twice: as a number and as a text."""

    __tablename__ = "invoice"

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(String(20), default="")
    number: Mapped[int] = mapped_column(BigInteger)
    text: Mapped[str] = mapped_column(String(40))


def own_database(request: pytest.FixtureRequest, driver: str) -> str:
    """A database of the test's own, by a driver."""
    if driver not in SERVERS:
        return url_of(request, driver)
    plain: str = request.getfixturevalue(f"{SERVERS[driver]}_database")
    return plain.replace(":", f"+{driver}:", 1)


@pytest.fixture(params=["aiosqlite", *EACH_SERVER])
def url(request: pytest.FixtureRequest) -> str:
    """A database of the test's own, by each driver."""
    return own_database(request, request.param)


@asynccontextmanager
async def application(url: str, **options: Any) -> AsyncGenerator[AsyncEngine]:
    """An application's engine, on a database with its tables and those of series."""
    engine = create_async_engine(url, **options)
    if engine.dialect.name == "sqlite":
        begin_immediate(engine)
    await SqlAlchemyStore(engine, durability="ignore").create_schema()
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    try:
        yield engine
    finally:
        await asyncio.wait_for(engine.dispose(), 10)


def store_on(engine: AsyncEngine) -> SqlAlchemyStore:
    """The store that the series are opened by."""
    return SqlAlchemyStore(engine, durability="ignore")


async def invoice(session: AsyncSession, **options: Any) -> Invoice:
    """Add an invoice with the next number of its series."""
    number = await gapless(session, "invoice", **options)
    made = Invoice(number=number.number, text=number.text, tenant=str(options.get("tenant") or ""))
    session.add(made)
    return made


async def test_takes_numbers_that_a_rollback_gives_back(url: str) -> None:
    """A rollback, of a savepoint too, gives its numbers back; several at once are consecutive."""
    async with application(url) as engine:
        await open_series(store_on(engine), "invoice")
        async with AsyncSession(engine) as session, session.begin():
            assert (await gapless(session, "invoice")).number == 1
            savepoint = await session.begin_nested()
            assert [each.number for each in await gapless_batch(session, "invoice", 3)] == [2, 3, 4]
            await savepoint.rollback()
            assert (await gapless(session, "invoice", prefix="INV-")).text == "INV-000002"
        async with AsyncSession(engine) as session:
            await gapless_batch(session, "invoice", 10_000)
            await session.rollback()
        async with engine.begin() as connection:
            assert await gapless(connection, "invoice", digits=1) == (3, "", "3")


async def test_counts_each_tenant_and_each_period_by_itself(url: str) -> None:
    """A new period begins at 1, an old one goes on; a tenant that is not open gets no number."""
    at = [datetime(2026, 11, 30, 22, 59, tzinfo=UTC), datetime(2026, 11, 30, 23, 0, tzinfo=UTC)]
    async with application(url) as engine:
        for tenant in ("a", "b"):
            await open_series(
                store_on(engine), "invoice", tenant=tenant, group_by="month", zone=BERLIN
            )
        async with AsyncSession(engine) as session, session.begin():
            taken = [
                (
                    await gapless(
                        session,
                        "invoice",
                        tenant=tenant,
                        group_by="month",
                        zone=BERLIN,
                        at=at[late],
                    )
                ).text
                for tenant, late in [("a", 0), ("b", 1), ("a", 1), ("a", 0), ("a", 1)]
            ]
            assert taken == [
                "202611-000001",
                "202612-000001",
                "202612-000001",
                "202611-000002",
                "202612-000002",
            ]
            with pytest.raises(SeriesNotOpenError, match="--tenant c"):
                await gapless(session, "invoice", tenant="c")
            with pytest.raises(InvalidArgumentError, match="month"):
                await gapless(session, "invoice", tenant="a")
        found = {
            (each.tenant, each.period, each.last_number)
            for each in await list_series(store_on(engine))
        }
        assert found == {("a", "202612", 2), ("b", "202612", 1)}


async def test_many_transactions_leave_neither_gaps_nor_repeats(url: str) -> None:
    """Transactions beside each other, of which some are rolled back, fill the series."""
    async with application(url) as engine:
        await open_series(store_on(engine), "invoice")

        async def work(number: int) -> None:
            for each in range(6):
                async with AsyncSession(engine) as session:
                    await invoice(session)
                    await (session.rollback() if (number + each) % 3 == 0 else session.commit())

        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(work(number))
        async with AsyncSession(engine) as session:
            numbers = (await session.scalars(select(Invoice.number).order_by(Invoice.number))).all()
        assert list(numbers) == list(range(1, 25))
        audit = await audit_series(store_on(engine), "invoice", column="invoice.number")
        assert (audit.is_sound, audit.count, audit.last) == (True, 24, 24)


async def test_follows_approved_ranges_to_their_end(url: str) -> None:
    """Numbers come from the ranges in order; where one ends, a batch is refused as a whole."""
    async with application(url) as engine:
        await open_series(store_on(engine), "invoice", ranges="11-13,21-22")
        async with AsyncSession(engine) as session, session.begin():
            assert [(await gapless(session, "invoice")).number for _ in range(2)] == [11, 12]
            with pytest.raises(SeriesEndedError, match="has 1 of 2 numbers left; take 1 first"):
                await gapless_batch(session, "invoice", 2)
            assert (await gapless(session, "invoice")).number == 13
            assert [each.number for each in await gapless_batch(session, "invoice", 2)] == [21, 22]
            with pytest.raises(SeriesEndedError, match="--range"):
                await gapless(session, "invoice")
        await open_series(store_on(engine), "invoice", ranges="31-32")
        async with AsyncSession(engine) as session, session.begin():
            assert (await gapless(session, "invoice")).number == 31


async def test_takes_no_number_where_no_rollback_gives_it_back(url: str) -> None:
    """Autocommit, and SQLite's driver left to itself, are errors."""
    async with application(url) as engine:
        await open_series(store_on(engine), "invoice")
        plain = create_async_engine(url)
        if plain.dialect.name == "sqlite":
            match = "begin_immediate"
        else:
            plain, match = plain.execution_options(isolation_level="AUTOCOMMIT"), "autocommit"
        async with AsyncSession(plain) as session:
            with pytest.raises(UnsuitableTransactionError, match=match):
                await gapless(session, "invoice")
        await plain.dispose()
        (series,) = await list_series(store_on(engine))
        assert series.last_number == 0


async def test_a_closed_or_emptied_series_gives_no_number(url: str) -> None:
    """No call opens a series: neither after its end, nor after its row was lost."""
    async with application(url) as engine:
        await open_series(store_on(engine), "invoice", after=41)
        await open_series(store_on(engine), "receipt")
        await close_series(store_on(engine), "receipt")
        async with AsyncSession(engine) as session, session.begin():
            assert (await gapless(session, "invoice")).number == 42
            with pytest.raises(SeriesNotOpenError, match="closed"):
                await gapless(session, "receipt")
        async with engine.begin() as connection:
            await connection.execute(text("DELETE FROM aiocosid_series"))
        async with AsyncSession(engine) as session:
            with pytest.raises(SeriesNotOpenError, match="--after"):
                await gapless(session, "invoice")


async def test_audit_names_holes_and_repeats(url: str) -> None:
    """What is missing, there twice, there though it was never taken, or no number of the series."""
    async with application(url) as engine:
        await open_series(store_on(engine), "invoice", tenant="a", group_by="year", zone="UTC")
        async with AsyncSession(engine) as session, session.begin():
            for number in await gapless_batch(
                session, "invoice", 9, tenant="a", group_by="year", zone="UTC", prefix="R"
            ):
                if number.number not in {4, 5, 9}:
                    session.add(Invoice(number=0, text=number.text, tenant="a"))
            session.add(Invoice(number=0, text=number.text[:-1] + "1", tenant="a"))
            for other in (f"{number.text[:-1]}12", "R1999-5", "draft"):
                session.add(Invoice(number=0, text=other, tenant="a"))
            session.add(Invoice(number=0, text="other", tenant="b"))
        audit = await audit_series(
            store_on(engine),
            "invoice",
            tenant="a",
            column="invoice.text",
            prefix="R",
            tenant_column="tenant",
        )
        year = number.period
        assert audit.missing == [(year, (4, 5)), (year, (9, 9))]
        assert audit.untaken == [("1999", (5, 5)), (year, (12, 12))]
        assert (audit.repeated, audit.foreign, audit.count) == ([(year, 1)], 1, 9)


@pytest.mark.parametrize(
    ("opening", "numbers", "untaken"),
    [
        ({}, [1, 2, 4], [(4, 4)]),
        ({"after": 8}, [7, 8, 9, 10, 11], [(11, 11)]),
        ({"ranges": "1-2,5-6"}, [1, 2, 4, 5], [(4, 5)]),
    ],
)
async def test_a_number_that_was_never_taken_is_not_sound(
    tmp_path: Path, opening: dict[str, Any], numbers: list[int], untaken: list[tuple[int, int]]
) -> None:
    """As after a backup: the series would hand it out again."""
    async with application(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}") as engine:
        await open_series(store_on(engine), "invoice", **opening)
        async with AsyncSession(engine) as session, session.begin():
            await gapless_batch(session, "invoice", 2)
            session.add_all(Invoice(number=each, text="") for each in numbers)
        audit = await audit_series(store_on(engine), "invoice", column="invoice.number")
        assert (audit.untaken, audit.is_sound) == ([("", each) for each in untaken], False)
        assert (audit.missing, audit.repeated) == ([], [])


async def test_audit_keeps_tenants_apart(url: str) -> None:
    """Also where the collation of the application's column does not."""
    collation = {"sqlite": "NOCASE", "mysql": "utf8mb4_general_ci"}
    async with application(url) as engine, AsyncSession(engine) as session:
        name = collation.get(engine.dialect.name)
        await session.execute(
            text(
                "CREATE TABLE paid (number BIGINT, tenant CHAR(9)"
                f"{f' COLLATE {name}' if name else ''})"
            )
        )
        await session.execute(text("INSERT INTO paid VALUES (1, 'cafe'), (2, 'Cafe')"))
        await session.commit()
        for tenant in ("cafe", "Cafe"):
            await open_series(store_on(engine), "invoice", tenant=tenant)
            await gapless_batch(session, "invoice", 2, tenant=tenant)
            await session.commit()
        found = [
            await audit_series(
                store_on(engine),
                "invoice",
                tenant=tenant,
                column="paid.number",
                tenant_column="tenant",
            )
            for tenant in ("cafe", "Cafe")
        ]
        assert [each.missing for each in found] == [[("", (2, 2))], [("", (1, 1))]]


async def test_audit_sees_a_repeat_across_two_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the pages end, and with a value that fills more than one."""
    monkeypatch.setattr("aiocosid.stores.columns._PAGE", 3)
    async with application(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}") as engine:
        await open_series(store_on(engine), "invoice", after=9)
        numbers = [1, 2, 3, 3, 4, 5, 6, 7, 7, 7, 7, 7, 8, 9]
        async with AsyncSession(engine) as session, session.begin():
            session.add_all(Invoice(number=each, text="") for each in numbers)
        audit = await audit_series(store_on(engine), "invoice", column="invoice.number")
        assert {number for _, number in audit.repeated} == {3, 7}
        assert audit.last == 9


async def test_missing_table_is_an_error_of_ours(tmp_path: Path) -> None:
    """The driver's error is the cause."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}")
    begin_immediate(engine)
    async with AsyncSession(engine) as session:
        with pytest.raises(SchemaMissingError, match="aiocosid_series") as caught:
            await gapless(session, "invoice")
    assert isinstance(caught.value.__cause__, DBAPIError)
    await engine.dispose()


async def test_periods_continue_after_a_loss(url: str) -> None:
    """Each after its highest number in the application's table, of this tenant, by any prefix."""
    month: Any = {"group_by": "month", "zone": BERLIN}
    times = [datetime(2026, each, 15, tzinfo=UTC) for each in (9, 10, 10)]
    column: Any = {"after_column": "invoice.text", "tenant_column": "tenant"}
    async with application(url) as engine, AsyncSession(engine) as session:
        await open_series(store_on(engine), "invoice", tenant="a", **month)
        for at in times:
            taken = await gapless(session, "invoice", tenant="a", at=at, prefix="R2-", **month)
            session.add(Invoice(number=0, text=taken.text, tenant="a"))
        session.add(Invoice(number=0, text="R2202608-000005", tenant="a"))
        session.add(Invoice(number=0, text="202610-000077", tenant="b"))
        session.add(Invoice(number=0, text="draft-7", tenant="a"))
        await session.execute(text("DELETE FROM aiocosid_series"))
        await session.commit()
        with pytest.raises(SeriesNotOpenError, match="--after-column"):
            await gapless(session, "invoice", tenant="a", **month)
        await session.rollback()
        found = await open_series(store_on(engine), "invoice", tenant="a", **month, **column)
        assert (found.period, found.last_number) == ("202610", 2)
        due = [
            (await gapless(session, "invoice", tenant="a", at=at, prefix="R2-", **month)).text
            for at in (*times, *(datetime(2026, each, 15, tzinfo=UTC) for each in (11, 8)))
        ]
        await session.commit()
        assert due == [
            "R2-202609-000002",
            "R2-202610-000003",
            "R2-202610-000004",
            "R2-202611-000001",
            "R2-202608-000006",
        ]
        # One that is open, as after a backup, is raised, and never lowered.
        session.add(Invoice(number=0, text="R2-202608-000009", tenant="a"))
        await session.commit()
        await open_series(store_on(engine), "invoice", tenant="a", **month, **column)
        for at, last in ((datetime(2026, 8, 15, tzinfo=UTC), 10), (times[-1], 5)):
            assert (await gapless(session, "invoice", tenant="a", at=at, **month)).number == last
        await session.commit()
        with pytest.raises(InvalidArgumentError, match="has no text that ends in a period"):
            await open_series(store_on(engine), "x", after_column="invoice.number", **month)
        with pytest.raises(InvalidArgumentError, match="requires group_by"):
            await open_series(store_on(engine), "x", after_column="invoice.text")


async def test_a_series_is_given_its_grouping_while_no_number_is_taken(url: str) -> None:
    """The command of the error has it; without it, the series could not be used any more."""
    month: Any = {"group_by": "month", "zone": BERLIN}
    async with application(url) as engine, AsyncSession(engine) as session:
        command = "open invoice --tenant a --group-by month --zone Europe/Berlin --store URL"
        with pytest.raises(SeriesNotOpenError, match=command):
            await gapless(session, "invoice", tenant="a", **month)
        await session.rollback()
        await open_series(store_on(engine), "invoice", tenant="a")
        with pytest.raises(InvalidArgumentError, match="must be None, with which"):
            await gapless(session, "invoice", tenant="a", **month)
        await session.rollback()
        await open_series(store_on(engine), "invoice", tenant="a", **month)
        assert (await gapless(session, "invoice", tenant="a", **month)).number == 1
        await session.commit()
        await open_series(store_on(engine), "receipt")
        assert (await gapless(session, "receipt")).number == 1
        await session.commit()
        with pytest.raises(InvalidArgumentError, match="open at 1 with group_by=None"):
            await open_series(store_on(engine), "receipt", **month)


async def test_an_option_that_does_not_exist(tmp_path: Path) -> None:
    """Ignored, it would take the number of another tenant's series."""
    async with application(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}") as engine:
        await open_series(store_on(engine), "invoice")
        wrong: Any = {"tennant": "acme"}
        async with AsyncSession(engine) as session:
            with pytest.raises(TypeError, match=r"'tennant'; did you mean 'tenant'\?"):
                await gapless(session, "invoice", **wrong)


async def test_no_connection_in_time_is_an_error_of_ours(tmp_path: Path) -> None:
    """The pool's own error is the cause."""
    url = f"sqlite+aiosqlite:///{tmp_path / 'app.db'}"
    engine = create_async_engine(
        url, poolclass=AsyncAdaptedQueuePool, pool_size=1, max_overflow=0, pool_timeout=0.01
    )
    begin_immediate(engine)
    async with engine.connect(), AsyncSession(engine) as session:
        with pytest.raises(StoreUnavailableError, match="QueuePool limit") as caught:
            await gapless(session, "invoice")
    assert isinstance(caught.value.__cause__, TimeoutError_)
    await engine.dispose()


async def test_a_drivers_own_time_limit(request: pytest.FixtureRequest) -> None:
    """The error of asyncpg passes through SQLAlchemy as it is."""
    url = own_database(request, "asyncpg")
    async with application(url, connect_args={"command_timeout": 0.5}) as engine:
        await open_series(store_on(engine), "invoice")
        async with AsyncSession(engine) as first, AsyncSession(engine) as second:
            await gapless(first, "invoice")
            with pytest.raises(StoreUnavailableError) as caught:
                await gapless(second, "invoice")
            assert isinstance(caught.value.__cause__, TimeoutError)
            await second.rollback()
            await first.rollback()
            assert (await gapless(second, "invoice")).number == 1


@pytest.mark.parametrize("driver", EACH_SERVER)
async def test_a_deadlock_is_a_conflict_to_run_again(
    driver: Any, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """Two series in opposite order: one transaction is told to run again, the other one commits."""
    async with application(
        own_database(request, driver), isolation_level="REPEATABLE READ"
    ) as engine:
        for name in ("a", "b"):
            await open_series(store_on(engine), name)
        one, two = AsyncSession(engine), AsyncSession(engine)
        await gapless(one, "a")
        await gapless(two, "b")
        results = await asyncio.gather(gapless(one, "b"), gapless(two, "a"), return_exceptions=True)
        await one.close()
        await two.close()
        assert sum(isinstance(each, TransactionConflictError) for each in results) == 1
        assert "REPEATABLE READ" in caplog.text.replace("-", " ")
