"""The contract of machine ids on every store; asyncio and uvloop, and memory on trio as well."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from math import ceil, inf
from typing import Any

import pytest
import pytest_asyncio

from aiocosid import connect
from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.abc import InstanceId, MachineGrant, MachineIdDistributor, MachineMarker, Store
from aiocosid.errors import (
    ClockSkewError,
    InvalidArgumentError,
    MachineBitsMismatchError,
    MachineIdInUseError,
    MachineIdOverflowError,
    MachineIdQuarantineError,
)
from aiocosid.snowflake import JAVASCRIPT_SAFE_MS
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import MachineIdDistributorContract, MakeMachineIdDistributor, ManualClock

from ._stores import ENGINES, KEEP_MACHINES, STORES, Backend, Remote


@pytest.fixture(params=KEEP_MACHINES)
def backend(request: pytest.FixtureRequest) -> Backend:
    """One of the kinds of store that keep machine ids."""
    return (STORES | ENGINES)[request.param](request)


class Machines(MachineIdDistributorContract):
    """One kind of store."""

    backend: Backend
    has_regions = True

    @pytest.fixture(autouse=True)
    def _backend(self, backend: Backend) -> None:
        self.backend = backend

    async def age(self, namespace: str, seconds: float) -> None:
        self.backend.age(namespace, seconds)

    async def forget(self, namespace: str, *, everything: bool) -> None:
        self.backend.forget(namespace, everything=everything)

    async def test_a_mark_of_any_size(self, make_machines: MakeMachineIdDistributor) -> None:
        """But a server refuses what would spoil an id for good."""
        if isinstance(self.backend, Remote):
            with pytest.raises(ClockSkewError):
                await super().test_a_mark_of_any_size(make_machines)
        else:
            await super().test_a_mark_of_any_size(make_machines)

    def marking(self, make: MakeMachineIdDistributor) -> MakeMachineIdDistributor:
        """Mark the store for each namespace that is new."""
        known: set[str] = set()

        def made(*, namespace: str, **about: Any) -> MachineIdDistributor:
            if namespace not in known:
                self.backend.mark(namespace)
                known.add(namespace)
            return make(namespace=namespace, **about)

        return made


@pytest.mark.asyncio
class TestOnOneStore(Machines):
    """All share the connections of a store, which closes them."""

    @pytest.fixture
    def make_machines(self, store: Store) -> MakeMachineIdDistributor:
        return self.marking(store.machine_id_distributor)

    async def test_an_operator_raises_the_floor_of_ids(self, store: Store) -> None:
        """Of one that is held, and of those that nobody had yet; nothing is ever lowered."""
        namespace = f"floor{uuid.uuid4().hex[:12]}"
        self.backend.mark(namespace)
        now_ms = SYSTEM_CLOCK.now_ms()
        above_ms = now_ms - 1000

        async def take(name: str) -> MachineGrant:
            caller = store.machine_id_distributor(namespace=namespace, instance_id=name)
            return await caller.distribute(2, now_ms=now_ms - 60_000, latest_ms=2**53)

        async def raise_all(to_ms: int) -> list[bool]:
            lift = partial(store.raise_machine_fence, namespace=namespace, above_ms=to_ms)
            return [await lift(machine_id=number) for number in range(4)]

        one = store.machine_id_distributor(namespace=namespace, instance_id="one")
        held = await one.distribute(2, now_ms=now_ms - 60_000, latest_ms=2**53)
        assert await raise_all(above_ms) == [True] * 4
        assert await raise_all(above_ms) == [False] * 4
        assert await raise_all(above_ms - 1) == [False] * 4
        await one.renew(held.machine_id, now_ms=now_ms - 50_000, fence_ms=now_ms - 40_000)
        await one.release(held.machine_id, last_ms=now_ms - 45_000)
        grants = [await take(name) for name in "abcd"]
        assert sorted(each.machine_id for each in grants) == [0, 1, 2, 3]
        assert [each.floor_ms for each in grants if each.floor_ms < above_ms] == []
        with pytest.raises(MachineIdOverflowError):
            await take("e")
        for wrong in (-1, now_ms + 25 * 3600 * 1000, 2**53, True):
            with pytest.raises(InvalidArgumentError, match="above_ms"):
                await store.raise_machine_fence(namespace=namespace, machine_id=0, above_ms=wrong)

    async def test_ids_that_a_wrong_clock_has_spoilt(self, store: Store) -> None:
        """Free ones are mended; one that is held, and one whose mark may be right, are left."""
        namespace = f"spoilt{uuid.uuid4().hex[:12]}"
        self.backend.mark(namespace)
        now_ms = SYSTEM_CLOCK.now_ms()
        far_ms, near_ms = now_ms * 1000, now_ms + 23 * 3600 * 1000
        root = self.backend.root if isinstance(self.backend, Remote) else self.backend
        async with root.open() as direct:
            machines = [
                direct.machine_id_distributor(namespace=namespace, instance_id=each)
                for each in "abcd"
            ]
            for number, machine in enumerate(machines):
                await machine.distribute(2, now_ms=now_ms, latest_ms=2**53)
                fence_ms = near_ms if number == 3 else far_ms
                await machine.renew(number, now_ms=now_ms, fence_ms=fence_ms)
            await machines[0].release(0, last_ms=far_ms - 5)
            await machines[1].release(1, last_ms=-1)
            await machines[3].release(3, last_ms=-1)
        found = await store.repair_machines(namespace=namespace)
        assert [(each.machine_id, each.instance_id) for each in found] == [
            *((0, ""), (1, "")),
            (2, "c"),
        ]
        assert found[0].fence_ms == far_ms - 5
        assert [each.machine_id for each in await store.repair_machines(namespace=namespace)] == [2]
        listed = await store.machines(namespace=namespace)
        floors = [max(each.fence_ms, each.last_timestamp_ms) for each in listed]
        assert all(now_ms < each <= now_ms + 2 * 60_000 for each in floors[:2])
        assert floors[2:] == [far_ms, near_ms]

    async def test_a_width_is_changed_while_nobody_holds_an_id(self, store: Store) -> None:
        """Nor a dead one; whoever comes then has to have the new width."""
        namespace = f"width{uuid.uuid4().hex[:12]}"
        self.backend.mark(namespace)
        one = store.machine_id_distributor(namespace=namespace, instance_id="one")
        assert await store.machine_bits(namespace=namespace) is None
        await one.distribute(2, now_ms=1, latest_ms=2**53)
        for _ in range(2):
            await store.set_machine_bits(namespace=namespace, bits=2)
            with pytest.raises(MachineIdInUseError, match=r"2 bits.* by one;"):
                await store.set_machine_bits(namespace=namespace, bits=3)
        with pytest.raises(InvalidArgumentError):
            await store.set_machine_bits(namespace=namespace, bits=32)
        assert await store.machine_bits(namespace=namespace) == 2
        await one.release(0, last_ms=1)
        for _ in range(2):
            await store.set_machine_bits(namespace=namespace, bits=3)
            assert await store.machine_bits(namespace=namespace) == 3
        with pytest.raises(MachineBitsMismatchError):
            await one.distribute(2, now_ms=1, latest_ms=2**53)
        assert (await one.distribute(3, now_ms=1, latest_ms=2**53)).machine_id == 0

    async def test_a_namespace_that_vanishes_is_missed(self, store: Store) -> None:
        """With its count, while the store's marker stays: its holder asserts its id again."""
        namespace = f"gone{uuid.uuid4().hex[:12]}"
        times = {"now_ms": SYSTEM_CLOCK.now_ms(), "latest_ms": 2**53}

        def of(text: str) -> MachineIdDistributor:
            return store.machine_id_distributor(namespace=namespace, instance_id=text)

        holder = of("holder")
        held = await holder.distribute(2, **times)
        self.backend.vanish(namespace)
        with pytest.raises(MachineIdQuarantineError):
            await of("another").distribute(2, **times)
        await holder.reassert(held.machine_id, now_ms=times["now_ms"], fence_ms=-1)
        listed = await store.machines(namespace=namespace)
        assert [(each.machine_id, each.instance_id) for each in listed] == [(0, "holder")]
        self.backend.vanish(namespace)
        assert await store.forget_namespace(namespace=namespace)
        assert not await store.forget_namespace(namespace=namespace)
        assert (await of("another").distribute(2, **times)).machine_id == 0

    async def test_a_marker_remembers_the_longest_lease(self, store: Store) -> None:
        """Of a renewal, of marking; what is marked as new, or is not there, knows nothing."""
        namespace = f"long{uuid.uuid4().hex[:12]}"

        def of(text: str, safe_guard: float) -> MachineIdDistributor:
            return store.machine_id_distributor(
                namespace=namespace, instance_id=text, safe_guard=safe_guard, interval=5.0
            )

        async def take(one: MachineIdDistributor) -> int:
            times = {"now_ms": SYSTEM_CLOCK.now_ms(), "latest_ms": 2**53}
            return (await one.distribute(2, **times)).machine_id

        async def mark(
            safe_guard: float | None = None, *, confirm_no_holders: bool = False
        ) -> MachineMarker:
            return await store.initialize_namespace(
                namespace=namespace, confirm_no_holders=confirm_no_holders, safe_guard=safe_guard
            )

        async def length() -> float:
            """Forget, and have one with 40 s ask; how long is refused, to the next 10 s."""
            self.backend.forget(namespace, everything=False)
            with pytest.raises(MachineIdQuarantineError) as caught:
                await take(of("short", 40.0))
            self.backend.age(namespace, caught.value.seconds_left + 1)
            await take(of("short", 40.0))
            return 10 * ceil(caught.value.seconds_left / 10)

        await mark(confirm_no_holders=True)
        for marked in (20.0, None, 55.0):
            owner = of("owner", 115.0)  # another one each time: else aged stamps are a namesake's
            machine_id = await take(owner)
            await mark(marked, confirm_no_holders=True)
            await owner.renew(machine_id, now_ms=SYSTEM_CLOCK.now_ms(), fence_ms=-1)
            assert await length() == 120
        await mark(confirm_no_holders=True)
        assert await length() == 50
        for named, due in ((30.0, 50), (75.0, 80), (None, 80), (55.0, 80)):
            assert not (await mark(named)).is_quarantined
            assert await length() == due
        await mark(inf)
        self.backend.forget(namespace, everything=False)
        assert (await mark()).seconds_left == inf
        await mark(55.0, confirm_no_holders=True)
        assert await length() == 60
        for wrong in (0.0, -1.0):
            with pytest.raises(InvalidArgumentError):
                await mark(wrong)


