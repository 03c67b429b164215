"""Machine ids on SQLite and PostgreSQL: what the contract leaves to the store."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from aiocosid.abc import MachineGrant
from aiocosid.errors import (
    CorruptMachineStateError,
    InvalidArgumentError,
    MachineBitsMismatchError,
    MachineIdInUseError,
    MachineIdLostError,
    MachineIdOverflowError,
    MachineIdQuarantineError,
    SchemaDroppedError,
    StoreUnavailableError,
)
from aiocosid.machine import distributor
from aiocosid.machine.cells import Note, Space
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.stores._sql import CellNames
from aiocosid.stores.postgres import PostgresStore
from aiocosid.stores.sqlite import SqliteStore
from tests import sql_cells
from tests.servers import PostgresServer

from ._machine_tables import (
    T0,
    PostgresTables,
    SqliteTables,
    Tables,
    Tapped,
    is_read,
    tables_of,
    who,
)
from ._snowflakes import until
from ._sql import SqlStore

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

GUARD = 300_000  # ms
FAR = T0 * 2
WAITS = "datname = current_database() and wait_event_type = 'Lock'"


@pytest.fixture(params=["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.stress)])
def tables(request: pytest.FixtureRequest) -> Tables:
    """The tables of one database after the other."""
    return tables_of(request, request.param)


@pytest_asyncio.fixture
async def store(tables: Tables) -> AsyncIterator[SqlStore]:
    """A store whose clock stands at T0."""
    await tables.prepare()
    async with tables.open_set() as store:
        yield store


class Fleet:
    """Instances of the namespace ``dev`` with two bits, by number."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.made: dict[tuple[int, bool], CellMachineIdDistributor] = {}

    def make(self, number: int, *, stable: bool = False) -> CellMachineIdDistributor:
        """Another object of an instance."""
        return self.store.machine_id_distributor(
            namespace="dev", instance_id=who(number, stable=stable)
        )

    def __call__(self, number: int, *, stable: bool = False) -> CellMachineIdDistributor:
        """An instance's only object."""
        return self.made.setdefault((number, stable), self.make(number, stable=stable))

    async def take(
        self,
        number: int,
        *,
        stable: bool = False,
        now: int = T0,
        latest: int = FAR,
        bits: int = 2,
    ) -> MachineGrant:
        """Distribute to an instance."""
        return await self(number, stable=stable).distribute(bits, now_ms=now, latest_ms=latest)

    async def take_and_return(self, count: int, *, bits: int = 2) -> None:
        """Leave so many ids that were given back, the first one first."""
        for number in range(count):
            await self.take(number, bits=bits)
        for number in range(count):
            await self(number).revert(number, last_ms=T0 + number)


@pytest.fixture
def fleet(store: SqlStore) -> Fleet:
    """Instances on one store."""
    return Fleet(store)


class TestOrder:
    """Own, returned, new, expired."""

    async def test_new_ones_are_counted_up(self, fleet: Fleet, tables: Tables) -> None:
        grants = [await fleet.take(number, now=T0 + number) for number in range(4)]
        assert grants == [MachineGrant(number, -1) for number in range(4)]
        assert tables.rows()[3] == {
            "name": "dev.00000003",
            "namespace": "dev",
            "machine_id": 3,
            "last_timestamp": T0 + 3,
            "instance_id": "10.0.0.3:8080",
            "distribute_time": T0 + 3,
            "revert_time": 0,
        }

    async def test_the_own_one_comes_back(self, fleet: Fleet, tables: Tables) -> None:
        """Also if it has expired; CosId leaves the time of distribution as it was."""
        for number in range(2):
            await fleet.take(number)
        tables.set_clock(T0 + 10 * GUARD)
        assert await fleet.take(1, now=T0 + 5) == MachineGrant(1, T0)
        row = tables.rows()[1]
        assert (row["last_timestamp"], row["distribute_time"]) == (T0 + 5, T0)

    async def test_the_longest_silent_one_first(self, fleet: Fleet, tables: Tables) -> None:
        for number, age in enumerate((1, 3, 0, 2)):
            await fleet.take(number, now=T0 - age)
        tables.set_clock(T0 + GUARD)
        taken = [await fleet.take(number, now=T0 + GUARD) for number in range(10, 14)]
        assert [grant.machine_id for grant in taken] == [1, 3, 0, 2]
        assert [grant.floor_ms for grant in taken] == [T0 - 3, T0 - 2, T0 - 1, T0]

    async def test_namespaces_are_apart(self, fleet: Fleet, store: SqliteStore) -> None:
        await fleet.take(0)
        for namespace in ("de", "dev.x", "DEV", "d%v", "dev' --"):
            other = store.machine_id_distributor(namespace=namespace, instance_id=who(0))
            assert await other.distribute(1, now_ms=T0, latest_ms=FAR) == MachineGrant(0, -1)


