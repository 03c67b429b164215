"""A deterministic world: one seed, virtual time, nodes, and what may never happen in it."""

from __future__ import annotations

import asyncio
import random
import shlex
from collections import Counter
from contextvars import Context, copy_context
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiocosid.errors import BusyError

from ._clock import WorldClock
from ._errors import NothingLeftError, SimulationError
from ._faults import CALM, Faults
from ._ledger import Ledger
from ._loop import SimulatedTask, VirtualTimeLoop
from ._node import Node
from ._trace import Trace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from ._process import Process
    from ._witness import Call

__all__ = ("Report", "Scenario", "World", "first_failure", "simulate")

SLACK: Final = 0.01  # seconds by which a call may miss its deadline: clocks drift
LAST_RITES: Final = 1000  # turns in which every task has to end once it is cancelled
QUIET_TURNS: Final = 3  # a callback may start a task that starts a task

Scenario: TypeAlias = "Callable[[World], Awaitable[None]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What happened in a world in which nothing was wrong.

    Attributes:
        seed: its seed.
        seconds: virtual seconds that passed.
        ids: how many ids were handed out.
        events: how often each kind of event happened.
        errors: how often each error was raised to a caller.
        digest: equal for two runs in which the same happened.
    """

    seed: int
    seconds: float
    ids: int
    events: Counter[str]
    errors: Counter[str]
    digest: int


class World:
    """Runs one scenario in virtual time.

    Everything that is drawn is drawn from one generator, so that a seed says it all.  The global
    `random` is seeded for the run as well.

    Attributes:
        seed: the seed.
        rng: draws everything, also for the scenario.
        loop: the event loop.
        clock: a clock that is right, for stores that tell the time by themselves.
        ledger: the ids that were handed out.
        errors: how often each error was raised to a caller.
        nodes: the nodes, in their order.
        processes: what has ever run on them.
        is_over: whether the scenario has ended, and only remains are cleared away.
        context: outside of every node.
    """

    def __init__(self, seed: int, *, shuffle: bool = True) -> None:
        """Make an empty world.

        Args:
            seed: any integer.
            shuffle: draw the order of timers that are due at the same time.
        """
        self.seed = seed
        self.rng = random.Random(seed)  # noqa: S311 - it has to be repeatable
        self.loop = VirtualTimeLoop(self.rng if shuffle else None)
        self.clock = WorldClock(self.loop)
        self.ledger = Ledger(self.fail)
        self.errors: Counter[str] = Counter()
        self.nodes: list[Node] = []
        self.processes: list[Process] = []
        self.is_over = False
        self.context: Context = copy_context()
        self._trace = Trace(self.loop.time)
        self._audits: list[Process] = []
        self._calls: list[tuple[float, int, Call]] = []
        self._errands: set[asyncio.Task[None]] = set()
        self._counter = count()
        self.loop.on_idle = self._audit
        self.loop.on_advance = self._check_deadlines
        self.loop.set_exception_handler(self._unseen)

    # For the scenario.

    @property
    def time(self) -> float:
        """Virtual seconds since the world began."""
        return self.loop.time()

    def node(
        self,
        main: Callable[[Node], Awaitable[None]],
        *,
        name: str | None = None,
        faults: Faults = CALM,
        skew: float = 0.0,
        drift: float = 0.0,
    ) -> Node:
        """Add a node, and start a process on it.

        Args:
            main: what the process does; may end, or be stopped.
            name: for the trace; ``a``, ``b`` and so on by default.
            faults: what may go wrong with it and with its links.
            skew: seconds that its wall clock is ahead.
            drift: how much faster its clocks run, 0.0001 for 100 ppm.
        """
        name = name or chr(ord("a") + len(self.nodes) % 26)
        node = Node(self, name, main, faults=faults, skew=skew, drift=drift)
        self.nodes.append(node)
        node.start()
        return node

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    def fail(self, reason: str) -> None:
        """End the run: something happened that may not.  The first one counts."""
        if not self.is_over and self.loop.failure is None:
            self.loop.failure = _ViolationError(reason)

    def note(self, who: str, what: str, details: str = "") -> None:
        """Write a line into the trace.

        Args:
            who: a node or a store.
            what: the kind of event, of which there are few.
            details: the rest of the line.
        """
        if not self.is_over:
            self._trace.note(who, what, details)

    def run(self, scenario: Scenario) -> Report:
        """Run a scenario to its end, and clear away what is left of it.

        Args:
            scenario: an async function; drives the world from outside of its nodes.

        Raises:
            SimulationError: an invariant did not hold, or the scenario raised.
            BusyError: the world has been used.
        """
        if self.loop.is_closed():
            raise BusyError("World", reason="has been used; make a new one")
        state = random.getstate()
        random.seed(self.seed)
        try:
            self._live(scenario)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - told with its seed
            reason = str(error) if isinstance(error, _OURS) else f"the scenario raised {error!r}"
            raise SimulationError(
                self.seed, reason, trace=self._trace.lines(), command=self._command(scenario)
            ) from (None if isinstance(error, _OURS) else error)
        finally:
            random.setstate(state)
        return Report(
            seed=self.seed,
            seconds=self.time,
            ids=self.ledger.ids,
            events=self._trace.counts,
            errors=self.errors,
            digest=self._trace.digest,
        )

    # For the rest of the package.

    def spawn(self, errand: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run something outside of every node."""
        task = self.loop.create_task(errand, name=name, context=self.context)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard, context=self.context)

    def expect(self, call: Call) -> None:
        """Watch the deadline of a call."""
        heappush(self._calls, (call.deadline + SLACK, next(self._counter), call))

    def _live(self, scenario: Scenario) -> None:
        loop = self.loop
        try:
            loop.run_until_complete(
                loop.create_task(_main(scenario, self), name="scenario", context=self.context)
            )
            self._check_deadlines(self.time)
        finally:
            self.is_over = True
            loop.failure = None
            burial = loop.create_task(self._bury(), name="burial")
            burial.add_done_callback(lambda _: loop.stop())
            # Not run_until_complete: the end of a scenario that failed in its last turn stops the
            # loop once more.
            while not burial.done():
                loop.run_forever()
            loop.close()
            burial.result()

    async def _bury(self) -> None:
        """Let everything end that is left, the dead as well; nobody watches any more."""
        loop, me = self.loop, asyncio.current_task()
        for process in self.processes:
            process.exhume()
        quiet, left = 0, list[SimulatedTask]()
        for _ in range(LAST_RITES):
            left = [task for task in loop.tasks() if task is not me]
            quiet = 0 if left else quiet + 1
            if quiet == QUIET_TURNS:
                await loop.shutdown_asyncgens()
                return
            for task in left:
                if task.has_begun:  # else what it was to run would never be awaited
                    task.cancel()
            await asyncio.sleep(0)
        raise NothingLeftError(self.time, [str(task) for task in left], reason="tasks do not end")

    def _ended(self, process: Process, task: asyncio.Task[Any]) -> None:
        """The main task of a process has ended; what it left is looked at when it is quiet."""
        if task.cancelled():
            if not (process.was_told_to_stop or self.is_over):
                self.fail(f"the main task of {process} was cancelled by nobody")
        elif (error := task.exception()) is not None and not self.is_over:
            self.fail(f"the main task of {process} raised {error!r}")
        self._audits.append(process)

    def _audit(self) -> None:
        """Nothing may be left of a process that has ended by itself."""
        while self._audits:
            process = self._audits.pop()
            if process.is_dead:
                continue
            left = [task.get_name() for task in self.loop.tasks(process)]
            left += [f"a timer: {handle}" for handle in self.loop.timers(process)]
            if left:
                self.fail(f"{process} has ended and left behind: {', '.join(left)}")
            self.note(process.name.partition("#")[0], "has ended")
            process.kill()

    def _check_deadlines(self, now: float) -> None:
        """Time is about to pass: every call with a deadline before then has to have ended."""
        while self._calls and self._calls[0][0] < now:
            _, _, call = heappop(self._calls)
            process = call.process
            if call.is_done or process.is_dead:
                continue
            if not process.is_running:  # it may end once the process goes on
                call.deadline = process.stopped_until
                self.expect(call)
            elif call.deadline < process.stopped_until:
                call.deadline = process.stopped_until + SLACK
                self.expect(call)
            else:
                self.fail(f"{call.what} on {process} did not end by its deadline")

    def _unseen(self, _: object, context: dict[str, Any]) -> None:
        """An exception that nobody caught, in a callback or in a task that nobody awaited."""
        self.fail(f"{context.get('message')}: {context.get('exception')!r}")

    def _command(self, scenario: Scenario) -> str:
        module, name = (getattr(scenario, each, "?") for each in ("__module__", "__qualname__"))
        package = __package__ or "tests.simulation"
        place = name if module.startswith(f"{package}._") else f"{module}:{name}"
        return shlex.join(["python", "-m", package, place, "--seed", str(self.seed)])


def simulate(scenario: Scenario, seeds: Iterable[int] = range(20)) -> list[Report]:
    """Run a scenario in one world after the other.

    Args:
        scenario: an async function that takes a `World`.
        seeds: a seed a world.

    Raises:
        SimulationError: an invariant did not hold.
    """
    return [World(seed).run(scenario) for seed in seeds]


def first_failure(scenario: Scenario, seeds: Iterable[int]) -> SimulationError | None:
    """Return the first error that is found, or None: for a defect that was planted.

    Args:
        scenario: an async function that takes a `World`.
        seeds: a seed a world.
    """
    for seed in seeds:
        try:
            World(seed).run(scenario)
        except SimulationError as error:
            return error
    return None


class _ViolationError(AssertionError):
    """Something happened that may not."""


_OURS: Final = (_ViolationError, NothingLeftError)


async def _main(scenario: Scenario, world: World) -> None:
    await scenario(world)
