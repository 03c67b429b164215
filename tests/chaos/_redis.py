"""Scenarios in which Redis forgets what it has confirmed."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.servers import ValkeyCluster, ValkeySentinel, ValkeyServer, wait_until
from tests.servers._resp import RespError
from tests.servers.valkey import MARK

from ._arena import SEQUENCES, Arena
from ._fleet import Fleet

KILL_EVERY = 1.0  # seconds
SETTLED = 1.5  # seconds until the workers use the new master, and its replica has what they wrote
MARGIN = 3  # seconds for which two masters of sequences are covered: LAG, and what a machine takes
LAG = (0.2, 0.8)  # seconds of writes that the replica does not get; after 5 s it is not promoted


def redis_kill(arena: Arena) -> None:
    """Kill -9 a server that keeps nothing, and start it again, once a second."""
    server = arena.enter(ValkeyServer())
    with arena.workers(arena.job(arena.fast(server.url))) as fleet:
        while arena.goes_on():
            began = time.monotonic()
            with _nobody_there_or(arena, fleet, all_anew=arena.faults["kill"] % 4 == 3):
                server.kill()
                server.start()
                if arena.options.store == "plain":
                    server.call(*MARK)  # as by an init that nobody should have run
            arena.faults["kill"] += 1
            # Sequences count anew with each second: kills must not be in step with them.
            every = arena.between(0.6, 1.4) if arena.options.store in SEQUENCES else KILL_EVERY
            arena.pause(every - (time.monotonic() - began))


def redis_aof(arena: Arena) -> None:
    """Kill -9 a server with ``appendfsync everysec``, or cut its power: its last second is gone.

    A kill leaves to the system what was written to the file; a power cut takes what was not synced.
    That is played by cutting the file where it ended some time before.
    """
    server = arena.enter(ValkeyServer("--appendonly", "yes", "--appendfsync", "everysec"))
    with arena.workers(arena.job(arena.fast(server.url), step=100)) as fleet:
        while arena.goes_on():
            synced = _log_sizes(server)
            arena.pause(arena.between(0.3, 1.0))
            power_cut = arena.draw.random() < 0.5
            with _nobody_there_or(arena, fleet, all_anew=arena.draw.random() < 0.5):
                server.kill()
                if power_cut:
                    for path, size in synced.items():
                        with path.open("r+b") as file:
                            file.truncate(size)
                server.start()
            arena.faults["power cut" if power_cut else "kill"] += 1
            arena.pause(arena.between(0.2, 0.5))


def _log_sizes(server: ValkeyServer) -> dict[Path, int]:
    return {path: path.stat().st_size for path in server.directory.rglob("*.incr.aof")}


def sentinel(arena: Arena) -> None:
    """Fail over to a replica whose replication was cut, and back to the first master."""
    # Sequences come from memory, at full speed, and two masters are covered for MARGIN alone: a
    # sentinel that has no turn for a while must not make another one by itself.
    are_sequences = arena.options.store in SEQUENCES
    group = arena.enter(ValkeySentinel(down_after_ms=2500 if are_sequences else 500))

    def fail_over(*, kill: bool, split: float) -> None:
        master = group.current_master()
        replica = group.replica if master is group.master else group.master
        alone = time.monotonic()  # there was one master then

        def is_promoted() -> bool:
            nonlocal alone
            asked = time.monotonic()
            if not _is_master(replica):
                alone = asked
                return False
            return True

        if kill:
            master.kill()
        else:  # the master lives on, under the same run_id, and becomes a replica
            group.fail_over(until=is_promoted)
        _promoted(replica)
        replica.follow_again()
        # A fail-over that is disturbed before that breaks off, and leaves two masters for long.
        wait_until(lambda: _is_named(group, replica), "the sentinels name the new master")
        if kill:
            master.start()
        else:
            arena.pause(split - (time.monotonic() - alone))  # two masters
        # The sentinels would see to it, but only after ten seconds.
        master.call("REPLICAOF", replica.host, replica.port)
        if split and are_sequences and (two := time.monotonic() - alone) > MARGIN:
            raise TimeoutError(f"two masters for up to {two:.1f} s: they are covered for {MARGIN}")
        _settled(master, replica)
        wait_until(lambda: _agree(group, replica), "the sentinels agree", deadline=30)

    pause, settled = (0.02, SETTLED + MARGIN) if are_sequences else (0.001, SETTLED)
    job = arena.job(arena.fast(group.url), step=100, margin=MARGIN, pause=pause)
    with arena.workers(job) as fleet:
        while arena.goes_on():
            master = group.current_master()
            replica = group.replica if master is group.master else group.master
            replica.stop_following()
            arena.pause(arena.between(*LAG))
            _there_and_maybe_back(arena, fleet, fail_over)
            arena.pause(settled)


def _is_named(group: ValkeySentinel, master: ValkeyServer) -> bool:
    address = [master.host, str(master.port)]
    ask = "SENTINEL", "GET-MASTER-ADDR-BY-NAME", group.service
    return all(sentinel.call(*ask) == address for sentinel in group.sentinels)


def _agree(group: ValkeySentinel, master: ValkeyServer) -> bool:
    return all(map(group._sees_everybody, group.sentinels)) and group.current_master() is master


def cluster(arena: Arena) -> None:
    """The same in a cluster: the master of the counter's slot is killed, or overruled."""
    nodes = arena.enter(ValkeyCluster(replicas=True))
    job = arena.job(arena.fast(nodes.url), step=100)
    first = nodes.owner(f"cosid:{{{job.namespace}.{job.name}}}.adder")
    pair = [first, nodes.replicas[nodes.masters.index(first)]]  # master and replica

    def fail_over(*, kill: bool, split: float) -> None:
        master, replica = pair
        if kill:
            master.kill()
        else:
            replica.call("CLUSTER", "FAILOVER", "TAKEOVER")
        _promoted(replica)
        replica.follow_again()
        if kill:
            master.start()
        _settled(master, replica)
        pair.reverse()

    with arena.workers(job) as fleet:
        while arena.goes_on():
            pair[1].stop_following()
            arena.pause(arena.between(*LAG))
            _there_and_maybe_back(arena, fleet, fail_over)
            arena.pause(SETTLED)