class TestWidths:
    """Rows of other widths, and of hands."""

    async def test_an_id_above_the_width_is_never_handed_out(
        self, fleet: Fleet, tables: Tables
    ) -> None:
        """Not the own one, which is given back, not a returned one, not an expired one."""
        tables.put_row(4, who(0).text, T0)
        tables.put_row(5, "", T0)
        tables.put_row(6, "somebody", 0)
        assert [(await fleet.take(number)).machine_id for number in range(4)] == [0, 1, 2, 3]
        with pytest.raises(MachineIdOverflowError):
            await fleet.take(4)
        assert [tables.holder(each) for each in (4, 5, 6)] == ["", "", "somebody"]

    async def test_a_number_that_is_missing_is_new(self, fleet: Fleet, tables: Tables) -> None:
        """Somebody has deleted its row, which is noticed; what our note knows still counts."""
        for number in range(4):
            await fleet.take(number)
        await fleet(1).guard(1, now_ms=T0, mark_ms=T0 + 5)
        tables.execute("delete from cosid_machine where machine_id = 1")
        with pytest.raises(MachineIdQuarantineError):
            await fleet.take(9)
        tables.set_clock(T0 + GUARD + 60_000)
        assert await fleet.take(9) == MachineGrant(1, T0 + 5)

    async def test_a_number_under_another_name_is_not_handed_out_twice(
        self, fleet: Fleet, tables: Tables
    ) -> None:
        """Whatever wrote it: the number is what ids are made of."""
        await fleet.take(0)
        tables.execute("update cosid_machine set name = 'dev.zero' where machine_id = 0")
        assert (await fleet.take(0)).machine_id == 0
        await fleet(0).guard(0, now_ms=T0, mark_ms=T0)
        assert [(await fleet.take(number)).machine_id for number in (1, 2, 3)] == [1, 2, 3]

    async def test_wide_numbers(self, fleet: Fleet, tables: Tables) -> None:
        """The lowest that is missing, also where there are far higher ones."""
        wide = store_of(fleet, "wide")
        tables.execute(
            "insert into cosid_machine (name, namespace, machine_id, instance_id) values "
            "('wide.00000000', 'wide', 0, 'a'), ('wide.99999999', 'wide', 99999999, 'a')"
        )
        tables.execute("update cosid_machine set last_timestamp = 9999999999999")
        assert (await wide.distribute(31, now_ms=T0, latest_ms=FAR)).machine_id == 1
        await wide.revert(1, last_ms=T0)


def store_of(fleet: Fleet, namespace: str) -> CellMachineIdDistributor:
    """An instance of another namespace."""
    return fleet.store.machine_id_distributor(namespace=namespace, instance_id=who(0))


