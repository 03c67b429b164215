"""Counters in PostgreSQL: what only this server has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from aiocosid import store_from_url
from aiocosid.abc import MAX_ID
from aiocosid.errors import (
    IdOverflowError,
    InvalidArgumentError,
    StoreAuthenticationError,
    StoreError,
)
from aiocosid.stores.postgres import PostgresStore
from tests.servers import (
    GUEST,
    GUEST_PASSWORD,
    PostgresServer,
)

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


driver: Any = asyncpg  # its annotations stop half-way


Connection = Any

LIBPQS = ("connect_timeout", "channel_binding", "keepalives", "gssencmode", "sslmod")
"""Options of libpq's, and one that is misspelt."""


@pytest_asyncio.fixture
async def store(postgres_database: str) -> AsyncIterator[PostgresStore]:
    """A store in a database of the test's own, with its table."""
    async with PostgresStore.from_url(postgres_database) as store:
        await store.create_schema()
        yield store


@pytest_asyncio.fixture
async def raw(postgres_database: str) -> AsyncIterator[Connection]:
    """A connection behind everybody's back."""
    connection = await driver.connect(postgres_database)
    yield connection
    await connection.close(timeout=5)


async def rows(raw: Connection) -> list[tuple[str, int]]:
    """What lies in the table, without the times."""
    found = await raw.fetch("SELECT name, last_max_id FROM cosid ORDER BY name")
    return [(name, last_max_id) for name, last_max_id in found]


class TestCounter:
    """One counter and its row."""

    async def test_counters_of_one_store_share_its_connections(self, store: PostgresStore) -> None:
        """Closing one of them leaves the others theirs; the store closes them."""
        one, other = (store.segment_distributor(name=name) for name in ("one", "other"))
        assert [await each.next_max_id(1) for each in (one, other)] == [1, 1]
        before = await store._backend.link.fetch_rows("SELECT pg_backend_pid()")
        await one.aclose()
        assert await store._backend.link.fetch_rows("SELECT pg_backend_pid()") == before
        assert [await each.next_max_id(1) for each in (one, other)] == [2, 2]

    async def test_a_numeric_column(self, store: PostgresStore, raw: Connection) -> None:
        """As a table that was migrated from MySQL's unsigned integers has: the same, to the end."""
        await raw.execute(
            "ALTER TABLE cosid ALTER last_max_id TYPE numeric, ALTER last_fetch_time TYPE numeric"
        )
        counter = store.segment_distributor(name="order")
        assert [await counter.next_max_id(10) for _ in range(2)] == [10, 20]
        for above in (25, 20, MAX_ID - 10):
            raised = await store.set_floor(name="order", above=above)
            assert raised.last_max_id == max(above, 25)
        with pytest.raises(IdOverflowError):
            await counter.next_max_id(11)
        assert await counter.next_max_id(10) == MAX_ID
        for step in (1, MAX_ID):
            with pytest.raises(IdOverflowError):
                await counter.next_max_id(step)
        with pytest.raises(IdOverflowError):
            await store.segment_distributor(name="order").next_max_id(1)
        (listed,) = await store.counters()
        assert listed.last_max_id == MAX_ID
        assert listed.last_fetch_time is not None
        assert await rows(raw) == [("cosid.order", MAX_ID)]


class TestRefusals:
    """What retrying does not mend."""

    async def test_missing_rights(
        self, store: PostgresStore, postgres: PostgresServer, namespace: str
    ) -> None:
        """A user without rights on the table is refused; so is one who may only read."""
        url = postgres.url_for(user=GUEST, password=GUEST_PASSWORD, database=namespace)
        async with PostgresStore.from_url(url) as guest:
            counter = guest.segment_distributor(name="order")
            for grant in ("", f"GRANT SELECT ON cosid TO {GUEST}"):
                postgres.execute(grant, database=namespace)
                with pytest.raises(StoreAuthenticationError, match="permission denied") as caught:
                    await counter.next_max_id(10)
                assert not caught.value.retryable
            rights = "SELECT, INSERT, UPDATE ON cosid, aiocosid_cell"
            postgres.execute(f"GRANT {rights} TO {GUEST}", database=namespace)
            assert await counter.next_max_id(10) == 10

    async def test_a_connection(self, raw: Connection) -> None:
        """It runs one query at a time, and its transactions take grants back."""
        with pytest.raises(InvalidArgumentError, match=r"asyncpg\.Pool.*from_url"):
            PostgresStore(raw)


@pytest.mark.parametrize(
    ("driver", "query", "said"),
    [
        ("", "sslmode=require", "rejected SSL upgrade; switch TLS on .*sslmode"),
        ("+asyncpg", "ssl=require", "rejected SSL upgrade; switch TLS on .*sslmode"),
        ("+psycopg", "sslmode=require", "does not support SSL.*; switch TLS on .*sslmode"),
        ("", "sslmode=verify-full", "root certificate file.*; correct the URL's options"),
        ("", "ssl=true", "cannot be changed now; remove this option .*TLS is sslmode=require"),
        ("+asyncpg", "sslmode=require", "'sslmode'; remove this option .*ssl=require with"),
        *(("", f"{each}=1", f'"{each}"; remove this option') for each in LIBPQS),
    ],
)
async def test_an_option_that_the_driver_does_not_know(
    postgres_database: str, driver: str, query: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the URL's, not an outage: nothing is tried again."""
    monkeypatch.setenv("HOME", "/nonexistent")
    url = postgres_database.replace("postgresql:", f"postgresql{driver}:")
    async with store_from_url(f"{url}?{query}") as store:
        with pytest.raises(StoreError, match=said) as caught:
            await store.counters()
    assert type(caught.value) is StoreError
    assert postgres_database.rpartition("@")[2] in str(caught.value)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (
            "sslmode=required",
            "disable, allow, prefer, require, verify-ca or verify-full for sslmode",
        ),
        ("sslrootcert=/nowhere/ca.crt", "a file that can be read for sslrootcert"),
    ],
)
async def test_an_option_is_checked_at_once(option: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        PostgresStore.from_url(f"postgresql://h/db?{option}")


async def test_a_password_with_an_at_sign(postgres: PostgresServer, postgres_database: str) -> None:
    """Only the last one ends the login, whatever the driver thinks."""
    place = postgres_database.rpartition("@")[2]
    async with PostgresStore.from_url(f"postgresql://guest:p@ss@{place}") as store:
        with pytest.raises(StoreAuthenticationError, match='failed for user "guest"') as caught:
            await store.counters()
    assert place in str(caught.value)


class TestSchema:
    """The table: ours, CosId's, or none."""

    async def test_somebodys_narrow_column(self, postgres_database: str, raw: Connection) -> None:
        """A column of 32 bits ends earlier, and is full then, not broken."""
        await raw.execute(
            "CREATE TABLE cosid "
            "(name varchar(100) PRIMARY KEY, last_max_id int, last_fetch_time int)"
        )
        async with PostgresStore.from_url(postgres_database) as store:
            await store.create_schema()
            await store.initialize(confirm_no_holders=True)
            counter = store.segment_distributor(name="order", offset=2**31 - 11)
            assert await counter.next_max_id(10) == 2**31 - 1
            with pytest.raises(IdOverflowError) as caught:
                await counter.next_max_id(1)
            assert isinstance(caught.value.__cause__, asyncpg.NumericValueOutOfRangeError)
            with pytest.raises(IdOverflowError):
                await store.set_floor(name="order", above=2**31)
            assert await rows(raw) == [("cosid.order", 2**31 - 1)]
