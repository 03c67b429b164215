"""What somebody else has put in the place of a counter, or of a machine id."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from aiocosid import SegmentChainId, SnowflakeId
from aiocosid.abc import MAX_ID, MachineGrant, Store
from aiocosid.errors import (
    CorruptCounterError,
    CorruptMachineStateError,
    CosIdError,
    IdOverflowError,
    StoreError,
)
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.provider import store_from_url
from tests.machine_marks import initialize_namespace
from tests.servers import PostgresServer, ValkeyServer

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

LATEST: Final = 2**53


async def refused(store: Store, namespace: str, offset: int = 0) -> CosIdError:
    """Ask for an id and get none, while the loop goes on; the error that tells why."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    try:
        with pytest.raises((IdOverflowError, StoreError)) as caught:
            await first_id(store, namespace, offset)
    finally:
        turning.cancel()
    assert turns > 3
    assert not caught.value.retryable, caught.value
    assert len(str(caught.value)) < 500
    return caught.value


async def first_id(store: Store, namespace: str, offset: int = 0) -> int:
    counter = store.segment_distributor(namespace=namespace, name="n", offset=offset, step=10)
    async with SegmentChainId(counter) as generator:
        return await generator.next_id()


# Counters

REDIS_COUNTERS: Final = (
    *(("SET", "abc"), ("SET", ""), ("SET", " 5"), ("SET", "5 "), ("SET", "1.5"), ("SET", "1e3")),
    *(
        ("SET", "+5"),
        ("SET", "05"),
        ("SET", "-0"),
        ("SET", "0x5"),
        ("SET", "\N{FULLWIDTH DIGIT ONE}"),
    ),
    *(("SET", f"{MAX_ID + 1}"), ("SET", f"{-MAX_ID - 2}"), ("SET", "9" * 10_000), ("SET", "5\n")),
    *(("HSET", "a", "1"), ("RPUSH", "1"), ("SADD", "1"), ("ZADD", "1", "1"), ("SETBIT", "9", "1")),
    *(("XADD", "*", "a", "1"), ("SET", f"{MAX_ID}"), ("PFADD", "x")),
)


async def test_counters_on_redis(valkey: ValkeyServer, namespace: str) -> None:
    """Nothing of it is changed; what is listed beside it is right; repaired, it goes on."""
    key = f"cosid:{{{namespace}.n}}.adder"
    async with store_from_url(valkey.url) as store:
        await store.segment_distributor(namespace=namespace, name="sound").next_max_id(7)
        for command, *words in REDIS_COUNTERS:
            valkey.call("DEL", key)
            valkey.call(command, key, *words)
            before = valkey.call("DEBUG", "DIGEST-VALUE", key)
            error = await refused(store, namespace)
            assert type(await refused(store, namespace, offset=5)) is type(error), words
            full = words[0].startswith("9223372036854775") and int(words[0]) <= MAX_ID
            assert isinstance(error, IdOverflowError if full else CorruptCounterError), words
            assert namespace in str(error)
            listed = {
                e.namespaced_name: e.last_max_id for e in await store.counters(namespace=namespace)
            }
            assert listed.pop(f"{namespace}.sound") == 7
            assert listed == ({f"{namespace}.n": int(words[0])} if full else {}), words
            if not full:
                with pytest.raises(CorruptCounterError):
                    await store.set_floor(namespace=namespace, name="n", above=5)
                with pytest.raises(CorruptCounterError):
                    await store.segment_distributor(namespace=namespace, name="n").peek()
            assert valkey.call("DEBUG", "DIGEST-VALUE", key) == before, words
            valkey.call("DEL", key)
            valkey.call("SET", key, 50)
            assert await first_id(store, namespace) == 51
        for below, first in (("-5", 1), (f"{MAX_ID - 9}", MAX_ID - 8), (f"{-MAX_ID - 1}", None)):
            valkey.call("SET", key, below)
            if first is None:
                await refused(store, namespace)
            else:
                assert await first_id(store, namespace) == first


