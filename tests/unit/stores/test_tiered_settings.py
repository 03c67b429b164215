"""How a tiered store is asked for: by a URL, in settings, by hand; nothing is sent."""

from __future__ import annotations

import re
import socket
from typing import Any
from urllib.parse import quote

import pytest

from aiocosid import connect, open_store
from aiocosid.abc import IdSegmentDistributor
from aiocosid.errors import InvalidArgumentError, InvalidSettingsError
from aiocosid.settings import check_settings, load_settings
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.tiered import TieredIdSegmentDistributor, TieredStore
from aiocosid.stores.tiered._root_name import PROCESS

HERE = socket.gethostname()
CACHE = "redis://:s3cret%2Fx@localhost/0"


def test_a_url() -> None:
    """Plain if nothing in it needs quoting; else percent-encoded once more."""
    store = open_store("tiered:?root=memory://&cache=redis://localhost/0&span=5000&pause=0.5")
    assert isinstance(store, TieredStore)
    assert (store.span, store.cache_timeout) == (5000, 0.75)
    quoted = f"tiered:?root={quote('sqlite:///a b.db')}&cache={quote(CACHE, safe='')}"
    assert "s3cret" not in repr(open_store(quoted))
    for root, name in {
        "postgresql://app:s3cret@db:5433/shop": "db:5433/shop",
        "postgresql://app@localhost/shop": f"{HERE} localhost/shop",
        "postgresql://app@db-1,db-2/shop": "db-1,db-2/shop",
        "postgresql:///shop": f"{HERE} /shop",
        "sqlite:////var/ids.db": f"{HERE} /var/ids.db",
        "memory://": f"memory {PROCESS}",
    }.items():
        store = open_store(f"tiered:?root={quote(root, safe='')}&cache=redis://h")
        assert isinstance(store, TieredStore)
        assert store._root_name == name
    assert "server localhost:6379 on <SqliteStore" in repr(open_store(quoted)).replace(
        "> on", " on"
    )


def test_a_url_that_is_none() -> None:
    """What is wrong is told without what may be secret."""
    cache = quote(CACHE)
    nested = quote("tiered:?root=memory://&cache=redis://h", safe="")
    for url, words in {
        "tiered:": "tiered:?root=URL&cache=URL",
        f"tiered:?root=memory://&cash={cache}": "tiered:?root=URL&cache=URL",
        f"tiered:?root=memory://&cache={cache}&x=1": "options are root, cache, span",
        f"tiered:?root=memory://&cache={cache}&span=many": "a number",
        f"tiered:?root=memory://&cache={cache}&span=0": "an integer from 1",
        "tiered:?root=memory://&cache=memory://": "a RedisStore",
        "tiered:?root=nowhere://&cache=redis://h": "begins with",
        f"tiered:?root={nested}&cache=redis://h": "no TieredStore",
    }.items():
        with pytest.raises(InvalidArgumentError, match=re.escape(words)) as caught:
            open_store(url)
        assert "s3cret" not in str(caught.value)


@pytest.mark.asyncio
async def test_settings() -> None:
    """A table that names its root, which others may use as well; machine ids are the root's."""
    settings = {
        "stores": {
            "main": "memory://",
            "fast": {"root": "main", "cache": CACHE, "span": 5000},
        },
        "generators": {
            "order": {"kind": "chain", "store": "fast"},
            "flake": {"kind": "snowflake", "store": "fast"},
            "other": {"kind": "snowflake", "store": "main"},
        },
    }
    report = check_settings(settings)
    assert report.generators[0].store == "tiered: main under redis://***@localhost/0"
    assert not any("machine ids from another store" in each.reason for each in report.warnings)
    loaded = load_settings(settings)
    assert "s3cret" not in repr(loaded)
    assert load_settings(loaded) == loaded


def test_settings_that_are_none() -> None:
    """Each mistake is at its key."""
    for table, said in {
        ("root", "main"): "stores.fast.cache: is missing",
        ("root", "main", "cache", "memory://"): "stores.fast.cache: has to be a RedisStore",
        ("root", "mian", "cache", CACHE): "stores.fast.root: has to be a URL",
        ("root", "fast", "cache", CACHE): "stores.fast.root: is a tiered store itself",
        ("root", "main", "cache", CACHE, "spam", 5): "stores.fast.spam: is no key here; did you",
        ("root", "main", "cache", CACHE, "span", 0): "stores.fast.span: it has to be greater",
    }.items():
        fast = dict(zip(table[::2], table[1::2], strict=True))
        stores = {"main": "memory://", "fast": fast}
        with pytest.raises(InvalidSettingsError) as caught:
            load_settings({"stores": stores})
        assert [said] == [str(each)[: len(said)] for each in caught.value.problems]
        assert "s3cret" not in str(caught.value)


@pytest.mark.asyncio
async def test_by_hand() -> None:
    """Root and cache have to be what they are to be, and to have one name."""
    root, cache = MemoryStore(), RedisStore.from_url("redis://localhost:1/0")
    one, other = (cache.segment_distributor(namespace="shop", name=name) for name in "ab")
    counter = root.segment_distributor(namespace="shop", name="a", offset=7, step=50)
    made = TieredIdSegmentDistributor(counter, one)
    assert (made.namespaced_name, made.offset, made.step) == ("shop.a", 7, 50)
    wrong: tuple[tuple[object, object, dict[str, object]], ...] = (
        (counter, other, {}),
        (counter, counter, {}),
        (one.namespaced_name, one, {}),
        (counter, one, {"span": 0}),
        (counter, one, {"span": 2**63}),
        (counter, one, {"cache_timeout": 0}),
        (counter, one, {"pause": -1}),
    )
    for root_given, cache_given, options in wrong:
        with pytest.raises(InvalidArgumentError):
            TieredIdSegmentDistributor(root_given, cache_given, **options)  # type: ignore[arg-type]  # on purpose
    nothing: Any
    for nothing in (None, root.segment_distributor(name="a"), TieredStore(root, cache)):
        with pytest.raises(InvalidArgumentError):
            TieredStore(nothing, cache)
        with pytest.raises(InvalidArgumentError):
            TieredStore(root, nothing)
    async with connect(TieredStore(root, cache, pause=0)) as ids:
        chain = await ids.segment_chain("order")
        assert await chain.next_id() == 1, "the root serves"
        assert chain.statistics().as_tree()["distributor"]["segmentsFromRoot"] > 0


class Unnamed(IdSegmentDistributor):
    """A counter of somebody's own, of which nothing tells the place."""

    async def next_max_id(self, step: int) -> int:
        raise NotImplementedError


def test_a_root_that_cannot_be_told_from_others_has_to_be_named() -> None:
    """Else two databases with counters of one name would mix their spans, and repeat ids."""
    cache = RedisStore.from_url("redis://h").segment_distributor(name="n")
    with pytest.raises(InvalidArgumentError, match=r"root_name is None.*this store root"):
        TieredIdSegmentDistributor(Unnamed(name="n"), cache)
    TieredIdSegmentDistributor(Unnamed(name="n"), cache, root_name="mine")
    with pytest.raises(InvalidArgumentError, match="root_name"):
        TieredIdSegmentDistributor(Unnamed(name="n"), cache, root_name="")
