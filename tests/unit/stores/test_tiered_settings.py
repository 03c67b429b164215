"""How a tiered store is asked for: by a URL, in settings, by hand; nothing is sent."""

from __future__ import annotations

import re
import socket
from typing import Any
from urllib.parse import quote

import pytest

from aiocosid import configure, connect, store_from_url
from aiocosid.abc import IdSegmentDistributor
from aiocosid.abc.events import CacheLost, Event
from aiocosid.errors import InvalidArgumentError, InvalidSettingsError
from aiocosid.provider.settings import check_settings, load_settings
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.tiered import TieredStore, name_of_url

HERE = socket.gethostname()
CACHE = "redis://:s3cret%2Fx@localhost/0"


def test_a_url() -> None:
    """Plain if nothing in it needs quoting; else percent-encoded once more."""
    store = store_from_url("tiered:?root=memory://&cache=redis://localhost/0&span=5000&pause=0.5")
    assert isinstance(store, TieredStore)
    assert (store.span, store.cache_timeout) == (5000, 0.75)
    quoted = f"tiered:?root={quote('sqlite:///a b.db')}&cache={quote(CACHE, safe='')}"
    assert "s3cret" not in repr(store_from_url(quoted))
    named = store_from_url("tiered:?root=postgresql://db/shop&cache=redis://h&root_name=mine")
    assert isinstance(named, TieredStore)
    assert named._root_name == "mine"
    assert "redis localhost:6379/0 on <SqliteStore" in repr(store_from_url(quoted)).replace(
        "> on", " on"
    )


def test_a_plus_is_no_space() -> None:
    """As in the schemes of Cluster and Sentinel, plain within the URL, or quoted."""
    for scheme in ("redis+cluster", "rediss+cluster"):
        for cache in (f"{scheme}://h:1", quote(f"{scheme}://h:1", safe="")):
            assert "h:1" in repr(store_from_url(f"tiered:?root=memory:&cache={cache}"))
    store_from_url("tiered:?root=memory:&cache=redis+sentinel://a,b/service/0")


