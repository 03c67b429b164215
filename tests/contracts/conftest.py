"""Each store in turn, opened on the test's own loop and closed with it.

``make test`` runs the counters of every store on one loop, and machine ids on four kinds of them;
``make nightly`` runs the others, and the other loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from aiocosid.abc import Store
from tests.integration._id_service import serve_store
from tests.servers._process import CHOSEN

from ._stores import ENGINES, STORES, Backend

HERE = Path(__file__).parent

COUNTERS = {("test_distributors", "TestOnOneStore"), ("test_strict", "TestOnOneStore")}
OWN_STATEMENTS = {"etcd", "mariadb", "nats", "redis", "zookeeper"}
WHOLE_MACHINES = {"memory", "sqlite", "postgres", "valkey"} | (OWN_STATEMENTS if CHOSEN else set())
"""Where `make test` has the whole contract of machine ids: the rules are the same on all stores.
What the others write, and that they write all or nothing, is in tests/integration/test_cells.py.
`make server` has it on the version that it is about."""
BEHIND_A_SERVER = {"remote_etcd", "remote_nats", "remote_pg", "remote_zookeeper"}

NEEDED = {
    **{name: set[tuple[str, str]]() for name in BEHIND_A_SERVER | ENGINES.keys() | {"nats_three"}},
    **dict.fromkeys(("remote", "tiered"), COUNTERS | {("test_distributors", "TestOnTheirOwn")}),
    **dict.fromkeys(("http", "remote_valkey", "service", "tiered_pg"), COUNTERS),
    **dict.fromkeys(("engine_my", "engine_pg", "etcd", "mariadb", "nats", "zookeeper"), COUNTERS),
}
"""What `make test` runs of stores that differ in little from others: connections of their own in
nothing but their number, MariaDB from PostgreSQL in statements that have vectors as well."""

FURTHER = BEHIND_A_SERVER | {
    *("etcd", "http", "mariadb", "nats", "nats_three", "service", "tiered_pg", "zookeeper"),
    *("remote", "remote_valkey"),
}
ONE_KIND = FURTHER | {"redis"}

NOT_ON_TRIO = {"chain-1", "chain-1000", "far-chain-7", "segment-1", "segment-1000"}  # kinds


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave for later what nearly repeats another test, and out what does so wholly."""
    void = {item for item in items if HERE in item.path.parents and is_void(item)}
    items[:] = [item for item in items if item not in void]
    config.hook.pytest_deselected(items=list(void))
    for item in items:
        if HERE in item.path.parents and (tier := tier_of(item)) is not None:
            item.add_marker(tier)


def tier_of(item: pytest.Item) -> pytest.MarkDecorator | None:
    """Return the mark of a test that `make test` leaves out.

    ``nightly`` if it has a twin: Redis is Valkey's, on uvloop; uvloop is asyncio's else.
    """
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    words = item.callspec.id.split("-")
    place = item.path.stem, "" if item.cls is None else item.cls.__name__
    if item.path.stem == "test_machines":
        if WHOLE_MACHINES.isdisjoint(words):
            return pytest.mark.nightly
    else:
        for store in NEEDED.keys() & {*words}:
            is_needed = "asyncio" in words and place in NEEDED[store]
            return None if is_needed else pytest.mark.nightly
    if "asyncio" in words or "uvloop" in words:
        return pytest.mark.nightly if ("uvloop" in words) != ("redis" in words) else None
    return pytest.mark.nightly if item.callspec.params.get("kind") in NOT_ON_TRIO else None


def is_void(item: pytest.Item) -> bool:
    """Tell whether a test has nothing to tell that another one does not.

    Of an engine: what is not about SQLAlchemy.  Of the further stores, which differ in what their
    distributors do: all but their counters on the other loop, and all but one generator; as of
    Redis, which is Valkey's twin.  Of the twins: Valkey on uvloop, and Redis on asyncio.
    """
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    words = {*item.callspec.id.split("-")}
    kind = "" if item.cls is None else item.cls.__name__
    if {"valkey", "uvloop"} <= words or {"redis", "asyncio"} <= words:
        return True  # of one protocol: each of the two servers on a loop of its own
    if FURTHER & words:
        place = item.path.stem, kind
        is_other = "uvloop" in words and place not in COUNTERS
        if is_other or place == ("test_machines", "TestOnTheirOwn"):
            return True  # connections of their own differ in nothing but their number
    if ONE_KIND & words:
        return item.callspec.params.get("kind") in NOT_ON_TRIO | {"segment-7"}
    if ENGINES.keys().isdisjoint(words):
        return False
    return "uvloop" in words or kind != "TestOnOneStore" or "two_hundred_lives" in item.name


@pytest.fixture(scope="session")
def id_server() -> Iterator[Callable[[str, bool], str]]:
    """Serve stores, each for the whole session; gives the URL of the client."""
    urls: dict[tuple[str, bool], str] = {}
    with ExitStack() as stack:

        def served(url: str, is_unix: bool) -> str:
            if (url, is_unix) not in urls:
                urls[url, is_unix] = stack.enter_context(serve_store(url, is_unix=is_unix))
            return urls[url, is_unix]

        yield served


@pytest.fixture(params=[*STORES, *ENGINES])
def backend(request: pytest.FixtureRequest) -> Backend:
    """One of the kinds of store."""
    return (STORES | ENGINES)[request.param](request)


@pytest_asyncio.fixture
async def store(backend: Backend) -> AsyncIterator[Store]:
    """An open store with its tables, and its marker."""
    async with backend.open() as store:
        await backend.prepare(store)
        yield store
