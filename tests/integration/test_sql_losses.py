"""What a database has lost beneath a store that is marked as sound: nobody is handed it twice."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import pytest

from aiocosid.abc import Store
from aiocosid.errors import (
    CounterMissingError,
    CounterNotCreatedError,
    MachineIdInUseError,
    MachineIdQuarantineError,
    StoreNotInitializedError,
    StoreRolledBackError,
)

from ._machine_tables import T0, PostgresTables, Tables, tables_of, who

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

FAR = T0 * 2

LOSSES = {
    "CosId's rows": ["delete from cosid_machine"],
    "one of CosId's rows": ["delete from cosid_machine where machine_id = 0"],
    "notes": ["delete from aiocosid_cell where name like 'note/%'"],
    "all but the marker and the count": [
        "delete from cosid_machine",
        "delete from aiocosid_cell where name not in ('marker', 'count/dev')",
    ],
    "all but the marker, the count and the namespace": [
        "delete from cosid_machine",
        "delete from aiocosid_cell where name not in ('marker', 'count/dev', 'space/dev')",
    ],
}


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def tables(request: pytest.FixtureRequest) -> Tables:
    """The tables of one database after the other."""
    return tables_of(request, request.param)


def run(tables: Tables, statements: list[str]) -> None:
    """Run them one by one, behind everybody's back."""
    for each in statements:
        tables.execute(f"{each};")


async def take(store: Store, number: int, namespace: str = "dev") -> int:
    """Have an instance take one of eight."""
    one = store.machine_id_distributor(namespace=namespace, instance_id=who(number))
    return (await one.distribute(3, now_ms=T0, latest_ms=FAR)).machine_id


@pytest.mark.parametrize("loss", LOSSES)
async def test_rows_that_are_gone(tables: Tables, loss: str) -> None:
    """Nobody new is handed an id until all who held one were silent; they keep theirs."""
    async with tables.store.from_url(tables.url) as store:
        await store.create_schema()
        owner = store.machine_id_distributor(namespace="dev", instance_id=who(0))
        assert (await owner.distribute(3, now_ms=T0, latest_ms=FAR)).machine_id == 0
        assert await take(store, 1) == 1
        await owner.renew(0, now_ms=T0 + 1, fence_ms=T0 + 2)
        run(tables, LOSSES[loss])
        with pytest.raises(MachineIdQuarantineError) as caught:
            await take(store, 2)
        assert caught.value.seconds_left == pytest.approx(305, abs=5)
        await owner.reassert(0, now_ms=T0 + 3, fence_ms=T0 + 4)
        assert (tables.holder(0), tables.record(0)) == (who(0).text, T0 + 4)
        with pytest.raises(MachineIdQuarantineError):
            await take(store, 2)
        assert await take(store, 0, "another") == 0, "only this namespace has lost any"


async def test_all_of_ours_is_gone(tables: Tables) -> None:
    """Then the store was never initialised, as far as can be seen; CosId's rows count as held."""
    async with tables.store.from_url(tables.url) as store:
        await store.create_schema()
        assert [await take(store, number) for number in range(2)] == [0, 1]
        run(tables, ["delete from aiocosid_cell"])
        with pytest.raises(MachineIdQuarantineError):
            await take(store, 2)
        with pytest.raises(StoreNotInitializedError, match="aiocosid init"):
            await take(store, 2, "another")
        await store.initialize(confirm_no_holders=True)
        assert await take(store, 2) == 2


async def test_a_counter_that_is_gone(tables: Tables) -> None:
    """Who has had a reply of it never makes it anew, from below what was handed out."""
    async with tables.store.from_url(tables.url) as store:
        await store.create_schema()
        counter = store.segment_distributor(namespace="dev", name="order", offset=7)
        assert [await counter.next_max_id(10) for _ in range(2)] == [17, 27]
        run(tables, ["delete from cosid"])
        for _ in range(2):
            with pytest.raises(StoreRolledBackError) as caught:
                await counter.next_max_id(10)
            assert (caught.value.seen, caught.value.expected) == (0, 37)
        with pytest.raises(CounterMissingError):
            await store.set_floor(namespace="dev", name="order", above=30, create=False)
        with pytest.raises(CounterNotCreatedError):
            await store.set_floor(namespace="dev", name="order", above=30)
        assert not tables.execute("select * from cosid")
        await store.create_schema(after_loss=True)
        await store.set_floor(namespace="dev", name="order", above=30)
        assert await counter.next_max_id(10) == 40
        await store.set_floor(namespace="dev", name="order", above=50, create=False)
        assert await counter.next_max_id(10) == 60


async def test_one_counter_of_two_that_is_gone(tables: Tables) -> None:
    """The marker and the other counter stay: a new process begins it at its first value."""
    async with tables.store.from_url(tables.url) as store:
        await store.create_schema()
        counter, other = (
            store.segment_distributor(namespace="dev", name=name) for name in ("order", "other")
        )
        assert [await each.next_max_id(10) for each in (counter, other)] == [10, 10]
        run(tables, ["delete from cosid where name = 'dev.order'"])
        with pytest.raises(StoreRolledBackError):
            await counter.next_max_id(10)
        anew = store.segment_distributor(namespace="dev", name="order")
        assert await anew.next_max_id(10) == 10
        assert await other.next_max_id(10) == 20


async def test_a_peer_with_the_same_instance_id(tables: Tables) -> None:
    """Two stamps in succession that are not ours are somebody else's; a single one is none."""
    async with tables.store.from_url(tables.url) as store:
        await store.create_schema()
        one = store.machine_id_distributor(namespace="dev", instance_id=who(0))
        await one.distribute(3, now_ms=T0, latest_ms=FAR)
        for turn in range(1, 4):
            await one.renew(0, now_ms=T0 + 10 * turn, fence_ms=T0)
        run(tables, [f"update cosid_machine set last_timestamp = {T0 + 33}"])
        await one.renew(0, now_ms=T0 + 40, fence_ms=T0)
        await one.renew(0, now_ms=T0 + 50, fence_ms=T0)
        run(tables, [f"update cosid_machine set last_timestamp = {T0 + 54}"])
        with pytest.raises(MachineIdInUseError, match="another process"):
            await one.renew(0, now_ms=T0 + 60, fence_ms=T0)


async def test_a_damaged_row_of_somebody_else(tables: Tables) -> None:
    """It is passed over, and its number, if that is known, is nobody's."""
    wrong = -1 if isinstance(tables, PostgresTables) else 2**32 - 1
    async with tables.store.from_url(tables.url) as store:
        await store.create_schema()
        assert await take(store, 0) == 0
        tables.put_row(1, "java", T0)
        tables.put_row(2, "java too", T0)
        run(
            tables,
            [
                f"update cosid_machine set machine_id = {wrong} where machine_id = 1",
                f"update cosid_machine set machine_id = {wrong}, name = 'x' where machine_id = 2",
            ],
        )
        assert [await take(store, number) for number in (3, 4)] == [2, 3]
        assert [each.machine_id for each in await store.machines(namespace="dev")] == [0, 2, 3]
