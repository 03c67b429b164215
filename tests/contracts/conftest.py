"""Each store in turn, opened on the test's own loop and closed with it.

``make test`` runs every store on one loop, of some a part that ``make stress`` completes; ``make
nightly`` runs them on the other loop too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from aiocosid.abc import Store
from tests.integration._id_service import serve_store

from ._stores import ENGINES, STORES, Backend

HERE = Path(__file__).parent

STRICT = {("test_strict", "TestOnOneStore")}
ON_ONE = {("test_distributors", "TestOnOneStore"), ("test_machines", "TestOnOneStore")}
OF_THEIR_OWN = {("test_distributors", "TestOnTheirOwn"), ("test_machines", "TestOnTheirOwn")}
COUNTERS = {("test_distributors", "TestOnOneStore"), *STRICT}
MACHINES = {("test_machines", "TestOnOneStore")}
BEHIND_A_SERVER = {"remote_etcd", "remote_nats", "remote_pg", "remote_zookeeper"}
OWN_STATEMENTS = {"etcd", "mariadb", "nats", "zookeeper"} | BEHIND_A_SERVER

NEEDED = {
    **dict.fromkeys(("remote", "tiered"), ON_ONE | OF_THEIR_OWN | STRICT),
    "remote_valkey": ON_ONE | STRICT,
    **{name: set[tuple[str, str]]() for name in BEHIND_A_SERVER},
    **dict.fromkeys(("http", "service", "tiered_pg"), ON_ONE | STRICT),
    **dict.fromkeys(("engine_my", "engine_pg", "etcd", "mariadb", "nats", "zookeeper"), COUNTERS),
    **{name: set[tuple[str, str]]() for name in ENGINES.keys() - {"engine_my", "engine_pg"}},
    "nats_three": set[tuple[str, str]](),
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

    ``nightly`` if it has a twin: Redis is Valkey's, on uvloop; uvloop is asyncio's else.  Of a
    store that `NEEDED` names, ``stress`` for the machine ids, if it keeps them in its own way.
    """
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    words = item.callspec.id.split("-")
    place = item.path.stem, "" if item.cls is None else item.cls.__name__
    for store in NEEDED.keys() & {*words}:
        if "asyncio" in words and place in NEEDED[store]:
            return None
        is_only_one = "asyncio" in words and place in MACHINES and store in OWN_STATEMENTS
        return pytest.mark.stress if is_only_one else pytest.mark.nightly
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
        if is_other or place in OF_THEIR_OWN - {("test_distributors", "TestOnTheirOwn")}:
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
        await store.create_schema(disposable=True)
        yield store
