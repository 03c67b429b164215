"""A server that forgot: emptied, started anew, failed over and back, restored, beside CosId's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from aiocosid.abc import InstanceId, MachineGrant, MachineMarker
from aiocosid.errors import (
    CorruptMachineStateError,
    MachineBitsMismatchError,
    MachineIdLostError,
    MachineIdQuarantineError,
    StoreAuthenticationError,
    StoreNotInitializedError,
    StoreUnavailableError,
)
from aiocosid.machine import MachineIdLease
from aiocosid.machine._rules import Taken
from aiocosid.machine.cells import ENDLESS_MS, Note, Space
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.snowflake import SnowflakeId
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.redis._backend import COMMIT
from tests.machine_marks import identity, mark_machines
from tests.servers import FaultProxy, ValkeyServer, wait_until

from ._snowflakes import LAYOUT, check_unique, consuming, until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

T = 1_700_000_000_000  # some time in the past, in ms
FAR = 2**62  # no floor is too late
NS = "ns"


def key(suffix: str, namespace: str = NS) -> str:
    return f"cosid:{{{namespace}}}:{suffix}"


def hash_of(server: ValkeyServer, suffix: str) -> dict[str, str]:
    flat = server.call("HGETALL", key(suffix))
    assert isinstance(flat, list)
    texts = [str(each) for each in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def make(
    store: RedisStore, text: str, *, safe_guard: float = 300.0, stable: bool = False
) -> CellMachineIdDistributor:
    who = InstanceId(text, stable=stable)
    return store.machine_id_distributor(namespace=NS, instance_id=who, safe_guard=safe_guard)


async def take(machine: CellMachineIdDistributor, *, now: int = T) -> MachineGrant:
    return await machine.distribute(3, now_ms=now, latest_ms=FAR)


def hand_out(machine: CellMachineIdDistributor, number: int, *, now: int) -> None:
    """As a server does that has forgotten it since."""
    token = f"{number:x}{now:x}"
    machine._token, machine._taken = token, Taken(number, now, 3, token)


def notes(server: ValkeyServer) -> dict[str, Note]:
    return {number: Note.read(text) for number, text in hash_of(server, "note").items()}


def marks(server: ValkeyServer) -> dict[str, str]:
    found = notes(server).items()
    return {number: str(note.mark_ms) for number, note in found if note.mark_ms >= 0}


def claims(server: ValkeyServer) -> set[str]:
    """Which machine ids were asserted in the quarantine that runs."""
    quarantine = space(server).quarantine
    return {number for number, note in notes(server).items() if note.claimed == quarantine != ""}


def space(server: ValkeyServer, namespace: str = NS) -> Space:
    return Space.read(str(server.call("GET", key("space", namespace))))


def alter(server: ValkeyServer, namespace: str = NS, **about: Any) -> None:
    """Change the namespace's cell behind everybody's back."""
    altered = replace(space(server, namespace), **about)
    server.call("SET", key("space", namespace), altered.text())


async def keep(machine: CellMachineIdDistributor, number: int, mark: int = -1) -> None:
    await machine.reassert(number, now_ms=T, mark_ms=mark)


def pass_time(server: ValkeyServer, seconds: float, namespace: str = NS) -> None:
    since_ms = space(server, namespace).since_ms - int(seconds * 1000)
    alter(server, namespace, since_ms=since_ms)


async def is_quarantined(store: RedisStore, text: str = "newcomer") -> bool:
    try:
        await take(make(store, text))
    except MachineIdQuarantineError:
        return True
    return False


@asynccontextmanager
async def store_on(server: ValkeyServer) -> AsyncGenerator[RedisStore]:
    async with RedisStore.from_url(server.patient_url) as store:
        yield store


@pytest.fixture
def server(valkey_factory: Callable[..., ValkeyServer]) -> ValkeyServer:
    """One of the test's own."""
    return valkey_factory()


def patient_lease(store: RedisStore, **options: Any) -> MachineIdLease:
    """One that a busy machine does not end: then it could assert nothing."""
    machine = store.machine_id_distributor(namespace=NS, safe_guard=30.0, interval=0.1)
    return MachineIdLease(machine, bits=1, **options)


