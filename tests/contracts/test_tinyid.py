"""tinyid's table under the contract, by itself and in a group of one, in SQLite.

A row has to be there: each is inserted by hand, as tinyid's own are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aiocosid.abc import IdSegmentDistributor
from aiocosid.compat._table_store import rows_of
from aiocosid.compat.tinyid import TinyidGroupStore, TinyidStore
from aiocosid.testing import DistributorFactory, IdSegmentDistributorContract

INSERT = "INSERT INTO tiny_id_info (biz_type, max_id, step) VALUES (?, ?, 10)"
UPDATE = "UPDATE tiny_id_info SET max_id = ? WHERE biz_type = ?"


@pytest.mark.nightly  # nearly repeats Leaf's, which has the same base
@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestTinyid(IdSegmentDistributorContract):
    file: Path
    ids_per_worker = 300

    @pytest_asyncio.fixture(params=["alone", "group"])
    async def make_distributor(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncIterator[DistributorFactory]:
        self.file = tmp_path / "tinyid.db"
        async with TinyidStore.from_url(f"tinyid+sqlite:///{self.file}") as store:
            await store.create_schema()
            made: set[str] = set()
            executors: Any = [rows_of(store).executor]
            group = TinyidGroupStore(executors, store_timeout=10)

            def make(
                *, namespace: str, name: str, offset: int = 0, step: int = 100
            ) -> IdSegmentDistributor:
                if name not in made:
                    made.add(name)
                    self._execute(INSERT, (name, offset))
                own = store if request.param == "alone" else group
                return own.segment_distributor(
                    namespace=namespace, name=name, offset=offset, step=step
                )

            yield make

    def _execute(self, sql: str, values: tuple[object, ...]) -> None:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute(sql, values)

    async def set_back(self, distributor: IdSegmentDistributor, to: int) -> None:
        self._execute(UPDATE, (to, distributor.name))

    async def test_counters_of_other_names_are_apart(
        self, make_distributor: DistributorFactory
    ) -> None:
        """Namespaces are not tinyid's: they name nothing but a counter in messages."""
        for name in ("order", "orders", "Order"):
            assert await make_distributor(namespace="a", name=name).next_max_id(10) == 10
            assert await make_distributor(namespace="b", name=name).next_max_id(10) == 20
