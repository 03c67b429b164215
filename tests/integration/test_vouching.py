"""Tables that people drop, empty or bring back: nothing vouches for what it did not see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiocosid import connect
from aiocosid.abc import Store
from aiocosid.errors import (
    CounterNotCreatedError,
    InvalidArgumentError,
    MachineIdQuarantineError,
    SchemaDroppedError,
    SchemaMissingError,
    StoreFormatError,
    StoreNotEmptyError,
    StoreUnavailableError,
)
from aiocosid.stores._dialect import Creation
from aiocosid.stores._sql import CREATIONS

from ._machine_tables import T0, Tables, tables_of, who

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

FAR = T0 * 2
OURS = ("aiocosid_series", "aiocosid_cell", "cosid_machine", "cosid")


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def tables(request: pytest.FixtureRequest) -> Tables:
    """The tables of one database after the other."""
    return tables_of(request, request.param)


async def take(store: Store, number: int, namespace: str = "dev") -> int:
    """Have an instance take one of eight."""
    one = store.machine_id_distributor(namespace=namespace, instance_id=who(number))
    return (await one.distribute(3, now_ms=T0, latest_ms=FAR)).machine_id


def drop(tables: Tables, *names: str) -> None:
    """Drop tables, as a migration does."""
    for name in names:
        tables.execute(f"drop table {name};")


async def lived(tables: Tables, *, disposable: bool = False) -> None:
    """Make the tables, and hand out a machine id and ten numbers."""
    async with tables.store.from_url(tables.url) as store:
        await store.create_schema(disposable=disposable)
        assert await take(store, 0) == 0
        assert await store.segment_distributor(name="order").next_max_id(10) == 10


@pytest.mark.parametrize("names", [OURS, *((each,) for each in OURS)], ids=" ".join)
async def test_dropped_tables_are_not_made_again(tables: Tables, names: tuple[str, ...]) -> None:
    """By no door: neither by a command, nor by a provider, nor by first use."""
    await lived(tables)
    drop(tables, *names)
    async with tables.store.from_url(tables.url) as store:
        with pytest.raises(SchemaDroppedError, match="--after-loss") as caught:
            await store.create_schema()
        assert set(caught.value.tables) == set(names)
        with pytest.raises(SchemaDroppedError):
            await store.create_schema(disposable=True)
        if {"cosid", "aiocosid_cell"} & set(names):
            with pytest.raises(SchemaDroppedError):
                await store.segment_distributor(name="new").next_max_id(10)
        if {"cosid_machine", "aiocosid_cell"} & set(names):
            with pytest.raises(SchemaDroppedError):
                await take(store, 1)
    for create in (True, "2999-12-31", "disposable"):
        with pytest.raises(SchemaDroppedError):
            async with connect(tables.url, create=create):
                pass


async def test_after_a_loss_a_person_says_where_it_goes_on(tables: Tables) -> None:
    """Counters from their floor, machine ids when every lease has expired."""
    await lived(tables)
    drop(tables, *OURS)
    async with tables.store.from_url(tables.url) as store:
        await store.create_schema(after_loss=True)
        with pytest.raises(CounterNotCreatedError):
            await store.segment_distributor(name="order").next_max_id(10)
        await store.set_floor(name="order", above=10)
        await store.initialize(after_loss=True)
        assert not await store.is_initialized()
        assert await store.segment_distributor(name="order").next_max_id(10) == 20
        assert await store.segment_distributor(name="other").next_max_id(10) == 10
        with pytest.raises(MachineIdQuarantineError) as caught:
            await take(store, 1)
        assert caught.value.seconds_left == pytest.approx(305, abs=5)
        await store.create_schema()
        await store.initialize(confirm_no_holders=True)
        assert await take(store, 1) == 0


async def test_a_disposable_store_is_made_again(tables: Tables) -> None:
    """A test suite drops everything, migrates, and goes on; what it empties too."""
    await lived(tables, disposable=True)
    for names in (OURS, ("cosid",), ("aiocosid_cell",)):
        drop(tables, *names)
        async with tables.store.from_url(tables.url) as store:
            await store.create_schema()
            assert await take(store, 1) in {0, 1}
            assert await store.segment_distributor(name="order").next_max_id(10) in {10, 20}
    tables.execute("delete from aiocosid_cell;")
    async with connect(tables.url, create=True) as ids:
        assert await (await ids.segment("new")).next_id() == 1


async def test_an_emptied_table_of_counters_is_noticed(tables: Tables) -> None:
    """A new counter is created as long as there are others, and an old one goes on."""
    await lived(tables)
    async with tables.store.from_url(tables.url) as store:
        assert await store.segment_distributor(name="second").next_max_id(5) == 5
        tables.execute("delete from cosid;")
        with pytest.raises(CounterNotCreatedError) as caught:
            await store.segment_distributor(name="order").next_max_id(10)
        assert caught.value.is_emptied
        with pytest.raises(CounterNotCreatedError, match="--after-loss") as refused:
            await store.set_floor(name="order", above=10)
        assert refused.value.is_emptied
        assert not tables.execute("select * from cosid")
        await store.create_schema(after_loss=True)
        await store.set_floor(name="order", above=10)
        await store.initialize(after_loss=True)
        assert await store.segment_distributor(name="order").next_max_id(10) == 20
        assert await store.segment_distributor(name="third").next_max_id(10) == 10


@pytest.mark.parametrize("first", ["add", "floor", "floor of another program's"])
async def test_what_first_uses_counters_is_noted(tables: Tables, first: str) -> None:
    """Also a counter that another program has made: an emptied table is noticed all the same."""
    async with tables.store.from_url(tables.url) as store:
        await store.create_schema()
        if first != "floor":
            tables.execute("insert into cosid values ('cosid.order', 100, 0);")
        if first.startswith("floor"):
            assert (await store.set_floor(name="order", above=110)).last_max_id == 110
        else:
            counter = store.segment_distributor(name="order")
            assert await counter.next_max_id(10) == 110
        tables.execute("delete from cosid;")
        with pytest.raises(CounterNotCreatedError) as caught:
            await store.segment_distributor(name="new").next_max_id(10)
        assert caught.value.is_emptied


async def test_after_a_loss_the_marker_goes_first(tables: Tables) -> None:
    """A process that is killed while it makes tables again leaves none that are vouched for."""
    await lived(tables)
    drop(tables, "cosid")
    async with tables.store.from_url(tables.url) as store:

        def killed(creation: Creation) -> str:
            raise InterruptedError(f"{creation}")

        backend = store._backend
        backend.dialect = replace(backend.dialect, create=killed)
        with pytest.raises(InterruptedError):
            await store.create_schema(after_loss=True)
    assert not tables.execute("select * from aiocosid_cell where name = 'marker'")
    assert tables.execute("select * from aiocosid_cell"), "all else stays"
    async with tables.store.from_url(tables.url) as store:
        await store.create_schema(after_loss=True)
        with pytest.raises(CounterNotCreatedError, match="aiocosid init"):
            await store.segment_distributor(name="new").next_max_id(10)


async def test_others_that_create_and_drop_end_it(tables: Tables) -> None:
    """Each attempt finds another schema than it has read: after some it gives up."""
    await lived(tables)
    is_there, attempts = True, 0
    async with tables.store.from_url(tables.url) as store:
        backend = store._backend
        create = backend.dialect.create

        def meanwhile(creation: Creation) -> str:
            nonlocal is_there, attempts
            attempts += 1
            assert attempts <= CREATIONS
            is_there = not is_there
            drop_it, make_it = "drop table cosid_machine", "create table cosid_machine (a int)"
            tables.execute(f"{make_it if is_there else drop_it};")
            return create(creation)

        tables.execute("drop view aiocosid_witness;")
        backend.dialect = replace(backend.dialect, create=meanwhile)
        with pytest.raises(StoreUnavailableError, match="at the same time"):
            await store.create_schema()
    assert attempts == CREATIONS


async def test_counters_need_a_marker_to_begin_and_none_to_go_on(tables: Tables) -> None:
    """CosId's table alone serves the counters that it has."""
    await lived(tables)
    tables.execute("delete from aiocosid_cell where name = 'marker';")
    async with tables.store.from_url(tables.url) as store:
        assert await store.segment_distributor(name="order").next_max_id(10) == 20
        with pytest.raises(CounterNotCreatedError, match="aiocosid init") as caught:
            await store.segment_distributor(name="new").next_max_id(10)
        assert not caught.value.is_emptied
        with pytest.raises(StoreNotEmptyError, match="--confirm-no-holders"):
            await store.initialize()
        await store.initialize(confirm_no_holders=True)
        assert await store.segment_distributor(name="new").next_max_id(10) == 10


