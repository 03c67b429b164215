"""An attack on a gapless series, or bad luck, ends in an error: no hole, no repeat."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError, PendingRollbackError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from aiocosid.errors import (
    SeriesEndedError,
    SeriesNotOpenError,
    StoreError,
    StoreUnavailableError,
    TransactionConflictError,
    UnsuitableTransactionError,
)
from aiocosid.integrations.sqlalchemy import begin_immediate, gapless, gapless_batch, gapless_sync
from aiocosid.stores.series_admin import Audit, audit_series, close_series, open_series
from tests.servers import free_port

from ._engines import EACH_SERVER
from .test_gapless import BERLIN, Invoice, application, invoice, own_database, store_on

pytestmark = [pytest.mark.asyncio, pytest.mark.integration]

MONTH: Any = {"group_by": "month", "zone": BERLIN}
NAMES = ('it\'s "q" `b`; --', "\U0001f9fe", "e\u0301", "a:b %s %(name)s {name} $1 ?", "\\", "Ab")


@pytest.fixture(params=["aiosqlite", *EACH_SERVER])
def url(request: pytest.FixtureRequest) -> str:
    """A database of the test's own, by each driver."""
    return own_database(request, request.param)


@pytest.fixture(params=EACH_SERVER)
def server_url(request: pytest.FixtureRequest) -> str:
    """The same, on a server."""
    return own_database(request, request.param)


async def audited(engine: AsyncEngine, column: str = "text") -> Audit:
    """Compare the series with the invoices; there is neither a hole nor a repeat."""
    audit = await audit_series(store_on(engine), "invoice", column=f"invoice.{column}")
    assert audit.is_sound, audit
    return audit


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
async def test_a_period_begins_once(server_url: str, level: str) -> None:
    """Twenty transactions want its first number; in other isolations some run again."""
    tries = 0
    async with application(server_url, isolation_level=level, pool_size=20) as engine:
        await open_series(store_on(engine), "invoice", **MONTH)

        async def work() -> None:
            nonlocal tries
            while True:
                tries += 1
                async with AsyncSession(engine) as session:
                    await session.execute(text("SELECT count(*) FROM invoice"))
                    try:
                        await invoice(session, **MONTH)
                        await session.commit()
                    except TransactionConflictError:
                        continue
                    return

        await asyncio.gather(*(work() for _ in range(20)))
        assert (await audited(engine)).last == 20
        async with engine.connect() as connection:
            assert await connection.scalar(text("SELECT count(*) FROM aiocosid_series")) == 2
    assert tries == 20 or level != "READ COMMITTED"


async def test_close_waits_for_a_period_that_begins(server_url: str) -> None:
    """A row that is created while `close_series` waits is closed as well."""
    async with application(server_url, isolation_level="READ COMMITTED") as engine:
        await open_series(store_on(engine), "invoice", **MONTH)
        async with AsyncSession(engine) as session:
            await invoice(session, **MONTH)
            closing = asyncio.create_task(close_series(store_on(engine), "invoice"))
            await asyncio.sleep(0.3)
            assert not closing.done()
            await session.commit()
            await closing
        async with AsyncSession(engine) as session:
            with pytest.raises(SeriesNotOpenError, match="closed"):
                await gapless(session, "invoice", **MONTH)


async def test_a_period_that_is_closed_alone_gives_no_number(url: str) -> None:
    """The call ends, too."""
    async with application(url) as engine:
        await open_series(store_on(engine), "invoice", **MONTH)
        async with AsyncSession(engine) as session, session.begin():
            await invoice(session, **MONTH)
            await session.execute(text("UPDATE aiocosid_series SET is_open = 0 WHERE period <> ''"))
            with pytest.raises(SeriesNotOpenError, match="closed"):
                async with asyncio.timeout(5):
                    await gapless(session, "invoice", **MONTH)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE aiocosid_series SET grouped_by = 'x' WHERE period <> ''",
        "UPDATE aiocosid_series SET is_open = 2 WHERE period <> ''",
    ],
)
async def test_rows_that_contradict_each_other_give_no_number(url: str, change: str) -> None:
    """A period's row that no statement of ours writes: the call ends, with an error."""
    async with application(url) as engine:
        await open_series(store_on(engine), "invoice", **MONTH)
        async with AsyncSession(engine) as session, session.begin():
            await invoice(session, **MONTH)
            await session.execute(text(change))
            with pytest.raises(StoreError, match="rows of the series"):
                async with asyncio.timeout(5):
                    await gapless(session, "invoice", **MONTH)


async def test_names_are_values_and_compared_exactly(url: str) -> None:
    """Whatever is in them; a space at the end makes another name, on MySQL too."""
    async with application(url) as engine:
        for name in NAMES:
            await open_series(store_on(engine), name, tenant=name)
            async with AsyncSession(engine) as session:
                assert (await gapless(session, name, tenant=name)).number == 1
                for other in (f"{name} ", f"{name}\u0301", name.swapcase() + "x"):
                    for which, tenant in ((other, name), (name, other)):
                        with pytest.raises(SeriesNotOpenError):
                            await gapless(session, which, tenant=tenant)


