"""One process that takes ids until SIGTERM."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import cast

from aiocosid.abc import IdGenerator
from aiocosid.abc.events import Event
from aiocosid.errors import CosIdError, ForkedError
from aiocosid.machine import MachineIdLease

from ._history import HISTORY, History, RecordedGenerator
from ._job import Job
from ._notes import NOTES, Notes

PATIENCE = 0.02  # seconds after an error
CHILD_SECONDS = 0.4  # that a forked child lives

# What a caller gets: ours, or what the system says when there is no memory or descriptor left.
REFUSALS = (CosIdError, OSError, MemoryError)


FELT = (
    "FetchFailed",
    "MachineIdLost",
    "MachineIdsQuarantined",
    "CacheLost",
    "SpanLeased",
)


class Worker:
    """Takes ids by one or more tasks, and opens its generator anew when that has ended."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.notes = Notes(job.folder / f"{job.worker}{NOTES}")
        self.stop = asyncio.Event()
        self.openings = 0
        self.children: list[int] = []
        self._taken = 0  # of generators that were closed
        self._until = 0.0  # monotonic; when the generator is closed
        self._recorded: RecordedGenerator | None = None
        self._history = History(job.histories / f"{job.worker}{HISTORY}")

    def on_event(self, event: Event) -> None:
        """Note what shows that a fault was felt."""
        if self._recorded is not None:
            self._recorded.on_event(event)
        if type(event).__name__ in FELT:
            self.notes.say(type(event).__name__)

    async def run(self) -> None:
        """Until told to stop, or until all ids are taken."""
        while not self.stop.is_set() and not self._has_all:
            self.openings += 1
            began = time.monotonic()
            try:
                name = f"{self.job.worker}.{self.openings}"
                self._recorded = recorded = self.job.history(self._history, name)
                async with AsyncExitStack() as stack:
                    opened = await stack.enter_async_context(self.job.opened(self))
                    began = 0.0
                    await self._use(recorded, *opened)
            except REFUSALS as error:
                self.notes.error(error)
                if began:
                    self.notes.waited(time.monotonic() - began)
                await asyncio.sleep(PATIENCE)
        self._collect(0)

    async def _use(
        self, recorded: RecordedGenerator, generator: IdGenerator, lease: MachineIdLease | None
    ) -> None:
        self._until = time.monotonic() + (self.job.life or float("inf"))
        recorded.is_open(generator, lease)
        generator = cast("IdGenerator", recorded)
        try:
            async with asyncio.TaskGroup() as group:
                takers = [
                    group.create_task(self._take_all(generator)) for _ in range(self.job.tasks)
                ]
                if self.job.fork_every:
                    group.create_task(self._fork_now_and_then(generator, takers))
        finally:
            self._taken, recorded.taken = self._taken + recorded.taken, 0
            recorded.end()

    @property
    def _has_all(self) -> bool:
        taken = self._taken + (self._recorded.taken if self._recorded else 0)
        return taken >= (self.job.ids or sys.maxsize)

    @property
    def _goes_on(self) -> bool:
        """Whether ids are to be taken from the generator that is open."""
        return not (self.stop.is_set() or self._has_all or time.monotonic() >= self._until)

    async def _take_all(self, generator: IdGenerator) -> None:
        """Until told to stop, or until the generator has ended."""
        turn = 0
        while self._goes_on:
            turn += 1
            began = time.monotonic()
            try:
                async with self._at_random():
                    await self._take(generator, turn)
            except TimeoutError:
                self.notes.say("cancelled")
            except REFUSALS as error:
                self.notes.error(error)
                if not getattr(error, "retryable", True):
                    return
                await asyncio.sleep(PATIENCE)
            self.notes.waited(time.monotonic() - began)
            await asyncio.sleep(self.job.pause)

    async def _take(self, generator: IdGenerator, turn: int) -> None:
        job = self.job
        if job.batch and (turn % 2 or not job.singles):
            await generator.next_ids(job.batch)
            return
        for _ in range(job.singles):
            await generator.next_id()

    @asynccontextmanager
    async def _at_random(self) -> AsyncGenerator[None]:
        """Cancel what is done here, at a moment that nobody chose."""
        if not self.job.cancel:
            yield
            return
        async with asyncio.timeout(random.random() * self.job.cancel):  # noqa: S311 - any
            yield

    async def _fork_now_and_then(
        self, generator: IdGenerator, takers: list[asyncio.Task[None]]
    ) -> None:
        while not self.stop.is_set() and not all(task.done() for task in takers):
            await asyncio.sleep(self.job.fork_every)
            pid = os.fork()
            if pid == 0:
                _child(self.job, generator, self.notes)
            self.children.append(pid)
            self.notes.say("fork")
            self._collect(os.WNOHANG)

    def _collect(self, how: int) -> None:
        self.children = [child for child in self.children if not os.waitpid(child, how)[0]]


def _child(job: Job, generator: IdGenerator, notes: Notes) -> None:
    """Be refused by what was the parent's, take ids by what is opened here, and end."""
    with suppress(BaseException):
        for take in (generator.next_id_nowait, lambda: _driven(generator)):
            with suppress(ForkedError):
                take()  # its history has what was not refused
                continue
            notes.say("refused")
        name = f"{job.worker}-{os.getpid()}"
        mine = Worker(replace(job, worker=name, fork_every=0.0, tasks=1))
        asyncio.run(_for_a_while(mine))
        notes.say("child")
    os._exit(0)


def _driven(generator: IdGenerator) -> int:
    try:
        generator.next_id().__await__().send(None)
    except StopIteration as done:
        return int(done.value)
    raise AssertionError("it waits, in a child that no loop runs in")


async def _for_a_while(worker: Worker) -> None:
    asyncio.get_running_loop().call_later(CHILD_SECONDS, worker.stop.set)
    await worker.run()


async def _until_told(job: Job) -> None:
    worker = Worker(job)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop.set)
    await worker.run()


def work(text: str) -> None:
    """Do a job; what goes wrong is in a file beside its notes."""
    job = Job.from_json(text)
    errors = os.open(job.folder / f"{job.worker}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(errors, 2)
    random.seed(f"{job.worker} {time.time_ns()}")
    asyncio.run(_until_told(job))
