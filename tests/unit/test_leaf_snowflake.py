"""What of Leaf's snowflakes needs no server: its files, its keys, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiocosid import store_from_url
from aiocosid.abc import MachineIdDistributor
from aiocosid.compat._stamps import LIVES, claim_stamp, stamp
from aiocosid.compat.leaf_snowflake import (
    LeafLocalStore,
    decode,
    settings_from_leaf,
)
from aiocosid.compat.leaf_snowflake.zookeeper import LeafZkNormalStore
from aiocosid.errors import (
    CorruptMachineStateError,
    InvalidArgumentError,
    InvalidIdError,
    MachineIdInUseError,
    StoreError,
    UnsupportedByStoreError,
)
from aiocosid.machine import ManualMachineIdDistributor
from aiocosid.snowflake import LEAF, SnowflakeId, SnowflakeLayout

NOW = 1_790_000_000_000
MAP = {"10.0.0.1:8080": 7, "10.0.0.2:8080": 0}


def test_ids_that_leaf_printed() -> None:
    """The samples of its code, and another epoch than its server reckons with."""
    assert decode(1256557484213448722, LEAF, zone="Asia/Shanghai") == {
        "timestamp": "1588421624602(2020-05-02 20:13:44.602)",
        "workerId": "619",
        "sequenceId": "18",
    }
    sample = LEAF.compose(1567733700834 - LEAF.epoch_ms, 39, 3448)
    assert decode(sample, LEAF, zone="+08:00") == {
        "timestamp": "1567733700834(2019-09-06 09:35:00.834)",
        "workerId": "39",
        "sequenceId": "3448",
    }
    own = SnowflakeLayout(41, 10, 12, "ms", 1_500_000_000_000)
    assert decode(own.compose(5, 1, 2), own, zone="UTC")["timestamp"].startswith("1500000000005(")
    with pytest.raises(InvalidIdError):
        decode(-9223372036854775793, LEAF, zone="UTC")


def test_stamps() -> None:
    """Each life has a remainder of its own, the one after that of the life before."""
    found = NOW
    for now_ms in (NOW - 1000, NOW, NOW + 5000, NOW + 5000):
        mine = claim_stamp(found, now_ms)
        assert mine % LIVES == (found + 1) % LIVES
        assert max(found + 1, now_ms) <= mine < max(found + 1, now_ms) + LIVES
        mark = stamp(mine, now_ms + 4500)
        assert mark % LIVES == mine % LIVES
        assert 0 <= mark - now_ms - 4500 < LIVES
        found = mark
    assert claim_stamp(-1, 0) == 0


# The map and the files.


def local(tmp_path: Path, ip: str = "10.0.0.1", **about: Any) -> Any:
    told: dict[str, Any] = {"work_id_map": MAP, "name": "shop", "port": 8080, **about}
    return LeafLocalStore(ip=ip, directory=tmp_path, **told).machine_id_distributor()


async def take(one: MachineIdDistributor) -> tuple[int, int]:
    grant = await one.distribute(10, now_ms=NOW, latest_ms=NOW)
    return grant.machine_id, grant.floor_ms


async def test_golden_file(tmp_path: Path) -> None:
    """The fork's file before and after; its own, read back, is the floor."""
    path = tmp_path / "shop" / "leafconf" / "8080" / "workerID.json"
    one = local(tmp_path)
    assert await take(one) == (7, -1)
    await one.renew(7, now_ms=NOW, fence_ms=NOW + 4500)
    text = '{"ip":"10.0.0.1","port":"8080","workId":7,"timestamp":1790000004500}'
    assert path.read_text() == text
    await one.renew(7, now_ms=NOW - 1, fence_ms=NOW - 1)
    assert path.read_text() == text
    with pytest.raises(MachineIdInUseError, match="process"):
        await take(local(tmp_path))
    await one.release(7, last_ms=NOW + 10)
    assert json.loads(path.read_text())["timestamp"] == NOW + 10
    await one.release(7, last_ms=NOW + 5)
    path.write_text(text.replace("10.0.0.1", "172.17.0.2"))
    assert await take(local(tmp_path)) == (7, NOW + 4500)
    async with SnowflakeId(
        local(tmp_path, "10.0.0.2", port="8081", work_id_map={"10.0.0.2:8081": 0})
    ) as gen:
        assert await gen.next_id() > 0


