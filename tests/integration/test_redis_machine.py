"""Machine ids on one Valkey and one Redis: who gets which, who keeps it, what is left behind."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from aiocosid.abc import InstanceId, MachineGrant
from aiocosid.errors import (
    CorruptMachineStateError,
    MachineIdLostError,
    MachineIdOverflowError,
    StoreAuthenticationError,
    StoreUnavailableError,
)
from aiocosid.machine.cells import MachineRecord, NamespaceRecord
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.stores._connection import CALL_TIMEOUT
from aiocosid.stores.redis import RedisStore, _link
from tests.machine_marks import initialize_namespace
from tests.servers import PASSWORD, READER, FaultProxy, ValkeyServer

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

T = 1_700_000_000_000  # some time in the past, in ms
FAR = 2**62  # no floor is too late
BOTH = ["valkey", "redis_server"]
ALL = ("itc_idx", "adder", "revert", "note", "seen", "space")


@pytest.fixture(params=BOTH)
def server(request: pytest.FixtureRequest) -> ValkeyServer:
    """Each product in turn."""
    found: ValkeyServer = request.getfixturevalue(request.param)
    return found


class Keys:
    """The keys of one namespace, looked at and written behind everybody's back."""

    def __init__(self, server: ValkeyServer, namespace: str) -> None:
        self.server = server
        self.namespace = namespace

    def __call__(self, suffix: str) -> str:
        return f"cosid:{{{self.namespace}}}:{suffix}"

    def hash(self, suffix: str) -> dict[str, str]:
        flat = self.server.call("HGETALL", self(suffix))
        assert isinstance(flat, list)
        texts = [str(each) for each in flat]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    def set(self, suffix: str, field: str, value: str | int) -> None:
        self.server.call("HSET", self(suffix), field, value)

    @property
    def entries(self) -> dict[str, str]:
        return self.hash("itc_idx")

    @property
    def pool(self) -> dict[str, str]:
        return self.hash("revert")

    @property
    def records(self) -> dict[str, MachineRecord]:
        return {number: MachineRecord.read(text) for number, text in self.hash("note").items()}

    @property
    def marks(self) -> dict[str, str]:
        found = self.records.items()
        return {number: str(record.fence_ms) for number, record in found if record.fence_ms >= 0}

    @property
    def adder(self) -> str | None:
        value = self.server.call("GET", self("adder"))
        return None if value is None else str(value)

    def delete(self) -> None:
        for name in ALL:
            self.server.call("DEL", self(name))

    def dump(self) -> dict[str, str]:
        """Everything, as the server would move it to another one."""
        return {name: repr(self.server.call("DEBUG", "DIGEST-VALUE", self(name))) for name in ALL}


@pytest.fixture
def keys(server: ValkeyServer, namespace: str) -> Iterator[Keys]:
    keys = Keys(server, namespace)
    initialize_namespace(server, namespace)
    yield keys
    keys.delete()  # damaged ones would be found by whoever lists all


@pytest_asyncio.fixture
async def store(server: ValkeyServer) -> AsyncIterator[RedisStore]:
    async with RedisStore.from_url(server.patient_url) as store:
        yield store


class Instances:
    """Makes distributors of one namespace, by the text of the instance."""

    def __init__(self, store: RedisStore, namespace: str) -> None:
        self.store = store
        self.namespace = namespace
        self.made: dict[str, CellMachineIdDistributor] = {}

    def __call__(
        self, text: str, *, stable: bool = False, safe_guard: float = inf
    ) -> CellMachineIdDistributor:
        """An instance's only object, which knows its token."""
        found = self.made.get(text)
        about = InstanceId(text, stable=stable), safe_guard
        if found is None or (found.instance_id, found.safe_guard) != about:
            self.made[text] = self.store.machine_id_distributor(
                namespace=self.namespace, instance_id=about[0], safe_guard=safe_guard
            )
            if found is not None:
                self.made[text]._token = found._token
        return self.made[text]

    async def take(
        self, text: str, bits: int = 1, *, now: int = T, latest: int = FAR, **options: Any
    ) -> MachineGrant:
        return await self(text, **options).distribute(bits, now_ms=now, latest_ms=latest)


@pytest.fixture
def instances(store: RedisStore, server: ValkeyServer, namespace: str) -> Instances:
    initialize_namespace(server, namespace)
    return Instances(store, namespace)


