"""The keys of published Lua scripts on real servers: what they mean, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from aiocosid import store_from_url
from aiocosid.compat import Examined
from aiocosid.compat.redis_lua import RedisLuaStore
from aiocosid.errors import InvalidArgumentError, StoreUnavailableError, UnsupportedByStoreError
from aiocosid.snowflake import ShardedLayout, SnowflakeLayout
from aiocosid.stores.redis import RedisStore
from tests.command import run
from tests.published import PUBLISHED
from tests.servers import ValkeyCluster, ValkeyServer
from tests.servers.valkey import READER

from ._sequences import open_fence, server_second

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

EPOCH = 1_546_300_800
MOST = 524_287
SECOND = 1_700_000_000
KEPT = ("EX", 600)


@pytest.fixture(params=["valkey", "redis_server"])
def server(request: pytest.FixtureRequest) -> ValkeyServer:
    """A server of either kind, which other tests use as well."""
    found: ValkeyServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def alone(valkey_factory: Callable[..., ValkeyServer]) -> ValkeyServer:
    """A server without any other keys."""
    return valkey_factory()


async def examined(url: str, **options: object) -> Sequence[Examined]:
    query = "&".join(f"{name}={value}" for name, value in options.items())
    async with store_from_url(f"redis-lua+{url}?{query}") as store:
        assert isinstance(store, RedisLuaStore)
        return await store.examine()


def grant(server: ValkeyServer, key: str, second: int, size: int) -> list[object]:
    """Have the published script grant sequences, as a node in Java does."""
    with SyncRedis.from_url(server.url) as client:
        counter = key.replace("<second>", str(second))
        granted: list[object] = client.eval(PUBLISHED, 1, counter, second, MOST, size)
        return granted


class TestSharded:
    """The sharded generator: a counter for each second, and a lock."""

    async def test_what_the_script_leaves(self, server: ValkeyServer, namespace: str) -> None:
        """The next id is above all ids that it has handed out, of whatever shard."""
        key = f"{namespace}<second>"
        for second, size in ((SECOND - 1, 7), (SECOND, 100), (SECOND, 1000)):
            grant(server, key, second, size)
        (found,) = await examined(server.url, key=key, epoch=EPOCH)
        assert (found.name, found.stored, found.problems) == (key, 1100, ())
        assert found.meaning == "the last sequence granted of 2023-11-14T22:13:20Z; counters: 2"
        layout = ShardedLayout(EPOCH * 1000)
        assert found.next_id == layout.compose(SECOND + 1, 0, 1)
        assert layout.compose(SECOND + 1, 0, 1) > layout.compose(SECOND, 4095, 1100)

    async def test_ours_go_on_with_them(self, server: ValkeyServer, namespace: str) -> None:
        """Theirs and ours count on the same keys, and nothing is wrong with that."""
        key = f"{namespace}<second>"
        async with RedisStore.from_url(server.url) as store:
            ours = store.sequence_distributor(name="order", key=key, tolerance=60, ttl=600)
            second = server_second(server)
            open_fence(server, key)
            grant(server, key, second, 10)
            await ours.grant(second, 5)
        (found,) = await examined(server.url, key=key)
        assert (found.stored, found.next_id, found.problems) == (15, None, ())

    async def test_a_second_that_is_used_up(self, server: ValkeyServer, namespace: str) -> None:
        """Its lock is no problem while it lasts for a second."""
        key = f"{namespace}<second>"
        grant(server, key, SECOND, MOST - 1)
        (found,) = await examined(server.url, key=key)
        assert (found.stored, found.problems) == (MOST - 1, ())
        assert (await examined(server.url, key=key, max_sequence=MOST - 1))[0].problems
        for stored in (MOST, MOST + 5):
            grant(server, key, SECOND + stored, stored)
            (found,) = await examined(server.url, key=key)
            assert found.stored == stored
            (problem,) = found.problems
            assert problem.startswith(f"{namespace}{SECOND + stored}")
            assert "all 524287 sequences are granted" in problem

    @pytest.mark.parametrize(
        ("name", "words", "problem"),
        [
            ("{0}1700000000", ("5",), "{0}1700000000: it never expires"),
            ("{0}1700000000", ("-5", *KEPT), "{0}1700000000: the sequence is below 1"),
            ("{0}1700000000", ("x", *KEPT), "{0}1700000000: no sequence is stored"),
            ("{0}1700000000", ("1" * 40, *KEPT), "{0}1700000000: no sequence is stored"),
            ("lock-{0}1700000000", ("1",), "lock-{0}1700000000: the lock never expires"),
            ("lock-{0}1700000000", ("1", *KEPT), "lock-{0}1700000000: the lock lasts longer"),
        ],
    )
    async def test_what_is_wrong(
        self, server: ValkeyServer, namespace: str, name: str, words: tuple[str, ...], problem: str
    ) -> None:
        """With the key that has it."""
        for second in (SECOND - 2, SECOND - 1):
            server.call("SET", f"{namespace}{second}", "1", *KEPT)
        server.call("SET", name.format(namespace), *words)
        (found,) = await examined(server.url, key=f"{namespace}<second>")
        (told,) = found.problems
        assert told.startswith(problem.format(namespace))

    async def test_several_of_a_kind_are_one_problem(
        self, server: ValkeyServer, namespace: str
    ) -> None:
        """It names the last."""
        for second in range(SECOND, SECOND + 9):
            server.call("SET", f"{namespace}{second}", "1")
        (found,) = await examined(server.url, key=f"{namespace}<second>")
        (problem,) = found.problems
        assert problem.startswith(f"{namespace}1700000008 and 8 more: it never expires")

    async def test_a_list_in_its_place(self, server: ValkeyServer, namespace: str) -> None:
        """Only what the key was said to be is a problem; of others it is no counter."""
        server.call("RPUSH", f"{namespace}{SECOND}", "1")
        server.call("EXPIRE", f"{namespace}{SECOND}", 600)
        (found,) = await examined(server.url, key=f"{namespace}<second>")
        assert found.stored is None
        assert found.problems == (f"{namespace}{SECOND}: no sequence is stored",)

    @pytest.mark.parametrize(
        ("second", "epoch", "problem"),
        [
            (SECOND, SECOND + 1, "2023-11-14T22:13:20Z does not fit the epoch"),
            (EPOCH + 2**32 - 1, EPOCH, "2155-02-07T06:28:15Z does not fit the epoch"),
        ],
    )
    async def test_an_epoch_that_does_not_fit(
        self, server: ValkeyServer, namespace: str, second: int, epoch: int, problem: str
    ) -> None:
        """It is after the counter, or there is no second after that one."""
        grant(server, f"{namespace}<second>", second, 1)
        (found,) = await examined(server.url, key=f"{namespace}<second>", epoch=epoch)
        assert found.next_id is None
        assert [each.startswith(problem) for each in found.problems] == [True]

    async def test_a_lock_alone(self, server: ValkeyServer, namespace: str) -> None:
        """Its counter has expired."""
        server.call("SET", f"lock-{namespace}{SECOND}", "1")
        (found,) = await examined(server.url, key=f"{namespace}<second>")
        assert (found.stored, found.meaning) == (None, "no counter; locks: 1")
        assert len(found.problems) == 1

    @pytest.mark.parametrize("key", ["a*[b]?\\{0}<second>!", "x{{{0}}}:<second>:end"])
    async def test_a_key_of_any_form(self, server: ValkeyServer, namespace: str, key: str) -> None:
        """No letter of it is a pattern."""
        key = key.format(namespace)
        grant(server, key, SECOND, 3)
        server.call("SET", f"aa*[b]?\\{namespace}{SECOND}", "1", *KEPT)
        redis = RedisStore.from_url(server.url)
        async with RedisLuaStore(redis, key=key) as store:
            (found,) = await store.examine()
        assert (found.name, found.stored) == (key, 3)

    async def test_without_a_key_it_finds_them_by_their_form(self, alone: ValkeyServer) -> None:
        """Ten digits at the end, and a number in it; ours and others are left out."""
        for key in ("order<second>", "{user}:<second>"):
            grant(alone, key, SECOND, 3)
        alone.call("SET", f"lock-order{SECOND}", "1")
        for name in (f"aiocosid:{{a.b}}:{SECOND}", "page:1712345678901", f"name:{SECOND}x"):
            alone.call("SET", name, "1")
        alone.call("SET", f"text:{SECOND}", "no number")
        alone.call("HSET", f"hash:{SECOND}", "a", "1")
        alone.call("SET", f"lock-job:{SECOND}", "somebody")
        found = await examined(alone.url)
        assert [each.name for each in found] == ["order<second>", "{user}:<second>"]
        assert [len(each.problems) for each in found] == [1, 0]

    async def test_nothing_is_there(self, alone: ValkeyServer) -> None:
        assert await examined(alone.url) == []


class TestIcicle:
    """icicle: three keys for a whole server."""

    @pytest.mark.parametrize(
        ("keys", "problem"),
        [
            ({"sequence": "77", "logical-shard-id": "5"}, ""),
            ({"sequence": "-1", "logical-shard-id": "1023"}, ""),
            ({"sequence": "77"}, "logical-shard-id is not a number from 1 to 1023"),
            ({"sequence": "77", "logical-shard-id": "0"}, "logical-shard-id is not a number"),
            ({"sequence": "77", "logical-shard-id": "1024"}, "logical-shard-id is not a number"),
            ({"sequence": "x", "logical-shard-id": "5"}, "it is not a number from -1 to 4095"),
            ({"sequence": "4096", "logical-shard-id": "5"}, "it is not a number from -1 to 4095"),
            ({"logical-shard-id": "5", "lock": "lock"}, "icicle-generator-lock never expires"),
        ],
    )
    async def test_its_keys(self, alone: ValkeyServer, keys: dict[str, str], problem: str) -> None:
        for name, value in keys.items():
            alone.call("SET", f"icicle-generator-{name}", value)
        (found,) = await examined(alone.url)
        assert (found.name, found.next_id) == ("icicle-generator-sequence", None)
        assert [problem in each for each in found.problems] == ([True] if problem else [])

    async def test_a_sequence_that_expires(self, alone: ValkeyServer) -> None:
        """The next one begins anew, perhaps in the same millisecond."""
        alone.call("SET", "icicle-generator-sequence", "3", *KEPT)
        alone.call("SET", "icicle-generator-logical-shard-id", "3")
        (found,) = await examined(alone.url)
        assert found.problems == ("it expires, and then ids may repeat",)


class TestRedisIdGenerator:
    """redis-id-generator: a counter for a millisecond."""

    async def test_a_counter_of_a_millisecond(self, alone: ValkeyServer) -> None:
        """The next id is above those of all its partitions."""
        alone.call("SET", "__idgenerator_or_1_der_4095_1426212000_7", "12", *KEPT)
        (found,) = await examined(alone.url)
        layout = SnowflakeLayout(41, 12, 10, "ms", 0)
        assert found.next_id == layout.compose(1_426_212_000_008, 0, 0)
        assert (found.stored, found.problems) == (12, ())
        assert found.meaning == "the last sequence of partition 4095 in 2015-03-13T02:00:00.007Z"

    @pytest.mark.parametrize(
        ("name", "words", "problem"),
        [
            ("order_4096_1426212000_7", ("12", *KEPT), "the partition 4096 is not below 4096"),
            ("order_3_1426212000_7", ("1024", *KEPT), "it is not a number from 1 to 1023"),
            ("order_3_1426212000_7", ("x", *KEPT), "it is not a number from 1 to 1023"),
            ("order_3_1426212000_7", ("3",), "it never expires"),
            ("order_3", ("3",), "it never expires: at its end the script loops for ever"),
        ],
    )
    async def test_what_is_wrong(
        self, alone: ValkeyServer, name: str, words: tuple[str, ...], problem: str
    ) -> None:
        alone.call("SET", f"__idgenerator_{name}", *words)
        (found,) = await examined(alone.url)
        assert found.problems == (problem,)


class TestReading:
    """How it reads."""

    async def test_a_user_that_may_only_read(
        self, valkey_password: ValkeyServer, namespace: str
    ) -> None:
        """Nothing else is sent."""
        valkey_password.call("SET", f"{namespace}{SECOND}", "5", *KEPT)
        url = valkey_password.url_for(username=READER, password=valkey_password.password)
        (found,) = await examined(url, key=f"{namespace}<second>")
        assert found.stored == 5

    async def test_many_keys_are_read_in_steps(self, alone: ValkeyServer) -> None:
        """No command goes over all of them."""
        with SyncRedis.from_url(alone.url) as client:
            client.mset({f"order{SECOND + each}": 1 for each in range(1200)})
            client.mset({f"other:{each}": 1 for each in range(5000)})
            client.mset({f"aiocosid:{{a.b}}:{SECOND + each}": 1 for each in range(600)})
        alone.call("CONFIG", "RESETSTAT")
        (found,) = await examined(alone.url)
        assert "counters: 1200" in found.meaning
        sent = str(alone.call("INFO", "commandstats"))
        assert "cmdstat_keys" not in sent
        scans, reads = (
            int(sent.partition(f"cmdstat_{command}:calls=")[2].partition(",")[0])
            for command in ("scan", "getrange")
        )
        assert scans > 6800 / 500
        assert reads == 1200 + 3  # and icicle's

    async def test_a_cluster(self, valkey_cluster: ValkeyCluster, namespace: str) -> None:
        """The keys are in many slots."""
        async with RedisStore.from_url(valkey_cluster.url) as store:

            async def write(client: Redis) -> None:
                for second in range(SECOND, SECOND + 50):
                    await client.set(f"{namespace}{second}", 5, ex=600)

            await store._backend.link.call(write)
        (found,) = await examined(valkey_cluster.url, key=f"{namespace}<second>")
        assert (found.stored, found.problems) == (5, ())
        assert "counters: 50" in found.meaning

    async def test_a_client_that_decodes(self, server: ValkeyServer, namespace: str) -> None:
        """It stays open."""
        server.call("SET", f"{namespace}{SECOND}", "5", *KEPT)
        async with Redis.from_url(server.url, decode_responses=True) as client:
            redis = RedisStore(client)
            async with RedisLuaStore(redis, key=f"{namespace}<second>") as store:
                (found,) = await store.examine()
            assert found.stored == 5
            assert await client.ping()

    async def test_a_server_that_is_away(self, alone: ValkeyServer) -> None:
        alone.kill()
        with pytest.raises(StoreUnavailableError):
            await examined(alone.url)


class TestStore:
    """What else there is to a store."""

    @pytest.mark.parametrize(
        "options",
        [
            {"key": "order"},
            {"key": "<second><second>"},
            {"epoch": -1},
            {"epoch": 2**32},
            {"max_sequence": 0},
            {"max_sequence": 524_288},
        ],
    )
    async def test_arguments_have_ranges(self, options: dict[str, object]) -> None:
        with pytest.raises(InvalidArgumentError, match=next(iter(options))):
            await examined("redis://127.0.0.1:1", **options)

    async def test_it_hands_out_nothing(self) -> None:
        """It says what does."""
        store = RedisLuaStore.from_url("redis-lua+redis://user:secret@127.0.0.1:1")
        assert "secret" not in repr(store)
        assert "127.0.0.1" in repr(store)
        await store.create_schema()
        assert await store.counters() == ()
        with pytest.raises(UnsupportedByStoreError, match="use ShardedId"):
            store.segment_distributor(name="order")
        with pytest.raises(UnsupportedByStoreError, match="use ShardedId"):
            await store.set_floor(name="order", above=1)
        await store.aclose()

    async def test_the_command(self, server: ValkeyServer, namespace: str) -> None:
        """With the exit code of others."""
        second = server_second(server)
        url = f"{server.url}?key={namespace}<second>&epoch={EPOCH}"
        words = ("migrate", "check", "--from", "redis-lua", "--store", url)
        assert run(*words).stdout == "nothing to check\n"
        server.call("SET", f"{namespace}{second}", "5", *KEPT)
        ended = run(*words, "--format", "json")
        assert (ended.returncode, ended.stderr) == (0, "")
        (found,) = json.loads(ended.stdout)
        assert found["next_id"] == (second + 1 - EPOCH << 31) + 1
        server.call("PERSIST", f"{namespace}{second}")
        ended = run(*words)
        assert ended.returncode == 1
        assert f"problem: {namespace}<second>: {namespace}{second}: it never" in ended.stdout