async def test_a_number_on_two_ports(tmp_path: Path) -> None:
    """Maps that disagree give it to two processes of a host: they share the lock, and the mark."""
    one = local(tmp_path, work_id_map={"10.0.0.1:8080": 7})
    two = local(tmp_path, port=8081, work_id_map={"10.0.0.1:8081": 7})
    assert await take(one) == (7, -1)
    await one.renew(7, now_ms=NOW, fence_ms=NOW + 4500)
    with pytest.raises(MachineIdInUseError, match="process"):
        await take(two)
    await one.aclose()
    assert await take(two) == (7, NOW + 4500)
    await two.renew(7, now_ms=NOW, fence_ms=NOW + 5000)
    files = (tmp_path / "shop" / "leafconf").glob("*/workerID.json")
    found = {path.parent.name: json.loads(path.read_text())["timestamp"] for path in files}
    assert found == {"8080": NOW + 4500, "8081": NOW + 5000}
    await two.aclose()


async def test_leafs_own_file(tmp_path: Path) -> None:
    """With and without the time, and in the shape that Java's Properties write: I11."""
    directory = tmp_path / "shop" / "leafconf" / "8080"
    directory.mkdir(parents=True)
    path = directory / "workerID.properties"
    for text, floor_ms in (
        ("workerID=7", -1),
        (f"#Sun Nov 22\n workerID = 7 \nmaxTimestamp={NOW - 5}\n", NOW - 5),
    ):
        path.write_text(text)
        one = local(tmp_path, name="shop")
        found = await take(one)
        assert found[0] == 7
        assert found[1] >= floor_ms
        await one.renew(7, now_ms=NOW, fence_ms=NOW + 4500)
        assert path.read_text() == f"workerID=7\nmaxTimestamp={NOW + 4500}\n"
        await one.aclose()
        (directory.parent / "aiocosid.bGVhZi5zaG9w.7.mark").unlink()
    assert not (directory / "workerID.json").exists()


async def test_a_stale_file_does_not_win(tmp_path: Path) -> None:
    """Nor does it lose in silence: I10; and what is damaged is told."""
    directory = tmp_path / "shop" / "leafconf" / "8080"
    directory.mkdir(parents=True)
    one = local(tmp_path)
    for name, stale in (("json", '{"workId":3,"timestamp":1}'), ("properties", "workerID=3")):
        path = directory / f"workerID.{name}"
        path.write_text(stale)
        for _ in range(2):
            with pytest.raises(
                StoreError,
                match=r"names worker id 3, but workIdMap gives 10\.0\.0\.1:8080 the worker id 7",
            ):
                await take(one)
        for bad in ("", "x", "[]", '{"workId":7}', '{"workId":true,"timestamp":1}', "workerID=-1"):
            path.write_text(bad)
            with pytest.raises(CorruptMachineStateError, match="workerID"):
                await take(one)
        path.unlink()
    assert await take(one) == (7, -1)
    await one.aclose()


def test_maps_that_are_no_good(tmp_path: Path) -> None:
    maps: list[Any] = [
        *({}, "{}", "[]", "x", {"10.0.0.1:8080": -1}, {"10.0.0.1:8080": True}),
        *({"10.0.0.1:8080": 1, "10.0.0.2:8080": 1}, {"10.0.0.1": 1}, {"10.0.0.2:8080": 1}),
        *('{"10.0.0.1:8080":1,"10.0.0.1:8080":2}', None, 5),
    ]
    for bad in maps:
        with pytest.raises(InvalidArgumentError, match=r"10\.0\.0\.1|ip:port"):
            local(tmp_path, work_id_map=bad)
    assert local(tmp_path, work_id_map=json.dumps(MAP)).machine_id == 7
    for bad in ("", "a/b", ".."):
        with pytest.raises(InvalidArgumentError, match="name"):
            local(tmp_path, name=bad)


