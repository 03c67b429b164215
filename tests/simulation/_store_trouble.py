"""Trouble of a store: it dies, forgets, fails over, is split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ._faults import draw_between

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ._redis import SimulatedRedis
    from ._world import World

__all__ = ("LOSSES", "RedisAct", "redis_trouble", "strike")

RedisAct: TypeAlias = Literal[
    "restart", "outage", "save", "flush", "fail over", "fail back", "split"
]

LOSSES: Final[tuple[RedisAct, ...]] = (
    *("restart", "outage", "save", "flush", "fail over", "fail back", "split"),
)
"""All that may happen to a Redis with replicas."""

DOWN: Final = (0.01, 2.0)  # seconds
BACK: Final = (0.0001, 0.5)  # seconds between a fail-over and the way back
LAG: Final = 3.0  # writes that a replica is behind, on average


async def redis_trouble(
    world: World,
    redis: SimulatedRedis,
    *,
    seconds: float,
    every: float = 1.0,
    acts: Sequence[RedisAct] = LOSSES,
) -> None:
    """Do something to a Redis, now and then; have it run in the end.

    Args:
        world: the world.
        redis: whom.
        seconds: for how long.
        every: seconds between two acts, on average.
        acts: what may be done: a ``restart``, an ``outage`` of seconds and a start; a ``save`` of
            what the next start will find, if there are snapshots; a ``flush``; to one with
            replicas a ``fail over`` to one that lags, the same and a ``fail back`` a moment later,
            or a ``split`` of seconds.
    """
    rng, end = world.rng, world.time + seconds
    while (rest := rng.expovariate(1 / every)) < end - world.time:
        await world.sleep(rest)
        await strike(world, redis, acts)
    await world.sleep(max(0.0, end - world.time))
    redis.mend()


async def strike(world: World, redis: SimulatedRedis, acts: Sequence[RedisAct] = LOSSES) -> None:
    """Do one thing to a Redis, as in `redis_trouble`; returns when it is over."""
    await _REDIS[world.rng.choice(acts)](world, redis)


def _lag(world: World) -> int:
    return int(world.rng.expovariate(1 / LAG))


async def _restart(_: World, redis: SimulatedRedis) -> None:
    redis.restart()


async def _outage(world: World, redis: SimulatedRedis) -> None:
    redis.crash()
    await world.sleep(draw_between(world.rng, DOWN))
    redis.mend()


async def _save(_: World, redis: SimulatedRedis) -> None:
    redis.save()


async def _flush(_: World, redis: SimulatedRedis) -> None:
    redis.flush()


async def _fail_over(world: World, redis: SimulatedRedis) -> None:
    redis.fail_over(behind=_lag(world))


async def _fail_back(world: World, redis: SimulatedRedis) -> None:
    redis.fail_over(behind=_lag(world))
    await world.sleep(draw_between(world.rng, BACK))
    redis.fail_over()


async def _split(world: World, redis: SimulatedRedis) -> None:
    strays = [node for node in world.nodes if world.rng.random() < 0.5]
    redis.split(strays, behind=_lag(world))
    await world.sleep(draw_between(world.rng, DOWN))
    redis.rejoin()


_REDIS: Final[dict[RedisAct, Callable[[World, SimulatedRedis], Awaitable[None]]]] = {
    "restart": _restart,
    "outage": _outage,
    "save": _save,
    "flush": _flush,
    "fail over": _fail_over,
    "fail back": _fail_back,
    "split": _split,
}