async def test_ranges_end_among_batches(url: str) -> None:
    """Batches that no longer fit become smaller, and the ranges are used up to the last number."""
    async with application(url) as engine:
        await open_series(store_on(engine), "invoice", ranges="1-37,101-137")

        async def work() -> None:
            count = 4
            while count:
                async with AsyncSession(engine) as session:
                    try:
                        for each in await gapless_batch(session, "invoice", count):
                            session.add(Invoice(number=each.number, text=each.text))
                        await session.commit()
                        count = 4
                    except SeriesEndedError:
                        count -= 1

        async with asyncio.timeout(30):
            await asyncio.gather(*(work() for _ in range(5)))
        audit = await audited(engine, "number")
        assert (audit.count, audit.last) == (74, 137)


async def test_a_failed_flush_gives_the_number_back(url: str) -> None:
    """The session takes no further number before its rollback."""
    async with application(url) as engine:
        await open_series(store_on(engine), "invoice")
        async with AsyncSession(engine) as session:
            await invoice(session)
            session.add(Invoice(number=None, text="wrong"))
            with pytest.raises(IntegrityError):
                await session.flush()
            with pytest.raises(UnsuitableTransactionError, match="after a rollback") as refused:
                await gapless(session, "invoice")
            assert isinstance(refused.value.__cause__, PendingRollbackError)
            await session.rollback()
            await invoice(session)
            await session.commit()
        assert (await audited(engine)).last == 1


async def test_a_cancelled_call_commits_nothing(url: str) -> None:
    """Neither what its transaction did before, nor the number."""
    options = {"connect_args": {"timeout": 1}} if url.startswith("sqlite") else {}
    async with application(url, **options) as engine:
        await open_series(store_on(engine), "invoice")
        async with AsyncSession(engine) as first, AsyncSession(engine) as second:
            await invoice(first)
            if not url.startswith("sqlite"):  # where two cannot write
                second.add(Invoice(number=7, text="draft"))
                await second.flush()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await invoice(second)
            await first.commit()
            if not url.startswith("sqlite"):
                with pytest.raises(PendingRollbackError):
                    await second.commit()
        async with AsyncSession(engine) as session, session.begin():
            await invoice(session)
        audit = await audited(engine)
        assert (audit.last, audit.foreign) == (2, 0)


@pytest.mark.parametrize("driver", ["asyncmy", pytest.param("aiomysql", marks=pytest.mark.stress)])
async def test_who_ignores_a_deadlock_commits_nothing(
    request: pytest.FixtureRequest, driver: str
) -> None:
    """MySQL goes on in another transaction, in which the earlier number would come twice."""
    url = own_database(request, driver)
    async with application(url, isolation_level="READ COMMITTED") as engine:
        await open_series(store_on(engine), "invoice")
        await open_series(store_on(engine), "other")
        async with AsyncSession(engine, autoflush=False) as one, AsyncSession(engine) as two:
            await invoice(one)
            for _ in range(20):  # the victim is whoever has written less
                await gapless(two, "other")
            waiting = asyncio.create_task(invoice(two))
            await asyncio.sleep(0.2)
            with pytest.raises(TransactionConflictError, match="Deadlock"):
                await gapless(one, "other")
            with pytest.raises(PendingRollbackError):
                await one.commit()
            await waiting
            await two.commit()
        assert (await audited(engine)).last == 1


async def test_no_place_to_take_a_number_from(tmp_path: Path) -> None:
    """A file that another one writes is a conflict; a server that is not there is an outage."""
    url = f"sqlite+aiosqlite:///{tmp_path / 'app.db'}"
    (tmp_path / "app.db").touch()
    async with application(url, connect_args={"timeout": 0.1}) as engine:
        await open_series(store_on(engine), "invoice")
        async with AsyncSession(engine) as first, AsyncSession(engine) as second:
            await gapless(first, "invoice")
            with pytest.raises(TransactionConflictError, match="locked"):
                await gapless(second, "invoice")
    nowhere = create_async_engine(f"postgresql+asyncpg://nobody@127.0.0.1:{free_port()}/none")
    async with AsyncSession(nowhere) as session:
        with pytest.raises(StoreUnavailableError):
            await gapless(session, "invoice")


@pytest.mark.parametrize(
    "options",
    [
        {"isolation_level": "AUTOCOMMIT"},
        *(
            pytest.param(
                {"connect_args": {"autocommit": each}},
                marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="from Python 3.12 on"),
            )
            for each in (False, True)
        ),
    ],
)
async def test_begin_immediate_overrules_the_driver(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """However the driver would begin and end transactions, a rollback takes the number back."""
    (tmp_path / "app.db").touch()
    async with application(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}", **options) as engine:
        await open_series(store_on(engine), "invoice")
        async with AsyncSession(engine) as session:
            await invoice(session)
            await session.rollback()
            await invoice(session)
            await session.commit()
        blocking = create_engine(f"sqlite:///{tmp_path / 'app.db'}", **options)
        begin_immediate(blocking)
        with Session(blocking) as session:
            gapless_sync(session, "invoice")
            session.rollback()
            assert gapless_sync(session, "invoice").number == 2
        blocking.dispose()
        assert (await audited(engine)).last == 1
