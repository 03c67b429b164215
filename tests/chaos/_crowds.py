"""Scenarios of size: two hundred machine ids on a store that is wiped, a thousand million ids."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from tests.servers import FaultProxy, ValkeyServer

from ._arena import Arena
from ._job import Place
from ._line import Line

WAVE: Final = 25  # processes started at once
WIPES: Final = 5
WIPE_SECONDS: Final = 4  # of the time that is given; a wipe takes about 15, most of it quarantine
SAFE_GUARD: Final = 6.0  # seconds
SOAK_IDS: Final = 10_000_000  # by next_ids, and a tenth of it by next_id


def machines(arena: Arena) -> None:
    """Wipe the store of many machine ids, stop owners past their lease, and let newcomers ask."""
    server = arena.enter(ValkeyServer())
    place = arena.prepared(Place(url=server.url), machines=True)
    job = arena.job(
        place,
        kind="snowflake",
        layout=(41, 8, 12),
        safe_guard=SAFE_GUARD,
        interval=SAFE_GUARD / 4,
        wait_timeout=2 * SAFE_GUARD,
        batch=4,
        singles=4,
        pause=1.0,  # two hundred of them share the machine
    )
    with arena.workers(job, count=min(WAVE, arena.options.processes)) as fleet:
        while len(fleet.members) < arena.options.processes:
            fleet.add(min(WAVE, arena.options.processes - len(fleet.members)))
            fleet.wait_for_more("in their wave", deadline=60)
        arena.begin()
        several = max(1, arena.options.processes // 20)
        wipes = min(WIPES, max(1, int(arena.options.seconds) // WIPE_SECONDS))
        for number in range(wipes):
            stopped = [fleet.any() for _ in range(several)]
            for each in stopped:
                fleet.stop(each)
            arena.pause(arena.between(0.0, SAFE_GUARD))
            if number % 2:
                server.kill()
                server.start()
            else:
                server.call("FLUSHALL")
            arena.faults["store wiped"] += 1
            for _ in range(several):  # newcomers, who find an empty store
                fleet.kill_one()
                arena.faults["kill"] += 1
            arena.pause(SAFE_GUARD * arena.between(1.0, 1.5))
            for each in stopped:
                fleet.go_on(each)
                arena.faults["stop past the lease"] += 1
            fleet.wait_for_more(f"after wipe {number + 1}", deadline=60)


def soak(arena: Arena, *, batch: int = 10_000, singles: int = 1_000) -> None:
    """Take very many ids while the line is cut, or the Redis without persistence is killed."""
    with ExitStack() as stack:
        place, strike = _struck(arena, stack)
        count = arena.options.processes
        total = arena.options.ids or SOAK_IDS
        each = (total + total * singles // batch) // count
        job = arena.job(place, ids=each, batch=batch, singles=singles, pause=0.0, endurance=60.0)
        with arena.workers(job) as fleet:
            takers = list(fleet.members)
            victim = fleet.add(ids=0, pause=0.01, batch=1000, singles=100)[0]
            while any(each in fleet.members for each in takers):
                strike()
                arena.pause(arena.between(0.5, 1.5))
                fleet.kill(victim)
                arena.faults["kill"] += 1
                victim = fleet.add(ids=0, pause=0.01, batch=1000, singles=100)[0]
                fleet.stop(one := fleet.any())
                arena.pause(0.2)
                fleet.go_on(one)
                arena.faults["stop"] += 1


def _struck(arena: Arena, stack: ExitStack) -> tuple[Place, Callable[[], None]]:
    """Return a store, and what breaks it once."""
    if arena.options.store != "valkey":
        forgetful = arena.enter(ValkeyServer())

        def kill() -> None:
            forgetful.kill()
            forgetful.start()
            arena.faults["server killed"] += 1

        return arena.fast(forgetful.url), kill
    server = arena.enter(ValkeyServer(persistent=True))
    line = stack.enter_context(Line(server.host, server.port))

    def cut() -> None:
        line.do(lambda proxy: proxy.swallow_replies(arena.draw.randint(1, 3)))
        arena.pause(0.2)
        line.do(FaultProxy.cut)
        arena.faults["line cut"] += 1

    return arena.prepared(Place(url=line.url(server.url))), cut
