"""Real processes that take ids from real servers while these are being broken.

``python -m tests.chaos SCENARIO --seconds N --processes N``; docs/explanation/chaos.md and
docs/explanation/evidence.md say what is tried and what came of it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from . import _accidents, _crowds, _disk, _people, _postgres, _redis, _workers
from ._arena import Bar, Options, Result, Scenario, run

__all__ = ("CHAOS", "EVIDENCE", "SCENARIOS", "Bar", "Options", "Result", "Scenario", "run")

NEVER: Final = Bar()  # a repeat
FORGETS: Final = Bar(repeats=True)  # nothing guards a store that forgets
UNNOTICED: Final = Bar(errors=False)  # neither a repeat nor an error to callers

SERVERS: Final = {"valkey": NEVER, "postgres": NEVER}
SOUND: Final = {**SERVERS, "sqlite": NEVER}
FAST: Final = {"plain": FORGETS, "tiered": UNNOTICED}
SECONDS: Final = {"sharded": NEVER, "published": FORGETS}

CHAOS: Final = {
    "redis-kill": Scenario(
        "Redis without persistence is killed", _redis.redis_kill, {**FAST, **SECONDS}
    ),
    "redis-aof": Scenario("Redis with AOF everysec loses a second", _redis.redis_aof, FAST),
    "sentinel": Scenario(
        "fail-over to a replica that lags, and back", _redis.sentinel, {**FAST, **SECONDS}
    ),
    "cluster": Scenario("the same in a cluster", _redis.cluster, FAST),
    "postgres": Scenario(
        "the primary is killed, its standby promoted",
        _postgres.postgres,
        {"synchronous": NEVER, "asynchronous": FORGETS},
        processes=4,
    ),
    "disk-full": Scenario("SQLite on a full disk", _disk.disk_full, {"sqlite": NEVER}, processes=4),
    "workers": Scenario("processes killed, stopped and forked", _workers.workers, SOUND),
    "leases": Scenario("owners of machine ids killed and stopped", _workers.leases, SOUND),
    "clock": Scenario("wall clocks stepped", _workers.clock, SOUND, processes=4),
    "cancellation": Scenario("calls cancelled at random", _workers.cancellation, SOUND),
    "limits": Scenario("no descriptors, no memory", _workers.limits, SERVERS, processes=4),
    "connections": Scenario("reset, black-holed, replies lost", _workers.connections, SERVERS),
    "machines": Scenario(
        "the store of machine ids wiped", _crowds.machines, {"valkey": NEVER}, processes=200
    ),
    "soak": Scenario("very many ids", _crowds.soak, {"valkey": Bar(growth=1.5)}),
}

ACCIDENTS: Final = {
    "offsets": Scenario("TiDB 52622", _accidents.offsets, SERVERS, processes=4),
    "moving-leaders": Scenario(
        "TiDB 53016", _accidents.moving_leaders, {"etcd": NEVER}, processes=4
    ),
    "restored-floor": Scenario(
        "Redpanda 15054", _accidents.restored_floor, {"valkey": NEVER}, processes=4
    ),
    "lost-leases": Scenario(
        "CosId 342, 946", _accidents.lost_leases, {"valkey": NEVER}, processes=4
    ),
    "people": Scenario(
        "dropped, emptied, swapped",
        _people.people,
        dict.fromkeys(_people.STORES, NEVER),
        processes=4,
    ),
    "strict": Scenario("PostgreSQL killed", _accidents.strict, {"postgres": NEVER}, processes=4),
    "volume": Scenario(
        "very many ids",
        partial(_crowds.soak, batch=99_000, singles=1_000),
        {"valkey": NEVER},
        processes=4,
    ),
}
"""What went wrong with others' allocators, and by people's hands."""

SCENARIOS: Final = {**CHAOS, **ACCIDENTS}

EVIDENCE: Final = {
    "workers": ("valkey", "postgres", "sqlite"),
    "leases": ("valkey", "postgres", "sqlite"),
    "connections": ("valkey", "postgres"),
    "cancellation": ("valkey",),
    "redis-kill": ("tiered",),
    "sentinel": ("tiered",),
    "cluster": ("tiered",),
    "postgres": ("synchronous",),
    **{name: tuple(each.stores) for name, each in ACCIDENTS.items()},
}
"""Of which histories are published, on which stores: where no id may come twice."""
