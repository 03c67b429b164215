"""``doctor`` and ``watch`` on real servers, sound and broken."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.command import Command, in_process, run
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import GUEST, GUEST_PASSWORD, PostgresServer
from tests.servers.valkey import READER, ValkeyServer

from ._id_server import IdServer

pytestmark = pytest.mark.integration

WRONG = "wr0ng-s3cr3t"
NAMESPACE = "aiocosid-doctor"


@pytest.fixture
def aiocosid(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run ``aiocosid`` in this process."""
    return in_process(monkeypatch, capsys)


def url_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store."""
    match kind:
        case "sqlite":
            return f"sqlite:///{tmp_path}/ids.db"
        case "valkey" | "nats" | "etcd":
            server: str = request.getfixturevalue(f"{kind}_factory")().url
            return server
        case "zookeeper":
            tree: str = request.getfixturevalue("zookeeper_tree")
            return tree
        case "postgres" | "mariadb":
            database: str = request.getfixturevalue(f"{kind}_database")
            return database
        case _:
            plain: str = request.getfixturevalue("postgres_database")
            return plain.replace("postgresql:", "postgresql+asyncpg:")


@pytest.fixture(
    params=["sqlite", "valkey", "postgres", "mariadb", "sqlalchemy", "zookeeper", "etcd", "nats"]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store of each kind."""
    return url_of(request.param, request, tmp_path)


def examined(aiocosid: Command, *words: object) -> tuple[object, dict[str, list[dict[str, Any]]]]:
    """Return the exit code, and what was found by each check."""
    ended = aiocosid("doctor", *words, "--format", "json")
    assert ended.err == ""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in json.loads(ended.out)["findings"]:
        found.setdefault(each["check"], []).append(each)
    return ended.code, found