class TestExpiry:
    """By the store's clock, and by what the owner said of itself."""

    @pytest_asyncio.fixture(autouse=True)
    async def _full(self, fleet: Fleet) -> None:
        for number in range(4):
            await fleet.take(number, now=T0 + number, stable=number > 0)

    async def test_to_the_millisecond(self, fleet: Fleet, tables: Tables) -> None:
        """The clock of whoever asks does not matter."""
        tables.set_clock(T0 + GUARD - 1)
        with pytest.raises(MachineIdOverflowError):
            await fleet.take(9, now=T0 + 10 * GUARD)
        tables.set_clock(T0 + GUARD)
        assert await fleet.take(9, now=T0) == MachineGrant(0, T0)

    async def test_our_note_is_not_about_the_next_owner(self, fleet: Fleet, tables: Tables) -> None:
        """CosId recycles a stable owner's id, and keeps no notes."""
        tables.execute("update cosid_machine set instance_id = 'java' where machine_id = 2")
        tables.set_clock(T0 + GUARD + 2)
        assert (await fleet.take(8, now=T0 + GUARD + 2)).machine_id == 0
        assert await fleet.take(9) == MachineGrant(2, T0 + 2)

    async def test_an_owner_whose_clock_is_slow(self, fleet: Fleet, tables: Tables) -> None:
        """It sends renewals; that their times are old does not count."""
        tables.set_clock(T0 + GUARD)
        await fleet(0).guard(0, now_ms=T0, mark_ms=T0 + 1)
        with pytest.raises(MachineIdOverflowError):
            await fleet.take(9)
        tables.set_clock(T0 + 2 * GUARD)
        assert await fleet.take(9) == MachineGrant(0, T0 + 1)


class TestFloor:
    """What the next owner has to be above, and when it rather takes another id."""

    async def test_a_clock_that_is_behind(self, fleet: Fleet, tables: Tables) -> None:
        """Whoever takes an id, its stamp is not lowered: CosId's own defect (vectors 7 and 20)."""
        await fleet.take(0, now=T0 + 100)
        assert await fleet.take(0, now=T0) == MachineGrant(0, T0 + 100)
        await fleet(0).revert(0, last_ms=T0 + 1)
        assert await fleet.take(1, now=T0) == MachineGrant(0, T0 + 100)
        assert tables.stamp(0) == T0 + 100

    async def test_a_late_one_only_if_there_is_no_other(self, fleet: Fleet) -> None:
        for number in range(4):
            await fleet.take(number)
        for number, mark in ((0, 70), (1, 10), (2, 50), (3, 60)):
            await fleet(number).guard(number, now_ms=T0, mark_ms=T0 + mark)
            await fleet(number).revert(number, last_ms=T0 + mark)
        taken = [await fleet.take(number, latest=T0 + 20) for number in range(10, 14)]
        assert [grant.machine_id for grant in taken] == [1, 2, 3, 0]
        assert [grant.floor_ms for grant in taken] == [T0 + 10, T0 + 50, T0 + 60, T0 + 70]

    async def test_an_expired_one_before_a_late_one(self, fleet: Fleet, tables: Tables) -> None:
        for number in range(4):
            await fleet.take(number, now=T0 - GUARD * (number == 2))
        await fleet(1).revert(1, last_ms=T0 + 60)
        tables.execute("update aiocosid_cell set written_ms = 0 where name like 'note/%'")
        assert (await fleet.take(8, latest=T0 + 59)).machine_id == 2
        assert (await fleet.take(9, latest=T0 + 59)).machine_id == 1

    async def test_the_own_one_is_given_back_for_another(
        self, fleet: Fleet, tables: Tables
    ) -> None:
        """Stamped with a second above the mark.

        Were the call a late one, it may be in use until then, and CosId's know no mark and issue
        ids of the very stamp, or of its second.
        """
        await fleet.take(0)
        await fleet(0).guard(0, now_ms=T0, mark_ms=T0 + 60)
        assert await fleet.take(0, latest=T0 + 60) == MachineGrant(0, T0 + 60)
        assert await fleet.take(0, latest=T0 + 59) == MachineGrant(1, -1)
        assert [tables.holder(0), tables.holder(1)] == ["", who(0).text]
        assert (tables.note(0), tables.stamp(0)) == (T0 + 60, T0 + 1060)

    async def test_an_unused_note_of_a_stable_one(self, fleet: Fleet, tables: Tables) -> None:
        """A number that is new to CosId but late by our note waits behind the others."""
        tables.write_note(0, Note(mark_ms=T0 + 9), 0)
        tables.put_row(1, "", T0)
        assert [
            (await fleet.take(number, stable=True, latest=T0)).machine_id for number in (0, 2, 3)
        ] == [1, 2, 3]
        assert await fleet.take(1, stable=True, latest=T0) == MachineGrant(0, T0 + 9)


