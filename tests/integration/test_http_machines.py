"""Machine ids from a CosId proxy: what its protocol can promise, and what it cannot."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Final

import pytest
import pytest_asyncio

from aiocosid import SnowflakeId
from aiocosid.abc import InstanceId, MachineIdDistributor
from aiocosid.errors import (
    InvalidArgumentError,
    MachineIdLostError,
    MachineIdOverflowError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import COSID_MS, CachedSnowflakeId
from aiocosid.stores.http import HttpStore
from aiocosid.testing import MachineIdDistributorContract, MakeMachineIdDistributor
from tests.servers import CosIdProxy

pytestmark = [pytest.mark.integration]

TIMES: Final[dict[str, Any]] = {"now_ms": 1, "latest_ms": 2**53}
SIGN: Final[dict[str, Any]] = {"now_ms": 1, "fence_ms": 2}


@pytest.fixture
def proxy(cosid_proxy: CosIdProxy) -> CosIdProxy:
    """The session's proxy as if it were new."""
    cosid_proxy.reset()
    return cosid_proxy


@asynccontextmanager
async def machines_at(
    proxy: CosIdProxy, instance_id: InstanceId | str | None = "a:1", **about: Any
) -> AsyncGenerator[MachineIdDistributor]:
    """A distributor on connections of its own."""
    async with HttpStore.from_url(proxy.url) as store:
        yield store.machine_id_distributor(instance_id=instance_id, **about)


class TestWire:
    async def test_what_is_sent(self, cosid_proxy: CosIdProxy, namespace: str) -> None:
        """Who asks and for how long, in the query alone; never a time of ours."""
        before, path = len(cosid_proxy.asked), f"/machines/{namespace}%2F1"
        who = InstanceId("pod 1/é", stable=True)
        async with machines_at(
            cosid_proxy, who, namespace=f"{namespace}/1", safe_guard=inf
        ) as machines:
            grant = await machines.distribute(10, **TIMES)
            await machines.renew(grant.machine_id, **SIGN)
            await machines.reassert(grant.machine_id, **SIGN)
            await machines.release(grant.machine_id, last_ms=5)
        ours = {"instanceId": "pod 1/é", "stable": "true"}
        guarded = {**ours, "safeGuardDuration": "PT2562047788015H12M55.807S"}
        assert cosid_proxy.asked[before:] == [
            ("POST", path, {"machineBit": "10", **guarded}),
            *[("PATCH", path, guarded)] * 4,
        ]
        async with machines_at(cosid_proxy, "b", namespace=f"{namespace}/1") as machines:
            await machines.release((await machines.distribute(10, **TIMES)).machine_id, last_ms=5)
        ours = {"instanceId": "b", "stable": "false"}
        assert cosid_proxy.asked[-1] == ("DELETE", path, ours)

    async def test_the_floor_is_the_servers_time(self, proxy: CosIdProxy) -> None:
        """As CosId's client takes it; a server that is ahead has us wait."""
        proxy.ahead_ms = 3_600_000
        async with machines_at(proxy, None) as machines:
            earliest = proxy.now
            grant = await machines.distribute(10, **TIMES)
            assert earliest <= grant.floor_ms <= proxy.now

    async def test_a_server_that_is_behind(self, proxy: CosIdProxy) -> None:
        """Its time may be within the former owner's last second: ours counts then."""
        proxy.ahead_ms = -60
        async with machines_at(proxy) as machines:
            ahead_ms = proxy.now + 3_600_000
            grant = await machines.distribute(10, now_ms=ahead_ms, latest_ms=2**53)
            assert grant.floor_ms == ahead_ms
            grant = await machines.distribute(10, now_ms=1, latest_ms=2**53)
            assert proxy.now - 60_000 < grant.floor_ms <= proxy.now

    async def test_a_generator(self, proxy: CosIdProxy) -> None:
        """It has an id of the server's, and gives it back."""
        async with HttpStore.from_url(proxy.url) as store:
            for _ in range(2):
                async with SnowflakeId(store.machine_id_distributor()) as generator:
                    assert COSID_MS.parse(await generator.next_id()).machine_id == 0
                    assert [machine_id for machine_id, _ in proxy.pools["cosid"].entries.values()]
                assert (list(proxy.pools["cosid"].entries), proxy.pools["cosid"].last) == ([], 0)


def test_nothing_is_borrowed(proxy: CosIdProxy) -> None:
    """The next owner would begin within the borrowed seconds: no mark tells it where they end."""
    machine = HttpStore.from_url(proxy.url).machine_id_distributor()
    for each in (machine, MachineIdLease(machine)):
        with pytest.raises(InvalidArgumentError, match="keeps fences"):
            CachedSnowflakeId(each)