async def test_a_local_store(tmp_path: Path) -> None:
    told = f"name=shop&ip=10.0.0.1&port=8080&map={json.dumps(MAP)}"
    store = LeafLocalStore.from_url(f"leaf-local+file://{tmp_path}?{told}")
    machine = store.machine_id_distributor()
    assert (await machine.distribute(10, now_ms=NOW, latest_ms=NOW)).machine_id == 7
    await store.aclose()
    assert (tmp_path / "shop").is_dir()
    with pytest.raises(UnsupportedByStoreError):
        store.segment_distributor(name="a")
    for bad in (f"leaf-local+http://x?{told}", f"leaf-local+file://{tmp_path}?{told}&x=1"):
        with pytest.raises(InvalidArgumentError, match="file"):
            LeafLocalStore.from_url(bad)
    with pytest.raises(InvalidArgumentError, match="map"):
        LeafLocalStore.from_url("leaf-local+file:///tmp?name=a&ip=b&port=1")


# Its keys.

OFF = {"leaf.name": "shop", "leaf.segment.enable": "false", "leaf.snowflake.enable": "false"}
JDBC = {
    "leaf.jdbc.url": "jdbc:mysql://db:3306/leaf?useUnicode=true&characterEncoding=utf8",
    "leaf.jdbc.username": "app",
    "leaf.jdbc.password": "p@ss/w?rd",
}
SEGMENTS = {**OFF, **JDBC, "leaf.segment.enable": "true"}
SNOWFLAKES = {**OFF, "leaf.snowflake.enable": "true", "leaf.snowflake.port": "8080"}
ZK = {**SNOWFLAKES, "leaf.snowflake.zk.address": "a:2181,b:2181", "server.port": "80"}
DB = "mysql://app:p%40ss%2Fw%3Frd@db:3306/leaf"


def store_of(properties: dict[str, str], **about: Any) -> str:
    found: Any = settings_from_leaf(properties, ip="10.0.0.1", **about)
    return str(found["share"]["store"])


def test_leafs_keys() -> None:
    """Each mode is a URL; the rest is the layout and the random start."""
    assert settings_from_leaf(OFF) == {}
    assert settings_from_leaf(SEGMENTS) == {"store": f"leaf+{DB}", "leaf_tags": {}}
    place = "name=shop&ip=10.0.0.1&port=8080"
    assert settings_from_leaf(ZK, ip="10.0.0.1") == {
        "share": {
            "kind": "snowflake",
            "layout": "leaf",
            "random_start": 100,
            "store": f"leaf-zk-normal+zookeeper://a:2181,b:2181/?{place}",
        }
    }
    recycle = {**ZK, "leaf.snowflake.mode": "zk_recycle"}
    assert store_of(recycle) == f"leaf-zk-recycle+zookeeper://a:2181,b:2181/?{place}"
    mysql = {**SNOWFLAKES, **JDBC, "leaf.snowflake.mode": "mysql"}
    assert store_of(mysql) == f"leaf-workerid+{DB}?ip=10.0.0.1&port=8080"
    by_map = {**SNOWFLAKES, "leaf.snowflake.mode": "local"}
    by_map["leaf.snowflake.local.workIdMap"] = json.dumps(MAP)
    url = store_of(by_map, directory="/var/leaf")
    assert url.startswith(f"leaf-local+file:///var/leaf?{place}&map=%7B%22")
    machine: Any = LeafLocalStore.from_url(url).machine_id_distributor()
    assert isinstance(machine, ManualMachineIdDistributor)
    assert machine.machine_id == 7


