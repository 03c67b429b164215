"""What went wrong with others' allocators, done to this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.servers import EtcdEnsemble, ValkeyServer

from ._arena import Arena
from ._history import HISTORY, last_call
from ._job import Place
from ._workers import server_of

# Cancelled now and then: ids that were fetched for one who has left must not go to a later one.
STRICT: dict[str, Any] = {
    "kind": "strict",
    "batch": 0,
    "singles": 20,
    "tasks": 4,
    "cancel": 0.05,
    "wait_timeout": 30.0,
}


def offsets(arena: Arena) -> None:
    """Kill the server and all processes of a counter that begins at an offset.

    TiDB, issue 52622: with an increment of 66 and an offset of 9527 a restarted server began with
    9527 once more.  https://github.com/pingcap/tidb/issues/52622
    """
    server = server_of(arena)
    place = arena.prepared(Place(url=server.url))
    job = arena.job(place, kind="segment", step=66, offset=9527, batch=100, singles=50)
    with arena.workers(job) as fleet:
        while arena.goes_on():
            with fleet.nobody_there():
                server.kill()
                server.start()
            arena.faults["server and all workers killed"] += 1
            arena.pause(arena.between(0.2, 0.6))


def moving_leaders(arena: Arena) -> None:
    """Move the leader there and back, by a kill and by a stop after which it believes in itself.

    TiDB, issues 53016 and 52600: a leader that was one before went on from what it remembered.
    https://github.com/pingcap/tidb/issues/53016
    """
    ensemble = arena.enter(EtcdEnsemble())
    place = arena.prepared(Place(url=ensemble.url))
    job = arena.job(place, **STRICT)
    with arena.workers(job) as fleet:
        while arena.goes_on():
            if arena.draw.random() < 0.5:
                killed = ensemble.kill_leader()
                ensemble.leader()
                killed.start()
                arena.faults["leader killed"] += 1
            else:
                stopped = ensemble.leader()
                stopped.pause()
                ensemble.leader()
                stopped.resume()
                arena.faults["leader stopped"] += 1
            fleet.kill_one()
            arena.faults["kill"] += 1
            arena.pause(arena.between(0.3, 0.8))


def strict(arena: Arena) -> None:
    """Kill the server and start it again while ids are in strict order over all processes."""
    server = server_of(arena)
    place = arena.prepared(Place(url=server.url))
    with arena.workers(arena.job(place, **STRICT)) as fleet:
        while arena.goes_on():
            server.kill()
            server.start()
            arena.faults["server killed"] += 1
            fleet.kill_one()
            arena.faults["kill"] += 1
            arena.pause(arena.between(0.3, 0.8))


def restored_floor(arena: Arena) -> None:
    """Lose the counter, and raise the floor to the highest id in the data.

    Redpanda, pull request 15054: after a recovery the allocator of producer ids has to go on above
    the highest one in the data; a maximum that was saved beside the data may be older than these.
    https://github.com/redpanda-data/redpanda/pull/15054
    """
    server = arena.enter(ValkeyServer(persistent=True))
    place = arena.prepared(Place(url=server.url))
    # Leases are lost with the store: what the dead had not used is granted once more.
    job = arena.job(place, leased=False)
    with arena.workers(job) as fleet:
        while arena.goes_on():
            with fleet.nobody_there():
                server.call("FLUSHALL")
                arena.raise_floor(job, highest(arena.histories))
            arena.faults["counter lost"] += 1
            arena.pause(arena.between(0.3, 0.8))


def highest(folder: Path, worker: str = "") -> int:
    """Return the highest id in the histories of the workers whose names begin so."""
    return max((last_call(each)[-1] for each in folder.glob(f"{worker}*{HISTORY}")), default=0)


def lost_leases(arena: Arena) -> None:
    """Lose the store of machine ids; kill their owners, and stop one past its lease.

    CosId, issues 342 and 946: the key of the machine ids was gone, the generator went on with an id
    that was not its own; and ids of processes that were killed were never given out again.
    https://github.com/Ahoo-Wang/CosId/issues/342, https://github.com/Ahoo-Wang/CosId/issues/946
    """
    server = arena.enter(ValkeyServer())
    place = arena.prepared(Place(url=server.url), machines=True)
    bits = (2 * arena.options.processes).bit_length()
    small: dict[str, Any] = {"batch": 5, "singles": 5, "pause": 0.002, "wait_timeout": 10.0}
    job = arena.job(place, kind="snowflake", layout=(41, bits, 6), **small)
    with arena.workers(job) as fleet:
        while arena.goes_on():
            stopped = fleet.any()
            fleet.stop(stopped)
            if arena.draw.random() < 0.5:
                server.call("FLUSHALL")
            else:
                server.kill()
                server.start()
            arena.faults["machine ids lost"] += 1
            fleet.kill_one()
            arena.faults["kill"] += 1
            arena.pause(job.safe_guard * arena.between(1.1, 1.5))
            fleet.go_on(stopped)
            arena.faults["stop past the lease"] += 1
            fleet.wait_for_more("after its lease was lost", deadline=60)