async def test_tables_of_another_program_are_adopted_and_not_vouched_for(tables: Tables) -> None:
    """Those of CosId's own script, or of a dump without the view."""
    await lived(tables)
    tables.execute("drop view aiocosid_witness;")
    drop(tables, "aiocosid_cell")
    async with tables.store.from_url(tables.url) as store:
        assert await store.segment_distributor(name="order").next_max_id(10) == 20
        with pytest.raises((SchemaMissingError, CounterNotCreatedError)):
            await store.segment_distributor(name="new").next_max_id(10)
        await store.create_schema()
        assert not await store.is_initialized()
        with pytest.raises(CounterNotCreatedError):
            await store.segment_distributor(name="new").next_max_id(10)
        with pytest.raises(MachineIdQuarantineError):
            await take(store, 1)
        drop(tables, "aiocosid_cell")
        with pytest.raises(SchemaDroppedError):
            await store.create_schema()


async def test_a_namespace_that_vanished_is_missed(tables: Tables) -> None:
    """Its rows, its cells and its count: the next instance of any new namespace has to wait."""
    async with tables.store.from_url(tables.url) as store:
        await store.create_schema()
        owner = store.machine_id_distributor(namespace="dev", instance_id=who(0))
        assert (await owner.distribute(3, now_ms=T0, latest_ms=FAR)).machine_id == 0
        assert await take(store, 1, "other") == 0
        tables.execute("delete from cosid_machine where namespace = 'dev';")
        tables.execute(
            "delete from aiocosid_cell where name in ('count/dev', 'space/dev') "
            "or name like 'note/dev.%' or name like 'own/3/dev/%';"
        )
        with pytest.raises(MachineIdQuarantineError):
            await take(store, 2)
        await owner.reassert(0, now_ms=T0 + 3, fence_ms=T0 + 4)
        assert tables.holder(0) == who(0).text
        assert await take(store, 3, "other") == 1, "it has lost nothing"
        with pytest.raises(InvalidArgumentError, match="still has machine ids"):
            await store.forget_namespace(namespace="other")


