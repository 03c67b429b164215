"""A forked child: not one id of the parent's lease, and a machine id of its own when it opens."""

from __future__ import annotations

import asyncio
import os
import pickle
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aiocosid._life import fork
from aiocosid.errors import CosIdError, ForkedError
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import COSID_MS, CachedSnowflakeId, SnowflakeId, SnowflakeLayout
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.sqlite import SqliteStore
from aiocosid.testing import ManualClock, settle

pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")]


def in_child(work: Callable[[], Awaitable[Any]]) -> Any:
    """Run a coroutine function in a forked child, on a loop of its own; returns what it returns."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # From Python 3.12 on; a driver's threads may be left of an earlier test.
        warnings.filterwarnings("ignore", "This process", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        answer: Any = "nothing"
        try:
            asyncio.events._set_running_loop(None)
            answer = asyncio.new_event_loop().run_until_complete(work())
        except BaseException as error:  # noqa: BLE001 - told to the parent
            answer = error
        finally:
            os.write(write, pickle.dumps(answer))
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pickle.loads(pipe.read())  # noqa: S301 - our own child's
    os.waitpid(pid, 0)
    return answer


async def test_the_parents_lease_gives_the_child_nothing(tmp_path: Path) -> None:
    """Not even the ids of the piece in hand; reopened there, it takes a machine id of its own."""
    (tmp_path / "ids.db").touch()
    url = f"sqlite:///{tmp_path}/ids.db"
    (tmp_path / "ids.db").touch()
    distributor = SqliteStore.from_url(url).machine_id_distributor()
    async with SnowflakeId(distributor, name="a") as gen:
        mine = await gen.next_id()

        async def child() -> list[Any]:
            answers: list[Any] = []
            for call in (gen.next_id, gen.next_ids):
                try:
                    await call(*([3] if call == gen.next_ids else []))
                except CosIdError as error:
                    answers.append(type(error).__name__)
            try:
                gen.next_id_nowait()
            except CosIdError as error:
                answers.append(type(error).__name__)
            async with gen:
                answers.append(await gen.next_id())
            return answers

        *refused, theirs = in_child(child)
        assert refused == ["ForkedError"] * 3
        assert COSID_MS.parse(theirs).machine_id != COSID_MS.parse(mine).machine_id
        assert await gen.next_id() > mine


async def test_a_child_leaves_the_parents_sleeps_alone(tmp_path: Path) -> None:
    """A cached generator asks for a mark before its lease is opened: the sleep is the parent's.

    What is cancelled on a loop that does not run there is tried again in every turn of the child's.
    """
    (tmp_path / "ids.db").touch()
    url = f"sqlite:///{tmp_path}/ids.db"
    lease = MachineIdLease(SqliteStore.from_url(url).machine_id_distributor())
    async with CachedSnowflakeId(lease) as gen:
        await settle()
        sleeps = tuple(lease._home.scopes or ())
        assert sleeps

        async def child() -> list[Any]:
            async with gen:
                await gen.next_id()
                ahead = lease.statistics().fence_ms - lease._clock.now_ms()
            return [ahead > 100_000, *(sleep.cancel_called for sleep in sleeps)]

        assert in_child(child) == [True, False]


async def test_workers_forked_before_it_was_opened_get_ids_of_their_own(tmp_path: Path) -> None:
    """As gunicorn does with a preloaded application."""
    (tmp_path / "ids.db").touch()
    distributor = SqliteStore.from_url(f"sqlite:///{tmp_path}/ids.db").machine_id_distributor()
    gen = SnowflakeId(distributor)

    async def child() -> int:
        await gen.__aenter__()  # and never closed: the ids stay taken
        return COSID_MS.parse(await gen.next_id()).machine_id

    assert sorted(in_child(child) for _ in range(4)) == [0, 1, 2, 3]


async def test_the_child_does_not_wake_the_parents_tasks(tmp_path: Path) -> None:
    """Their cancel scopes would be told again at each turn of the loop, by tasks that never run."""
    (tmp_path / "ids.db").touch()
    distributor = SqliteStore.from_url(f"sqlite:///{tmp_path}/ids.db").machine_id_distributor()
    lease = MachineIdLease(distributor)
    async with lease:
        await settle()
        assert lease._home.scopes

        async def child() -> list[Any]:
            async with lease:
                await settle()
                return [len(lease._home.scopes or ())]

        assert in_child(child) == [1]


@pytest.mark.parametrize("waits", [True, False])
async def test_a_call_that_goes_on_in_the_child_gets_nothing(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for a tick, or writing a long list; the parent may hand out the same ids."""
    clock = ManualClock()
    distributor = MemoryStore(clock=clock).machine_id_distributor(instance_id="x")
    wide = SnowflakeLayout(41, 1, 21, "ms", 1_577_203_200_000)
    async with SnowflakeId(distributor, layout=wide, clock=clock) as gen:
        if waits:
            await gen.next_ids(wide.max_sequence)
            call: asyncio.Task[Any] = asyncio.create_task(gen.next_id())
        else:
            call = asyncio.create_task(gen.next_ids(50_000))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not call.done()
        # What a fork does to this process's count, while the call is suspended.
        with monkeypatch.context() as patch:
            patch.setattr(fork, "generation", fork.generation + 1)
            await clock.advance(0.1)
            with pytest.raises(ForkedError):
                await call
