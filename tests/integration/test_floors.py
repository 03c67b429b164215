"""Floors from the application's own tables, on real databases."""

from __future__ import annotations

import pytest

from tests.command import Command, in_process
from tests.servers import MariadbServer, PostgresServer

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
        assert aiocosid("init", "--yes", *where).code == 0
    else:
        driver = {"postgresql": "postgresql+asyncpg", "mysql": "mysql+asyncmy"}[scheme]
        where = ("--store", "memory://", "--data-url", shop.replace(scheme, driver, 1))
    words = ("set-floor", "order", "--namespace", namespace, "--create", *where, "--from-table")
    ended = aiocosid(*words, f"{schema}.order.select")
    assert (ended.code, ended.out, ended.err) == (0, f"{namespace}.order is at 4711\n", "")
    for column in (f"{schema}.order.nothing", f"{schema}.nothing.select"):
        refused = aiocosid(*words, column)
        assert (refused.code, refused.out) == (4, "")
        assert "nothing" in refused.err
        assert "aiocosid init" not in refused.err