async def test_emptied_while_two_leases_live(server: ValkeyServer) -> None:
    """They go on with their ids; a newcomer is told why, and gets another one afterwards."""
    mark_machines(server, NS)
    async with store_on(server) as store:
        leases = [patient_lease(store) for _ in range(2)]
        async with (
            SnowflakeId(leases[0], layout=LAYOUT) as one,
            SnowflakeId(leases[1], layout=LAYOUT) as two,
            consuming(one, two) as consumers,
        ):
            for _ in range(2):
                await asyncio.gather(*(each.more() for each in consumers))
                held = [each.machine_id for each in leases]
                server.call("FLUSHALL")
                newcomer = SnowflakeId(patient_lease(store, start_timeout=0.3), layout=LAYOUT)
                with pytest.raises(StoreNotInitializedError, match="has been emptied"):
                    await newcomer.__aenter__()
                await until(lambda: len(hash_of(server, "itc_idx")) == 2)
                await asyncio.gather(*(each.more() for each in consumers))
                assert [each.machine_id for each in leases] == held
            assert all(each.statistics().losses == 0 for each in leases)
        pass_time(server, 40)
        async with SnowflakeId(patient_lease(store), layout=LAYOUT) as newcomer:
            ids = await newcomer.next_ids(3)
        check_unique(*(each.ids for each in consumers), ids)


async def test_started_anew(valkey_factory: Callable[..., ValkeyServer]) -> None:
    """Empty, or with all that it had: nobody knows, so it is the same for both."""
    for persistent in (False, True):
        server = valkey_factory(persistent=persistent)
        async with store_on(server) as store:
            await store.mark_machines(namespace=NS)
            owner = make(store, "owner")
            assert await take(owner) == MachineGrant(0, -1)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            assert await is_quarantined(store)
            assert await is_quarantined(store, "owner")
            await keep(owner, 0, mark=T + 9)
            [marker] = await store.machine_markers()
            assert 290 < marker.seconds_left <= 305
            pass_time(server, 305)
            assert (await take(make(store, "newcomer"))).machine_id == 1
            assert await take(owner) == MachineGrant(0, T + 9)


def link_of(server: ValkeyServer) -> str:
    lines = str(server.call("INFO", "replication")).splitlines()
    return next((each for each in lines if each.startswith("master_link_status")), "")


async def test_failed_over_to_a_replica_that_lags_and_back(
    valkey_factory: Callable[..., ValkeyServer],
) -> None:
    """The first master comes back with its old run_id; its replication id tells."""
    at_once = ("--repl-diskless-sync-delay", 0)
    one = valkey_factory(*at_once)
    two = valkey_factory(*at_once, "--replicaof", one.host, one.port)

    async def linked(replica: ValkeyServer) -> None:
        await asyncio.to_thread(
            wait_until, lambda: link_of(replica).endswith("up"), "it follows", deadline=20
        )

    await linked(two)
    async with store_on(one) as first, store_on(two) as second:
        await first.mark_machines(namespace=NS)
        known = make(first, "known")
        await take(known)
        await asyncio.to_thread(
            wait_until,
            lambda: two.call("HLEN", key("itc_idx")) == 1,
            "the replica has it",
            deadline=20,
        )
        two.call("REPLICAOF", "127.0.0.1", 1)  # cut off: what comes now is lost
        owner = make(first, "owner")
        assert (await take(owner)).machine_id == 1
        two.call("REPLICAOF", "NO", "ONE")
        assert await is_quarantined(second)
        owner._backend = second._backend
        await keep(owner, 1)
        assert hash_of(two, "itc_idx")["owner"].startswith("1|")
        pass_time(two, 305)
        heirs = [(await take(make(second, text))).machine_id for text in "ab"]
        assert heirs == [2, 3]
        before = identity(one)
        one.call("REPLICAOF", two.host, two.port)
        await linked(one)
        one.call("REPLICAOF", "NO", "ONE")
        after = identity(one)
        assert before.partition(" ")[0] == after.partition(" ")[0]
        assert before != after
        assert await is_quarantined(first)


