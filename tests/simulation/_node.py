"""A node: a machine with clocks, the process that runs on it, and its links to the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiocosid.errors import BusyError

from ._clock import NodeClock
from ._faults import CALM, draw_between, draw_steps
from ._forks import fork
from ._link import Link
from ._loop import PROCESS
from ._process import Process
from ._witness import Witness

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiocosid.abc import IdGenerator

    from ._faults import Faults
    from ._ledger import Parse
    from ._world import World

__all__ = ("Node",)

SOON: Final = 30  # steps in which a fork comes


class Node:
    """A machine in the world, on which one process runs at a time.

    Attributes:
        name: for the trace.
        clock: its clocks, to be given to generators.
        faults: what may go wrong with it, and on links without faults of their own.
        skew: seconds that its wall clock is ahead.
        drift: how much faster its clocks run, 0.0001 for 100 ppm.
        links: its links, of all its lives.
        witnesses: what is watched in the process that runs.
        ids: how many ids were handed out on it.
    """

    def __init__(
        self,
        world: World,
        name: str,
        main: Callable[[Node], Awaitable[None]],
        *,
        faults: Faults = CALM,
        skew: float = 0.0,
        drift: float = 0.0,
    ) -> None:
        """Describe a node; nothing runs on it before `start`.

        Args:
            world: where it stands.
            name: for the trace.
            main: what its process does, in each of its lives.
            faults: what may go wrong.
            skew: seconds that its wall clock is ahead.
            drift: how much faster its clocks run.
        """
        self.world = world
        self.name = name
        self.clock = NodeClock(self)
        self.faults = faults
        self.skew = skew
        self.drift = drift
        self.links: list[Link] = []
        self.witnesses: list[Witness] = []
        self.ids = 0
        self.lives = 0
        self._main = main
        self._process: Process | None = None
        self._lead = 0.0  # seconds that a stalled step is ahead of the world
        self._stall_ends = 0.0  # when the world has caught up with it
        self._reads = 0
        self._is_to_fork = False

    # A process's life.

    @property
    def process(self) -> Process:
        """The process that runs on it, or ran last.

        Raises:
            BusyError: none was ever started.
        """
        if self._process is None:
            raise BusyError(self.name, reason="was never started")
        return self._process

    @property
    def is_up(self) -> bool:
        """Whether a process runs on it, or is stopped."""
        return self._process is not None and not self._process.is_dead

    def start(self) -> None:
        """Start a process.

        Raises:
            BusyError: one runs already.
        """
        if self.is_up:
            raise BusyError(self.name, reason="runs already")
        self.lives += 1
        world = self.world
        process = Process(f"{self.name}#{self.lives}", world.loop, self._interrupt)
        process.interrupt_in(draw_steps(world.rng, self.faults.pause))
        self._reads = draw_steps(world.rng, self.faults.stall)
        self._lead = 0.0
        self._is_to_fork = False
        self._process = process
        self.witnesses = []
        world.processes.append(process)
        context = world.context.copy()
        context.run(PROCESS.set, process)
        world.note(self.name, "starts", process.name)
        task = world.loop.create_task(self._run(), name=f"{process.name} main", context=context)
        task.add_done_callback(lambda task: world._ended(process, task), context=world.context)

    async def _run(self) -> None:
        await self._main(self)

    def crash(self) -> None:
        """Kill the process: nothing of it runs any more, and it tells nobody.

        Calls that are on their way arrive all the same.
        """
        if self.is_up:
            self.world.note(self.name, "crashes")
            self.process.kill()

    def restart(self) -> None:
        """Crash, and start again."""
        self.crash()
        self.start()

    async def stop(self) -> None:
        """Cancel the process's main task, as Ctrl-C does, and wait until it has ended."""
        if self.is_up:
            process = self.process
            self.world.note(self.name, "is told to stop")
            process.was_told_to_stop = True
            for task in self.world.loop.tasks(process):
                if task.get_name() == f"{process.name} main":
                    task.cancel()
            await process.has_ended.wait()

    def pause(self, seconds: float) -> None:
        """Stop the process, as by SIGSTOP; its clocks run on.

        Args:
            seconds: after which it goes on.
        """
        if self.is_up:
            self.world.note(self.name, "is stopped", f"for {seconds:.4f} s")
            self._stop_for(seconds)

    def wake(self) -> None:
        """Let a stopped process go on now, as by SIGCONT; a step that stalled ends first."""
        process, world = self.process, self.world
        if process.is_running or process.is_dead:
            return
        process.stopped_until = 0.0
        if self._lead:
            self._stop_for(self._stall_ends - world.time)
        else:
            self._go_on(process)

    def _stop_for(self, seconds: float) -> None:
        process, loop = self.process, self.world.loop
        process.stop_until(loop.time() + seconds)
        loop.call_at(process.stopped_until, self._go_on, process, context=self.world.context)

    def _go_on(self, process: Process) -> None:
        if process is self._process and process.go_on():
            self._lead = 0.0
            self.world.note(self.name, "goes on")

    def fork(self) -> None:
        """Fork the process at one of its next steps, as `os.fork` does; the child dies soon.

        What it gets of the generators that are watched counts as handed out by another process.
        """
        if self.is_up:
            self._is_to_fork = True
            self.process.interrupt_in(self.world.rng.randrange(1, SOON))

    def _interrupt(self) -> int:
        if self._is_to_fork:
            self._is_to_fork = False
            fork(self)
            return draw_steps(self.world.rng, self.faults.pause)
        self.pause(draw_between(self.world.rng, self.faults.paused))
        return draw_steps(self.world.rng, self.faults.pause)

    # Its surroundings.

    def link(self, faults: Faults | None = None) -> Link:
        """Return a new link to a store.

        Args:
            faults: what may go wrong on it; the node's by default.
        """
        link = Link(self, faults or self.faults)
        self.links.append(link)
        return link

    def watch(
        self,
        generator: IdGenerator,
        *,
        deadline: float = 5.0,
        parse: Parse | None = None,
        fair: bool = False,
    ) -> Witness:
        """Return what calls a generator, and checks each call.

        Args:
            generator: the generator; it runs on this node.
            deadline: seconds in which every call has to end, with ids or a `CosIdError`.
            parse: tells the machine id of an id and its time in milliseconds since 1970, for
                generators that have a machine id.
            fair: whether callers that have to wait are to be served in the order in which they
                came, as our generators do.
        """
        witness = Witness(self, generator, deadline=deadline, parse=parse, fair=fair)
        self.witnesses.append(witness)
        return witness

    def step_clock(self, seconds: float) -> None:
        """Step the wall clock, forward or back; the monotonic clock runs on."""
        self.world.note(self.name, "steps its clock", f"by {seconds:.4f} s")
        self.skew += seconds

    # Time.

    def _read(self) -> float:
        """Read the clock; a process may be stopped right after it."""
        now = (self.world.loop.time() + self._lead) * (1 + self.drift)
        if self._reads:
            self._reads -= 1
            if self._reads == 0 and self.is_up:
                self._stall()
        return now

    def _stall(self) -> None:
        """Stop the process in the middle of a step.

        The step runs to its end, but as if it did so later: its next readings are later, what it
        sends leaves later, and everything else of the process waits until then.
        """
        rng = self.world.rng
        self._lead += draw_between(rng, self.faults.paused)
        self._reads = draw_steps(rng, self.faults.stall)
        self.world.note(self.name, "stalls", f"for {self._lead:.4f} s")
        self._stall_ends = self.world.time + self._lead
        self._stop_for(self._lead)

    def _virtual(self, seconds: float) -> float:
        """Return the world's seconds until so many of this node have passed."""
        return self._lead + seconds / (1 + self.drift)

    def _current(self) -> Process:
        """Return the process that runs this very step."""
        process = PROCESS.get()
        return self.process if process is None else process

    def __repr__(self) -> str:
        """Say what runs."""
        return f"<Node {self.name} life {self.lives} {'up' if self.is_up else 'down'}>"
