"""Scenarios in which Redis forgets what it has confirmed."""

from __future__ import annotations

import time
from pathlib import Path

from tests.servers import ValkeyCluster, ValkeySentinel, ValkeyServer, wait_until
from tests.servers._resp import RespError

from ._arena import Arena

KILL_EVERY = 1.0  # seconds
LAG = (0.2, 0.8)  # seconds of writes that the replica does not get; after 5 s it is not promoted


def redis_kill(arena: Arena) -> None:
    """Kill -9 a server that keeps nothing, and start it again, once a second."""
    server = arena.enter(ValkeyServer())
    with arena.workers(arena.job(arena.fast(server.url))):
        while arena.goes_on():
            began = time.monotonic()
            server.kill()
            server.start()
            arena.faults["kill"] += 1
            arena.pause(KILL_EVERY - (time.monotonic() - began))


def redis_aof(arena: Arena) -> None:
    """Kill -9 a server with ``appendfsync everysec``, or cut its power: its last second is gone.

    A kill leaves to the system what was written to the file; a power cut takes what was not synced.
    That is played by cutting the file where it ended some time before.
    """
    server = arena.enter(ValkeyServer("--appendonly", "yes", "--appendfsync", "everysec"))
    with arena.workers(arena.job(arena.fast(server.url), step=100)):
        while arena.goes_on():
            synced = _log_sizes(server)
            arena.pause(arena.between(0.3, 1.0))
            server.kill()
            power_cut = arena.draw.random() < 0.5
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
    group = arena.enter(ValkeySentinel())
    with arena.workers(arena.job(arena.fast(group.url), step=100)):
        kill = False
        while arena.goes_on():
            master = group.current_master()
            replica = group.replica if master is group.master else group.master
            replica.stop_following()
            arena.pause(arena.between(*LAG))
            if kill:
                master.kill()
            else:  # the master lives on, under the same run_id, and becomes a replica
                wait_until(lambda: _began(group), "a fail-over begins", deadline=20)
            _promoted(replica)
            arena.faults["fail-over after a kill" if kill else "fail-over"] += 1
            replica.follow_again()
            if kill:
                master.start()
            else:
                arena.pause(arena.between(*LAG))  # two masters
            # The sentinels would see to it, but only after ten seconds.
            master.call("REPLICAOF", replica.host, replica.port)
            _settled(master, replica)
            wait_until(
                lambda: all(map(group._sees_everybody, group.sentinels)),
                "the sentinels see a master and its replica",
                deadline=60,
            )
            arena.pause(0.5)
            kill = not kill


def _began(group: ValkeySentinel) -> bool:
    try:
        return group.sentinels[0].call("SENTINEL", "FAILOVER", group.service) == "OK"
    except RespError:
        return False  # one is still going on, or the replica was not heard of lately


def cluster(arena: Arena) -> None:
    """The same in a cluster: the master of the counter's slot is killed, or overruled."""
    nodes = arena.enter(ValkeyCluster(replicas=True))
    master, replica = nodes.masters[0], nodes.replicas[0]
    job = arena.job(arena.fast(nodes.url), step=100)
    master = nodes.owner(f"cosid:{{{job.namespace}.{job.name}}}.adder")
    replica = nodes.replicas[nodes.masters.index(master)]
    with arena.workers(job):
        kill = True
        while arena.goes_on():
            replica.stop_following()
            arena.pause(arena.between(*LAG))
            if kill:
                master.kill()
            else:
                replica.call("CLUSTER", "FAILOVER", "TAKEOVER")
            _promoted(replica)
            arena.faults["fail-over after a kill" if kill else "fail-over"] += 1
            replica.follow_again()
            if kill:
                master.start()
            _settled(master, replica)
            arena.pause(1.0)
            master, replica, kill = replica, master, not kill


def _promoted(replica: ValkeyServer) -> None:
    wait_until(lambda: _is_master(replica), f"{replica!r} is promoted", deadline=30)


def _is_master(server: ValkeyServer) -> bool:
    try:
        return "role:master" in str(server.call("INFO", "replication"))
    except (OSError, RespError):
        return False


def _settled(replica: ValkeyServer, master: ValkeyServer) -> None:
    wait_until(replica.is_following, f"{replica!r} follows {master!r}", deadline=30)