class FailOver(Protocol):
    """Has the replica promoted, and its former master follow it."""

    def __call__(self, *, kill: bool, split: float) -> None: ...


def _there_and_maybe_back(arena: Arena, fleet: Fleet, fail_over: FailOver) -> None:
    """One of three in turn: by a kill, by order, or there and back while nobody looks.

    The last leaves the first master with its old run_id and what the replica had, and only workers
    that have never seen a higher id.
    """
    match arena.faults.total() % 3:
        case 0:
            fail_over(kill=False, split=arena.between(*LAG))
            arena.faults["fail-over"] += 1
        case 1:
            with fleet.nobody_there():
                fail_over(kill=False, split=0.0)
                fail_over(kill=False, split=0.0)
            arena.faults["fail-over and back"] += 1
        case _:
            with _nobody_there_or(arena, fleet, all_anew=arena.draw.random() < 0.5):
                fail_over(kill=True, split=0.0)
            arena.faults["fail-over after a kill"] += 1


@contextmanager
def _nobody_there_or(arena: Arena, fleet: Fleet, *, all_anew: bool) -> Generator[None]:
    """Perhaps nobody is there meanwhile, and those who come then have seen nothing."""
    if not all_anew:
        yield
        return
    with fleet.nobody_there():
        yield
    arena.faults["all workers anew"] += 1


def _promoted(replica: ValkeyServer) -> None:
    wait_until(lambda: _is_master(replica), f"{replica!r} is promoted", deadline=30)


def _is_master(server: ValkeyServer) -> bool:
    try:
        return "role:master" in str(server.call("INFO", "replication"))
    except (OSError, RespError):
        return False


def _settled(replica: ValkeyServer, master: ValkeyServer) -> None:
    wait_until(replica.is_following, f"{replica!r} follows {master!r}", deadline=30)