def test_the_name_of_a_root_by_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two names for all that may be two databases; none of them tells a password."""
    for variable in ("PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGOPTIONS", "PGSERVICE"):
        monkeypatch.delenv(variable, raising=False)
    for root, name in {
        "postgresql://app:s3cret@db:5433/shop": "app@db:5433/shop",
        "postgresql://app@LOCALHOST/shop": f"{HERE} app@localhost/shop",
        "postgresql://app@127.0.0.1/shop": f"{HERE} app@127.0.0.1/shop",
        "postgresql://app@db-1,db-2/shop": "app@db-1,db-2/shop",
        "postgresql://app@db,localhost/shop": f"{HERE} app@db,localhost/shop",
        "postgresql://app@/shop": f"{HERE} app@/shop",
        "postgresql://app@db/shop?connect_timeout=3&sslpassword=s3cret&password=s3cret": (
            "app@db/shop"
        ),
        "sqlite:////var/ids.db": None,
        "memory://": None,
    }.items():
        assert name_of_url(root) == name
    several = (
        "postgresql://alice:pw@db/shop",
        "postgresql://bob:pw@db/shop",
        "postgresql://db/shop",
        "postgresql://alice:pw@db:5433/shop",
        "postgresql://alice:pw@db/shop?search_path=t1",
        "postgresql://alice:pw@db/shop?search_path=t2",
        "postgresql://alice:pw@db/shop?options=-csearch_path%3Dt1",
        "postgresql://alice@/shop?host=/run/a",
        "postgresql://alice@/shop?host=/run/b",
        "postgresql://alice@/shop?host=/run/b&port=5433",
        "unix:///p?db=1",
        "unix:///p?db=2",
    )
    assert len({name_of_url(each) for each in several}) == len(several)
    one, other = (f"postgresql://a:pw@db/shop?{each}" for each in ("x=1&y=2", "y=2&x=1"))
    assert name_of_url(one) == name_of_url(other)
    before = name_of_url(several[0])
    monkeypatch.setenv("PGOPTIONS", "-c search_path=t3")
    assert name_of_url(several[0]) != before


def test_a_name_for_each_memory() -> None:
    """Two of one process are two roots; its own name is found again."""
    cache = RedisStore.from_url("redis://h")
    one, other = MemoryStore(), MemoryStore()
    names = [
        TieredStore(root, cache).segment_distributor(name=name)._span._root
        for root in (one, other)
        for name in "ab"
    ]
    assert names[0] == names[1] != names[2] == names[3]


def test_a_url_that_is_none() -> None:
    """What is wrong is told without what may be secret."""
    cache = quote(CACHE)
    nested = quote("tiered:?root=memory://&cache=redis://h", safe="")
    for url, words in {
        "tiered:": "tiered:?root=URL&cache=URL",
        f"tiered:?root=memory://&cash={cache}": "tiered:?root=URL&cache=URL",
        f"tiered:?root=memory://&cache={cache}&x=1": "with options root, cache, span",
        f"tiered:?root=memory://&cache={cache}&span=many": "a number",
        f"tiered:?root=memory://&cache={cache}&span=0": "an integer from 1",
        "tiered:?root=memory://&cache=memory://": "a RedisStore",
        "tiered:?root=nowhere://&cache=redis://h": "must begin with",
        f"tiered:?root={nested}&cache=redis://h": "neither a RedisStore nor a TieredStore",
        "tiered:?root=redis://h&cache=redis://h": "a durable store, neither a RedisStore",
        f"tiered:?root=memory://&cache={cache}&span={2**40 + 1}": "an integer from 1",
    }.items():
        with pytest.raises(InvalidArgumentError, match=re.escape(words)) as caught:
            store_from_url(url)
        assert "s3cret" not in str(caught.value)


async def test_settings() -> None:
    """A table that names its root, which others may use as well; machine ids are the root's."""
    settings = {
        "stores": {
            "main": "memory://",
            "fast": {"root": "main", "cache": CACHE, "span": 5000, "root_name": "mine"},
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
        ("root", "main", "cache", "memory://"): "stores.fast.cache: must be a RedisStore",
        ("root", "mian", "cache", CACHE): "stores.fast.root: is not a name in [stores]",
        ("root", "fast", "cache", CACHE): "stores.fast.root: is a tiered store itself",
        ("root", "main", "cache", CACHE, "spam", 5): "stores.fast.spam: is not a key here; did you",
        ("root", "main", "cache", CACHE, "span", 0): "stores.fast.span: must be greater",
        ("root", "main", "cache", CACHE, "span", 2**41): "stores.fast.span: must be less",
        (
            "root",
            CACHE,
            "cache",
            CACHE,
        ): "stores.fast.root: must be a durable store, neither a RedisSt",
    }.items():
        fast = dict(zip(table[::2], table[1::2], strict=True))
        stores = {"main": "memory://", "fast": fast}
        with pytest.raises(InvalidSettingsError) as caught:
            load_settings({"stores": stores})
        assert [said] == [str(each)[: len(said)] for each in caught.value.problems]
        assert "s3cret" not in str(caught.value)


async def test_by_hand() -> None:
    """Root and cache have to be what they are to be."""
    root, cache = MemoryStore(), RedisStore.from_url("redis://localhost:1/0")
    made = TieredStore(root, cache).segment_distributor(
        namespace="shop", name="a", offset=7, step=50
    )
    assert (made.namespaced_name, made.offset, made.step) == ("shop.a", 7, 50)
    options: tuple[dict[str, Any], ...] = (
        *({"span": 0}, {"span": 2**40 + 1}),
        *({"cache_timeout": 0}, {"pause": -1}),
    )
    for wrong in options:
        with pytest.raises(InvalidArgumentError):
            TieredStore(root, cache, **wrong)
    nothing: Any
    fast = cache.segment_distributor(namespace="shop", name="a")
    for nothing in (
        *(None, "shop.a", fast, made, TieredStore(root, cache)),
        root.segment_distributor(name="a"),
    ):
        with pytest.raises(InvalidArgumentError):
            TieredStore(nothing, cache)
        with pytest.raises(InvalidArgumentError):
            TieredStore(root, nothing)
    with pytest.raises(InvalidArgumentError, match="a durable store, neither a RedisStore"):
        TieredStore(cache, cache)
    with pytest.raises(InvalidArgumentError, match=r"at least the step, 51, not 50"):
        TieredStore(root, cache, span=50).segment_distributor(name="n", step=51)
    async with connect(TieredStore(root, cache, pause=0)) as ids:
        chain = await ids.segment_chain("order")
        assert await chain.next_id() == 1, "the root serves"
        tree: dict[str, Any] = chain.statistics().as_tree()
        assert tree["distributor"]["segmentsFromRoot"] > 0


class Unnamed(IdSegmentDistributor):
    """A counter of somebody's own, of which nothing tells the place."""

    async def next_max_id(self, step: int) -> int:
        raise NotImplementedError


class OfUnnamed(MemoryStore):
    """A store of somebody's own."""

    def segment_distributor(self, **described: Any) -> Any:
        return Unnamed(**described)


def test_a_root_that_cannot_be_told_from_others_has_to_be_named() -> None:
    """Else two databases with counters of one name would mix their spans, and repeat ids."""
    cache = RedisStore.from_url("redis://h")
    with pytest.raises(InvalidArgumentError, match=r"root_name is required for this store root"):
        TieredStore(OfUnnamed(), cache)
    TieredStore(OfUnnamed(), cache, root_name="mine")
    with pytest.raises(InvalidArgumentError, match="root_name"):
        TieredStore(OfUnnamed(), cache, root_name="")


class Heard(list[Event]):
    """An instrument that keeps what it hears."""

    def on_event(self, event: Event, /) -> None:
        self.append(event)


async def test_the_instrument_of_a_provider_hears_its_store() -> None:
    """Of one that was made from a URL, as of one in settings; one by hand has its own."""
    url = "tiered:?root=memory://&cache=redis://localhost:1/0"
    settings = {"store": url, "generators": {"order": {"kind": "chain"}}}
    heard = Heard()
    async with connect(url, instrument=heard) as ids:
        await (await ids.segment_chain("order")).next_id()
    async with configure(settings, default=False, instrument=heard) as configured:
        await configured["order"].next_id()
    assert [each.name for each in heard if isinstance(each, CacheLost)] == ["order", "order"]


async def test_machine_ids_are_the_root_s() -> None:
    """All of it, the markers too; the cache is not even asked."""
    memory = MemoryStore()
    store = TieredStore(memory, RedisStore.from_url("redis://localhost:1/0"))
    memory.forget_machines(namespace="shop")
    assert (await store.initialize_namespace(namespace="shop")).is_quarantined
    assert (await store.initialize_namespace(namespace="shop", confirm_no_holders=True)).is_created
    assert not (await store.machine_markers(namespace="shop"))[0].is_quarantined
    one = store.machine_id_distributor(namespace="shop", instance_id="one")
    grant = await one.distribute(3, now_ms=1, latest_ms=2**53)
    assert await store.machine_bits(namespace="shop") == 3
    assert [each.instance_id for each in await store.machines(namespace="shop")] == ["one"]
    await store.evict_machine(namespace="shop", machine_id=grant.machine_id)
    await store.set_machine_bits(namespace="shop", bits=4)
    assert await memory.machine_bits(namespace="shop") == 4