class TestOrder:
    """Own, given back, new, expired; too late ones only if there is no other."""

    async def test_new_ones_count_up_under_cosids_keys(
        self, instances: Instances, keys: Keys
    ) -> None:
        """Nobody had them, so there is no floor; no key ever expires."""
        assert await instances.take("a") == MachineGrant(0, -1)
        assert await instances.take("b", now=T + 1) == MachineGrant(1, -1)
        assert keys.entries == {"a": f"0|{T}", "b": f"1|{T + 1}"}
        assert (keys.adder, keys.pool, keys.marks) == ("1", {}, {})
        lives = [keys.server.call("TTL", keys(name)) for name in ("itc_idx", "adder", "note")]
        assert lives == [-1, -1, -1]


class TestDamage:
    """What is no state of a machine id is named; nothing is handed out, nothing written."""

    @pytest.mark.parametrize(
        ("suffix", "field", "value"),
        [
            *(("itc_idx", "a", text) for text in ("", "0", "0|", "|1", "x|1", "0|1|2", "-1|5")),
            *(
                ("itc_idx", "a", text)
                for text in ("0|1e+14", "0|1.5", f"0|{2**53}", " 0|1", "0|1\n")
            ),
            ("note", "0", NamespaceRecord().text()),
            *(("note", text, MachineRecord().text()) for text in ("x", "-1", "")),
        ],
    )
    async def test_own_entry_and_ours(
        self, instances: Instances, keys: Keys, suffix: str, field: str, value: str
    ) -> None:
        """Key and field are said."""
        keys.set("revert", "0", T)
        keys.server.call("SET", keys("adder"), 0)
        keys.set(suffix, field, value)
        before = keys.dump()
        for call in (
            instances.take("a"),
            instances("a").renew(0, now_ms=T, fence_ms=T),
            instances("a").release(0, last_ms=T),
        ):
            with pytest.raises(CorruptMachineStateError) as caught:
                await call
            assert caught.value.place == f"{keys(suffix)}[{field}]" or not field
        if suffix != "itc_idx":
            with pytest.raises(CorruptMachineStateError):
                await instances.store.machines(namespace=keys.namespace)
        assert keys.dump() == before

    @pytest.mark.parametrize("value", ["", "x", "1.5", "-2", str(2**53)])
    async def test_adder(self, instances: Instances, keys: Keys, value: str) -> None:
        """The text stays as it was."""
        keys.server.call("SET", keys("adder"), value)
        with pytest.raises(CorruptMachineStateError) as caught:
            await instances.take("a")
        assert caught.value.place == keys("adder")
        assert (keys.adder, keys.entries) == (value, {})


class TestStore:
    """What an operator sees and does."""

    @pytest.mark.parametrize(
        "text", ["a b", "{", "{x}", "x}{", "名", "a.b", "*?[x]\\", "n\nm", "'\"", "a|b", "é" * 80]
    )
    async def test_any_text_is_a_namespace_and_an_instance(
        self, store: RedisStore, server: ValkeyServer, text: str
    ) -> None:
        """CosId's keys, whatever the text; and all is found again."""
        keys = Keys(server, text)
        keys.delete()
        initialize_namespace(server, text)
        instances = Instances(store, text)
        assert (await instances.take(text)).machine_id == 0
        assert keys.entries == {text: f"0|{T}"}
        await instances(text).renew(0, now_ms=T + 1, fence_ms=-1)
        (listed,) = await store.machines(namespace=text)
        assert (listed.namespace, listed.instance_id) == (text, text)
        assert listed in await store.machines()
        await store.evict_machine(namespace=text, machine_id=0)
        assert keys.pool == {"0": f"{T + 1}"}

    async def test_counters_and_machines_do_not_meet(
        self, instances: Instances, store: RedisStore
    ) -> None:
        """Their keys are alike."""
        ns = instances.namespace
        await instances.take("a")
        await store.segment_distributor(namespace=ns, name="n").next_max_id(1)
        assert len(await store.machines(namespace=ns)) == 1
        assert [each.namespaced_name for each in await store.counters(namespace=ns)] == [f"{ns}.n"]


@asynccontextmanager
async def client_of(server: ValkeyServer, **options: Any) -> AsyncGenerator[Redis]:
    client: Redis = Redis.from_url(server.url, **options)
    try:
        yield client
    finally:
        await client.aclose()


