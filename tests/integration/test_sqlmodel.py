"""Ids in SQLModel, as far as it comes along with SQLAlchemy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import pytest_asyncio
from sqlalchemy import BigInteger, insert
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlmodel import Field, SQLModel, select
from sqlmodel.ext.asyncio.session import AsyncSession

import aiocosid
from aiocosid.integrations.sqlalchemy import assign_ids, assign_ids_before_flush, cosid_default
from aiocosid.provider.models import GeneratedId, ensure_ids
from aiocosid.stores.memory import MemoryStore

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


# Names of its own: SQLModel keeps the tables of a process in one MetaData, those of the pages too.


class Client(SQLModel, table=True):
    """A default for the column."""

    id: int | None = Field(
        default=None,
        primary_key=True,
        sa_type=BigInteger,
        sa_column_kwargs={"default": cosid_default("customer"), "autoincrement": False},
    )
    name: str = ""


class Bill(SQLModel, table=True):
    """A mark, and nothing else."""

    id: Annotated[int | None, GeneratedId("customer")] = Field(
        default=None, primary_key=True, sa_type=BigInteger
    )


class Draft(SQLModel):
    """No table."""

    id: Annotated[int, GeneratedId("customer")] = 0


@pytest_asyncio.fixture
async def sessions(tmp_path: Path) -> AsyncIterator[async_sessionmaker[Any]]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db")
    async with engine.begin() as connection:
        await connection.run_sync(SQLModel.metadata.create_all)
    async with aiocosid.connect(MemoryStore()) as ids:
        await ids.segment_chain("customer")
        with aiocosid.use_provider(ids):
            yield async_sessionmaker(engine, class_=AsyncSession, expire_on_commit=False)
    await engine.dispose()


async def test_a_column_default_works_in_its_own_session(
    sessions: async_sessionmaker[Any],
) -> None:
    async with sessions() as session:
        session.add_all(some := [Client(name="a"), Client(name="b")])
        await session.commit()
        assert [each.id for each in some] == [1, 2]
        await session.exec(insert(Client), params=[{"name": "c"}, {"name": "d"}])
        assert (await session.exec(select(Client.id).order_by("id"))).all() == [1, 2, 3, 4]


async def test_ids_before_the_flush(sessions: async_sessionmaker[Any]) -> None:
    """By `ensure_ids`, for a session's new objects, and before every flush."""
    await ensure_ids(some := list[Any]((Client(), Bill(), Draft())))
    assert [each.id for each in some] == [1, 2, 3]
    assign_ids_before_flush(sessions)
    async with sessions() as session:
        session.add_all([customer := Client(), *some[:2]])
        assert await assign_ids(session) == 1
        assert customer.id == 4
        session.add(invoice := Bill())
        await session.commit()
        assert invoice.id == 5
