"""The shipped code with one line broken, in scenarios that have to find it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio

from aiocosid import CosIdError, SegmentChainId
from aiocosid._life.loop import TaskRoot
from aiocosid._life.waiting_line import WaiterQueue
from aiocosid.machine import MachineIdLease, _tenure, losses
from aiocosid.machine._opening import LeaseOpening
from aiocosid.machine._tenure import Tenure
from aiocosid.snowflake._stamping import SnowflakeOpening
from aiocosid.stores.redis import RedisStore, _backend, _sequence, _span
from aiocosid.stores.redis._link import Script
from aiocosid.stores.striped import UNIT, ResidueClass
from aiocosid.stores.tiered import TieredStore
from tests.simulation import (
    SCENARIOS,
    Faults,
    Node,
    Scenario,
    SimulatedRedis,
    SimulatedStore,
    World,
    churn,
    redis_trouble,
)
from tests.simulation._redis import Persistence
from tests.simulation._redis_client import SimulatedRedisClient
from tests.simulation._redis_commands import Reply
from tests.simulation._scenarios import STEP
from tests.simulation._store_trouble import RedisAct, strike

from . import _broken_generators
from ._breaking import Broken, broken
from ._broken_leases import (
    RULES,
    attached_alone,
    begins_anyhow,
    begins_anywhere,
    bounds_nothing,
    goes_back,
    ignores_lease,
    life,
    marks_early,
    renews_late,
    silent_past_the_lease,
    taking,
    twins,
    twins_on_a_disk,
)

# Stores that forget


async def plain_redis_that_forgets(world: World) -> None:
    """Two processes and more on plain Redis, initialised again after a loss by its operator."""
    redis = SimulatedRedis(world, persistence="none", replicas=1)

    def make(node: Node) -> SegmentChainId:
        store = RedisStore(redis.client(node))
        counter = store.segment_distributor(name="order", step=STEP)
        return SegmentChainId(counter, clock=node.clock)

    async def losses(world: World) -> None:
        acts: tuple[RedisAct, ...] = ("restart", "flush", "fail over", "split")
        end = world.time + 5.0
        while world.time < end:
            await world.sleep(world.rng.expovariate(1.0))
            await strike(world, redis, acts)
            redis.initialize()
        redis.mend()
        redis.initialize()

    await churn(world, make, meanwhile=losses)


PERSISTENCES: tuple[Persistence, ...] = ("none", "everysec", "snapshot")


def tiered(*acts: RedisAct) -> Scenario:
    """Spans of a store, handed out by a Redis that forgets."""

    async def scenario(world: World) -> None:
        kept = world.rng.choice(PERSISTENCES)
        redis = SimulatedRedis(world, persistence=kept, replicas=1)
        root = SimulatedStore(world)

        def make(node: Node) -> SegmentChainId:
            store = TieredStore(
                root.store(node),
                RedisStore(redis.client(node)),
                root_name="root",
                span=100 * STEP,
                clock=node.clock,
            )
            counter = store.segment_distributor(name="order", step=STEP)
            return SegmentChainId(counter, clock=node.clock)

        happens = partial(redis_trouble, redis=redis, seconds=5.0, every=0.8, acts=acts)
        # New processes have no floor, and take what the others know to be gone.
        await churn(
            world,
            make,
            pause=0.15,
            faults=Faults(),
            acts=("crash",),
            meanwhile=happens,
            recovery=60.0,
        )

    return scenario


def fence(identity: bytes) -> tuple[tuple[object, str, object], ...]:
    """Another identity in the scripts of spans."""
    line = b"run_id .. ' ' .. replid"
    return tuple(
        (_span, name, Script(script.text.replace(line, identity)))
        for name in ("LOOK", "TAKE", "OPEN", "RELEASE")
        if line in (script := getattr(_span, name)).text
    )


# Calls and waiters


async def two_counters(world: World) -> None:
    """Two counters on one client, with calls that are given up."""
    redis = SimulatedRedis(world)
    redis.master.execute([b"SCRIPT", b"LOAD", _backend.ADD.text])  # no call is sent again as text

    async def main(node: Node) -> None:
        store = RedisStore(redis.client(node))
        counters = [
            store.segment_distributor(name=name, step=STEP) for name in ("order", "invoice")
        ]
        while True:
            with suppress(CosIdError):
                first, second = (
                    SegmentChainId(each, clock=node.clock, safe_distance=1) for each in counters
                )
                async with first, second, anyio.create_task_group() as group:
                    for chain in (first, second):
                        group.start_soon(taking, node, node.watch(chain))

    # The driver would wait for longer than the generator does.
    await life(world, main, lose_reply=0.02, delay=0.1, delayed=(1.0, 6.0), timeout=20.0)


class PoolsCancelled(SimulatedRedisClient):
    """A call that is cancelled leaves its connection to the next one, with a reply to come."""

    _lines: list[deque[Any]]

    async def _exchange(self, words: list[bytes]) -> Reply:
        lines = vars(self).setdefault("_lines", [])
        line = lines.pop() if lines else deque()
        line.append(self._send(words))
        try:
            reply: Reply = await anyio_shielded(line[0])
        except Exception:  # an error is a reply, too
            line.popleft()
            raise
        else:
            line.popleft()
        finally:
            lines.append(line)
        return reply


async def anyio_shielded(reply: Any) -> Reply:
    """Await what others will await if this one is cancelled."""
    import asyncio

    result: Reply = await asyncio.shield(reply)
    return result


def serves_small(
    line: WaiterQueue, available: int, take: Callable[[int], list[range]], sent: Any = None
) -> None:
    """Whoever can be served is, whoever stands before."""
    for waiter in tuple(line):
        if available >= max(1, waiter.n):
            line.discard(waiter)
            available -= waiter.n
            waiter.serve(take(waiter.n))


LOSSES: tuple[RedisAct, ...] = ("restart", "save", "flush", "fail over", "fail back", "split")


SHIPPED: dict[str, Scenario] = {
    "tiered": tiered(*LOSSES),
    "twins": twins,
    "two counters": two_counters,
    "silent past the lease": silent_past_the_lease,
    "twins on a disk": twins_on_a_disk,
}
"""The same scenarios with nothing broken."""


def ids_of_no_place(place: ResidueClass, value: int, step: int) -> range:
    """As if all stores had one residue class."""
    last = value // UNIT * place.width
    return range(last - (step - 1) * place.width, last + 1, place.width)


def forgets_nothing(root: TaskRoot) -> None:
    """As if there were no forks."""


def seconds(line: bytes, instead: bytes) -> tuple[object, str, object]:
    """Break the script that grants sequences of a second."""
    text = _sequence.GRANT.text
    assert line in text
    return _sequence, "GRANT", Script(text.replace(line, instead))


def ends_at_once(space: object) -> int:
    """As if a quarantine had no length."""
    return 0


RESTARTS = SCENARIOS["snowflake_restarts"]
OFFLINE = SCENARIOS["snowflake_offline"]

BROKEN: dict[str, Broken] = {
    **{
        f"restart without a look at the {rule}": Broken(
            broken(
                twins_on_a_disk if rule == "lock" else RESTARTS,
                (_tenure, "early_floor_ms", RULES[rule]),
            ),
            "handed out twice|as late as",
            seed,
        )
        for rule, seed in (
            *(("renewal", 81), ("lock", 5), ("boot", 37)),
            *(("time since", 1), ("floor", 8)),
        )
    },
    "restart after the boot clock went back": Broken(
        broken(RESTARTS, (_tenure, "early_floor_ms", goes_back)), "as late as", 533
    ),
    "a start without the store and without a floor": Broken(
        broken(OFFLINE, (_tenure, "offline_floor_ms", begins_anywhere)), "as late as", 11
    ),
    "a start without the store that takes any lock and boot for its own": Broken(
        broken(OFFLINE, (_tenure, "offline_floor_ms", begins_anyhow)), "as late as", 50
    ),
    "a bound that does not bind": Broken(
        broken(RESTARTS, (Tenure, "limit_ms", bounds_nothing)), "as late as", 15
    ),
    "no fence": Broken(plain_redis_that_forgets, "handed out twice", 1),
    "no fence in the scripts": Broken(
        broken(tiered(*LOSSES), *fence(b"'same'")),
        # Or all that are left see that the counter went back, and end.
        "handed out twice|got no ids",
        1,
    ),
    "run_id only": Broken(
        broken(tiered("fail back"), *fence(b"run_id")), "handed out twice|got no ids", 0
    ),
    "no lease check": Broken(
        broken(silent_past_the_lease, (MachineIdLease, "limit_ms", ignores_lease)),
        "its lease had ended",
        0,
    ),
    "lease judged after the renewal": Broken(
        broken(silent_past_the_lease, (LeaseOpening, "_renew", renews_late)),
        "its lease had ended",
        5,
    ),
    "stripes that overlap": Broken(
        broken(SCENARIOS["segment_chain_striped"], (ResidueClass, "ids", ids_of_no_place)),
        "handed out twice",
        0,
    ),
    "no fork guard": Broken(
        broken(SCENARIOS["segment_chain_forks"], (TaskRoot, "_forget", forgets_nothing)),
        "handed out twice",
        0,
    ),
    "cancelled call whose connection is pooled": Broken(
        broken(two_counters, (SimulatedRedisClient, "_exchange", PoolsCancelled._exchange)),
        "handed out twice",
        82,
    ),
    "waiters overtaken": Broken(
        broken(SCENARIOS["segment_chain_faults"], (WaiterQueue, "serve", serves_small)),
        "a caller that came later",
        168,
    ),
    "two sequencers on one lease": Broken(
        broken(twins, (SnowflakeOpening, "_attached", attached_alone)), "handed out twice", 0
    ),
    "mark behind use": Broken(
        broken(SCENARIOS["snowflake_crashes"], (LeaseOpening, "_renew", marks_early)),
        "machine id",
        48,
    ),
    "no fence of seconds": Broken(
        broken(SCENARIOS["sharded_losses"], seconds(b"second < opens", b"false")),
        "handed out twice",
        2,
    ),
    "a fence of seconds by run_id": Broken(
        broken(SCENARIOS["sharded_losses"], seconds(b"run_id .. ' ' .. replid", b"run_id")),
        "handed out twice",
        320,
    ),
    "no quarantine": Broken(
        broken(SCENARIOS["store_quarantine"], (losses, "quarantine_ms", ends_at_once)),
        "machine id|handed out twice",
        0,
    ),
    **_broken_generators.BROKEN,
}
"""Defects of the project's promise, and what the simulation says of each."""
