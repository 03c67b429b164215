"""Leaf's table and its double buffer under the contracts: on MariaDB, in SQLite, in memory.

A tag has to be there: each is inserted by hand, as Leaf's own are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aiocosid.abc import MAX_ID, IdSegmentDistributor
from aiocosid.compat.leaf import LeafStore
from aiocosid.errors import IdOverflowError
from aiocosid.segment import LeafSegmentId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import (
    DistributorFactory,
    IdGeneratorContract,
    IdSegmentDistributorContract,
    MakeGenerator,
    WrappedDistributor,
)
from tests.servers import MariadbServer


class LeafTable:
    """A database of one test's own, and what is done in it behind our back."""

    url: str

    def execute(self, sql: str, values: tuple[object, ...]) -> None:
        raise NotImplementedError


class SqliteTable(LeafTable):
    def __init__(self, folder: Path) -> None:
        self.file = folder / "leaf.db"
        self.url = f"leaf+sqlite:///{self.file}"

    def execute(self, sql: str, values: tuple[object, ...]) -> None:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute(sql, values)


class MariadbTable(LeafTable):
    def __init__(self, server: MariadbServer, database: str) -> None:
        self.server, self.database = server, database
        self.url = f"leaf+{server.url_for(database=database)}"
        # As shipped, names are alike that differ in their case alone.
        self.server.execute(f"ALTER DATABASE `{database}` COLLATE utf8mb4_bin", database="")

    def execute(self, sql: str, values: tuple[object, ...]) -> None:
        with closing(self.server.connect(self.database)) as connection:
            connection.cursor().execute(sql.replace("?", "%s"), values)


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestLeaf(IdSegmentDistributorContract):
    lies_in: LeafTable

    @pytest.fixture(params=["mariadb", pytest.param("sqlite", marks=pytest.mark.nightly)])
    def table(self, request: pytest.FixtureRequest) -> LeafTable:
        if request.param == "sqlite":
            return SqliteTable(request.getfixturevalue("tmp_path"))
        url: str = request.getfixturevalue("mariadb_database")
        return MariadbTable(request.getfixturevalue("mariadb"), url.rpartition("/")[2])

    @pytest_asyncio.fixture
    async def make_distributor(self, table: LeafTable) -> AsyncIterator[DistributorFactory]:
        self.lies_in = table
        async with LeafStore.from_url(table.url) as store:
            await store.create_schema()
            made: set[str] = set()

            def make(
                *, namespace: str, name: str, offset: int = 0, step: int = 100
            ) -> IdSegmentDistributor:
                distributor = store.segment_distributor(
                    namespace=namespace, name=name, offset=offset, step=step
                )
                if name not in made:
                    made.add(name)
                    insert = "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES (?, ?, 10)"
                    table.execute(insert, (name, offset + 1))
                return distributor

            yield make

    async def set_back(self, distributor: IdSegmentDistributor, to: int) -> None:
        update = "UPDATE leaf_alloc SET max_id = ? WHERE biz_tag = ?"
        self.lies_in.execute(update, (to + 1, distributor.name))

    async def test_counters_of_other_names_are_apart(
        self, make_distributor: DistributorFactory
    ) -> None:
        """Leaf has no namespaces: they name nothing but a counter in messages."""
        for name in ("order", "orders", "Order"):
            assert await make_distributor(namespace="a", name=name).next_max_id(10) == 10
            assert await make_distributor(namespace="b", name=name).next_max_id(10) == 20

    async def test_int64_is_the_end(self, make_distributor: DistributorFactory) -> None:
        """The column holds the id after the last one, so the last one is 2^63-2."""
        near = make_distributor(namespace="a", name="order", offset=MAX_ID - 10, step=5)
        assert await near.next_max_id(5) == MAX_ID - 5
        with pytest.raises(IdOverflowError):
            await near.next_max_id(5)
        assert await near.next_max_id(4) == MAX_ID - 1
        for step in (1, 5, MAX_ID):
            with pytest.raises(IdOverflowError):
                await near.next_max_id(step)

    async def test_connections_of_its_own(
        self, make_distributor: DistributorFactory, table: LeafTable
    ) -> None:
        """A store from a URL closes its connections, and opens others when it is used."""
        await make_distributor(namespace="a", name="order").next_max_id(10)
        store = LeafStore.from_url(table.url)
        own = store.segment_distributor(name="order")
        for due in (20, 30):
            assert await own.next_max_id(10) == due
            await store.aclose()


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestLeafSegmentIdOnLeaf(IdGeneratorContract):
    """The row's step, read before each segment."""

    step = 7
    ids_per_worker = 500

    @pytest_asyncio.fixture
    async def make_generator(self, mariadb_database: str) -> AsyncIterator[MakeGenerator]:
        async with LeafStore.from_url(f"leaf+{mariadb_database}") as store:
            await store.create_schema()
            await store.create_tag("order", step=self.step)
            yield lambda: LeafSegmentId(store.segment_distributor(name="order", step=1))


class LeafSegmentIds(IdGeneratorContract):
    step = 7
    ids_per_worker = 500

    def maker(self, namespace: str, *, awaited: bool = True) -> MakeGenerator:
        store = MemoryStore()

        def make() -> LeafSegmentId:
            made = store.segment_distributor(namespace=namespace, name="order", step=self.step)
            return LeafSegmentId(WrappedDistributor(made) if awaited else made)

        return make


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestLeafSegmentIds(LeafSegmentIds):
    @pytest.fixture(params=["at once", "awaited"])
    def make_generator(self, request: pytest.FixtureRequest, namespace: str) -> MakeGenerator:
        return self.maker(namespace, awaited=request.param == "awaited")


# The last one: anyio's plugin marks the functions, which both classes share.


@pytest.mark.anyio
class TestLeafSegmentIdsOnTrio(LeafSegmentIds):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {}

    @pytest.fixture
    def make_generator(self, namespace: str) -> MakeGenerator:
        return self.maker(namespace)