class TestLosses:
    async def test_all_are_held(self, cosid_proxy: CosIdProxy, namespace: str) -> None:
        """M-01; the protocol does not tell who holds them."""
        async with (
            machines_at(cosid_proxy, "a", namespace=namespace) as one,
            machines_at(cosid_proxy, "b", namespace=namespace) as two,
            machines_at(cosid_proxy, "c", namespace=namespace) as three,
        ):
            ids = [(await each.distribute(1, **TIMES)).machine_id for each in (one, two)]
            assert ids == [0, 1]
            with pytest.raises(MachineIdOverflowError) as caught:
                await three.distribute(1, **TIMES)
            assert (caught.value.size, caught.value.holders) == (2, ())

    async def test_a_server_started_anew(self, proxy: CosIdProxy) -> None:
        """It knows of nobody (M-02): whose lease is good asks again and has the same id."""
        async with machines_at(proxy) as machines:
            await machines.distribute(10, **TIMES)
            proxy.restart()
            with pytest.raises(MachineIdLostError, match="after its restart"):
                await machines.renew(0, **SIGN)
            await machines.reassert(0, **SIGN)
            await machines.renew(0, **SIGN)
            proxy.restart()
            proxy.pools["cosid"].entries = {"b": (0, proxy.now)}
            with pytest.raises(MachineIdLostError, match="handed this instance 1 instead"):
                await machines.reassert(0, **SIGN)
            assert (await machines.distribute(10, **TIMES)).machine_id == 1

    async def test_somebody_else_holds_it(self, proxy: CosIdProxy) -> None:
        """M-03: for a lease that is good as well."""
        async with machines_at(proxy) as machines:
            await machines.distribute(10, **TIMES)
            proxy.pools["cosid"].entries = {"b": (0, proxy.now)}
            for call in (machines.renew, machines.reassert):
                with pytest.raises(MachineIdLostError, match="another instance may hold it"):
                    await call(0, **SIGN)

    async def test_a_server_that_remembers_too_long(self, proxy: CosIdProxy) -> None:
        """An instance that comes again is not handed what went to another one meanwhile."""
        async with machines_at(proxy) as former:
            assert (await former.distribute(10, **TIMES)).machine_id == 0
        proxy.pools["cosid"].entries = {"b": (0, proxy.now)}
        async with machines_at(proxy) as later:
            assert (await later.distribute(10, **TIMES)).machine_id == 1
            await later.renew(1, **SIGN)
        assert {who: entry[0] for who, entry in proxy.pools["cosid"].entries.items()} == {
            "b": 0,
            "a:1": 1,
        }

    async def test_a_server_that_does_not_forget(self, proxy: CosIdProxy) -> None:
        """Nothing is handed out that was not seen to be ours; whoever can takes another name."""
        held = {"b": (0, proxy.now)}
        for who in ("a:1", InstanceId("a:1", stable=True), None):
            proxy.reset()
            async with machines_at(proxy, who) as machines:
                assert (await machines.distribute(10, **TIMES)).machine_id == 0
                proxy.pools["cosid"].entries = {**held}
                if who is not None:
                    # As of a server before 3.2.1.
                    proxy.answer(400, '{"code": "M-03"}', method="DELETE")
                    with pytest.raises(StoreError, match="machine id 0 for this instance"):
                        await machines.distribute(10, **TIMES)
                    asked = [method for method, _, _ in proxy.asked]
                    assert ("DELETE" in asked) is (who == "a:1")
                    assert proxy.pools["cosid"].entries == held
                    proxy.restart()
                assert (await machines.distribute(10, **TIMES)).machine_id == 1
                await machines.renew(1, **SIGN)
                assert proxy.pools["cosid"].entries["b"] == held["b"]

    async def test_a_stable_one_that_lost_its_id(self, proxy: CosIdProxy) -> None:
        """Closing it writes nothing: a server may write its id over the other's."""
        async with machines_at(proxy, InstanceId("a:1", stable=True)) as machines:
            await machines.distribute(10, **TIMES)
            proxy.pools["cosid"].entries = {"b": (0, proxy.now)}
            await machines.release(0, last_ms=5)
            assert list(proxy.pools["cosid"].entries) == ["b"]

    async def test_another_id_is_not_ours(self, proxy: CosIdProxy) -> None:
        """The server would not look at it, so nothing is sent."""
        async with machines_at(proxy) as machines:
            await machines.distribute(10, **TIMES)
            asked = len(proxy.asked)
            for call in (machines.renew, machines.reassert):
                with pytest.raises(MachineIdLostError, match="did not get it"):
                    await call(1, **SIGN)
            await machines.release(1, last_ms=-1)
            assert len(proxy.asked) == asked
            await machines.release(0, last_ms=-1)
            await machines.release(0, last_ms=-1)
            assert [method for method, _, _ in proxy.asked[asked:]] == ["DELETE"]

    async def test_giving_back_to_a_server_that_knows_nothing(self, proxy: CosIdProxy) -> None:
        """It is none of ours any more; a server that fails may be asked again."""
        async with machines_at(proxy) as machines:
            await machines.distribute(10, **TIMES)
            proxy.answer(503)
            with pytest.raises(StoreUnavailableError):
                await machines.release(0, last_ms=-1)
            proxy.restart()
            await machines.release(0, last_ms=-1)
            assert list(proxy.pools["cosid"].entries) == ["a:1"]

    async def test_a_farewell_that_comes_late(self, proxy: CosIdProxy) -> None:
        """It gives back nothing that was taken since."""
        async with machines_at(proxy, None) as machines, machines_at(proxy, "b") as other:
            await machines.distribute(10, **TIMES)
            proxy.answer(503, method="DELETE")
            with pytest.raises(StoreUnavailableError):
                await machines.release(0, last_ms=-1)
            farewell = proxy.asked[-1]
            held = (await machines.distribute(10, **TIMES)).machine_id
            await machines.renew(held, **SIGN)
            assert proxy.respond(*farewell)[0] == 200
            assert (await other.distribute(10, **TIMES)).machine_id != held

    async def test_answers_that_are_none(self, proxy: CosIdProxy) -> None:
        """Each is an error of ours, and no id is taken on a guess."""
        state = '{{"machineId":{},"lastTimeStamp":{}}}'
        async with machines_at(proxy) as machines:
            for body in (
                *("", "<html>", "7", "[]", "null", '{"machineId":1}', '{"lastTimeStamp":1}'),
                *(state.format(*each) for each in ((8, 1), (-1, 1), (1, -2), (1, 2**63))),
                *(state.format(*each) for each in (("true", 1), (1, "1.5"), ('"1"', 1))),
            ):
                proxy.answer(200, body)
                with pytest.raises(StoreError, match="not a machine id below 8 with its time"):
                    await machines.distribute(3, **TIMES)
            errors = {401: StoreAuthenticationError, 500: StoreUnavailableError, 404: StoreError}
            for status, error in errors.items():
                for method in ("POST", "PATCH"):
                    proxy.answer(status, method=method)
                    with pytest.raises(error, match=f"HTTP {status}"):
                        await machines.distribute(3, **TIMES)
            grant = await machines.distribute(3, **TIMES)
            for status, error in errors.items():
                for call in (machines.renew, machines.reassert):
                    proxy.answer(status)
                    with pytest.raises(error, match=f"HTTP {status}"):
                        await call(grant.machine_id, **SIGN)


