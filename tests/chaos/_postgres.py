"""Scenarios in which a PostgreSQL primary dies and its standby takes over."""

from __future__ import annotations

from tests.servers import PostgresPair

from ._arena import Arena
from ._job import Place

APART = 10**12  # the ids of one pair from those of the next
RECONNECT = 1.0  # seconds between two fail-overs, for the workers to find the new primary


def postgres(arena: Arena) -> None:
    """Kill -9 the primary and promote the standby; each fail-over has a pair of its own.

    Asynchronous: the replication is cut before, as a slow network would do it.  Synchronous: a
    commit that the standby does not have is not confirmed, so nothing that was used can be lost.
    """
    synchronous = arena.options.store == "synchronous"
    number = 0
    while number == 0 or arena.goes_on():
        number += 1
        with PostgresPair(synchronous=synchronous) as pair:
            place = arena.prepared(Place(url=pair.url))
            job = arena.job(place, step=100, worker=f"pair{number}-")
            arena.raise_floor(job, number * APART)
            with arena.workers(job):
                arena.pause(1.0)
                if not synchronous:
                    pair.catch_up()
                    pair.standby.cut()
                    arena.pause(arena.between(0.1, 0.5))
                pair.fail_over()
                arena.faults["fail-over"] += 1
                arena.pause(RECONNECT)
