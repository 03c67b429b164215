"""Scenarios in which the workers suffer: killed, stopped, forked, cancelled, short of something."""

from __future__ import annotations

import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import FaultProxy, PostgresServer, ValkeyServer

from ._arena import Arena
from ._fleet import Member
from ._job import Place
from ._line import Line


def workers(arena: Arena) -> None:
    """Kill -9, stop for a while and fork processes that take ids from segments."""
    # A fork beside threads is not supported, and aiosqlite has one for each connection.
    forks = 0.0 if arena.options.store == "sqlite" else 1.0
    job = arena.job(arena.sound(), fork_every=forks)
    with arena.workers(job) as fleet:
        while arena.goes_on():
            fleet.kill_one()
            arena.faults["kill"] += 1
            stopped = fleet.any()
            fleet.stop(stopped)
            arena.pause(arena.between(0.05, 0.5))
            fleet.go_on(stopped)
            arena.faults["stop"] += 1
            arena.pause(arena.between(0.05, 0.3))


def leases(arena: Arena) -> None:
    """Kill -9 owners of machine ids, and stop some for longer than their lease."""
    # Few machine ids, so that those of the dead and the stopped are wanted by the living.
    machine_bits = max(1, (arena.options.processes - 1).bit_length())
    layout = (41, machine_bits, 6)
    job = arena.job(
        arena.sound(machines=True), kind="snowflake", layout=layout, batch=5, singles=5, pause=0.002
    )
    with arena.workers(job) as fleet:
        while arena.goes_on():
            stopped = fleet.any()
            fleet.stop(stopped)
            arena.pause(job.safe_guard * arena.between(1.1, 1.5))
            # Somebody who needs the id of the one that is stopped.
            fleet.wait_for(fleet.kill_one())
            arena.faults["kill"] += 1
            arena.pause(job.safe_guard * arena.between(0.0, 1.0))
            fleet.go_on(stopped)
            arena.faults["stop past the lease"] += 1
            arena.pause(arena.between(0.1, 0.5))


def cancellation(arena: Arena) -> None:
    """Cancel nearly every call at a moment that nobody chose, in many tasks at once."""
    place = arena.sound()
    job = arena.job(place, tasks=16, cancel=0.004, batch=700, singles=700, pause=0.0)
    with arena.workers(job) as fleet:
        while arena.goes_on():
            arena.pause(arena.between(0.5, 1.0))
            fleet.stop(stopped := fleet.any())
            arena.pause(0.1)
            fleet.go_on(stopped)
            arena.faults["storm"] += 1


def limits(arena: Arena) -> None:
    """Take away descriptors, and memory, again and again."""
    with line_to(arena) as (line, place):
        # A lease that could not be written down is used all the same.
        job = arena.job(place, batch=100_000, singles=500, pause=0.002, leased=False)
        with arena.workers(job) as fleet:
            fleet.may_end = True  # Python itself may not survive a lack of memory
            while arena.goes_on():
                fleet.squeeze(resource.RLIMIT_NOFILE, _descriptors)
                line.do(FaultProxy.cut)
                arena.pause(arena.between(0.2, 0.8))
                fleet.squeeze(resource.RLIMIT_NOFILE, None)
                arena.faults["no descriptors"] += 1
                arena.pause(arena.between(0.1, 0.3))
                fleet.squeeze(resource.RLIMIT_AS, lambda _: 1 << 20)
                arena.pause(arena.between(0.2, 0.8))
                fleet.squeeze(resource.RLIMIT_AS, None)
                arena.faults["no memory"] += 1
                arena.pause(arena.between(0.1, 0.3))


def _descriptors(member: Member) -> int:
    return len(list(Path(f"/proc/{member.pid}/fd").iterdir()))


def connections(arena: Arena) -> None:
    """Reset, black-hole, refuse and slow down connections, and swallow replies."""
    with line_to(arena) as (line, place), arena.workers(arena.job(place, step=100)) as fleet:
        while arena.goes_on():
            fault = arena.draw.choice(("reset", "swallow", "silent", "no way", "no answer", "slow"))
            _break(arena, line, fault)
            line.do(FaultProxy.heal)
            line.accept()
            arena.pause(arena.between(0.05, 0.3))
            fleet.check()
        arena.faults["reply lost"] = line.swallowed


def _break(arena: Arena, line: Line, fault: str) -> None:
    arena.faults[fault] += 1
    many = arena.draw.randint(1, 20)
    match fault:
        case "reset":
            for _ in range(many):
                line.do(FaultProxy.cut)
                arena.pause(0.01)
        case "swallow":
            line.do(lambda proxy: proxy.swallow_replies(many))
            arena.pause(0.3)
        case "silent":
            line.do(lambda proxy: proxy.swallow_replies(many, reset=False))
            arena.pause(0.3)
        case "no way":
            line.do(FaultProxy.refuse)
            line.do(FaultProxy.cut)
            arena.pause(arena.between(0.1, 0.5))
        case "no answer":
            line.do(lambda proxy: proxy.blackhole(replies=True))
            # Longer than a call waits, now and then: then its answer comes too late.
            arena.pause(arena.draw.choice((0.2, 1.0, 3.0)))
        case _:
            line.do(lambda proxy: setattr(proxy, "latency", 0.05))
            arena.pause(0.5)


def server_of(arena: Arena) -> ValkeyServer | PostgresServer:
    """Start the server that was asked for; it keeps what it has confirmed."""
    is_postgres = arena.options.store == "postgres"
    started: ValkeyServer | PostgresServer = arena.enter(
        PostgresServer() if is_postgres else ValkeyServer(persistent=True)
    )
    return started


@contextmanager
def line_to(arena: Arena) -> Generator[tuple[Line, Place]]:
    """Start it, with a line to it that can be broken."""
    server = server_of(arena)
    place = arena.prepared(Place(url=server.url))
    with Line(server.host, server.port) as line:
        yield line, Place(url=line.url(place.url))


def clock(arena: Arena) -> None:
    """Step the wall clocks of half of the processes, forth and back, by up to a minute."""
    import libfaketime  # type: ignore[import-untyped,unused-ignore]

    offset = arena.folder / "offset"
    offset.write_text("+0")
    library = next(map(str, Path(libfaketime.__file__).parent.rglob("libfaketime.so.1")))
    wrong = {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
    }
    job = arena.job(
        arena.sound(machines=True),
        kind="snowflake",
        batch=5,
        singles=5,
        pause=0.002,
        safe_guard=30.0,
    )
    half = max(1, arena.options.processes // 2)
    with arena.workers(job, count=half) as fleet:
        fleet.environment = wrong
        fleet.add(half)
        fleet.wait_for_more("with a clock that can be stepped")
        arena.begin()
        ahead = 0.0
        while arena.goes_on():
            # Up to 2 s back is waited out; more is refused until the clock is right again.
            ahead = max(-30.0, ahead + arena.draw.choice((-20, -1.5, -0.5, 0.5, 1.5, 20)))
            _put(offset, f"{ahead:+.1f}")
            arena.faults["step"] += 1
            arena.pause(arena.between(0.2, 0.8))
        _put(offset, f"{ahead + 60:+.1f}")


def _put(file: Path, text: str) -> None:
    """Change what libfaketime reads, in one step."""
    scratch = file.with_suffix(".new")
    scratch.write_text(text)
    scratch.replace(file)