MARKS: Final = "there are no marks"
WIDTHS: Final = "no width is noted"
LATE: Final = "the server does not choose by the time"

NOT_PROMISED: Final = {
    "test_a_mark_of_any_size": MARKS,
    "test_a_sign_of_life_lowers_nothing": MARKS,
    "test_giving_back_lowers_the_mark": MARKS,
    "test_giving_back_twice": MARKS,
    "test_ids_begin_with_0": MARKS,
    "test_texts_may_hold_anything_but_nul": MARKS,
    "test_the_last_sign_of_life_counts": MARKS,
    "test_the_mark_of_an_expired_one": MARKS,
    "test_the_next_owner_begins_above_the_mark": MARKS,
    "test_a_namespace_has_one_width": WIDTHS,
    "test_one_of_two_widths_wins": WIDTHS,
    "test_a_late_expired_id_is_left_for_another": LATE,
    "test_a_late_id_is_left_for_another": LATE,
    "test_a_late_own_id_is_given_back": LATE,
    "test_a_late_own_id_is_kept_where_there_is_no_other": LATE,
    "test_a_return_that_comes_too_late": "there are no tokens",
    "test_a_stable_one_keeps_its_id": "who asks, and not who has it, is stable or not",
    "test_a_full_pool_says_so": "the protocol does not tell who holds them",
}


@pytest.mark.stress
@pytest.mark.asyncio
class TestContract(MachineIdDistributorContract):
    """What of the public contract the protocol has room for."""

    @pytest.fixture(autouse=True)
    def _promised(self, request: pytest.FixtureRequest) -> None:
        if why := NOT_PROMISED.get(request.node.originalname):
            pytest.skip(why)

    @pytest_asyncio.fixture
    async def make_machines(self, proxy: CosIdProxy) -> AsyncIterator[MakeMachineIdDistributor]:
        self.proxy = proxy
        async with HttpStore.from_url(self.proxy.url) as store:
            yield store.machine_id_distributor

    async def age(self, namespace: str, seconds: float) -> None:
        pool, ms = self.proxy.pools[namespace], int(seconds * 1000)
        pool.entries = {who: (each, at - ms) for who, (each, at) in pool.entries.items()}
