"""A fail-over of MariaDB takes back what its replica had not confirmed, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from aiocosid import store_from_url
from aiocosid.abc import Store
from aiocosid.errors import MachineIdQuarantineError, StoreError, StoreUnavailableError
from tests.servers import MariadbServer, eventually, wait_until

pytestmark = pytest.mark.integration

T, FAR = 1_700_000_000_000, 2_000_000_000_000

PRIMARY = (
    *("--server-id=1", "--log-bin=log", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"),
    "--rpl-semi-sync-master-timeout=18446744073709551615",
    "--rpl-semi-sync-master-wait-no-slave=ON",
)
REPLICA = "--server-id=2", "--rpl-semi-sync-slave-enabled=ON"


@pytest.fixture
def pair() -> Iterator[tuple[MariadbServer, MariadbServer]]:
    """A primary, and the replica that its commits wait for."""
    with MariadbServer(*PRIMARY) as primary, MariadbServer(*REPLICA) as replica:
        replica.execute(
            f"set global gtid_slave_pos = '{primary.execute('select @@gtid_current_pos')}'; "
            f"change master to master_host = '{primary.host}', master_port = {primary.port}, "
            "master_user = 'root', master_use_gtid = slave_pos; start slave"
        )
        primary.execute("set global rpl_semi_sync_master_enabled = on")
        wait_until(lambda: status(primary, "clients") == "1", "the primary waits for the replica")
        yield primary, replica


def status(primary: MariadbServer, of: str) -> str:
    return primary.execute(f"show status like 'Rpl_semi_sync_master_{of}'").partition("|")[2]


def promote(replica: MariadbServer) -> None:
    replica.execute("stop slave; reset slave all")


async def test_what_no_replica_has_is_no_grant(
    pair: tuple[MariadbServer, MariadbServer],
) -> None:
    """Whoever asks for it waits, and learns nothing; what was granted is on the replica."""
    primary, replica = pair
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(store_from_url(f"{primary.url}?durability=refuse"))
        await store.create_schema()
        await store.initialize(confirm_no_holders=True)
        counter = store.segment_distributor(name="order")
        granted = [await counter.next_max_id(10) for _ in range(2)][-1]
        holder = store.machine_id_distributor(instance_id="a")
        held = await holder.distribute(10, now_ms=T, latest_ms=FAR)

        replica.execute("stop slave io_thread")
        wait_until(lambda: status(primary, "clients") == "0", "the replica is away")
        other = store.machine_id_distributor(instance_id="b")
        calls = [
            asyncio.ensure_future(counter.next_max_id(10)),
            asyncio.ensure_future(other.distribute(10, now_ms=T, latest_ms=FAR)),
            asyncio.ensure_future(holder.renew(held.machine_id, now_ms=T + 1, fence_ms=T + 9)),
        ]

        async def all_wait() -> bool:
            return status(primary, "wait_sessions") == "3"

        await eventually(all_wait)
        primary.kill()
        for call in calls:
            with pytest.raises(StoreUnavailableError):
                await call
    promote(replica)
    async with store_from_url(replica.url) as promoted:
        assert await promoted.segment_distributor(name="order").peek() == granted
        again = promoted.machine_id_distributor(instance_id="c")
        with pytest.raises(MachineIdQuarantineError):  # for it is another server
            await again.distribute(10, now_ms=T, latest_ms=FAR)


async def test_a_fail_over_under_load(pair: tuple[MariadbServer, MariadbServer]) -> None:
    """The primary is killed while eight take ids; those of the replica go on above them."""
    primary, replica = pair
    granted: list[int] = []

    async def take(store: Store) -> None:
        counter = store.segment_distributor(name="order")
        while True:
            granted.append(await counter.next_max_id(1))

    async with store_from_url(f"{primary.url}?durability=refuse") as store:
        await store.create_schema()
        tasks = [asyncio.ensure_future(take(store)) for _ in range(8)]

        async def many() -> bool:
            return len(granted) > 200

        await eventually(many)
        primary.kill()
        for task in tasks:
            with pytest.raises(StoreError):
                await task
    before = len(granted)
    promote(replica)
    async with store_from_url(replica.url) as store:
        counter = store.segment_distributor(name="order")
        granted.extend([await counter.next_max_id(1) for _ in range(50)])
    assert len({*granted}) == len(granted)
    assert min(granted[before:]) > max(granted[:before])