def statuses(found: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    return {check: each[-1]["status"] for check, each in found.items()}


class TestEachStore:
    """The same on every store."""

    def test_a_variable_that_stayed_set(
        self, aiocosid: Command, store: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is told where no witness decides, and where the store was made under it."""
        assert "disposable" not in statuses(examined(aiocosid, "--store", store)[1])
        monkeypatch.setenv("AIOCOSID_DISPOSABLE", "1")
        has_witness = store.startswith(("sqlite", "postgres", "m"))
        _, found = examined(aiocosid, "--store", store)
        assert ("disposable" in statuses(found)) is not has_witness
        assert aiocosid("init", "--store", store, "--yes").code == 0
        for value, is_told in (("1", True), ("0", has_witness)):
            monkeypatch.setenv("AIOCOSID_DISPOSABLE", value)
            _, found = examined(aiocosid, "--store", store)
            assert (statuses(found).get("disposable") == "warning") is is_told

    def test_a_store_that_is_ready(self, aiocosid: Command, store: str) -> None:
        """Nothing fails, with the version of the server, and nothing is written."""
        assert aiocosid("init", "--confirm-no-holders", "--store", store).code == 0
        code, found = examined(aiocosid, "--store", store)
        assert code == 0
        assert "failed" not in statuses(found).values()
        kinds = "SQLite|Valkey|Redis|PostgreSQL|MariaDB|MySQL|etcd|NATS|unknown version"
        assert re.search(kinds, found["server"][0]["text"])
        assert statuses(found)["initialised"] == "ok"
        assert statuses(found)["counters"] == "ok"
        counters = aiocosid("inspect", "--store", store, "--format", "json").out
        assert json.loads(counters) == []
        assert aiocosid("machines", "list", "--store", store).out == "no machine ids\n"

    def test_a_trial(self, aiocosid: Command, store: str) -> None:
        """It may write counters and machine ids, in its own namespace, and again."""
        aiocosid("init", "--confirm-no-holders", "--store", store)
        for _ in range(2):
            code, found = examined(aiocosid, "--store", store, "--write")
            assert code == 0
            assert [each["status"] for each in found["write"]] == ["ok", "ok"]
        listed = json.loads(aiocosid("inspect", "--store", store, "--format", "json").out)
        assert [each["namespaced_name"] for each in listed] == [f"{NAMESPACE}.trial"]
        words = ("machines", "list", "--store", store, "--format", "json")
        assert {each["namespace"] for each in json.loads(aiocosid(*words).out)} == {NAMESPACE}

    def test_watch(self, aiocosid: Command, store: str) -> None:
        """It leaves nothing behind."""
        aiocosid("init", "--confirm-no-holders", "--store", store)
        watched = aiocosid("watch", "--once", "--store", store)
        assert watched.out.startswith("no counters, and no machine ids in use\nlast answer 20")


def test_a_store_that_was_never_initialised(
    aiocosid: Command, valkey_factory: Callable[..., ValkeyServer]
) -> None:
    """A warning that names the command; a trial changes nothing about it."""
    where = ("--store", valkey_factory().url)
    assert statuses(examined(aiocosid, *where, "--write")[1])["initialised"] == "warning"
    code, found = examined(aiocosid, *where, "--write")
    assert (code, statuses(found)["initialised"]) == (0, "warning")
    assert "aiocosid init" in found["initialised"][0]["remedy"]
    assert statuses(found)["write"] == "ok"
    assert statuses(found)["quarantine"] == "ok"
    assert aiocosid("snowflake", *where).code != 0


def test_tables_that_are_missing(aiocosid: Command, postgres_database: str) -> None:
    """The server answers, and the finding names the command."""
    code, found = examined(aiocosid, "--store", postgres_database)
    assert (code, statuses(found)["read"]) == (1, "failed")
    assert "aiocosid init" in found["read"][0]["text"]


def test_settings_that_lose_writes(
    aiocosid: Command, valkey_factory: Callable[..., ValkeyServer]
) -> None:
    """Without an append-only file a grant may be lost; with one that is synced none is."""
    code, found = examined(aiocosid, "--store", valkey_factory().url)
    assert (code, statuses(found)["durable"]) == (0, "warning")
    assert "appendonly is no" in found["durable"][0]["text"]
    safe = valkey_factory("--aof-load-truncated", "no", persistent=True)
    code, found = examined(aiocosid, "--store", safe.url)
    assert statuses(found)["durable"] == "ok"


def test_a_server_that_is_down(
    aiocosid: Command, valkey_factory: Callable[..., ValkeyServer]
) -> None:
    """One failed line, and nothing else of that store; the same when it is silent."""
    server = valkey_factory()
    server.stop()
    code, found = examined(aiocosid, "--store", server.url)
    assert (code, statuses(found)) == (1, {"versions": "ok", "server": "failed"})
    server.start()
    server.pause()
    code, found = examined(aiocosid, "--store", server.url, "--timeout", "0.2")
    server.resume()
    assert (code, statuses(found)) == (1, {"versions": "ok", "server": "failed"})
    assert "0.2 s" in found["server"][0]["text"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app@localhost:1/shop",
        "mysql://app@localhost:1/shop",
        "zookeeper://localhost:1",
        "etcd://localhost:1",
        "nats://localhost:1",
        "aiocosid+http://localhost:1",
        "cosid+http://localhost:1",
        "postgresql+asyncpg://app@localhost:1/shop",
        "leaf+mysql://app@localhost:1/leaf",
    ],
)
def test_no_server_at_all(aiocosid: Command, url: str) -> None:
    """One failed line of every store."""
    code, found = examined(aiocosid, "--store", url)
    assert (code, statuses(found)) == (1, {"versions": "ok", "server": "failed"})


class TestRights:
    """What a user may not do."""

    def test_a_wrong_password(
        self, aiocosid: Command, valkey_password: ValkeyServer, postgres: PostgresServer
    ) -> None:
        """It is not repeated."""
        for url in (
            valkey_password.url_for(password=WRONG),
            postgres.url_for(user=GUEST, password=WRONG),
        ):
            ended = aiocosid("doctor", "--store", url)
            assert (ended.code, WRONG in ended.out + ended.err) == (1, False)
            assert ended.out.count("\nfailed ") == 1

    def test_a_user_who_may_only_look(
        self, aiocosid: Command, valkey_password: ValkeyServer
    ) -> None:
        """Counters can be read, the marker needs a script; a trial shows that no write works."""
        url = valkey_password.url_for(username=READER, password=valkey_password.password)
        code, found = examined(aiocosid, "--store", url, "--write")
        assert code == 1
        assert [each["status"] for each in found["write"]] == ["failed", "failed"]
        assert found["read"][0]["status"] == "failed"
        assert "the marker" in found["read"][0]["text"]
        assert statuses(found)["counters"] == "ok"

    def test_a_role_without_rights(
        self, aiocosid: Command, postgres: PostgresServer, postgres_database: str, namespace: str
    ) -> None:
        assert aiocosid("init", "--store", postgres_database).code == 0
        guest = postgres.url_for(user=GUEST, password=GUEST_PASSWORD, database=namespace)
        code, found = examined(aiocosid, "--store", guest)
        assert (code, statuses(found)["read"]) == (1, "failed")
        postgres.execute(
            f"GRANT SELECT ON cosid, aiocosid_cell, cosid_machine TO {GUEST}", database=namespace
        )
        code, found = examined(aiocosid, "--store", guest)
        assert (code, statuses(found)["read"]) == (0, "ok")
        code, found = examined(aiocosid, "--store", guest, "--write")
        assert (code, [each["status"] for each in found["write"]]) == (1, ["failed", "failed"])

    def test_a_role_of_mariadb_without_rights(
        self, aiocosid: Command, mariadb: MariadbServer, mariadb_database: str, namespace: str
    ) -> None:
        assert aiocosid("init", "--store", mariadb_database).code == 0
        mariadb.execute(f"GRANT SELECT ON `{namespace}`.* TO guest")
        guest = mariadb.url_for(user=GUEST, password=GUEST_PASSWORD, database=namespace)
        code, found = examined(aiocosid, "--store", guest, "--write")
        assert (code, [each["status"] for each in found["write"]]) == (1, ["failed", "failed"])
        assert found["read"][0]["status"] == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="libfaketime is preloaded on Linux")
def test_a_clock_that_differs(
    aiocosid: Command, valkey_factory: Callable[..., ValkeyServer]
) -> None:
    """An hour ahead is a failure that says so."""
    faketime = pytest.importorskip("libfaketime")
    library = next(map(str, Path(faketime.__file__).parent.rglob("libfaketime.so.1")))
    url = valkey_factory().url
    wrong: Any = {"LD_PRELOAD": library, "FAKETIME": "+3600", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    done = run("doctor", "--store", url, **wrong)
    assert (done.returncode, done.stderr) == (1, "")
    assert "failed   clock        60 min ahead of the store's" in done.stdout
    assert statuses(examined(aiocosid, "--store", url)[1])["clock"] == "ok"


class TestOtherStores:
    """Servers of ids, and stores over stores."""

    def test_an_id_service(self, aiocosid: Command) -> None:
        """What the store behind it has."""
        with IdServer() as server:
            url = f"aiocosid+http://{server.host}:{server.port}"
            code, found = examined(aiocosid, "--store", url, "--write")
            assert (code, "failed" in statuses(found).values()) == (0, False)

    def test_a_cosid_proxy(self, aiocosid: Command, cosid_proxy_url: str) -> None:
        """It cannot be read; a counter can be tried."""
        url = f"cosid+{cosid_proxy_url}"
        code, found = examined(aiocosid, "--store", url)
        assert (code, statuses(found)["server"]) == (0, "ok")
        assert {each["status"] for each in found["read"]} == {"skipped"}
        code, found = examined(aiocosid, "--store", url, "--write")
        assert (code, found["write"][0]["status"]) == (0, "ok")

    def test_a_tiered_store(
        self,
        aiocosid: Command,
        valkey_factory: Callable[..., ValkeyServer],
        tmp_path: Path,
    ) -> None:
        """The cache may lose what it has, and has no marker; an outage of it is a warning."""
        root, cache = f"sqlite:///{tmp_path}/ids.db", valkey_factory()
        aiocosid("init", "--store", root)
        config = tmp_path / "ids.toml"
        config.write_text(
            f'store = "fast"\n[stores.fast]\nroot = "{root}"\ncache = "{cache.url}"\n'
            '[generators.order]\nkind = "chain"\n'
        )
        url = f"tiered:?root={quote(root, safe='')}&cache={quote(cache.url, safe='')}"
        for where in (("--store", url), ("--config", config)):
            code, found = examined(aiocosid, *where, "--strict")
            assert (code, len(found["server"]), len(found["initialised"])) == (0, 2, 1)
        cache.stop()
        code, found = examined(aiocosid, "--store", url)
        assert (code, [each["status"] for each in found["server"]]) == (0, ["ok", "warning"])


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_a_tool_for_migrations_beside_the_tables(
    aiocosid: Command, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """A warning as long as its table is in the same schema."""
    url = url_of(kind, request, tmp_path)
    assert aiocosid("init", "--yes", "--store", url).code == 0
    assert "migrations" not in examined(aiocosid, "--store", url)[1]
    asyncio.run(create(url, "alembic_version", "app_orders"))
    found = examined(aiocosid, "--store", url)[1]["migrations"]
    assert [each["status"] for each in found] == ["warning"]
    assert "table alembic_version is in the same schema" in found[0]["text"]
    assert "aiocosid.integrations.alembic.options" in found[0]["remedy"]


def test_a_schema_of_ones_own_is_a_protection(aiocosid: Command, postgres_database: str) -> None:
    """The tables of ids are found by the search path; the tool keeps to its own schema."""
    asyncio.run(create(postgres_database, "public.alembic_version", schema="ids"))
    url = f"{postgres_database}?options=-csearch_path%3Dids"
    assert aiocosid("init", "--yes", "--store", url).code == 0
    assert "migrations" not in examined(aiocosid, "--store", url)[1]


async def create(url: str, *tables: str, schema: str = "") -> None:
    """Create empty tables, as a program beside the store."""
    engine = create_async_engine(
        url.replace("postgresql:", "postgresql+asyncpg:")
        .replace("mysql:", "mysql+asyncmy:")
        .replace("sqlite:", "sqlite+aiosqlite:")
    )
    async with engine.begin() as connection:
        if schema:
            await connection.execute(text(f"CREATE SCHEMA {schema}"))
        for table in tables:
            await connection.execute(text(f"CREATE TABLE {table} (id integer)"))
    await engine.dispose()