def test_settings_of_a_start_without_the_registry() -> None:
    """They are the store's own options; a registry that hands numbers out again has none."""
    about: Any = {"state_dir": "/var/lib/a b", "offline": 3600}
    place = "name=shop&ip=10.0.0.1&port=8080&state_dir=%2Fvar%2Flib%2Fa%20b"
    zk = "leaf-zk-normal+zookeeper://a:2181,b:2181/"
    assert store_of(ZK, state_dir="/var/lib/a b") == f"{zk}?{place}"
    assert store_of(ZK, **about) == f"{zk}?{place}&offline=3600"
    url = store_of(ZK, **about, leaf_dir="/tmp")  # noqa: S108 - Java's
    assert url == f"{zk}?{place}&offline=3600&leaf_dir=%2Ftmp"
    mysql = {**SNOWFLAKES, **JDBC, "leaf.snowflake.mode": "mysql"}
    place = "ip=10.0.0.1&port=8080&state_dir=%2Fvar%2Flib%2Fa%20b&offline=3600"
    assert store_of(mysql, **about) == f"leaf-workerid+{DB}?{place}"
    for mode in ("zk_recycle", "local"):
        with pytest.raises(InvalidArgumentError, match=f"cannot be used in mode {mode}"):
            store_of({**ZK, "leaf.snowflake.mode": mode}, **about)
    with pytest.raises(InvalidArgumentError, match=r"leaf_dir .* cannot be used in mode mysql"):
        store_of(mysql, leaf_dir="/tmp")  # noqa: S108 - Java's


@pytest.mark.parametrize("option", [{"state_dir": "/var/lib/shop"}, {"offline": 60.0}])
def test_options_in_the_wrong_place(option: dict[str, Any]) -> None:
    """A store of one address has them itself; silently they would be none."""
    url = "leaf-zk-normal+zookeeper://localhost?name=shop&ip=10.0.0.1&port=8080"
    store = LeafZkNormalStore.from_url(url)
    assert store.machine_id_distributor(state_dir=None, offline=0.0).instance_id.stable
    with pytest.raises(InvalidArgumentError, match="an option of the store"):
        store.machine_id_distributor(**option)


def test_a_registry_knows_no_regions() -> None:
    """Its numbers are counted from one place, whoever asks."""
    url = "leaf-zk-normal+zookeeper://localhost?name=shop&ip=10.0.0.1&port=8080"
    for store in (
        LeafZkNormalStore.from_url(url),
        store_from_url("uid-generator+sqlite:///uid.db"),
    ):
        with pytest.raises(InvalidArgumentError, match="not divided into regions"):
            store.machine_id_distributor(region=1, region_bits=2)


def test_leafs_keys_that_are_no_good() -> None:
    """The error names the key, and shows no password."""
    several: list[tuple[dict[str, str], dict[str, str], str]] = [
        (OFF, {"leaf.segment.enable": ""}, "leaf.segment.enable"),
        (OFF, {"leaf.snowflake.enable": "yes"}, "leaf.snowflake.enable"),
        (OFF, {"leaf.segment.url": "x"}, "leaf.segment.url"),
        (SEGMENTS, {"leaf.jdbc.url": ""}, "leaf.jdbc.url"),
        (SEGMENTS, {"leaf.jdbc.url": "jdbc:oracle:thin:@x:secret"}, "leaf.jdbc.url"),
        (SEGMENTS, {"leaf.jdbc.url": "jdbc:mysql://a,b/leaf/secret"}, "leaf.jdbc.url"),
        (ZK, {"leaf.snowflake.port": ""}, "leaf.snowflake.port"),
        (ZK, {"leaf.snowflake.port": "x"}, "port"),
        (ZK, {"leaf.snowflake.mode": "nacos"}, "leaf.snowflake.mode"),
        (ZK, {"leaf.snowflake.mode": "local"}, "leaf.snowflake.local.workIdMap"),
        (ZK, {"leaf.snowflake.zk.address": "a b"}, "leaf.snowflake.zk.address"),
        (ZK, {"leaf.name": ""}, "leaf.name"),
    ]
    for good, change, argument in several:
        with pytest.raises(InvalidArgumentError) as caught:
            settings_from_leaf({**good, **change}, ip="10.0.0.1")
        assert caught.value.argument == argument
        assert "secret" not in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="address"):
        settings_from_leaf(ZK)