class TestGuard:
    """Owner and machine id are checked; nothing is ever lowered."""

    async def test_it_raises(self, fleet: Fleet, tables: Tables) -> None:
        await fleet.take(0)
        await fleet(0).guard(0, now_ms=T0 + 10, mark_ms=T0 + 100)
        assert (tables.stamp(0), tables.note(0)) == (T0 + 10, T0 + 100)
        await fleet(0).guard(0, now_ms=T0 + 5, mark_ms=T0 + 50)
        assert (tables.stamp(0), tables.note(0)) == (T0 + 10, T0 + 100)
        assert tables.rows()[0]["distribute_time"] == T0

    async def test_it_is_lost(self, fleet: Fleet, tables: Tables) -> None:
        """To somebody else, to nobody, or it never was ours; nothing is written."""
        await fleet.take(0)
        await fleet.take(1)
        tables.execute("update cosid_machine set instance_id = 'java' where machine_id = 0")
        await fleet(1).revert(1, last_ms=-1)
        before = tables.rows()
        for number, machine_id, reason in ((0, 0, "java"), (1, 1, "nobody"), (1, 3, "nobody")):
            with pytest.raises(MachineIdLostError, match=reason) as caught:
                await fleet(number).guard(machine_id, now_ms=T0 + 9, mark_ms=T0 + 9)
            assert (caught.value.namespace, caught.value.machine_id) == ("dev", machine_id)
        assert tables.rows() == before
        assert (tables.note(0), tables.note(1)) == (-1, -1)


class TestRevert:
    """Only by the owner, and only its own stay."""

    async def test_it_is_free(self, fleet: Fleet, tables: Tables) -> None:
        await fleet.take(0)
        await fleet(0).guard(0, now_ms=T0 + 1, mark_ms=T0 + 100)
        tables.set_clock(T0 + 40)
        for _ in range(2):
            await fleet(0).revert(0, last_ms=T0 + 30)
        row = tables.rows()[0]
        assert (row["instance_id"], row["last_timestamp"]) == ("", T0 + 30)
        assert row["revert_time"] == T0 + 40
        assert tables.note(0) == T0 + 30

    @pytest.mark.parametrize("stable", [False, True])
    async def test_one_of_the_same_object(
        self, fleet: Fleet, tables: Tables, *, stable: bool
    ) -> None:
        """Sent before it took the id again; no higher mark tells of that."""
        one = fleet(0, stable=stable)
        await fleet.take(0, stable=stable)
        await one.guard(0, now_ms=T0, mark_ms=T0 + 50)

        async def begin_anew(_: str) -> None:
            tapped.before = None
            await fleet.take(0, stable=stable)
            await one.guard(0, now_ms=T0, mark_ms=T0 + 20)

        tapped = Tapped.on(one, before=begin_anew)
        await one.revert(0, last_ms=T0 + 10)
        assert (tables.holder(0), tables.note(0)) == (who(0).text, T0 + 50)
        await one.guard(0, now_ms=T0, mark_ms=T0 + 60)
        await one.revert(0, last_ms=T0 + 10)
        assert tables.note(0) == T0 + 10

    async def test_one_whose_name_somebody_else_has_taken(
        self, fleet: Fleet, tables: Tables
    ) -> None:
        """Handed out to another since, and then by CosId under the old name: it is not ours."""
        await fleet.take(0)
        tables.execute("update cosid_machine set instance_id = ''")
        await fleet.take(1)
        await fleet(1).guard(0, now_ms=T0, mark_ms=T0 + 50)
        tables.execute(f"update cosid_machine set instance_id = '{who(0).text}'")
        before = tables.rows()
        await fleet(0).revert(0, last_ms=T0 + 10)
        with pytest.raises(MachineIdLostError):
            await fleet(0).guard(0, now_ms=T0 + 1, mark_ms=T0 + 60)
        assert (tables.rows(), tables.note(0)) == (before, T0 + 50)


