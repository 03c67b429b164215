"""Leased machine ids on real servers whose line is cut, or that are down at the start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from aiocosid import store_from_url
from aiocosid.abc import InstanceId
from aiocosid.errors import (
    MachineIdLostError,
    MachineIdOverflowError,
    MachineIdUnavailableError,
    StoreUnavailableError,
    WouldBlock,
)
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import SnowflakeId
from tests.machine_marks import initialize_namespace
from tests.servers import EXECUTED, FaultProxy, PostgresServer, ValkeyServer, eventually

from ._snowflakes import LAYOUT, Consumer, check_owners, check_unique, consuming, lease_on, until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


class Server:
    """A server, reached directly and through a proxy.

    Attributes:
        url, proxied_url: of the same server.
        lose: tells the proxy which replies tell that a statement or script was run.
    """

    def __init__(self, url: str, proxy: FaultProxy, namespace: str, **lose: bytes) -> None:
        host = f"{proxy.target[0]}:{proxy.target[1]}"
        self.url = url
        self.proxied_url = url.replace(host, f"{proxy.host}:{proxy.port}")
        assert self.proxied_url != url
        self.proxy = proxy
        self.namespace = namespace
        self.lose = lose


@pytest_asyncio.fixture(params=["valkey", "postgres"])
async def server(request: pytest.FixtureRequest, namespace: str) -> AsyncIterator[Server]:
    """One server after the other; nothing listens at its proxy yet."""
    made: ValkeyServer | PostgresServer = request.getfixturevalue(request.param)
    proxy = FaultProxy(made.host, made.port)
    if request.param == "valkey":
        assert isinstance(made, ValkeyServer)
        initialize_namespace(made, namespace)
        yield Server(made.url, proxy, namespace, to=b"EVALSHA")
        return
    url: str = request.getfixturevalue("postgres_database")
    async with store_from_url(url) as store:
        await store.create_schema()
        await store.initialize_namespace(namespace=namespace)
    yield Server(url, proxy, namespace, matching=EXECUTED)


class Outage:
    """Two owners behind a proxy, and two heirs that reach the server directly.

    Attributes:
        leases, owners: the first takes another machine id after a loss, the second ends.
        heirs: by machine id.
    """

    def __init__(self, server: Server, stack: AsyncExitStack) -> None:
        self.server = server
        self.leases: list[MachineIdLease] = []
        self.owners: list[Consumer] = []
        self.heirs: dict[int, Consumer] = {}
        self._stack = stack

    async def begin(self) -> None:
        """Open the owners, and let them work."""
        server, enter = self.server, self._stack.enter_async_context
        await enter(server.proxy)
        self.direct = await enter(store_from_url(server.url))
        store = await enter(store_from_url(server.proxied_url))
        # A mark as far ahead as may be: they go on until shortly before others may begin.
        options: dict[str, Any] = {"lead": 0.5, "call_timeout": 0.1}
        self.leases = [
            lease_on(store, server.namespace, on_lost=each, **options)
            for each in ("redistribute", "raise")
        ]
        generators = [SnowflakeId(each, layout=LAYOUT, wait_timeout=0.05) for each in self.leases]
        for each in generators:
            await enter(each)
        self.owners = await enter(consuming(*generators))
        for owner in self.owners:
            await owner.more()

    async def cut(self, *, lose_replies: bool) -> None:
        """Let nothing through any more; after renewals of which the owners do not hear."""
        proxy = self.server.proxy
        if lose_replies:
            proxy.swallow_replies(2, reset=False, **self.server.lose)
            await until(lambda: proxy.swallowed == 2)
        proxy.blackhole(requests=True, replies=True)
        if lose_replies:
            rows = await self.direct.machines(namespace=self.server.namespace)
            marks = {each.machine_id: each.fence_ms for each in rows}
            assert any(marks[each.machine_id] > each.limit_ms() > 0 for each in self.leases)

    async def inherit(self) -> None:
        """Wait until both ids have expired, and take them."""
        generators = {}
        for number in range(2):
            # Stable: it is not to lose the id again, however slow the machine of the tests is.
            instance = InstanceId(f"heir:{number}", stable=True)
            lease = lease_on(self.direct, self.server.namespace, instance)
            generator = SnowflakeId(lease, layout=LAYOUT)
            await eventually(
                partial(self._stack.enter_async_context, generator), MachineIdOverflowError
            )
            generators[lease.machine_id] = generator
        for owner in self.owners:
            with pytest.raises(WouldBlock):
                owner.generator.next_id_nowait()
        heirs = await self._stack.enter_async_context(consuming(*generators.values()))
        self.heirs = dict(zip(generators, heirs, strict=True))

    async def give_up(self, machine_id: int) -> None:
        """Have an heir return its id."""
        await self.heirs[machine_id].generator.aclose()
        await self.direct.evict_machine(namespace=self.server.namespace, machine_id=machine_id)


class TestCutLine:
    """A line that is dead for longer than the lease, while others take what has expired."""

    @pytest.mark.parametrize("lose_replies", [False, True])
    async def test_the_owner_is_silent_before_its_heir_speaks(
        self, server: Server, lose_replies: bool
    ) -> None:
        """When the line is back, one takes another machine id, and one is told of the loss."""
        async with AsyncExitStack() as stack:
            outage = Outage(server, stack)
            await outage.begin()
            patient, strict = outage.owners
            assert [each.machine_id for each in outage.leases] == [0, 1]
            await outage.cut(lose_replies=lose_replies)
            await outage.inherit()
            issued = len(patient.ids), len(strict.ids)
            for heir in outage.heirs.values():
                await heir.more()
            assert (len(patient.ids), len(strict.ids)) == issued
            await until(lambda: patient.refusals > 0)

            server.proxy.heal()
            await until(lambda: strict.ended is not None)
            assert isinstance(strict.ended, MachineIdLostError)
            assert strict.ended.machine_id == 1
            assert patient.ended is None
            await outage.give_up(1)
            await patient.more()
            assert outage.leases[0].machine_id == 1
            await outage.heirs[0].more()
            consumers = *outage.owners, *outage.heirs.values()
            check_unique(*(each.ids for each in consumers))
            check_owners(*consumers)


class TestStart:
    """A store that is not there when a lease is opened."""

    async def test_it_stays_away(self, server: Server) -> None:
        """Refused, then silent: the store's error is behind ours, and a later opening works."""
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(store_from_url(server.proxied_url))
            lease = lease_on(store, server.namespace, start_timeout=0.3)
            generator = SnowflakeId(lease, layout=LAYOUT)
            await unavailable(generator)  # refused
            await stack.enter_async_context(server.proxy)
            server.proxy.blackhole(requests=True)
            silent = await unavailable(generator)
            assert "no answer" in str(silent)
            server.proxy.heal()
            async with generator:
                assert LAYOUT.parse(await generator.next_id()).machine_id == 0

    async def test_it_comes_up_late(self, server: Server) -> None:
        """Within the start timeout: as if it had been there."""
        async with store_from_url(server.proxied_url) as store:
            lease = lease_on(store, server.namespace, start_timeout=30.0)
            async with asyncio.TaskGroup() as tasks:
                opening = tasks.create_task(one_id(SnowflakeId(lease, layout=LAYOUT)))
                await until(lambda: lease.statistics().failures >= 2)
                assert not opening.done()
                async with server.proxy:
                    assert LAYOUT.parse(await opening).machine_id == 0


async def unavailable(generator: SnowflakeId) -> StoreUnavailableError:
    """What the store said when the generator could not be opened."""
    with pytest.raises(MachineIdUnavailableError) as caught:
        await one_id(generator)
    error = caught.value.__cause__
    assert isinstance(error, StoreUnavailableError)
    return error


async def one_id(generator: SnowflakeId) -> int:
    """The first id of a life."""
    async with generator:
        return await generator.next_id()