async def check_client(client: Any, keys: Keys) -> None:
    """Everything that ours can do, on a client of the user's."""
    store = RedisStore(client)
    instances = Instances(store, keys.namespace)
    assert await instances.take("é") == MachineGrant(0, -1)
    await instances("é").renew(0, now_ms=T + 1, fence_ms=T + 2)
    assert await instances.take("é") == MachineGrant(0, T + 2)
    assert keys.entries == {"é": f"0|{T + 1}"}
    (listed,) = [each for each in await store.machines() if each.namespace == keys.namespace]
    assert (listed.instance_id, listed.fence_ms) == ("é", T + 2)
    with pytest.raises(MachineIdLostError, match="é holds it"):
        await instances("ü").renew(0, now_ms=T + 1, fence_ms=T + 2)
    await instances.take("ü")
    with pytest.raises(MachineIdOverflowError) as caught:
        await instances.take("x")
    assert set(caught.value.holders) == {"é", "ü"}
    await instances("é").release(0, last_ms=T + 1)
    keys.set("itc_idx", "x", "é")
    with pytest.raises(CorruptMachineStateError, match="'é'"):
        await instances.take("x")


class TestClients:
    """Whatever client the user has."""

    @pytest.mark.parametrize("options", [{}, {"decode_responses": True}, {"protocol": 3}])
    async def test_set_up_in_any_way(
        self, server: ValkeyServer, keys: Keys, options: dict[str, Any]
    ) -> None:
        """Text or bytes, either protocol, any encoding: the same keys and the same answers."""
        async with client_of(server, encoding="latin-1", **options) as client:
            await check_client(client, keys)

    async def test_a_large_server(
        self, server: ValkeyServer, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Going through all keys has no time limit; each call after that has."""
        limit = CALL_TIMEOUT

        class Large(Redis):
            async def scan_iter(  # type: ignore[override]  # whatever it is given
                self, *args: Any, **options: Any
            ) -> AsyncIterator[Any]:
                async for key in super().scan_iter(*args, **options):
                    yield key
                monkeypatch.setattr(_link, "CALL_TIMEOUT", limit)

        client = Large(host=server.host, port=server.port)
        store = RedisStore(client)
        await store.segment_distributor(namespace=namespace, name="n").next_max_id(1)
        for call in (store.machines, store.counters):
            monkeypatch.setattr(_link, "CALL_TIMEOUT", 0)
            await call()
        await client.aclose()

    async def test_valkeys_own(self, server: ValkeyServer, keys: Keys) -> None:
        """It has redis-py's interface, and errors of its own."""
        client = pytest.importorskip("valkey.asyncio").Valkey.from_url(server.url)
        try:
            await check_client(client, keys)
        finally:
            await client.aclose()


class TestOutages:
    """A server that cannot serve is named; what was sent may be sent again."""

    async def test_rights(self, valkey_password: ValkeyServer) -> None:
        """A wrong password, and a user who may not write."""
        for url in (
            valkey_password.url_for(password="wr0ng"),  # noqa: S106
            valkey_password.url_for(username=READER, password=PASSWORD),
        ):
            async with RedisStore.from_url(url) as store:
                with pytest.raises(StoreAuthenticationError) as caught:
                    await store.machine_id_distributor().distribute(1, now_ms=T, latest_ms=T)
                assert "wr0ng" not in f"{caught.value!r} {caught.value.__cause__!r}"

    @pytest.mark.parametrize("resend", [False, True])
    async def test_lost_replies(self, server: ValkeyServer, keys: Keys, resend: bool) -> None:
        """Applied and not heard of: the same id the second time, nothing is leaked or stolen."""
        options: dict[str, Any] = {"retry": Retry(NoBackoff(), 3 if resend else 0)}
        async with (
            FaultProxy(server.host, server.port) as proxy,
            client_of(server) as direct,
            Redis(host=proxy.host, port=proxy.port, **options) as client,
        ):
            await direct.ping()
            machine = RedisStore(client).machine_id_distributor(
                namespace=keys.namespace, instance_id="a", safe_guard=inf
            )

            async def lossy(call: Any) -> Any:
                proxy.swallow_replies(to=b"EVALSHA")
                if not resend:
                    with pytest.raises(StoreUnavailableError):
                        await call()
                return await call()

            async def distribute() -> MachineGrant:
                return await machine.distribute(1, now_ms=T, latest_ms=FAR)

            await distribute()
            await machine.release(0, last_ms=T)
            grant = await lossy(distribute)
            assert grant == MachineGrant(0, T)
            await lossy(lambda: machine.renew(0, now_ms=T + 5, fence_ms=T + 9))
            assert (keys.entries, keys.marks) == ({"a": f"0|{T + 5}"}, {"0": f"{T + 9}"})
            await lossy(lambda: machine.release(0, last_ms=T + 6))
            assert (keys.entries, keys.pool) == ({}, {"0": f"{T + 6}"})
            assert proxy.swallowed == 3

    async def test_script_is_sent_again_when_the_server_forgot_it(
        self, instances: Instances, server: ValkeyServer
    ) -> None:
        """After a restart or SCRIPT FLUSH the digests are unknown."""
        machine = instances("a")
        for _ in range(2):
            server.call("SCRIPT", "FLUSH")
            assert (await machine.distribute(1, now_ms=T, latest_ms=FAR)).machine_id == 0
            await machine.renew(0, now_ms=T, fence_ms=T)


class CosIdPeer:
    """A Java process on the same keys, as its scripts do it; knows none of ours."""

    def __init__(self, keys: Keys, text: str) -> None:
        self._keys = keys
        self.text = text

    def distribute(self, highest: int, now: int, limit: int) -> int:
        """Own, pool, new, expired; each without a look at anything else."""
        keys, entries = self._keys, self._keys.entries
        if own := entries.get(self.text):
            machine_id, _, stamp = own.partition("|")
            return self._bind(int(machine_id), max(int(stamp), now))
        for field, stamp in keys.pool.items():
            keys.server.call("HDEL", keys("revert"), field)
            return self._bind(int(field), max(int(stamp), now))
        last = keys.adder
        if last is None:
            keys.server.call("SET", keys("adder"), -1)
        if int(last or -1) < highest:
            return self._bind(int(str(keys.server.call("INCR", keys("adder")))), now)
        for text, entry in entries.items():
            machine_id, _, stamp = entry.partition("|")
            if int(stamp) <= limit:
                keys.server.call("HDEL", keys("itc_idx"), text)
                return self._bind(int(machine_id), now)
        return -1

    def _bind(self, machine_id: int, stamp: int) -> int:
        self._keys.set("itc_idx", self.text, f"{machine_id}|{stamp}")
        return machine_id

    def release(self, stamp: int) -> None:
        machine_id, _, _ = self._keys.entries[self.text].partition("|")
        self._keys.server.call("HDEL", self._keys("itc_idx"), self.text)
        self._keys.set("revert", machine_id, stamp)


class TestBesideCosId:
    """Java processes work on the same keys at the same time."""

    async def test_one_pool_for_both(self, instances: Instances, keys: Keys) -> None:
        """Each takes new ids behind the other's, and what the other gave back."""
        java = CosIdPeer(keys, "java")
        assert java.distribute(3, T, 0) == 0
        assert await instances.take("a", 2) == MachineGrant(1, -1)
        java.release(T + 5)
        assert await instances.take("b", 2) == MachineGrant(0, T + 5, is_fenced=False)
        await instances("a").renew(1, now_ms=T, fence_ms=T + 60)
        await instances("a").release(1, last_ms=T + 7)
        assert java.distribute(3, T, 0) == 1
        assert keys.entries["java"] == f"1|{T + 7}"  # it waits for what ours issued

    async def test_no_id_has_two_owners(self, instances: Instances, keys: Keys) -> None:
        """However their calls fall."""
        chance = random.Random(7)  # noqa: S311 - the same every time
        held: dict[str, int] = {}
        for turn in range(400):
            text = f"{chance.choice(('ours', 'java'))}{chance.randrange(5)}"
            now = T + turn
            if text in held:
                if text.startswith("java"):
                    CosIdPeer(keys, text).release(now)
                else:
                    await instances(text).renew(held[text], now_ms=now, fence_ms=now + 60)
                    await instances(text).release(held[text], last_ms=now)
                del held[text]
            elif text.startswith("java"):
                held[text] = CosIdPeer(keys, text).distribute(15, now, 0)
            else:
                held[text] = (await instances.take(text, 4, now=now)).machine_id
            assert len(set(held.values())) == len(held)
            assert held == {t: int(e.partition("|")[0]) for t, e in keys.entries.items()}
            assert not set(keys.pool) & {str(each) for each in held.values()}