class TestRaces:
    """What may happen between two statements."""

    async def test_a_lost_race_goes_on_with_the_next(self, fleet: Fleet, tables: Tables) -> None:
        """Of returned rows and of new ones; the winner is left alone."""
        await fleet.take_and_return(2)
        winners = iter(range(10, 13))

        async def overtake(statement: str) -> None:
            if is_read(statement):
                with suppress(StopIteration):
                    await fleet.take(next(winners))

        Tapped.on(fleet(9), after=overtake)
        assert (await fleet.take(9)).machine_id == 3
        assert [tables.holder(each) for each in range(4)] == [who(n).text for n in (10, 11, 12, 9)]

    @pytest.mark.parametrize("now", [T0, T0 + 1])
    async def test_an_owner_that_wakes_up_in_time(
        self, fleet: Fleet, tables: Tables, now: int
    ) -> None:
        """Its renewal comes after the look, with whatever stamp: the id stays its own."""
        for number in range(4):
            await fleet.take(number, now=T0 if number == 0 else T0 + 1)
        tables.set_clock(T0 + GUARD)

        async def wake(statement: str) -> None:
            if is_read(statement):
                await fleet(0).guard(0, now_ms=now, mark_ms=T0 + 777)

        Tapped.on(fleet(9), after=wake)
        with pytest.raises(MachineIdOverflowError):
            await fleet.take(9)
        await fleet(0).guard(0, now_ms=T0 + 2, mark_ms=T0 + 999)

    async def test_ones_own_call_was_faster(self, fleet: Fleet, tables: Tables) -> None:
        """One that was given up, and took effect after the look: no second id."""

        async def overtake(statement: str) -> None:
            if is_read(statement):
                tapped.after = None
                await fleet.make(9).distribute(2, now_ms=T0, latest_ms=FAR)

        tapped = Tapped.on(fleet(9), after=overtake)
        assert (await fleet.take(9)).machine_id == 0
        assert [row["machine_id"] for row in tables.rows()] == [0]

    async def test_always_too_late(self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
        """It ends, in the store's own error."""
        monkeypatch.setattr(distributor, "LONGEST_TRY", 0.2)
        await fleet.take(0)

        async def nothing(statement: str, **_: Any) -> Sequence[Any]:
            return await inner.fetch_rows(statement, **_) if is_read(statement) else []

        tapped = Tapped.on(fleet(9))
        inner, tapped.fetch_rows = tapped.inner, nothing  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailableError, match="each time"):
            await fleet.take(9)

    async def test_cancelled_anywhere(self, fleet: Fleet, tables: Tables) -> None:
        """After any statement: the next call finds the same id, and nothing else is held."""
        for steps in range(1, 6):
            begun = 0

            async def cancel(_: str, after: int = steps) -> None:
                nonlocal begun
                begun += 1
                if begun == after:
                    raise asyncio.CancelledError

            one = fleet.make(steps)
            tapped = Tapped.on(one, after=cancel)
            with suppress(asyncio.CancelledError):
                await one.distribute(3, now_ms=T0, latest_ms=FAR)
            tapped.after = None
            grant = await one.distribute(3, now_ms=T0, latest_ms=FAR)
            held = [
                row["machine_id"] for row in tables.rows() if row["instance_id"] == who(steps).text
            ]
            assert held == [grant.machine_id]

    async def test_a_call_that_fails_loses_nothing(self, fleet: Fleet) -> None:
        """The id that was handed out before is as good as it was."""
        await fleet.take(0)

        async def cut(statement: str) -> None:
            if not is_read(statement):
                raise StoreUnavailableError("test", "cut")

        tapped = Tapped.on(fleet(0), before=cut)
        with pytest.raises(StoreUnavailableError):
            await fleet.take(0)
        tapped.before = None
        await fleet(0).guard(0, now_ms=T0, mark_ms=T0)

    async def test_a_second_row_of_ones_own(self, fleet: Fleet, tables: Tables) -> None:
        """Left by somebody else's hand: freed, a second above its mark, for it may be in use."""
        one = who(0, stable=True)
        await fleet.take(0, stable=True)
        tables.put_row(1, one.text, T0 + 1)
        tables.write_note(1, Note(one.text, stable=True, mark_ms=T0 + 50), T0 + 1)
        assert (await fleet.take(0, stable=True)).machine_id == 0
        assert [tables.holder(0), tables.holder(1)] == [one.text, ""]
        assert tables.stamp(1) == T0 + 1050

    async def test_a_full_house_comes_back_at_once(self, fleet: Fleet) -> None:
        await fleet.take_and_return(32, bits=5)
        grants = await asyncio.gather(*(fleet.take(number, bits=5) for number in range(50, 82)))
        assert sorted(grant.machine_id for grant in grants) == list(range(32))