async def test_what_it_was_restored_with_counts_for_nothing(server: ValkeyServer) -> None:
    """Who held it then yields to who holds it now, until it says so too."""
    async with store_on(server) as store:
        await store.mark_machines(namespace=NS)
        old, new = make(store, "old"), make(store, "new", stable=True)
        await take(new, now=T)
        await take(old, now=T + 1)
        third = make(store, "third")
        await take(third)
        # Now "new" holds 1, which "old" had, and has no 0 any more.
        new_claim = make(store, "new", stable=True)
        hand_out(new_claim, 1, now=T + 5)
        alter(server, identity="another one")
        await keep(new_claim, 1, mark=T + 70)
        entries = {
            text: each.partition("|")[0] for text, each in hash_of(server, "itc_idx").items()
        }
        assert entries == {"new": "1", "third": "2"}
        assert hash_of(server, "revert") == {"0": str(T)}
        assert {n: each.instance for n, each in notes(server).items() if each.stable} == {
            "1": "new"
        }
        assert marks(server) == {"1": str(T + 70)}
        with pytest.raises(MachineIdLostError, match="runs twice"):
            await keep(new, 0)  # an earlier life of the same instance
        await keep(old, 1)  # it took it earlier, and is alive
        with pytest.raises(MachineIdLostError, match="old holds it"):
            await keep(new_claim, 1)
        assert claims(server) == {"1"}
        alter(server, identity="another one")
        await keep(third, 2)
        await keep(new_claim, 1)  # "old" has not said so in this one
        await keep(old, 1)
        assert claims(server) == {"1", "2"}
        await old.revert(1, last_ms=T)
        await keep(new_claim, 1)
        pass_time(server, 305)
        await keep(new_claim, 1)
        assert not space(server).quarantine or not await is_quarantined(store)
        assert {(await take(make(store, text))).machine_id for text in "wx"} == {0, 3}
        assert space(server).quarantine == ""


async def test_what_an_earlier_life_asserted_counts_for_nothing(server: ValkeyServer) -> None:
    """When the later one has asserted another id: the earlier one's goes to whoever has it now."""
    async with store_on(server) as store:
        early, late, heir = make(store, "a"), make(store, "a"), make(store, "b")
        hand_out(early, 0, now=T)
        hand_out(late, 1, now=T + 1)
        hand_out(heir, 0, now=T + 2)
        mark_machines(server, NS)
        alter(server, identity="another one")
        await keep(early, 0)
        await keep(late, 1)
        await keep(heir, 0)
        entries = {
            text: each.partition("|")[0] for text, each in hash_of(server, "itc_idx").items()
        }
        assert entries == {"a": "1", "b": "0"}


async def test_a_clock_that_was_ahead(server: ValkeyServer) -> None:
    """When a quarantine began, and is right again: it lasts as long as any other."""
    async with store_on(server) as store:
        owner = make(store, "a")
        mark_machines(server, NS)
        await take(owner)
        alter(server, identity="another one")
        for is_asserted in (False, True):
            assert await is_quarantined(store)
            pass_time(server, -200)  # such a step may be taken back soon
            await keep(owner, 0)
            [marker] = await store.machine_markers()
            assert 490 < marker.seconds_left <= 505
            pass_time(server, -200)
            assert is_asserted or await is_quarantined(store)
            await keep(owner, 0)
            [marker] = await store.machine_markers()
            assert 290 < marker.seconds_left <= 305
        pass_time(server, 305)
        assert not await is_quarantined(store)