async def test_counters_on_sqlite(tmp_path: Path, namespace: str) -> None:
    """In a table that somebody made, without types and constraints."""
    path = tmp_path / "ids.db"
    values = ("abc", "", "5", " 5", b"\xff", b"5", b"", 1.5, 5.0, 1e300, None, "9" * 10_000)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE cosid (name PRIMARY KEY, last_max_id, last_fetch_time)")
        row = (
            "SELECT last_max_id, typeof(last_max_id) FROM cosid WHERE name = ?",
            (f"{namespace}.n",),
        )
        async with store_from_url(f"sqlite:///{path}") as store:
            await store.create_schema()
            await store.initialize(confirm_no_holders=True)
            await store.segment_distributor(namespace=namespace, name="sound").next_max_id(7)
            for value in (*values, MAX_ID, -MAX_ID - 1):
                database.execute(
                    "INSERT OR REPLACE INTO cosid VALUES (?, ?, 'x')", (f"{namespace}.n", value)
                )
                before = database.execute(*row).fetchall()
                error = await refused(store, namespace)
                full = isinstance(value, int) and value > 0
                assert isinstance(error, IdOverflowError if full else CorruptCounterError), value
                is_number = isinstance(value, int)
                listed = {
                    e.namespaced_name: e.last_fetch_time
                    for e in await store.counters(namespace=namespace)
                }
                assert (f"{namespace}.n" in listed) == is_number, value
                assert f"{namespace}.sound" in listed
                if value is None or not is_number or full:  # a negative one was a number, and grew
                    assert database.execute(*row).fetchall() == before, value
                for value_of, first in ((MAX_ID - 9, MAX_ID - 8), (50, 51)):
                    sql = "UPDATE cosid SET last_max_id = ? WHERE name LIKE '%.n'"
                    database.execute(sql, (value_of,))
                    assert await first_id(store, namespace) == first


async def test_counters_on_postgresql(
    postgres: PostgresServer, postgres_database: str, namespace: str
) -> None:
    """Columns of other types, as migrations leave them; and no column, and no table at all."""
    planted = (
        *(("numeric", "1.5"), ("numeric", "NaN"), ("numeric", f"{MAX_ID + 1}"), ("numeric", None)),
        *(
            ("numeric", "1e40"),
            ("bigint", f"{MAX_ID}"),
            ("bigint", f"{-MAX_ID - 1}"),
            ("bigint", None),
        ),
        *(("integer", f"{2**31 - 1}"), ("text", "abc"), ("text", "5"), ("float8", "1.5")),
        *(("boolean", "true"), ("bigint[]", "{1}")),
        *(("float8", "Infinity"),),
    )
    async with store_from_url(postgres_database) as store:
        for kind, value in planted:
            given = "NULL" if value is None else f"'{value}'::{kind}"
            sql = (
                "DROP TABLE IF EXISTS cosid; CREATE TABLE cosid (name varchar(100) PRIMARY KEY, "
                "last_max_id {kind}, last_fetch_time bigint); "
                "INSERT INTO cosid VALUES ('{name}', {given}, NULL)"
            )
            postgres.execute(
                sql.format(kind=kind, name=f"{namespace}.n", given=given), database=namespace
            )
            row = f"SELECT last_max_id FROM cosid WHERE name = '{namespace}.n'"  # noqa: S608 - ours
            before = postgres.execute(row, database=namespace)
            await refused(store, namespace)
            if value != f"{-MAX_ID - 1}":  # it is a number, and grows
                assert postgres.execute(row, database=namespace) == before, (kind, value)
            try:
                await store.counters(namespace=namespace)
                await store.set_floor(namespace=namespace, name="n", above=5)
            except StoreError as error:
                assert not error.retryable, (kind, value, error)  # noqa: PT017 - or none
            except IdOverflowError:
                pass
        postgres.execute("ALTER TABLE cosid RENAME last_max_id TO x", database=namespace)
        await refused(store, namespace)
        postgres.execute("DROP TABLE cosid", database=namespace)
        await refused(store, namespace)
        await store.create_schema()
        assert await first_id(store, namespace) == 1


# Machine ids

STATES: Final = (
    *("", "x", "-1|5", "1|", "|1", "1|-5", "1|99999999999999999999", "99999999999999999999|1"),
    *("1|5|6", " 1|5", "1|5 ", "1|5\n", "1.0|5", "1|1e5", "+1|5", "1", "x" * 10_000),
    "\N{FULLWIDTH DIGIT ONE}|5",
)
NUMBERS: Final = (
    "",
    "x",
    "\x1b[2J",
    "x" * 10_000,
    "-5",
    "1.5",
    " 5",
    "9" * 30,
    "5\n",
    "1e5",
    "0x5",
)