class TestStore:
    """What the command line works on."""

    async def test_machines(self, fleet: Fleet, store: SqliteStore, tables: Tables) -> None:
        await fleet.take(1, stable=True)
        await fleet.take(0)
        await fleet(0).guard(1, now_ms=T0 + 1, mark_ms=T0 + 2)
        tables.put_row(7, "java", T0, namespace="a")
        tables.write_note(7, Note("gone", stable=True, mark_ms=5), 0, namespace="a")
        found = await store.machines()
        assert [(each.namespace, each.machine_id) for each in found] == [
            ("a", 7),
            ("dev", 0),
            ("dev", 1),
        ]
        java, stable, other = found
        assert (java.instance_id, java.mark_ms, java.stable) == ("java", -1, False)
        assert (stable.instance_id, stable.mark_ms, stable.stable) == (who(1).text, -1, True)
        assert (other.last_timestamp_ms, other.mark_ms, other.stable) == (T0 + 1, T0 + 2, False)
        assert await store.machines(namespace="a") == [java]
        with pytest.raises(InvalidArgumentError):
            await store.machines(namespace="")

    async def test_revert_machine(self, fleet: Fleet, store: SqliteStore, tables: Tables) -> None:
        """Also a stable one's.  It may go on until its mark: others begin a second above."""
        await fleet.take(0, stable=True)
        await fleet(0, stable=True).guard(0, now_ms=T0 + 1, mark_ms=T0 + 2)
        tables.set_clock(T0 + 9)
        await store.revert_machine(namespace="dev", machine_id=0)
        assert (tables.holder(0), tables.rows()[0]["revert_time"]) == ("", T0 + 9)
        assert (tables.stamp(0), tables.note(0)) == (T0 + 1002, T0 + 2)
        assert await fleet.take(1) == MachineGrant(0, T0 + 1002)
        with pytest.raises(MachineIdLostError):
            await fleet(0, stable=True).guard(0, now_ms=T0 + 1, mark_ms=T0 + 2)

    @pytest.mark.parametrize("machine_id", [0, 3, -1, 2**31, True])
    async def test_revert_of_what_nobody_holds(
        self, fleet: Fleet, store: SqliteStore, machine_id: int
    ) -> None:
        await fleet.take(0)
        await fleet(0).revert(0, last_ms=-1)
        with pytest.raises(InvalidArgumentError, match="machine_id"):
            await store.revert_machine(namespace="dev", machine_id=machine_id)

    async def test_the_tables_may_be_made_by_many(self, tables: Tables) -> None:
        stores = [tables.store.from_url(tables.url) for _ in range(8)]
        await asyncio.gather(*(each.create_schema() for each in stores))
        for each in stores:
            assert await each.machines() == []
            await each.aclose()


