"""What 10 to 10,000 nodes would see, on paper: ``python -m bench.scale``, some minutes.

Real generators in virtual time, on one simulated store.  Writes ``bench/results/scale.json``, and
the plots of ``docs/explanation/scale.md``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from math import inf, log10
from pathlib import Path

from aiocosid import SegmentChainId, SegmentId, SnowflakeId
from aiocosid.abc import (
    Clock,
    IdGenerator,
    IdSegmentDistributor,
    MachineGrant,
    MachineIdDistributor,
)
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import COSID_MS, SnowflakeLayout
from aiocosid.stores.memory import MemoryStore
from tests.simulation import World, WorldClock

NETWORK = 0.001  # seconds there and back
CALLS_PER_SECOND = 10_000  # that the store can do
STEP = 1000
SKEW = 0.005  # seconds that a node's wall clock is off at most, as NTP keeps it in one site
MANY_NODES = SnowflakeLayout(41, 14, 8, "ms", COSID_MS.epoch, name="41, 14 and 8 bits")
OPEN_FOR = 2.0  # seconds over which the nodes are started

NODES = (10, 100, 1000, 10_000)
RATES = {"low": 1, "peak": 1000}  # ids a second and node
SECONDS = {"low": 30.0, "peak": 6.0}
TICK = 0.1  # seconds between two batches at peak
KINDS = ("SegmentChainId", "SegmentId", "SegmentId, step 1", "SnowflakeId")

RESULTS = Path(__file__).parent / "results" / "scale.json"
DOCS = Path(__file__).parents[1] / "docs"
COLORS = ("#1b6ca8", "#c8553d", "#588157", "#8d6b94")


class Server:
    """One store that does one call after the other, behind a network."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.calls: list[float] = []
        self._free_at = 0.0

    async def reach(self) -> None:
        """Come back when the call would."""
        now = self.world.time
        self.calls.append(now)
        self._free_at = max(now, self._free_at) + 1 / CALLS_PER_SECOND
        delay = NETWORK * self.world.rng.expovariate(1)
        await self.world.sleep(self._free_at - now + delay)


class Far(IdSegmentDistributor):
    """A counter on the server."""

    def __init__(self, server: Server, inner: IdSegmentDistributor) -> None:
        super().__init__(name=inner.name, step=inner.step)
        self._server, self._inner = server, inner

    async def next_max_id(self, step: int) -> int:
        """Advance the counter when the server comes to it."""
        await self._server.reach()
        return self._inner.next_max_id_nowait(step)


class FarMachines(MachineIdDistributor):
    """Machine ids on the server."""

    def __init__(self, server: Server, inner: MachineIdDistributor) -> None:
        super().__init__(instance_id=inner.instance_id)
        self._server, self._inner = server, inner

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take an id."""
        await self._server.reach()
        return await self._inner.distribute(bits, now_ms=now_ms, latest_ms=latest_ms)

    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Send a renewal."""
        await self._server.reach()
        await self._inner.renew(machine_id, now_ms=now_ms, fence_ms=fence_ms)

    async def release(self, machine_id: int, *, last_ms: int) -> None:
        """Give it back."""
        await self._server.reach()
        await self._inner.release(machine_id, last_ms=last_ms)


class SkewedClock(WorldClock):
    """A wall clock that is off by a little."""

    def __init__(self, world: World, skew: float) -> None:
        super().__init__(world.loop)
        self._skew_ns = int(skew * 1e9)

    def wall_reader(self) -> Callable[[], int]:
        """Read it."""
        right = super().wall_reader()
        return lambda: right() + self._skew_ns