ANEW: Final = "the key is removed before"


MACHINE_KEYS: Final = ("itc_idx", "adder", "revert", "note", "seen", "space")


def planted_on_redis(namespace: str) -> list[tuple[str, ...]]:
    """Commands, each of which damages what is ours, or all of one kind."""
    keys = {suffix: f"cosid:{{{namespace}}}:{suffix}" for suffix in MACHINE_KEYS}
    found: list[tuple[str, ...]] = []
    for suffix, key in keys.items():
        kinds = [("RPUSH", key, "1")]
        wrong = ("HSET", key, "a", "1") if suffix in {"adder", "space"} else ("SET", key, "1")
        found += [(ANEW, *each) for each in (*kinds, wrong)]
    found += [("HSET", keys["note"], "0", each) for each in (*STATES, *NUMBERS[::2])]
    found += [("HSET", keys["seen"], "0", each) for each in NUMBERS[::2]]
    found += [("SET", keys["space"], each) for each in (*NUMBERS[1::2], "{}", "[]")]
    marker = "aiocosid:marker"
    found += [("HSET", marker, f"count:{namespace}", each) for each in (*NUMBERS[::3], "{}")]
    return found


def strange_on_redis(namespace: str) -> list[tuple[str, ...]]:
    """Commands, each of which writes an entry of another instance's that cannot be read."""
    entries, pool = f"cosid:{{{namespace}}}:itc_idx", f"cosid:{{{namespace}}}:revert"
    found: list[tuple[str, ...]] = [("HSET", entries, "other", each) for each in STATES]
    found += [("HSET", pool, "1", each) for each in NUMBERS[::2]]
    found += [("HSET", pool, each, "5") for each in NUMBERS[1::2]]
    return found


async def test_machine_ids_on_redis(valkey: ValkeyServer, namespace: str) -> None:
    """Whatever it is: a snowflake does not open, nothing is written, and a repair is enough.

    But for what is about one machine id, which keeps nobody from another.
    """
    keys = [f"cosid:{{{namespace}}}:{suffix}" for suffix in MACHINE_KEYS]
    async with store_from_url(valkey.url) as store:
        for first, *rest in planted_on_redis(namespace)[::2]:
            valkey.call("DEL", *keys)
            valkey.call("HDEL", "aiocosid:marker", f"count:{namespace}")
            initialize_namespace(valkey, namespace)
            mine = store.machine_id_distributor(namespace=namespace, instance_id="one")
            await mine.distribute(10, now_ms=1, latest_ms=LATEST)
            assert isinstance(mine, CellMachineIdDistributor)
            mine._snapshot = None  # what it would go on from
            command = rest if first == ANEW else [first, *rest]
            if first == ANEW:
                valkey.call("DEL", command[1])
            valkey.call(*command)
            newcomer = store.machine_id_distributor(namespace=namespace, instance_id="two")
            failures = 0
            for ask in (
                partial(newcomer.distribute, 10, now_ms=9, latest_ms=LATEST),
                partial(mine.renew, 0, now_ms=9, fence_ms=9),
                lambda: store.machines(namespace=namespace),
                lambda: store.set_machine_bits(namespace=namespace, bits=9),
            ):
                before = valkey.call("DEBUG", "DIGEST-VALUE", *keys)
                error = await error_of(ask)
                if error is not None:
                    assert not error.retryable, command
                    assert valkey.call("DEBUG", "DIGEST-VALUE", *keys) == before, command
                if isinstance(error, CorruptMachineStateError):
                    failures += 1
                    assert command[1] in str(error)
                    assert len(str(error)) < 700
                    assert str(error).isprintable()
            is_of_one = first == "HSET" and rest[0].endswith((":note", ":seen"))
            assert failures == 4 - is_of_one, command
            if is_of_one:
                assert str(valkey.call("HGET", keys[0], "two")).startswith("1|")
                continue
            with pytest.raises(CorruptMachineStateError):
                async with SnowflakeId(newcomer):
                    pass
        valkey.call("DEL", *keys)
        valkey.call("HDEL", "aiocosid:marker", f"count:{namespace}")
        initialize_namespace(valkey, namespace)
        async with SnowflakeId(store.machine_id_distributor(namespace=namespace)) as generator:
            assert await generator.next_id() > 0


