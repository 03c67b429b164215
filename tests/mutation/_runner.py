"""Which tests notice a mutant.

One process collects the tests and runs each once, to learn which lines it reaches.  Then it forks
for each mutant: the child puts the changed code into the functions, and runs the tests that reach
it, the quick ones first, until one fails.  What takes effect at import only (constants, defaults,
class bodies), or may do so, is imported anew in a process of its own.

The tests run in children of the process that imported them.  What was made at import would refuse
to serve a forked child; so each child resets the count of forks (`_own_everything`).
"""

from __future__ import annotations

import gc
import importlib.machinery
import json
import mmap
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import pytest

from ._mutants import Mutant

__all__ = ("BaselineError", "Group", "Outcome", "run")

OPTIONS: Final = (
    *("-q", "-x", "-p", "no:cacheprovider", "-m", "not stress"),
    "--timeout=0",  # who forked it has patience
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of hypothesis, see below
)
MEMORY: Final = 4 << 30  # bytes of address space: a list that grows for ever is a mistake noticed

COLD: Final = "it has to be imported"

CPU: Final = 4  # seconds, besides what the tests take when they are traced, which is far more
PATIENCE: Final = 20  # how many times as long a test may take by the clock, on a busy machine,
HANGS: Final = 10  # besides these seconds


class BaselineError(Exception):
    """The tests fail without any mutant."""


@dataclass(frozen=True, slots=True)
class Group:
    """What is looked at together.

    Attributes:
        files: the modules, absolute; by module.
        tests: files and directories.
        mutants: of all of these modules.
    """

    files: dict[str, str]
    tests: list[str]
    mutants: list[Mutant]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        mutant: which one.
        by: the test that failed; "time" or "import"; None if it survived.
    """

    mutant: Mutant
    by: str | None


@dataclass(slots=True)
class _Reach:
    """What the tests reach.

    Attributes:
        imported: the lines of each module that run at import.
        lines: the lines of each module that a test runs; None for all of them.
        seconds: the processor time that it takes, traced.
    """

    imported: dict[str, set[int]]
    lines: dict[str, dict[str, set[int]] | None] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def run(group: Group, jobs: int, tell: Callable[[Outcome], None]) -> list[Outcome]:
    """Try every mutant of a group; raise BaselineError if its tests fail anyway."""
    assert "aiocosid" not in sys.modules, "it has to be imported in the children"
    outcomes: list[Outcome] = []
    again: list[Mutant] = []
    said: dict[str, Any] = {"failed": "they cannot be collected"}
    for said in _said_by_child(lambda say: _collect(group, jobs, say)):
        if "index" in said:
            mutant = group.mutants[said["index"]]
            if said["again"]:
                again.append(mutant)
            else:
                outcomes.append(Outcome(mutant, said["by"]))
                tell(outcomes[-1])
    if "failed" in said:
        raise BaselineError(said["failed"])
    tests: dict[str, dict[str, float]] = said["tests"]
    make = partial(_Cold, group, tests)
    for outcome in _in_children(again, jobs, make):
        outcomes.append(outcome)
        tell(outcome)
    return sorted(outcomes, key=lambda each: group.mutants.index(each.mutant))


Say = Callable[[dict[str, Any]], None]


def _said_by_child(work: Callable[[Say], None]) -> Iterator[dict[str, Any]]:
    """Fork, and yield what the child says."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _leave_at_end(lambda: work(lambda said: _write_line(writing, said)))
    os.close(writing)
    with os.fdopen(reading) as lines:
        for line in lines:
            yield json.loads(line)
    os.waitpid(pid, 0)


def _write_line(writing: int, said: dict[str, Any]) -> None:
    line = json.dumps(said).encode() + b"\n"
    while line:
        line = line[os.write(writing, line) :]


# A child for each mutant


class _Child:
    """What is done for one mutant; returns the test that fails."""

    def __call__(self) -> str | None:
        raise NotImplementedError

    @property
    def seconds(self) -> float:
        """How much processor time it takes if nothing fails."""
        raise NotImplementedError


def _leave_at_end(work: Callable[[], object]) -> None:
    status = 70
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001  # a child must not go on in its parent's place
        traceback.print_exc()
    finally:
        os._exit(status)


