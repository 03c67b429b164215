"""What is special of an engine in forked processes."""

from __future__ import annotations

import pytest

from tests.script import run_python

from ._engines import EACH_SERVER, url_of

pytestmark = [pytest.mark.integration]


OTHERS = ("psycopg", "asyncmy", "aiomysql")
OFTEN_FIRST = ["asyncpg", *(pytest.param(each, marks=pytest.mark.nightly) for each in OTHERS)]


@pytest.fixture(params=EACH_SERVER)
def url(request: pytest.FixtureRequest) -> str:
    """A database, by each driver of a server."""
    return url_of(request, request.param)


@pytest.mark.stress
@pytest.mark.parametrize("url", OFTEN_FIRST, indirect=True)
def test_forked_during_a_call(url: str, namespace: str) -> None:
    """What the child does with the call says nothing on the parent's connection."""
    told = run_python(DURING, url, namespace)
    assert told == {"parent": [10, 20], "same session": True}


def test_a_file_of_the_parent(tmp_path_factory: pytest.TempPathFactory) -> None:
    """SQLite cannot open it in the child, by whatever connection."""
    file = tmp_path_factory.mktemp("fork") / "ids.db"
    file.touch()
    told = run_python(FILE, f"sqlite+aiosqlite:///{file}")
    assert told == {"child": ["StoreError", "StoreError"], "parent": [10, 20, 30]}


DURING = """
import asyncio, json, logging, os, sys
from aiocosid.errors import StoreUnavailableError
from sqlalchemy.ext.asyncio import create_async_engine
from aiocosid.stores.sqlalchemy import SqlAlchemyStore

logging.getLogger("psycopg").disabled = True  # it tells of what was cancelled
url = sys.argv[1]
SESSION = {"p": "SELECT pg_backend_pid()", "m": "SELECT CONNECTION_ID()"}[url[0]]
SLOW = {"p": "SELECT pg_sleep(0.7)", "m": "SELECT SLEEP(0.7)"}[url[0]]

async def main():
    engine = create_async_engine(url, pool_size=1, max_overflow=0)
    store = SqlAlchemyStore(engine, durability="ignore")
    await store.create_schema()
    counter = store.segment_distributor(namespace=sys.argv[2], name="order")
    sql = store._backend.link
    granted = [await counter.next_max_id(10)]
    before = (await sql.run(SESSION)).rows[0][0]
    call = asyncio.ensure_future(sql.run(SLOW))
    while not engine.pool.checkedout():
        await asyncio.sleep(0)
    if (pid := os.fork()) == 0:
        return True
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    try:
        await call
    except StoreUnavailableError:
        pass  # the child's driver has asked the server to stop it, on a connection of its own
    granted.append(await counter.next_max_id(10))
    same = before == (await sql.run(SESSION)).rows[0][0]
    await engine.dispose()
    print(json.dumps({"parent": granted, "same session": same}))

runner = asyncio.Runner()
runner.run(main())
runner.close()  # in the child it cancels the call
"""


FILE = """
import asyncio, json, os, sys
from sqlalchemy.ext.asyncio import create_async_engine
from aiocosid.stores.sqlalchemy import SqlAlchemyStore

url = sys.argv[1]

async def outcome(awaitable):
    try:
        return await awaitable
    except Exception as exc:
        return type(exc).__name__

async def child(mine):
    await mine.aopen()
    new = SqlAlchemyStore(create_async_engine(url)).segment_distributor(name="order")
    return [await outcome(each.next_max_id(10)) for each in (mine, new)]

async def main(kind):
    engine = create_async_engine(url)
    store = SqlAlchemyStore.from_url(url)
    mine = store.segment_distributor(name="order")
    users = SqlAlchemyStore(engine).segment_distributor(name="order")
    first = users if kind == "user" else mine
    granted = [await first.next_max_id(10)]
    ours, theirs = os.pipe()
    if (pid := os.fork()) == 0:
        return theirs, mine
    os.waitpid(pid, 0)
    granted.append(await first.next_max_id(10))
    told = json.loads(os.read(ours, 1000))
    await store.aclose()
    await engine.dispose()
    return granted, told

def life(kind):
    found = asyncio.Runner().run(main(kind))
    if isinstance(found[0], int):
        theirs, mine = found
        os.write(theirs, json.dumps(asyncio.run(child(mine))).encode())
        os._exit(0)
    return found

granted, told = life("mine")
others, again = life("user")
assert told == again, again
print(json.dumps({"child": told, "parent": granted + others[:1]}))
"""
