"""What a generator hands out passes each encoder and driver that an application gives it to."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiosqlite
import asyncmy
import asyncpg
import hiredis
import kombu.utils.json
import msgspec
import psycopg
import pydantic
import pytest
from django.core.serializers.json import DjangoJSONEncoder
from redis.asyncio import Redis
from sqlalchemy import BigInteger, String, cast, literal, select
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from taskiq.serializers import JSONSerializer

import aiocosid
from aiocosid import StringIdGenerator
from aiocosid.converter import GroupedPrefixIdConverter, ToStringIdConverter, TypedId
from aiocosid.integrations.msgspec import enc_hook
from aiocosid.segment import GroupBy

from ._engines import DRIVERS, url_of

aiomysql: Any = pytest.importorskip("aiomysql")

pytestmark = [pytest.mark.integration]


class OrderId(TypedId, prefix="ord"):
    """A text of ours."""


async def _segment(ids: aiocosid.IdProvider) -> Any:
    return await ids.segment("segment")


async def _grouped(ids: aiocosid.IdProvider) -> Any:
    return await ids.grouped("grouped", group_by=GroupBy.day(zone="UTC"))


async def _daily(ids: aiocosid.IdProvider) -> Any:
    converter = GroupedPrefixIdConverter(ToStringIdConverter())
    return StringIdGenerator(await _grouped(ids), converter)


async def _typed(ids: aiocosid.IdProvider) -> Any:
    return StringIdGenerator(await _segment(ids), OrderId.converter)


async def _snowflake(ids: aiocosid.IdProvider) -> Any:
    return await ids.snowflake("snowflake")


GENERATORS: Final = {
    "segment": _segment,
    "grouped": _grouped,
    "daily text": _daily,
    "typed text": _typed,
    "snowflake": _snowflake,
}


async def _ids(kind: str) -> list[int | str]:
    """Take an id in each of the ways there are."""
    async with aiocosid.connect("memory://") as ids:
        generator = await GENERATORS[kind](ids)
        found = [await generator.next_id(), generator.next_id_nowait()]
        found += await generator.next_ids(2)
        return [*found, OrderId(found[0])] if kind == "segment" else found


def _hiredis(value: int | str) -> Any:
    reader = hiredis.Reader(encoding="utf-8")
    command: Any = "SET", value
    reader.feed(hiredis.pack_command(command))
    return type(value)(reader.gets()[1])


def _by_celery(value: int | str) -> Any:
    module: Any = kombu.utils.json
    return module.loads(module.dumps(value))


def _sent(value: int | str) -> Any:
    serializer = JSONSerializer()
    return serializer.loadb(serializer.dumpb({"id": value}))["id"]


ENCODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "json": lambda value: json.loads(json.dumps(value)),
    "django": lambda value: json.loads(json.dumps(value, cls=DjangoJSONEncoder)),
    "celery": _by_celery,
    "taskiq": _sent,
    "msgspec json": lambda value: msgspec.json.decode(
        msgspec.json.encode(value, enc_hook=enc_hook)
    ),
    "msgpack": lambda value: msgspec.msgpack.decode(
        msgspec.msgpack.encode(value, enc_hook=enc_hook)
    ),
    "pydantic": lambda value: pydantic.TypeAdapter(int | str).validate_json(
        pydantic.TypeAdapter(int | str).dump_json(value)
    ),
    "pydantic strict": pydantic.TypeAdapter(int | str, config={"strict": True}).validate_python,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),  # noqa: S301 - our own
    "copy": copy.deepcopy,
    "hiredis": _hiredis,
}


@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize("encoder", ENCODERS)
async def test_encoders(kind: str, encoder: str) -> None:
    for new_id in await _ids(kind):
        read = ENCODERS[encoder](new_id)
        assert read == new_id
        assert isinstance(read, int) == isinstance(new_id, int)


@pytest.mark.parametrize("kind", [each for each in GENERATORS if "text" not in each])
async def test_a_number_is_an_exact_integer(kind: str) -> None:
    """Of a subclass many encoders know nothing: msgspec without hooks, for one."""
    numbers = [each for each in await _ids(kind) if not isinstance(each, OrderId)]
    assert {type(each) for each in numbers} == {int}
    assert msgspec.json.decode(msgspec.json.encode(numbers)) == numbers


async def _on_asyncpg(url: str, value: int | str) -> Any:
    driver: Any = asyncpg
    connection = await driver.connect(url)
    try:
        kind = "bigint" if isinstance(value, int) else "text"
        return await connection.fetchval(f"SELECT $1::{kind}", value)
    finally:
        await connection.close()


async def _on_psycopg(url: str, value: int | str) -> Any:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        (found,) = await (await connection.execute("SELECT %s", (value,))).fetchone() or (None,)
        return found


def _on_mysql(driver: Any) -> Callable[[str, int | str], Awaitable[Any]]:
    async def select_it(url: str, value: int | str) -> Any:
        at = make_url(url)
        login = {"user": at.username, "password": at.password or "", "db": at.database}
        connection = await driver.connect(host=at.host, port=at.port, **login)
        try:
            async with connection.cursor() as cursor:
                await cursor.execute("SELECT %s", (value,))
                return (await cursor.fetchone())[0]
        finally:
            connection.close()

    return select_it


async def _on_aiosqlite(_: str, value: int | str) -> Any:
    async with aiosqlite.connect(":memory:") as db, db.execute("SELECT ?", (value,)) as cursor:
        (found,) = await cursor.fetchone() or (None,)
        return found


async def _on_redis(url: str, value: int | str) -> Any:
    async with Redis.from_url(url, decode_responses=True) as client:
        await client.set("an-id", value)
        found: Any = await client.get("an-id")
        return type(value)(found)


def _in_database(driver: str, new_id: int | str) -> int | str:
    """SQLite's module asks a `TypedId` what to store, which is its number."""
    return int(new_id) if driver == "aiosqlite" and isinstance(new_id, OrderId) else new_id


RAW: Final[dict[str, tuple[str, Callable[[str, Any], Awaitable[Any]]]]] = {
    "asyncpg": ("postgres", _on_asyncpg),
    "psycopg": ("postgres", _on_psycopg),
    "asyncmy": ("mariadb", _on_mysql(asyncmy)),
    "aiomysql": ("mariadb", _on_mysql(aiomysql)),
    "aiosqlite": ("tmp_path", _on_aiosqlite),
    "redis": ("valkey", _on_redis),
}


@pytest.mark.parametrize("driver", RAW)
async def test_drivers(request: pytest.FixtureRequest, driver: str) -> None:
    """A number stays one, and is not written as a quoted text."""
    server, send = RAW[driver]
    url: str = getattr(request.getfixturevalue(server), "url", "")
    for kind in GENERATORS:
        for new_id in await _ids(kind):
            found = await send(url, new_id)
            due = _in_database(driver, new_id)
            assert (found, isinstance(found, int)) == (due, isinstance(due, int))


@pytest.mark.parametrize("driver", DRIVERS)
async def test_sqlalchemy(request: pytest.FixtureRequest, driver: str) -> None:
    engine = create_async_engine(url_of(request, driver))
    try:
        async with engine.connect() as connection:
            for kind in GENERATORS:
                for new_id in await _ids(kind):
                    due = _in_database(driver, new_id)
                    of = BigInteger() if isinstance(due, int) else String(64)
                    assert await connection.scalar(select(cast(literal(new_id, of), of))) == due
    finally:
        await engine.dispose()