class TestWidth:
    """Who changes it, and who takes an id meanwhile."""

    async def test_a_change_that_somebody_overtakes(self, fleet: Fleet, store: SqlStore) -> None:
        """Nobody held an id when it looked, and somebody does when it writes."""
        await fleet.take_and_return(1)
        backend: Any = store._backend
        executor = backend.link

        async def take(statement: str) -> None:
            if is_read(statement):
                backend.link = executor
                await fleet.take(1)

        backend.link = Tapped(executor, after=take)
        with pytest.raises(MachineIdInUseError):
            await store.set_machine_bits(namespace="dev", bits=3)
        assert await store.machine_bits(namespace="dev") == 2
        await fleet(1).guard(0, now_ms=T0, mark_ms=-1)

    @pytest.mark.parametrize("returned", [0, 1])
    async def test_a_change_that_overtakes_somebody(
        self,
        fleet: Fleet,
        store: SqlStore,
        tables: Tables,
        returned: int,
    ) -> None:
        """The width was right when it looked, and is not when it takes."""
        await fleet.take_and_return(returned)
        one = fleet.make(7)

        async def change(statement: str) -> None:
            if not is_read(statement):
                await store.set_machine_bits(namespace="dev", bits=3)

        Tapped.on(one, before=change)
        with pytest.raises(MachineBitsMismatchError):
            await one.distribute(2, now_ms=T0, latest_ms=FAR)
        assert {row["instance_id"] for row in tables.rows()} <= {""}

    @pytest.mark.parametrize("text", ["", "{}", Space(bits=32).text(), Space(bits=-1).text()])
    async def test_a_damaged_one(self, fleet: Fleet, tables: Tables, text: str) -> None:
        sql_cells.write_cell(tables.execute, "space/dev", text)
        with pytest.raises(CorruptMachineStateError) as caught:
            await fleet.take(0)
        assert caught.value.place == "row 'space/dev' of table 'aiocosid_cell'"


class TestArguments:
    """Refused before anything is sent."""

    @pytest.mark.parametrize(
        ("method", "arguments"),
        [
            ("distribute", {"bits": 0, "now_ms": 1, "latest_ms": 1}),
            ("distribute", {"bits": 32, "now_ms": 1, "latest_ms": 1}),
            ("distribute", {"bits": 1, "now_ms": -1, "latest_ms": 1}),
            ("distribute", {"bits": 1, "now_ms": 1, "latest_ms": 2**63}),
            ("guard", {"machine_id": -1, "now_ms": 1, "mark_ms": 1}),
            ("guard", {"machine_id": 1, "now_ms": 1.5, "mark_ms": 1}),
            ("guard", {"machine_id": 1, "now_ms": 1, "mark_ms": 2**63}),
            ("revert", {"machine_id": 2**31, "last_ms": 1}),
            ("revert", {"machine_id": 1, "last_ms": -2}),
        ],
    )
    async def test_out_of_range(self, method: str, arguments: dict[str, Any]) -> None:
        one = SqliteStore.from_url("sqlite:////nowhere/ids.db").machine_id_distributor()
        with pytest.raises(InvalidArgumentError):
            await getattr(one, method)(**arguments)


driver: Any = asyncpg  # its annotations stop half-way


async def test_more_than_eight_digits_are_not_cut_off() -> None:
    names = CellNames("n.s")
    for number in (0, 99_999_999, 100_000_000, 2**31 - 1):
        assert names.row(number) == f"n.s.{number:08d}"
        assert names.number(names.row(number)) == number
    for other in ("n.s.7", "n.s.000000007", f"n.s.{2**31}", "n.s.-0000001", "n.t.00000001"):
        assert names.number(other) is None


