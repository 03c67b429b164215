"""The rights of the page suffice on MariaDB, and none of them is there for nothing."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
import pytest_asyncio

from aiocosid.errors import SchemaDroppedError, StoreAuthenticationError
from aiocosid.machine.cells import Marker, NamespaceRecord
from aiocosid.stores.mysql import MysqlStore
from tests import sql_cells
from tests.machine_marks import mariadb_run, mark_mariadb
from tests.servers import MariadbServer

from .test_privileges import BESIDE_JAVA, ON_REDIS, OVER, TASKS, fenced, prepare

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

TABLES = "cosid", "cosid_machine", "aiocosid_cell"


def grants() -> dict[str, list[tuple[str, str]]]:
    """For each task its rights, one by one: (right, the table)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for part in fenced("sql", "# segments").split("# ")[1:]:
        task, _, statements = part.partition("\n")
        for rights, table in re.findall(r"GRANT (.*?) ON shop\.(\w+) TO app;", statements):
            found.setdefault(task, []).extend((right, table) for right in rights.split(", "))
    return found


class Database:
    """One of the test's own, with a user of its own."""

    def __init__(self, server: MariadbServer, name: str) -> None:
        self.server, self.name = server, name
        self.url = server.url_for(user=name, database=name)

    def grant(self, rights: list[tuple[str, str]]) -> None:
        """Give the user these rights and no others."""
        sql = [f"drop user if exists {self.name}", f"create user {self.name}"]
        sql += [f"grant {right} on {table} to {self.name}" for right, table in rights]
        self.server.execute(";".join(sql), database=self.name)

    async def empty(self, task: str) -> None:
        """Nothing but what the task needs."""
        sql = [f"delete from {table}" for table in TABLES]
        self.server.execute(";".join(sql), database=self.name)
        sql_cells.write_cell(mariadb_run(self.server, self.name), "marker", Marker().text())
        async with MysqlStore.from_url(self.server.url_for(database=self.name)) as owner:
            await prepare(task, owner)
        if task in BESIDE_JAVA:
            self.server.execute(BESIDE_JAVA[task], database=self.name)
        if task in OVER:
            run = mariadb_run(self.server, self.name)
            mark_mariadb(self.server, "shop", database=self.name)
            space = sql_cells.read_space(run, "shop") or NamespaceRecord()
            over = replace(space, guard_ms=1, quarantine="over", since_ms=1)
            sql_cells.write_space(run, "shop", over)

    async def can(self, task: str) -> bool:
        """Do what a line is for; any other error than one about rights is one of the test."""
        async with MysqlStore.from_url(self.url) as store:
            try:
                await TASKS[task](store)
            except (
                StoreAuthenticationError,
                SchemaDroppedError,
            ):  # it is not seen, so it was dropped
                return False
        return True


@pytest_asyncio.fixture
async def made(mariadb_database: str) -> AsyncIterator[None]:
    """The tables."""
    async with MysqlStore.from_url(mariadb_database) as owner:
        await owner.create_schema()
    yield


@pytest.fixture
def database(mariadb: MariadbServer, made: None, namespace: str) -> Iterator[Database]:
    """A database with tables."""
    yield Database(mariadb, namespace)
    mariadb.execute(f"drop user if exists {namespace}")


async def test_the_grants_are_enough(database: Database) -> None:
    """Each task with its own."""
    lines = grants()
    assert lines.keys() | ON_REDIS == TASKS.keys()
    for task, rights in lines.items():
        database.grant(rights)
        await database.empty(task)
        assert await database.can(task), task


@pytest.mark.stress
async def test_the_grants_are_not_too_much(database: Database) -> None:
    """Without any one of them its task is not done."""
    seen_only = ("SELECT", "aiocosid_witness")  # by it dropped tables are told from none
    for task, rights in grants().items():
        for right in rights:
            if right == seen_only:
                continue
            database.grant([each for each in rights if each != right])
            await database.empty(task)
            assert not await database.can(task), (task, right)