async def test_beside_cosid(server: ValkeyServer) -> None:
    """It sees no quarantine and does not yield; what is asserted is not new for it either."""
    async with store_on(server) as store:
        await store.mark_machines(namespace=NS)
        owners = {text: make(store, text) for text in "abcd"}
        for machine in owners.values():
            await take(machine)
        server.call("FLUSHALL")
        # Java's newcomer counts from 0.
        server.call("SET", key("adder"), 0)
        server.call("HSET", key("itc_idx"), "java", f"0|{T}")
        with pytest.raises(MachineIdLostError, match="java holds it"):
            await keep(owners["a"], 0)
        assert hash_of(server, "itc_idx") == {"java": f"0|{T}"}
        await keep(owners["d"], 3)
        assert server.call("GET", key("adder")) == "3"
        # And one that took in a quarantine what a note of ours is still there of.
        server.call("HSET", key("note"), "2", Note("late", token="ab").text())  # noqa: S106 - of a call
        server.call("HSET", key("itc_idx"), "late", f"2|{2**45}")
        with pytest.raises(MachineIdLostError, match="late holds it"):
            await keep(owners["c"], 2)
        server.call("HSET", key("itc_idx"), "late", f"2|{T}")
        await keep(owners["c"], 2)
        pass_time(server, 305)
        taken = [(await take(make(store, text))).machine_id for text in "vwxyz"]
        assert taken == [4, 5, 6, 7, 1]


async def test_the_marker(server: ValkeyServer) -> None:
    """Missing it is written, of another server it is not, unless somebody knows better."""
    async with store_on(server) as store:
        mark = store.mark_machines
        assert await store.machine_markers(namespace=NS) == []
        assert await mark(namespace=NS) == MachineMarker(namespace=NS, is_new=True)
        assert space(server) == Space(identity(server))
        for _ in range(2):
            assert await mark(namespace=NS) == MachineMarker(namespace=NS)
        assert await store.machine_markers() == [MachineMarker(namespace=NS)]
        alter(server, identity="another one")
        for _ in range(2):
            marker = await mark(namespace=NS)
            assert (marker.is_new, 290 < marker.seconds_left <= 305) == (False, True)
        alter(server, identity="another one")
        for safe_guard in (40, 300):  # one that runs is not prolonged
            assert 40 < (await mark(namespace=NS, safe_guard=safe_guard)).seconds_left <= 45
        alter(server, identity="another one")
        assert (await mark(namespace=NS)).is_quarantined
        assert await is_quarantined(store)
        with pytest.raises(MachineIdQuarantineError):
            await store.set_machine_bits(namespace=NS, bits=4)
        assert await mark(namespace=NS, is_new=True) == MachineMarker(namespace=NS, is_new=True)
        assert space(server) == Space(identity(server))
        assert not await is_quarantined(store)
        server.call("DEL", key("space"))
        with pytest.raises(MachineIdQuarantineError) as caught:
            await take(make(store, "a", safe_guard=inf))
        assert caught.value.seconds_left == inf
        assert (await mark(namespace=NS)).seconds_left == inf
        [marker] = await store.machine_markers()
        assert marker.seconds_left == inf
        pass_time(server, 10**9)
        assert await is_quarantined(store)
        await mark(namespace=NS, is_new=True)
        assert not await is_quarantined(store)


async def test_the_longest_safe_guard(server: ValkeyServer) -> None:
    """It is written with an id that is handed out, if longer; what Lua cannot count has no end."""
    endless = ((1e15, ENDLESS_MS), (1e300, ENDLESS_MS))
    leases = ((300.0, 300_000), (200.0, 300_000), (300.5, 300_500), *endless)
    async with store_on(server) as store:
        await store.mark_machines(namespace=NS)
        await store.set_machine_bits(namespace=NS, bits=3)
        before = space(server)
        for number, (safe_guard, due) in enumerate(leases):
            one = make(store, f"i{number}", safe_guard=safe_guard)
            with pytest.raises(MachineIdLostError):
                await one.guard(number, now_ms=T, mark_ms=T)
            with pytest.raises(MachineBitsMismatchError):
                await one.distribute(4, now_ms=T, latest_ms=FAR)
            assert space(server) == before
            assert (await take(one)).machine_id == number
            before = space(server)
            assert before == Space(identity(server), bits=3, guard_ms=due)
        alter(server, identity="another one")
        assert await is_quarantined(store)
        assert (await store.machine_markers())[0].seconds_left == inf


