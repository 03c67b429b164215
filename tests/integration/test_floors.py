"""Floors from the application's own tables, on real databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import Command, in_process
from tests.servers import MariadbServer, PostgresServer, ValkeyServer

pytestmark = pytest.mark.integration


@pytest.fixture
def aiocosid(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run ``aiocosid`` in this process."""
    return in_process(monkeypatch, capsys)


@pytest.fixture(params=["postgres", "mariadb"])
def shop(request: pytest.FixtureRequest, namespace: str) -> str:
    """The URL of a database with a table in a schema, of a name that has to be quoted."""
    if request.param == "postgres":
        url = str(request.getfixturevalue("postgres_database"))
        postgres: PostgresServer = request.getfixturevalue("postgres")
        table = 'CREATE SCHEMA own; CREATE TABLE own."order" ("select" numeric(20));'
        rows = 'INSERT INTO own."order" VALUES (17), (4711), (3)'
        postgres.execute(table + rows, database=namespace)
        return url
    url = str(request.getfixturevalue("mariadb_database"))
    mariadb: MariadbServer = request.getfixturevalue("mariadb")
    database = url.rpartition("/")[2]
    table = "CREATE TABLE `order` (`select` bigint unsigned);"
    rows = "INSERT INTO `order` VALUES (17), (4711), (3)"
    mariadb.execute(table + rows, database=database)
    return url


@pytest.mark.parametrize("is_own", [True, False])
def test_the_floor_is_the_highest_number(
    aiocosid: Command, shop: str, namespace: str, *, is_own: bool
) -> None:
    """In the store's own database, and in another one, by a driver of SQLAlchemy's."""
    scheme = shop.partition(":")[0]
    schema = "own" if scheme == "postgresql" else shop.rpartition("/")[2]
    where: tuple[str, ...] = ("--store", shop)
    if is_own:
        assert aiocosid("init", "--confirm-no-holders", *where).code == 0
    else:
        driver = {"postgresql": "postgresql+asyncpg", "mysql": "mysql+asyncmy"}[scheme]
        where = ("--store", "memory://", "--data-url", shop.replace(scheme, driver, 1))
    words = ("set-floor", "order", "--namespace", namespace, "--create", *where, "--from-table")
    ended = aiocosid(*words, f"{schema}.order.select")
    assert (ended.code, ended.out) == (0, f"{namespace}.order is at 4711\n")
    for column in (f"{schema}.order.nothing", f"{schema}.nothing.select"):
        refused = aiocosid(*words, column)
        assert (refused.code, refused.out) == (4, "")
        assert "nothing" in refused.err
        assert "aiocosid init" not in refused.err


def test_a_counter_of_the_period_to_come(
    aiocosid: Command,
    valkey: ValkeyServer,
    postgres_database: str,
    tmp_path: Path,
    namespace: str,
) -> None:
    """It is seen on each generator's own store; nothing is written there."""
    lines = [f'namespace = "{namespace}"']
    for name, url in (("cache", valkey.url), ("books", postgres_database)):
        lines += [f"[generators.{name}]", 'kind = "grouped"', f'store = "{url}"']
        lines += ['group_by = "year"', 'zone = "UTC"']
        assert (
            aiocosid("init", "--confirm-no-holders", "--namespace", namespace, "--store", url).code
            == 0
        )
    config = tmp_path / "ids.toml"
    config.write_text("\n".join(lines))
    check = ("groups", "check", str(config), "--at", "2099-01-01")
    assert aiocosid(*check).code == 0
    words = ("next", "books@2099", "--namespace", namespace, "--store", postgres_database)
    assert aiocosid(*words).code == 0
    ended = aiocosid(*check)
    assert (ended.code, ended.err) == (1, "")
    told = f"problem: books: counter {namespace}.books@2099 exists already, at 1\n"
    assert ended.out.endswith(told)
    assert aiocosid(*words).out == "2\n"


def test_counters_go_on_after_a_loss(
    aiocosid: Command, postgres: PostgresServer, postgres_database: str, namespace: str
) -> None:
    """Tables that were dropped are made again above what the application's own table has."""
    where = ("--store", postgres_database)
    assert aiocosid("init", *where).code == 0
    assert aiocosid("next", "bill", *where).code == 0
    ours = "cosid, cosid_machine, aiocosid_cell"
    postgres.execute(f"DROP TABLE {ours}", database=namespace)
    postgres.execute("CREATE TABLE bills (id bigint)", database=namespace)
    postgres.execute("INSERT INTO bills VALUES (7), (77)", database=namespace)
    refused = aiocosid("init", "--yes", *where)
    assert (refused.code, "--after-loss" in refused.err) == (4, True)
    floors = ("--floor", "order=10", "--floor-from", "bill=bills.id")
    words = ("init", "--after-loss", "--namespace", "cosid", *floors)
    ended = aiocosid(*words, "--yes", *where)
    assert (ended.code, ended.err) == (0, "")
    told = ["counter cosid.order continues above 10", "counter cosid.bill continues above 77"]
    assert ended.out.splitlines()[:2] == told
    assert [aiocosid("next", each, *where).out for each in ("order", "bill")] == ["11\n", "78\n"]
    assert aiocosid("snowflake", "--timeout", "1", *where).code == 3