async def test_a_namespace_that_was_removed_is_forgotten(tables: Tables) -> None:
    """By a command, once for each; then others begin without waiting."""
    async with tables.store.from_url(tables.url) as store:
        await store.create_schema()
        assert await take(store, 0) == 0
        tables.execute("delete from cosid_machine;")
        tables.execute("delete from aiocosid_cell where name not in ('marker', 'namespaces');")
        assert await store.forget_namespace(namespace="dev")
        assert not await store.forget_namespace(namespace="dev")
        assert await take(store, 0, "another") == 0


async def test_another_format_is_refused_with_both_named(tables: Tables) -> None:
    """A marker that names none is of the first format."""
    await lived(tables)
    tables.execute(
        'update aiocosid_cell set value = \'{"identity":"i","epoch":"e"}\' where name = \'marker\';'
    )
    async with tables.store.from_url(tables.url) as store:
        with pytest.raises(StoreFormatError, match=r"format 1.*format 2"):
            await take(store, 1)
        with pytest.raises(StoreFormatError):
            await store.is_initialized()
        assert await store.segment_distributor(name="order").next_max_id(10) == 20


@pytest.mark.parametrize("tables", ["postgres"], indirect=True)
async def test_test_suites_drop_everything_and_migrate(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under the pytest plugin, which sets the variable; a store of before stays what it was."""
    monkeypatch.setenv("AIOCOSID_DISPOSABLE", "1")
    for _ in range(5):
        async with connect(tables.url, create=True) as ids:
            assert await (await ids.segment_chain("order")).next_id() == 1
            assert await (await ids.snowflake("event")).next_id() > 0
        drop(tables, *OURS)
    tables.execute("drop view aiocosid_witness;")
    monkeypatch.setenv("AIOCOSID_DISPOSABLE", "0")
    await lived(tables)
    monkeypatch.setenv("AIOCOSID_DISPOSABLE", "1")
    drop(tables, *OURS)
    with pytest.raises(SchemaDroppedError):
        async with connect(tables.url, create=True):
            pass


async def test_without_a_marker_only_a_person_vouches_for_empty_tables(tables: Tables) -> None:
    """All of them were emptied: the witness still knows that there was something."""
    await lived(tables)
    for each in OURS:
        tables.execute(f"delete from {each};")  # noqa: S608 - names of ours
    async with tables.store.from_url(tables.url) as store:
        with pytest.raises(StoreNotEmptyError):
            await store.initialize()