async def test_a_damaged_marker(server: ValkeyServer) -> None:
    """It is named, and nothing is written."""
    async with store_on(server) as store:
        owner = make(store, "a")
        await store.mark_machines(namespace=NS)
        await take(owner)
        whole, note = space(server).text(), hash_of(server, "note")["0"]
        for command, place, value in (
            *(
                (("SET", key("space")), key("space"), whole.replace(before, after))
                for before, after in (
                    ('"since_ms":0', '"since_ms":"x"'),
                    ('"since_ms":0', '"since_ms":-2'),
                    ('"since_ms":0', '"since_ms":1.5'),
                    ('"since_ms":0,', ""),
                    ('"guard_ms":300000', '"guard_ms":1e3'),
                    ("{", "[" * 2000),
                )
            ),
            *(
                (("HSET", key("note"), "0"), key("note") + "[0]", note.replace(before, after))
                for before, after in (('"turn":1', '"turn":"1"'), ('"born_ms":0', '"born_ms":null'))
            ),
            (("HSET", "aiocosid:marker", "store"), "aiocosid:marker[store]", "x"),
            (("HSET", "aiocosid:marker", f"count:{NS}"), f"aiocosid:marker[count:{NS}]", "1"),
        ):
            server.call(*command, value)
            owner._snapshot = None  # of a process that was started since
            calls: list[Any] = [
                keep(owner, 0),
                take(make(store, "b")),
                store.mark_machines(namespace=NS),
            ]
            calls += [store.machine_markers()]
            before = server.call("DEBUG", "DIGEST")
            for call in calls:
                with pytest.raises(CorruptMachineStateError) as caught:
                    await call
                assert caught.value.place == place
            assert server.call("DEBUG", "DIGEST") == before
            server.call("DEL", "aiocosid:marker")
            server.call("SET", key("space"), whole)
            server.call("HSET", key("note"), "0", note)


async def test_a_server_that_hides_who_it_is(server: ValkeyServer) -> None:
    """Without a right to INFO nothing is handed out or guarded; the error says what to allow."""
    mark_machines(server, NS)
    rights = "evalsha eval type time get set hget hmget hset hdel hgetall hlen"
    allowed = [f"+{each}" for each in rights.split()] + ["~aiocosid:marker"]
    server.call("ACL", "SETUSER", "app", "on", ">secret", "~cosid:*", *allowed)
    url = f"redis://app:secret@{server.host}:{server.port}"
    async with RedisStore.from_url(url) as store:
        machine = make(store, "a")
        for hidden in (lambda: take(machine), lambda: keep(machine, 0), lambda: mark(store)):
            with pytest.raises(StoreAuthenticationError, match=r"\+info"):
                await hidden()
        assert server.call("KEYS", "*") == [key("space")]
        server.call("ACL", "SETUSER", "app", "+info")
        await take(machine)
        await keep(machine, 0)
        alter(server, identity="another one")
        await keep(machine, 0)
        assert await is_quarantined(store)
        pass_time(server, 305)
        assert not await is_quarantined(store)
        await machine.revert(0, last_ms=T)
        assert (await mark(store)).seconds_left == 0


async def mark(store: RedisStore) -> Any:
    return await store.mark_machines(namespace=NS)


async def test_lost_replies(server: ValkeyServer) -> None:
    """A sign of life that is sent twice asserts the same; what begins, begins once."""
    async with (
        FaultProxy(server.host, server.port) as proxy,
        Redis(host=proxy.host, port=proxy.port, retry=Retry(NoBackoff(), 0)) as client,
    ):
        store = RedisStore(client)
        machine = make(store, "a")
        await mark(store)
        await take(machine)
        await keep(machine, 0)
        server.call("FLUSHALL")
        for _ in range(2):
            machine._snapshot = None  # what it would go on from is gone
            proxy.swallow_replies(to=COMMIT.digest)
            with pytest.raises(StoreUnavailableError):
                await keep(machine, 0, mark=T + 9)
            since = space(server).since_ms
            await keep(machine, 0, mark=T + 9)
            assert space(server).since_ms == since
        assert hash_of(server, "itc_idx") == {"a": f"0|{T}"}
        assert marks(server) == {"0": str(T + 9)}