class TestPostgres:
    """What only a server has."""

    @pytest.mark.parametrize(
        "table",
        ["cosid_machine", "aiocosid_cell"],
    )
    async def test_a_missing_table_is_named(
        self, postgres: PostgresServer, postgres_database: str, table: str
    ) -> None:
        async with PostgresStore.from_url(postgres_database) as store:
            await store.create_schema()
            postgres.execute(f"drop table {table}", database=postgres_database.rpartition("/")[2])
            one = store.machine_id_distributor(namespace="dev")
            with pytest.raises(SchemaDroppedError) as caught:
                await one.distribute(2, now_ms=T0, latest_ms=T0)
            assert caught.value.tables == (table,)

    async def test_a_name_at_its_widest(self, postgres_database: str) -> None:
        async with PostgresStore.from_url(postgres_database) as store:
            await store.create_schema()
            one = store.machine_id_distributor(namespace="é" * 91, instance_id="主" * 100)
            assert await one.distribute(2, now_ms=T0, latest_ms=T0) == MachineGrant(0, -1)
            await one.guard(0, now_ms=T0, mark_ms=T0)
            await one.revert(0, last_ms=T0)

    @pytest.mark.parametrize("call", ["guard", "revert"])
    async def test_a_call_that_waits_for_a_namesake(
        self, postgres: PostgresServer, postgres_database: str, call: str
    ) -> None:
        """By when it has the row, that was handed out again: it is lost, and writes nothing."""
        tables = PostgresTables(postgres, postgres_database)
        await tables.prepare()
        async with PostgresStore.from_url(tables.url) as store:
            fleet = Fleet(store)
            older, newer = fleet.make(0), fleet.make(0)
            await older.distribute(2, now_ms=T0, latest_ms=FAR)
            await older.guard(0, now_ms=T0, mark_ms=T0 + 50)
            blocker = await driver.connect(tables.url)
            await blocker.execute("begin; select from cosid_machine for update")

            async def queued(count: int) -> None:
                waiting = f"select count(*) from pg_stat_activity where {WAITS}"
                await until(lambda: tables.execute(waiting) == [[f"{count}"]])

            taking = asyncio.ensure_future(newer.distribute(2, now_ms=T0 + 1, latest_ms=FAR))
            await queued(1)
            late: dict[str, Callable[[], Awaitable[None]]] = {
                "guard": lambda: older.guard(0, now_ms=T0 + 9, mark_ms=T0 + 99),
                "revert": lambda: older.revert(0, last_ms=T0 + 9),
            }
            calling = asyncio.ensure_future(late[call]())
            await queued(2)
            await blocker.close()
            assert await taking == MachineGrant(0, T0 + 50)
            [outcome] = await asyncio.gather(calling, return_exceptions=True)
            assert isinstance(outcome, MachineIdLostError) == (call == "guard")
            assert (tables.holder(0), tables.stamp(0)) == (who(0).text, T0 + 1)
            assert tables.note(0) == T0 + 50
            await newer.guard(0, now_ms=T0 + 2, mark_ms=T0 + 60)


class TestSqlite:
    """What only a file can be."""

    async def test_the_tables_are_made_on_first_use(self, tmp_path: Path) -> None:
        tables = SqliteTables(tmp_path / "ids.db")
        tables.execute("vacuum")
        async with SqliteStore.from_url(tables.url) as store:
            assert await store.machines() == []
            one = store.machine_id_distributor(namespace="dev")
            assert (await one.distribute(2, now_ms=T0, latest_ms=T0)).machine_id == 0

    async def test_a_damaged_row_is_named_and_never_guessed(self, tmp_path: Path) -> None:
        tables = SqliteTables(tmp_path / "ids.db")
        async with SqliteStore.from_url(tables.url) as store:
            await store.create_schema()
            tables.execute(
                "insert into cosid_machine (name, namespace, machine_id, last_timestamp) "
                "values ('dev.00000000', 'dev', 0, 'soon')"
            )
            one = store.machine_id_distributor(namespace="dev", instance_id="a")
            assert (await one.distribute(1, now_ms=T0, latest_ms=FAR)).machine_id == 1
            other = store.machine_id_distributor(namespace="dev", instance_id="b")
            with pytest.raises(MachineIdOverflowError):  # it counts as held
                await other.distribute(1, now_ms=T0, latest_ms=FAR)
            tables.execute("update cosid_machine set instance_id = 'b' where machine_id = 0")
            with pytest.raises(CorruptMachineStateError, match=r"dev\.00000000.*'soon'"):
                await other.distribute(1, now_ms=T0, latest_ms=FAR)
            await one.guard(1, now_ms=T0, mark_ms=T0)
