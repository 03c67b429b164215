"""The simulated MySQL answers as a real server does, in its troubles too."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from aiocosid.stores._executor import Executor, Row, Value
from aiocosid.stores._mysql import MYSQL, atomic
from aiocosid.testing.simulation import Node, SimulatedMysql, SimulationError, World
from aiocosid.testing.simulation._mysql_server import RefusedError, Session
from tests.integration._machine_tables import T0, MariadbTables, SetMysqlStore
from tests.servers import MariadbServer
from tests.stress.test_sql_dialects import Side, _sequence

COUNT = (
    "INSERT INTO cosid (name) VALUES ('k') ON DUPLICATE KEY UPDATE last_max_id = last_max_id + 1"
)
COUNTED = "SELECT last_max_id FROM cosid WHERE name = 'k'"


class AtOnce(Executor):
    """Runs statements in a simulated MySQL, without a world around it."""

    __slots__ = ("mysql",)

    def __init__(self) -> None:
        super().__init__("mysql")
        self.mysql = SimulatedMysql(World(0))

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        return self.mysql.execute(statement, **values)


@pytest.mark.integration
@pytest.mark.asyncio
async def test_random_calls_are_answered_as_a_server_does(
    mariadb: MariadbServer, mariadb_database: str
) -> None:
    """Through the shipped statements, with everything that is in the tables then."""
    tables, simulated = MariadbTables(mariadb, mariadb_database), AtOnce()
    await tables.prepare()
    simulated.mysql.execute(
        f"CREATE TABLE test_clock (ms bigint); INSERT INTO test_clock VALUES ({T0})"
    )

    async def at_server(sql: str) -> object:
        return tables.execute(sql)

    async def clock(ms: int) -> None:
        for write in (at_server, simulated.fetch_rows):
            await write(f"UPDATE test_clock SET ms = {ms}")

    async with SetMysqlStore.from_url(mariadb_database) as store:
        sides = [Side(store, at_server), Side(SetMysqlStore._on(simulated), simulated.fetch_rows)]
        for seed in range(6):
            await _sequence(seed, sides, clock)


def in_world(scenario: Callable[[SimulatedMysql, Session, Session], Awaitable[None]]) -> None:
    """Run something with two sessions."""

    async def run(world: World) -> None:
        mysql = SimulatedMysql(world)

        async def main(_: Node) -> None:
            await world.sleep(60.0)

        process = world.node(main).process
        await scenario(mysql, *(mysql.connect(process) for _ in range(2)))

    World(1).run(run)


async def ask(mysql: SimulatedMysql, session: Session, text: str, **values: Value) -> Any:
    """The last answer: a row's first column, a number that was noted, or an error's number."""
    while True:
        *_, answer = await mysql.serve(session, text, values)
        if not isinstance(answer, RefusedError):
            return answer.rows[0][0] if answer.rows else answer.noted
        if answer.args[0] != 1213:  # comes by chance
            return answer.args[0]


def test_a_number_is_noted_for_one_session() -> None:
    async def scenario(mysql: SimulatedMysql, one: Session, other: Session) -> None:
        for session, step in ((one, 5), (other, 7)):
            assert await ask(mysql, session, MYSQL.next_max_id, name="k", first=step, step=step)
        assert await ask(mysql, one, "SELECT LAST_INSERT_ID()") == 5
        assert await ask(mysql, other, "SELECT LAST_INSERT_ID()") == 12

    in_world(scenario)


def test_a_transaction_ends_with_its_connection() -> None:
    async def scenario(mysql: SimulatedMysql, one: Session, other: Session) -> None:
        await ask(mysql, one, COUNT)
        await ask(mysql, one, f"START TRANSACTION; {COUNT}")
        await ask(mysql, other, "SET innodb_lock_wait_timeout = 2")
        assert await ask(mysql, other, COUNT) == 1205
        assert await ask(mysql, one, COUNTED) == 1
        mysql.end(one)
        assert await ask(mysql, other, COUNTED) == 0
        with pytest.raises(ConnectionResetError):
            await ask(mysql, one, COUNTED)

    in_world(scenario)


def test_a_server_that_dies_undoes_what_was_not_committed() -> None:
    async def scenario(mysql: SimulatedMysql, one: Session, other: Session) -> None:
        await ask(mysql, one, atomic(COUNT, COUNT))
        other.variables["@@autocommit"] = 0
        await ask(mysql, other, COUNT)
        mysql.crash()
        assert mysql.execute(COUNTED) == [(1,)]
        assert one.is_over
        assert other.is_over

    in_world(scenario)


def test_a_replica_refuses_to_write() -> None:
    async def scenario(mysql: SimulatedMysql, one: Session, _: Session) -> None:
        await ask(mysql, one, COUNT)
        mysql.fail_over()
        assert await ask(mysql, one, COUNT) == 1290
        assert await ask(mysql, one, COUNTED) == 0
        assert mysql.connect(one.process).server == one.server + 1  # type: ignore[arg-type]

    in_world(scenario)


def test_each_assignment_sees_the_ones_before() -> None:
    mysql = AtOnce().mysql
    mysql.execute("INSERT INTO cosid (name, last_max_id) VALUES ('k', 1)")
    mysql.execute(
        "UPDATE cosid SET last_max_id = 5, last_fetch_time = last_max_id WHERE name = 'k'"
    )
    assert mysql.execute("SELECT last_max_id, last_fetch_time FROM cosid") == [(5, 5)]


@pytest.mark.parametrize("text", ["DELETE FROM cosid", "SELECT SLEEP(1)", "SET @@speed = 2"])
def test_what_is_not_known_fails_loudly(text: str) -> None:
    async def scenario(mysql: SimulatedMysql, one: Session, _: Session) -> None:
        await ask(mysql, one, text)

    with pytest.raises(SimulationError, match=r"speed|SLEEP|does not know"):
        in_world(scenario)
