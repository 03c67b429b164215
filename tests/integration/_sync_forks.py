"""Programs with threads that fork or end; run by test_sync_forks, each in a process of its own.

``python -m tests.integration._sync_forks SCENARIO URL FOLDER`` ends with 0 and in silence if all is
as it has to be in the parent and in its children.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiosqlite

import aiocosid
from aiocosid import sync
from aiocosid._life import fork
from aiocosid.abc import IdSegmentDistributor
from aiocosid.errors import (
    ClosedError,
    CosIdError,
    ForkedError,
    SegmentUnavailableError,
    WouldBlock,
)
from aiocosid.stores.sqlite import SqliteStore
from aiocosid.sync import _steps
from tests.unit._interrupted import interrupted

# Else it is imported for the names of its scenarios.
IS_PROGRAM = __name__ == "__main__"
URL = sys.argv[2] if IS_PROGRAM else "memory://"
FOLDER = Path(sys.argv[3]) if IS_PROGRAM else Path()

ids = sync.connect(URL, namespace="forks")
orders = ids.segment_chain("order", step=100)


async def _quiet(provider: aiocosid.IdProvider) -> None:
    while any(getattr(provider[name], "_in_flight", False) for name in provider):  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def quiet() -> None:
    """Wait until no statement is under way: a child could not use SQLite otherwise."""
    fetch = orders._pending
    if fetch is not None:
        fetch.exception()
    if ids._session.is_alive:
        ids._session.call(_quiet)


def in_child(main: Callable[[], object], *, is_quiet: bool = True) -> int:
    """Fork; the child runs ``main`` and ends as a process does that has come to its end."""
    if is_quiet:
        quiet()
    pid = os.fork()
    if pid == 0:
        try:
            main()
        except SystemExit:  # a grandchild's
            raise
        except BaseException:  # noqa: BLE001 - the child must not go on as a second test
            traceback.print_exc()
            os._exit(1)
        raise SystemExit(0)
    return pid


def ended_well(pid: int) -> None:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the child failed"


def write(found: Iterable[int]) -> None:
    (FOLDER / f"{os.getpid()}.ids").write_text(" ".join(map(str, found)))


def all_different(mine: list[int], children: int) -> None:
    records = [list(map(int, path.read_text().split())) for path in FOLDER.glob("*.ids")]
    assert len(records) == children
    everything = [*mine, *(new_id for record in records for new_id in record)]
    assert len(everything) == len(set(everything)), "an id came twice"


def in_hand_in_the_child() -> None:
    """What the parent has in hand, or asked for, is the parent's; each goes on with its own."""
    mine = [orders.next_id(), *orders.next_ids(5)]
    flakes = ids.snowflake(batch=20)
    mine.append(flakes.next_id())
    assert "in_hand=94" in repr(orders), orders

    def child() -> None:
        assert "in_hand=0" in repr(orders), orders
        assert "in_hand=0" in repr(flakes), flakes
        write([*orders.next_ids(150), orders.next_id(), flakes.next_id(), *flakes.next_ids(30)])

    child_pid = in_child(child)
    mine += [*orders.next_ids(250), *(orders.next_id() for _ in range(150)), flakes.next_id()]
    ended_well(child_pid)
    all_different(mine, 1)
    assert mine[-2] > mine[0]


def while_threads_take_ids() -> None:
    """The fork meets the others wherever they are, a refill and a step among it."""
    stop = threading.Event()
    found: list[list[int]] = [[] for _ in range(4)]

    def take(into: list[int]) -> None:
        while not stop.is_set():
            into.append(orders.next_id())
            into += orders.next_ids(40)

    mine = [orders.next_id()]
    threads = [threading.Thread(target=take, args=(each,)) for each in found]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(6):
        child = in_child(lambda: write(orders.next_id() for _ in range(250)), is_quiet=False)
        children.append(child)
        mine.append(orders.next_id())
    for child in children:
        ended_well(child)
    stop.set()
    for thread in threads:
        thread.join()
    all_different([*mine, *(new_id for each in found for new_id in each)], 6)


def while_a_step_is_under_way() -> None:
    """The thread that holds the lock is not there in the child, which has a new one."""
    mine = orders.next_ids(3)
    quiet()
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with _steps._steps.lock:
            held.set()
            go_on.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = in_child(lambda: write(orders.next_ids(300)), is_quiet=False)
    ended_well(child)
    go_on.set()
    thread.join()
    all_different([*mine, *orders.next_ids(300)], 1)


def prefork(n: int) -> list[int]:
    return [orders.next_id() for _ in range(n)]


def a_pool_of_processes() -> None:
    """Multiprocessing's workers end by os._exit; a module's generator is opened in each."""
    mine = prefork(30)
    quiet()
    with multiprocessing.get_context("fork").Pool(3) as pool:
        theirs = pool.map(prefork, [150] * 6, chunksize=1)
    mine += prefork(300)
    everything = [*mine, *(new_id for each in theirs for new_id in each)]
    assert len(everything) == len(set(everything)) == 330 + 900