@dataclass(slots=True)
class Run:
    """What is written down of one run.

    Attributes:
        taken: (first, last, when) of each run of consecutive ids.
        waits: seconds that each call took.
        wasted: ids that were reserved and are not used when all stop.
    """

    taken: list[tuple[int, int, float]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    wasted: int = 0

    def note(self, ids: Sequence[int], asked_at: float, now: float) -> None:
        """Write down what a call gave."""
        self.waits.append(now - asked_at)
        first = last = ids[0]
        for new_id in ids[1:]:
            if new_id != last + 1:
                self.taken.append((first, last, now))
                first = new_id
            last = new_id
        self.taken.append((first, last, now))

    @property
    def ids(self) -> int:
        """How many ids were handed out."""
        return sum(last - first + 1 for first, last, _ in self.taken)


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one kind, rate and number of nodes.

    Attributes:
        late: seconds by which an id came after a higher one, at most.
        wasted: ids that were reserved and not used, a node.
        calls: of the store a second, in the second half.
        wait: seconds that the longest call took, in the second half.
        first_wait: seconds that the slowest node needed to open.
    """

    kind: str
    nodes: int
    rate: str
    ids: int
    late: float
    wasted: float
    calls: float
    wait: float
    first_wait: float


def main() -> None:
    """Run everything, and write it down."""
    rows: list[Row] = []
    for kind in KINDS:
        for rate in RATES:
            for nodes in NODES:
                row = measure(kind, nodes, rate)
                print(row, flush=True)
                rows.append(row)
    RESULTS.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    publish(rows)


def measure(kind: str, nodes: int, rate: str) -> Row:
    """Let so many nodes take ids at a rate."""
    seconds, run = SECONDS[rate], Run()
    world = World(7)
    opened: list[float] = []
    servers: list[Server] = []

    async def scenario(world: World) -> None:
        server, store = Server(world), MemoryStore()
        servers.append(server)
        async with asyncio.TaskGroup() as group:
            for _ in range(nodes):
                made = make(kind, world, server, store, nodes)
                group.create_task(live(world, made, rate, run=run, opened=opened))

    world.run(scenario)
    half = OPEN_FOR + (seconds - OPEN_FOR) / 2
    late_calls = [each for each in servers[0].calls if half <= each < seconds]
    return Row(
        kind=kind,
        nodes=nodes,
        rate=rate,
        ids=run.ids,
        late=latest(run.taken),
        wasted=run.wasted / nodes,
        calls=len(late_calls) / (seconds - half),
        wait=max(run.waits[len(run.waits) // 2 :]),
        first_wait=max(opened),
    )


def make(kind: str, world: World, server: Server, store: MemoryStore, nodes: int) -> IdGenerator:
    """Return the generator of a new node."""
    skew = world.rng.uniform(-SKEW, SKEW)
    clock: Clock = SkewedClock(world, skew)
    if kind == "SnowflakeId":
        layout = COSID_MS if nodes <= 1 << COSID_MS.machine_bits else MANY_NODES
        machines = FarMachines(server, store.machine_id_distributor())
        lease = MachineIdLease(machines, bits=layout.machine_bits, start_timeout=30.0, clock=clock)
        return SnowflakeId(lease, layout=layout, clock=clock)
    step = 1 if kind.endswith("step 1") else STEP
    counter = Far(server, store.segment_distributor(name="order", step=step))
    if kind == "SegmentChainId":
        return SegmentChainId(counter, endurance=0, wait_timeout=30.0, clock=clock)
    return SegmentId(counter, wait_timeout=30.0, clock=clock)


async def live(world: World, ids: IdGenerator, rate: str, *, run: Run, opened: list[float]) -> None:
    """Be a node: start some time, and take ids until the end."""
    rng, seconds = world.rng, SECONDS[rate]
    await world.sleep(rng.uniform(0, OPEN_FOR))
    began = world.time
    async with ids:
        opened.append(world.time - began)
        a_batch = int(RATES[rate] * TICK)
        while world.time < seconds:
            if rate == "low":
                await world.sleep(rng.expovariate(RATES[rate]))
                take: Callable[[], Awaitable[int | list[int]]] = ids.next_id
            else:
                await world.sleep(TICK * rng.uniform(0.8, 1.2))
                take = partial(ids.next_ids, a_batch)
            asked_at = world.time
            taken = await take()
            run.note([taken] if isinstance(taken, int) else taken, asked_at, world.time)
        run.wasted += getattr(ids.statistics(), "remaining", 0)


def latest(taken: Iterable[tuple[int, int, float]]) -> float:
    """Return the most seconds by which an id was handed out after a higher one."""
    late, earliest = 0.0, inf  # of all above
    for _, _, when in sorted(taken, reverse=True):
        late = max(late, when - earliest)
        earliest = min(earliest, when)
    return late


# The page.


def publish(rows: Sequence[Row]) -> None:
    """Write the plots."""
    for name, title in (
        ("late", "seconds that an id may come after a higher one"),
        ("wasted", "ids a node has reserved and not used when it stops"),
        ("calls", "calls of the store a second"),
        ("wait", "longest wait, in seconds"),
    ):
        svg = plot(rows, name, f"{title}; each node takes 1000 ids a second")
        (DOCS / "img" / f"scale-{name}.svg").write_text(svg)


WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, TOP = 660, 320, 70, 30, 40, 40


def plot(rows: Sequence[Row], name: str, title: str) -> str:
    """Return a plot by the number of nodes, both axes logarithmic, as SVG."""
    lowest = 1e-4 if name in {"late", "wait"} else 0.1
    lines = {
        kind: [
            (r.nodes, max(getattr(r, name), lowest))
            for r in rows
            if r.kind == kind and r.rate == "peak"
        ]
        for kind in KINDS
    }
    highest = max(value for points in lines.values() for _, value in points)
    bottom, top = log10(lowest), max(log10(lowest) + 1, log10(highest) + 0.3)

    def x(nodes: float) -> float:
        return LEFT + (log10(nodes) - 1) / 3 * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (log10(value) - bottom) / (top - bottom) * (HEIGHT - BOTTOM - TOP)

    font = 'font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 30}" {font}>',
        f'<rect width="{WIDTH}" height="{HEIGHT + 30}" fill="white"/>',
        f'<text x="8" y="20" font-size="13">{title}</text>',
    ]
    middle = 'text-anchor="middle"'
    parts += [f'<text x="{x(n):.0f}" y="{HEIGHT - 20}" {middle}>{n:,}</text>' for n in NODES]
    for power in range(round(bottom), int(top) + 1):
        at = y(10.0**power)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="8" y="{at + 4:.1f}">{10.0**power:,g}</text>')
    for number, (kind, points) in enumerate(lines.items()):
        color = COLORS[number]
        for (n, v), (m, w) in pairwise(points):
            parts.append(
                f'<path d="M{x(n):.1f} {y(v):.1f}L{x(m):.1f} {y(w):.1f}" stroke="{color}" '
                'stroke-width="2"/>'
            )
        for n, v in points:
            parts.append(f'<circle cx="{x(n):.1f}" cy="{y(v):.1f}" r="4" fill="{color}"/>')
        parts.append(f'<rect x="{LEFT + number * 140}" y="{HEIGHT}" width="12" height="12" '
                     f'fill="{color}"/>')  # fmt: skip
        parts.append(f'<text x="{LEFT + 16 + number * 140}" y="{HEIGHT + 11}">{kind}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