async def test_entries_of_others_on_redis(valkey: ValkeyServer, namespace: str) -> None:
    """Nobody fails for them, they stay, and their machine id, if there is one, is nobody's."""
    keys = [f"cosid:{{{namespace}}}:{suffix}" for suffix in MACHINE_KEYS]
    async with store_from_url(valkey.url) as store:
        for command in strange_on_redis(namespace):
            valkey.call("DEL", *keys)
            valkey.call("HDEL", "aiocosid:marker", f"count:{namespace}")
            initialize_namespace(valkey, namespace)
            mine = store.machine_id_distributor(namespace=namespace, instance_id="one")
            assert (await mine.distribute(10, now_ms=1, latest_ms=LATEST)).machine_id == 0
            valkey.call(*command)
            await mine.renew(0, now_ms=9, fence_ms=9)
            await store.machines(namespace=namespace)
            for text in ("two", "three"):
                newcomer = store.machine_id_distributor(namespace=namespace, instance_id=text)
                grant = await newcomer.distribute(10, now_ms=9, latest_ms=LATEST)
                assert grant.machine_id > 0
                await newcomer.renew(grant.machine_id, now_ms=9, fence_ms=9)
            assert valkey.call("HGET", *command[1:3]) == command[3], command
        valkey.call("DEL", *keys)


async def error_of(call: Callable[[], Awaitable[object]]) -> CosIdError | None:
    """Ours, if there is one; any other is a failure of the test."""
    try:
        await call()
    except CosIdError as error:
        return error
    return None


SQLITE_MACHINES: Final = (
    *(("cosid_machine", "machine_id", each) for each in ("x", None, b"\xff", 1.5, -1, 2**40)),
    *(("cosid_machine", "last_timestamp", each) for each in ("x", None, b"\xff", 1.5, MAX_ID)),
    *(("cosid_machine", "instance_id", each) for each in (None, b"\xff", 5)),
    *(("aiocosid_cell", "value", each) for each in ("x", None, b"\xff", 1.5, 7, "{}", "[]")),
)


async def test_machine_ids_on_sqlite(tmp_path: Path) -> None:
    """Whatever lies there: errors are ours, what fails writes nothing, and no id has two owners."""
    path = tmp_path / "ids.db"
    tables = ("cosid_machine", "aiocosid_cell")
    async with store_from_url(f"sqlite:///{path}") as store:
        await store.create_schema()
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            columns = {
                table: [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
                for table in tables
            }
            for table, names in columns.items():  # without types and constraints, but for the key
                database.execute(f"DROP TABLE {table}")
                database.execute(
                    f"CREATE TABLE {table} ({names[0]} PRIMARY KEY, {', '.join(names[1:])})"
                )
            for table, column, value in SQLITE_MACHINES:
                for each in tables:
                    database.execute(f"DELETE FROM {each}")  # noqa: S608 - ours
                await store.initialize(confirm_no_holders=True)
                one = store.machine_id_distributor(namespace="n", instance_id="one")
                await one.distribute(3, now_ms=1, latest_ms=LATEST)
                database.execute(f"UPDATE {table} SET {column} = ?", (value,))  # noqa: S608 - ours
                two = store.machine_id_distributor(namespace="n", instance_id="two")
                found: dict[str, int] = {}
                for name, ask in (
                    ("two", partial(two.distribute, 3, now_ms=9, latest_ms=LATEST)),
                    ("guard", partial(one.renew, 0, now_ms=9, fence_ms=9)),
                    ("list", partial(store.machines, namespace="n")),
                    ("one", partial(one.distribute, 3, now_ms=9, latest_ms=LATEST)),
                ):
                    before = [database.execute(f"SELECT * FROM {t}").fetchall() for t in tables]  # noqa: S608 - ours
                    try:
                        answer = await ask()
                    except CosIdError:
                        after = [database.execute(f"SELECT * FROM {t}").fetchall() for t in tables]  # noqa: S608 - ours
                        assert after == before, (table, column, value, name)
                    else:
                        if name in {"one", "two"}:
                            assert isinstance(answer, MachineGrant)
                            found[name] = answer.machine_id
                assert len(set(found.values())) == len(found), (table, column, value)