def what_a_child_may_not_use() -> None:
    """It is refused with a reason: counters in memory, a client of the parent's, what is closed."""
    connection = aiosqlite.connect(FOLDER / "own.db")
    thread: Any = getattr(connection, "_thread", connection)  # before 0.22 it is one
    thread.daemon = True  # else a program that does not close it never ends
    own: list[SqliteStore] = []

    async def store() -> None:
        own.append(SqliteStore(await connection, durability="ignore"))

    starter = ids["order"]
    starter._session.call(lambda _: store())
    on_client = sync.connect(own[0], namespace="own")
    in_memory = sync.connect("memory://", namespace="forks")
    closed = sync.connect(URL, namespace="closed")
    handles = [each.segment_chain("order") for each in (on_client, in_memory, closed)]
    starter._session.call(lambda _: own[0].create_schema())
    assert [each.next_id() for each in handles] == [1, 1, 1]
    closed.close()

    def child() -> None:
        raised: list[type[CosIdError]] = []
        for each in handles:
            try:
                each.next_id()
            except CosIdError as error:
                raised.append(type(error))
        assert raised == [ForkedError, ForkedError, ClosedError], raised

    ended_well(in_child(child))
    assert [each.next_id() for each in handles[:2]] == [2, 2]


def children_of_children() -> None:
    """Each is a process of its own, whether it has used ids itself or not."""
    mine = orders.next_ids(10)

    def child() -> None:
        write(orders.next_ids(10))
        ended_well(in_child(lambda: ended_well(in_child(lambda: write(orders.next_ids(10))))))

    ended_well(in_child(child))
    all_different([*mine, *orders.next_ids(10)], 2)
    assert fork.generation == 0


def the_end_of_a_program() -> None:
    """Nothing is closed, and a thread goes on for as long as it likes: ids until then."""
    ids.snowflake().next_id()
    main = threading.main_thread()

    def take() -> None:
        main.join()
        write(orders.next_ids(1000))

    threading.Thread(target=take).start()


def the_end_of_a_stuck_program() -> None:
    """What cannot be closed does not keep it from ending, nor do threads that wait."""

    class Stuck(IdSegmentDistributor):
        async def next_max_id(self, step: int) -> int:
            waiting.set()
            await asyncio.Event().wait()
            return step

    waiting = threading.Event()
    stuck = sync.SyncIdGenerator(lambda: aiocosid.SegmentChainId(Stuck(name="stuck")))

    def wait() -> None:
        try:
            stuck.next_id()
        except ClosedError:
            return

    threading.Thread(target=wait, daemon=True).start()
    waiting.wait()


class _OfProcess(IdSegmentDistributor):
    """Counts in memory, each process in a range of its own."""

    async def next_max_id(self, step: int) -> int:
        counts[0] += step
        return counts[0] + fork.generation * 10**9


counts = [0]


def forked_at(k: int, call: Callable[[sync.SyncIdGenerator[int]], list[int]]) -> bool:
    """Fork before our k-th line; no id may come in both.  False if there are not so many lines."""
    left = k
    pids: list[int] = []

    def fork() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            pids.append(os.fork())

    mine = sync.SyncIdGenerator(
        lambda: aiocosid.SegmentChainId(_OfProcess(name="mine", step=5)), batch=5, timeout=0.2
    )
    with suppress(SegmentUnavailableError):  # a slow machine
        mine.next_ids(5)  # all that is in hand; the next batch has landed, or is about to
        if mine._pending is not None:
            mine._pending.exception(10)
    got: list[int] = []
    # The child may wait in vain for a loop that only the parent has.
    with (
        interrupted(sync, "line", fork),
        suppress(ForkedError, SegmentUnavailableError, WouldBlock),
    ):
        got = call(mine)
    if pids == [0]:
        with suppress(WouldBlock):
            got.append(mine.next_id_nowait())
        (FOLDER / "child").write_text(" ".join(map(str, got)))
        os._exit(0)
    for pid in pids:
        ended_well(pid)
        theirs = set(map(int, (FOLDER / "child").read_text().split()))
        assert not theirs & set(got), f"line {k}: {theirs}"
    mine.close()
    return bool(pids)


def in_a_signal_handler() -> None:
    """A handler that forks in the middle of a call: its ids are for one of both processes."""
    keeper = sync.SyncIdGenerator(lambda: aiocosid.SegmentChainId(_OfProcess(name="keeper")))
    keeper.open()  # else each round would start a thread

    def batch(mine: sync.SyncIdGenerator[int]) -> list[int]:
        return mine.next_ids(12)

    def nowait(mine: sync.SyncIdGenerator[int]) -> list[int]:
        return [mine.next_id_nowait()]

    for call in (batch, nowait):
        k = 1
        while forked_at(k, call):
            k += 3
        assert k > 10, k


SCENARIOS: dict[str, tuple[Callable[[], object], ...]] = {
    "in hand": (in_hand_in_the_child, the_end_of_a_program),
    "step": (while_a_step_is_under_way, what_a_child_may_not_use),
    "handler": (in_a_signal_handler,),
    "stuck": (the_end_of_a_stuck_program,),
    "threads": (while_threads_take_ids,),
    "pool": (a_pool_of_processes,),
    "grandchildren": (children_of_children,),
}

if IS_PROGRAM:
    for part in SCENARIOS[sys.argv[1]]:
        part()