def _in_children(
    todo: list[Mutant], jobs: int, make: Callable[[Mutant], _Child]
) -> Iterator[Outcome]:
    waiting = list(reversed(todo))
    running: dict[int, tuple[Mutant, Path, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            child = make(mutant)
            folder = Path(tempfile.mkdtemp(prefix="mutant-"))
            pid = os.fork()
            if pid == 0:
                _leave_at_end(partial(_confined, child, folder))
            running[pid] = mutant, folder, time.monotonic() + PATIENCE * (1 + child.seconds)
        time.sleep(0.005)
        for pid, (mutant, folder, deadline) in list(running.items()):
            ended, _ = os.waitpid(pid, os.WNOHANG)
            if not ended and time.monotonic() < deadline:
                continue
            if not ended:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            del running[pid]
            said = folder / "by.json"
            by = json.loads(said.read_text()) if ended and said.exists() else "time"
            shutil.rmtree(folder, ignore_errors=True)
            yield Outcome(mutant, by)


def _confined(child: _Child, folder: Path) -> None:
    limit = CPU + int(child.seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _be_silent()
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
    by = child()
    (folder / "by.tmp").write_text(json.dumps(by))
    (folder / "by.tmp").rename(folder / "by.json")


def _be_silent() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)


# The process that collects the tests


def _prepare_hypothesis() -> None:
    """Let it draw the same examples each time, and not polish what it found."""
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "mutants",
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutants")


def _collect(group: Group, jobs: int, say: Say) -> None:
    _prepare_hypothesis()
    hot = _Hot(group, jobs, say)
    _be_silent()
    hot.tracer.start()
    pytest.main([*OPTIONS, "-s", *group.tests], plugins=[hot])


class _Tracer:
    """Notes the lines of some files that are run, also by forked children."""

    def __init__(self, files: dict[str, str]) -> None:
        self._seen = {file: (module, mmap.mmap(-1, 10_000)) for module, file in files.items()}

    def start(self) -> None:
        self.take()
        sys.settrace(self._call)

    @property
    def is_on(self) -> bool:
        return sys.gettrace() == self._call

    def take(self) -> dict[str, set[int]]:
        """Return what was run since it was asked last."""
        taken: dict[str, set[int]] = {}
        for module, seen in self._seen.values():
            content = seen[:]
            taken[module] = {line for line, was_run in enumerate(content) if was_run}
            seen[:] = bytes(len(content))
        return taken

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        known = self._seen.get(frame.f_code.co_filename)
        if known is None:
            return None
        seen = known[1]

        def line(frame: FrameType, event: str, arg: object) -> Any:
            seen[frame.f_lineno] = 1
            return line

        return line(frame, event, arg)


class _Watch:
    """A plugin that knows the first test that failed."""

    def __init__(self) -> None:
        self.failed: str | None = None
        self.how = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed, self.how = report.nodeid, report.longreprtext


class _Hot(_Watch):
    """A plugin that runs the tests in its own way."""

    def __init__(self, group: Group, jobs: int, say: Say) -> None:
        super().__init__()
        self.group, self.jobs, self.say = group, jobs, say
        self.tracer = _Tracer(group.files)
        self.reach = _Reach({})
        self.killers: dict[tuple[str, str], dict[str, None]] = {}  # the last one last

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.settrace(None)
        self.reach.imported = self.tracer.take()
        failed = self._learn(session.items) if session.items else "there are none"
        if failed is not None:
            self.say({"failed": failed})
            return True
        functions = _functions(set(self.group.files.values()))
        gc.collect()
        gc.freeze()  # a collection in a child need not copy what it shares
        index_of = {id(mutant): index for index, mutant in enumerate(self.group.mutants)}
        warm = [each for each in self.group.mutants if _is_in_function(each)]
        for each in self.group.mutants:
            if not _is_in_function(each):
                self.say({"index": index_of[id(each)], "again": True})
        for outcome in _in_children(
            warm, self.jobs, lambda each: _Warm(self, each, session.items, functions)
        ):
            mutant, by = outcome.mutant, outcome.by
            if by is not None and by not in {COLD, "time"}:
                killers = self.killers.setdefault((mutant.module, mutant.function), {})
                killers.pop(by, None)
                killers[by] = None
            at_import = self.reach.imported[mutant.module].intersection(_lines(mutant))
            again = by == COLD or (by is None and bool(at_import))
            self.say({"index": index_of[id(mutant)], "by": by, "again": again})
        self.say({"tests": {module: self._tests_of(module) for module in self.group.files}})
        return True

    def _tests_of(self, module: str) -> dict[str, float]:
        """Return all tests, those first that reach a module, and of these the quick ones."""
        seconds, lines = self.reach.seconds, self.reach.lines

        def rank(test: str) -> tuple[bool, float]:
            its = lines[test]
            return its is not None and not its[module], seconds[test]

        return {each: seconds[each] for each in sorted(seconds, key=rank)}

    def tests_for(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach a mutant: those that killed its neighbours, the quick."""
        wanted, lines, seconds = _lines(mutant), self.reach.lines, self.reach.seconds
        tests = [
            each
            for each in seconds
            if (its := lines[each]) is None or not its[mutant.module].isdisjoint(wanted)
        ]
        killers = list(self.killers.get((mutant.module, mutant.function), {}))
        rank = {test: index for index, test in enumerate(reversed(killers))}
        return sorted(tests, key=lambda each: (rank.get(each, len(rank)), seconds[each]))

    def _learn(self, items: list[pytest.Item]) -> str | None:
        """Run all the tests once, in a child, so that these items are as new."""
        told: dict[str, Any] = {}
        for told in _said_by_child(lambda say: self._trace(items, say)):
            if "test" in told:
                lines, test = told["lines"], told["test"]
                self.reach.seconds[test] = told["seconds"]
                self.reach.lines[test] = lines and {each: set(lines[each]) for each in lines}
        failed: str | None = told.get("failed", "they end in the middle")
        return failed

    def _trace(self, items: list[pytest.Item], say: Say) -> None:
        _own_everything()
        for item, following in zip(items, [*items[1:], None], strict=True):
            began = time.process_time()
            real = sys.settrace
            counting = sys.settrace = _Counting(real)
            self.tracer.start()
            _run_item(item, following)
            sys.settrace = real
            sys.settrace(None)
            lines = {module: sorted(each) for module, each in self.tracer.take().items()}
            its = lines if counting.calls == 1 else None  # it traces itself: all may be reached
            say({"test": item.nodeid, "seconds": time.process_time() - began, "lines": its})
            if self.failed is not None:
                break
        say({"failed": self.failed and f"{self.failed}\n{self.how}"})


class _Counting:
    """Stands for `sys.settrace`: a test that uses it hides its lines from us."""

    def __init__(self, real: Callable[[Any], None]) -> None:
        self.real, self.calls = real, 0

    def __call__(self, function: Any) -> None:
        self.calls += 1
        self.real(function)


def _be_patient(seconds: float) -> None:
    """End the process, by a signal that nobody handles, if the test does not end."""
    signal.setitimer(signal.ITIMER_REAL, HANGS + PATIENCE * seconds)


def _own_everything() -> None:
    """Let this child use what its parent made at import, such as the memory store of a URL."""
    fork: Any = sys.modules["aiocosid._life.fork"]
    fork.generation = 0


def _run_item(item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


class _Warm(_Child):
    """Code is exchanged in functions that are there already."""

    def __init__(
        self, hot: _Hot, mutant: Mutant, items: list[pytest.Item], functions: list[FunctionType]
    ) -> None:
        by_name = {each.nodeid: each for each in items}
        self.watch, self.mutant, self.functions = hot, mutant, functions
        self.items = [by_name[each] for each in hot.tests_for(mutant)]
        self.seconds_of = hot.reach.seconds
        self._seconds = sum(self.seconds_of[each.nodeid] for each in self.items)

    @property
    def seconds(self) -> float:
        return self._seconds

    def __call__(self) -> str | None:
        if not _exchange(self.mutant, self.functions):
            return COLD
        _own_everything()
        for item, following in zip(self.items, [*self.items[1:], None], strict=False):
            _be_patient(self.seconds_of[item.nodeid])
            _run_item(item, following)
            if self.watch.failed is not None:
                return self.watch.failed
        return None


class _Cold(_Child):
    """The module is imported with the mutant, and all tests are run."""

    def __init__(self, group: Group, tests: dict[str, dict[str, float]], mutant: Mutant) -> None:
        self.group, self.mutant, self.tests = group, mutant, tests[mutant.module]

    @property
    def seconds(self) -> float:
        return 5.0 + sum(self.tests.values())

    def __call__(self) -> str | None:
        mutant, path = self.mutant, self.group.files[self.mutant.module]
        get_code = importlib.machinery.SourceFileLoader.get_code

        def get_mutant(loader: Any, fullname: str) -> CodeType | None:
            is_it: bool = loader.get_filename(fullname) == path
            return mutant.code if is_it else get_code(loader, fullname)

        setattr(importlib.machinery.SourceFileLoader, "get_code", get_mutant)  # noqa: B010
        _prepare_hypothesis()
        watch = _Ordered(self.tests)
        status = pytest.main([*OPTIONS, *self.group.tests], plugins=[watch])
        return watch.failed or (None if status == pytest.ExitCode.OK else "import")


class _Ordered(_Watch):
    """A plugin that runs the tests in another order."""

    def __init__(self, tests: dict[str, float]) -> None:
        super().__init__()
        self.seconds_of = tests
        self.rank = {test: index for index, test in enumerate(tests)}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        _be_patient(self.seconds_of[item.nodeid])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda each: self.rank[each.nodeid])


# Code


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _is_in_function(mutant: Mutant) -> bool:
    """Tell whether the code of a function differs, and not that of a module or a class."""
    new_locals = 2  # CO_NEWLOCALS: no class
    return any(
        each.co_qualname.replace(".<locals>", "") == mutant.function and each.co_flags & new_locals
        for each in _codes(mutant.code)
    )


def _lines(mutant: Mutant) -> range:
    return range(mutant.first, mutant.last + 1)


def _functions(files: set[str]) -> list[FunctionType]:
    """Return all functions of these files that are there."""
    gc.unfreeze()  # tests/conftest.py freezes what was imported: get_objects() would leave it out
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType) and each.__code__.co_filename in files
    ]


def _exchange(mutant: Mutant, functions: list[FunctionType]) -> bool:
    """Put the mutant's code into the functions; False if that cannot be done."""
    new = {(each.co_qualname, each.co_firstlineno): each for each in _codes(mutant.code)}
    done = False
    for function in functions:
        code = function.__code__
        if code.co_filename != mutant.code.co_filename:
            continue
        instead = new.get((code.co_qualname, code.co_firstlineno))
        if instead is None or instead == code:
            continue
        if instead.co_freevars != code.co_freevars:  # without super(), for one
            return False
        function.__code__ = instead
        done = True
    return done
