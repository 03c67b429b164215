"""One process that takes ids until SIGTERM."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import cast

from aiocosid.abc import IdGenerator
from aiocosid.abc.events import Event
from aiocosid.errors import CosIdError, ForkedError
from aiocosid.machine import MachineIdLease

from ._history import HISTORY, History, RecordedGenerator
from ._job import Job
from ._record import IDS, MIXED, NOTES, Notes, Record

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
        self.left = job.ids or sys.maxsize
        self.openings = 0
        self.children: list[int] = []
        self._records: dict[str, Record] = {}
        self._until = 0.0  # monotonic; when the generator is closed
        self._recorded: RecordedGenerator | None = None
        name = f"{job.worker}{HISTORY}"
        self._history = History(job.histories / name) if job.histories else None

    def on_event(self, event: Event) -> None:
        """Note what shows that a fault was felt."""
        if self._recorded is not None:
            self._recorded.on_event(event)
        if type(event).__name__ in FELT:
            self.notes.say(type(event).__name__)

    async def run(self) -> None:
        """Until told to stop, or until all ids are taken."""
        while not self.stop.is_set() and self.left > 0:
            self.openings += 1
            began = time.monotonic()
            if self._history is not None:
                name = f"{self.job.worker}.{self.openings}"
                self._recorded = self.job.history(self._history, name)
            try:
                async with AsyncExitStack() as stack:
                    opened = await stack.enter_async_context(self.job.opened(self))
                    began = 0.0
                    await self._use(*opened)
            except REFUSALS as error:
                self.notes.error(error)
                if began:
                    self.notes.waited(time.monotonic() - began)
                await asyncio.sleep(PATIENCE)
        self._collect(0)

    async def _use(self, generator: IdGenerator, lease: MachineIdLease | None) -> None:
        self._until = time.monotonic() + (self.job.life or float("inf"))
        recorded = self._recorded
        if recorded is not None:
            recorded.is_open(generator, lease)
            generator = cast("IdGenerator", recorded)
        try:
            async with asyncio.TaskGroup() as group:
                takers = [
                    group.create_task(self._take_all(generator, lease, str(number)))
                    for number in range(self.job.tasks)
                ]
                if self.job.fork_every:
                    group.create_task(self._fork_now_and_then(generator, takers))
        finally:
            if recorded is not None:
                recorded.end()

    @property
    def _goes_on(self) -> bool:
        """Whether ids are to be taken from the generator that is open."""
        return not self.stop.is_set() and self.left > 0 and time.monotonic() < self._until

    async def _take_all(
        self, generator: IdGenerator, lease: MachineIdLease | None, task: str
    ) -> None:
        """Until told to stop, or until the generator has ended."""
        turn = 0
        while self._goes_on:
            turn += 1
            began, term = time.monotonic(), lease.term if lease else 0
            taken: list[int] = []
            try:
                async with self._at_random():
                    await self._take(generator, taken, turn)
            except TimeoutError:
                self.notes.say("cancelled")
            except REFUSALS as error:
                self.notes.error(error)
                if not getattr(error, "retryable", True):
                    return
                await asyncio.sleep(PATIENCE)
            finally:
                if taken:
                    self._use_up(taken, task, term, lease)
            self.notes.waited(time.monotonic() - began)
            await asyncio.sleep(self.job.pause)

    async def _take(self, generator: IdGenerator, taken: list[int], turn: int) -> None:
        job = self.job
        if job.batch and (turn % 2 or not job.singles):
            taken += await generator.next_ids(job.batch)
            return
        for _ in range(job.singles):
            taken.append(await generator.next_id())  # what came is kept if the next fails

    @asynccontextmanager
    async def _at_random(self) -> AsyncGenerator[None]:
        """Cancel what is done here, at a moment that nobody chose."""
        if not self.job.cancel:
            yield
            return
        async with asyncio.timeout(random.random() * self.job.cancel):  # noqa: S311 - any
            yield

    def _use_up(self, taken: list[int], task: str, term: int, lease: MachineIdLease | None) -> None:
        """Write ids down; those that cannot be written are not used."""
        mixed = lease is not None and lease.term != term
        try:
            self._record(task, term, lease, mixed=mixed).add(taken)
            self.left -= len(taken)
        except (OSError, MemoryError):
            self.notes.say("unrecorded")

    def _record(self, task: str, term: int, lease: MachineIdLease | None, *, mixed: bool) -> Record:
        """Return the record of a task; a new one with each machine id, for who owns it is told."""
        tenure = f".{self.openings}.{term}" if lease else ""
        name = f"{self.job.worker}.{task}{tenure}{MIXED if mixed else IDS}"
        found = self._records.get(name)
        if found is None:
            if lease:
                self._close_records(f"{self.job.worker}.{task}.")
            found = self._records[name] = Record(self.job.folder / name)
        return found

    def _close_records(self, prefix: str) -> None:
        for name in [each for each in self._records if each.startswith(prefix)]:
            self._records.pop(name).close()

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
        name = f"{job.worker}-{os.getpid()}"
        with Record(job.folder / f"{name}.parent{IDS}") as record:
            _refused(generator.next_id_nowait, record, notes)
            _refused(lambda: _driven(generator), record, notes)
        mine = Worker(replace(job, worker=name, fork_every=0.0, tasks=1))
        asyncio.run(_for_a_while(mine))
        notes.say("child")
    os._exit(0)


def _refused(take: Callable[[], int], record: Record, notes: Notes) -> None:
    try:
        record.add([take()])
    except ForkedError:
        notes.say("refused")


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
    """Do a job; what goes wrong is in a file beside the record."""
    job = Job.from_json(text)
    errors = os.open(job.folder / f"{job.worker}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(errors, 2)
    random.seed(f"{job.worker} {time.time_ns()}")
    asyncio.run(_until_told(job))