@pytest.mark.asyncio
async def test_two_providers_with_two_layouts(backend: Backend, store: Store) -> None:
    """The second is refused when it opens, with the way out, and holds no machine id."""
    namespace = f"two{uuid.uuid4().hex[:12]}"
    backend.mark(namespace)
    async with (
        connect(backend.url, namespace=namespace) as one,
        connect(backend.url, namespace=namespace) as two,
    ):
        first = await one.snowflake()
        with pytest.raises(MachineBitsMismatchError) as caught:
            await two.snowflake(layout=JAVASCRIPT_SAFE_MS)
        assert (caught.value.bits, caught.value.found) == (3, 10)
        assert f"aiocosid machines bits --namespace {namespace} --set 3" in str(caught.value)
        assert len(await store.machines(namespace=namespace)) == 1
        assert await first.next_id() > 0


@pytest.mark.asyncio
class TestOnTheirOwn(Machines):
    """Each has connections of its own, which it closes, and opens again when it is used."""

    @pytest_asyncio.fixture
    async def make_machines(self, store: Store) -> AsyncIterator[MakeMachineIdDistributor]:
        async with AsyncExitStack() as stack:

            def make(
                *,
                namespace: str,
                instance_id: InstanceId | str | None = None,
                safe_guard: float = 300,
                interval: float = 60,
                **further: Any,
            ) -> MachineIdDistributor:
                own = self.backend.open()
                stack.push_async_callback(own.aclose)
                return own.machine_id_distributor(
                    namespace=namespace,
                    instance_id=instance_id,
                    safe_guard=safe_guard,
                    interval=interval,
                    **further,
                )

            yield self.marking(make)


@pytest.mark.anyio
class TestMemoryOnTrio(MachineIdDistributorContract):
    """With the clock of a test in the store, which then need not be rewritten."""

    has_regions = True

    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {}

    @pytest.fixture
    def make_machines(self) -> MakeMachineIdDistributor:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        return self.store.machine_id_distributor

    async def age(self, namespace: str, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def forget(self, namespace: str, *, everything: bool) -> None:
        self.store.forget_machines(namespace=namespace, everything=everything)
