"""Which tests notice a mutant.

One process collects the tests and runs each once, to learn which lines it reaches.  Then it forks
for each mutant: the child puts the changed code into the functions, and runs the tests that reach
it, the quick ones first, until one fails.  What takes effect at import only (constants, defaults,
class bodies), or may do so, is imported anew in a process of its own.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import pytest

from ._mutants import Mutant

__all__ = ("BaselineError", "Group", "Outcome", "run")

OPTIONS: Final = (
    *("-q", "-x", "-p", "no:cacheprovider", "-m", "not stress"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of hypothesis, see below
)
MEMORY: Final = 4 << 30  # bytes of address space: a list that grows for ever is a mistake noticed

PATIENCE: Final = 5.0  # seconds, and ten times what the tests take
CPU: Final = 4  # seconds, and four times what the tests take


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
        seconds: how long it takes.
    """

    imported: dict[str, set[int]]
    lines: dict[str, dict[str, set[int]] | None] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def run(group: Group, jobs: int, tell: Callable[[Outcome], None]) -> list[Outcome]:
    """Try every mutant of a group; raise BaselineError if its tests fail anyway."""
    assert "aiocosid" not in sys.modules, "it has to be imported in the children"
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        result = Path(folder, "hot.json")
        pid = os.fork()
        if pid == 0:
            _leave_at_end(lambda: _collect(group, jobs, result))
        os.waitpid(pid, 0)
        if not result.exists():
            raise BaselineError("the tests cannot be collected")
        hot: dict[str, Any] = json.loads(result.read_text())
    if "failed" in hot:
        raise BaselineError(hot["failed"])
    outcomes: list[Outcome] = []
    again: list[Mutant] = []
    for mutant, (by, is_last_word) in zip(group.mutants, hot["outcomes"], strict=True):
        if by is None and not is_last_word:
            again.append(mutant)
        else:
            outcomes.append(Outcome(mutant, by))
            tell(outcomes[-1])
    for outcome in _in_children(again, jobs, lambda each: _Cold(group, each, hot["seconds"])):
        outcomes.append(outcome)
        tell(outcome)
    return sorted(outcomes, key=lambda each: group.mutants.index(each.mutant))


# A child for each mutant


class _Child:
    """What is done for one mutant; returns the test that fails."""

    def __call__(self) -> str | None:
        raise NotImplementedError

    @property
    def seconds(self) -> float:
        """How long it takes if nothing fails."""
        raise NotImplementedError


def _leave_at_end(work: Callable[[], object]) -> None:
    status = 70
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001  # a child must not go on in its parent's place
        sys.excepthook(*sys.exc_info())
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
                _leave_at_end(lambda child=child, folder=folder: _confined(child, folder))
            running[pid] = mutant, folder, time.monotonic() + PATIENCE + 10 * child.seconds
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
    limit = CPU + int(4 * child.seconds)
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


def _collect(group: Group, jobs: int, result: Path) -> None:
    _prepare_hypothesis()
    hot = _Hot(group, jobs)
    output = os.dup(2)
    _be_silent()
    try:
        hot.tracer.start()
        pytest.main([*OPTIONS, "-s", *group.tests], plugins=[hot])
    finally:
        os.dup2(output, 2)
    if hot.result is not None:
        result.write_text(json.dumps(hot.result))


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

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid


class _Hot(_Watch):
    """A plugin that runs the tests in its own way."""

    def __init__(self, group: Group, jobs: int) -> None:
        super().__init__()
        self.group, self.jobs = group, jobs
        self.tracer = _Tracer(group.files)
        self.result: dict[str, Any] | None = None

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.settrace(None)
        reach = _Reach(self.tracer.take())
        if not session.items:
            return True
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            self._learn(session.items, Path(folder, "reach.json"), reach)
        if self.result is not None:
            return True
        found: dict[int, tuple[str | None, bool]] = {}
        todo: list[Mutant] = []
        at = {id(mutant): index for index, mutant in enumerate(self.group.mutants)}
        for index, mutant in enumerate(self.group.mutants):
            found[index] = None, False
            if _body(mutant) is not None:
                todo.append(mutant)
        functions = _functions(set(self.group.files.values()))
        gc.collect()
        gc.freeze()  # a collection in a child need not copy what it shares
        for outcome in _in_children(
            todo, self.jobs, lambda each: _Warm(self, each, session.items, reach, functions)
        ):
            lines = range(outcome.mutant.first, outcome.mutant.last + 1)
            at_import = reach.imported[outcome.mutant.module].intersection(lines)
            found[at[id(outcome.mutant)]] = outcome.by, not at_import
        outcomes = [found[index] for index in range(len(found))]
        self.result = {"outcomes": outcomes, "seconds": sum(reach.seconds.values())}
        return True

    def _learn(self, items: list[pytest.Item], file: Path, reach: _Reach) -> None:
        """Run all the tests once, in a child, so that these items are as new."""
        pid = os.fork()
        if pid == 0:
            _leave_at_end(lambda: self._trace(items, file))
        os.waitpid(pid, 0)
        told: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        if told.get("failed", "the tests end in the middle") is not None:
            self.result = {"failed": told.get("failed", "the tests end in the middle")}
            return
        for test, (seconds, lines) in told["tests"].items():
            reach.seconds[test] = seconds
            reach.lines[test] = lines and {each: set(lines[each]) for each in lines}

    def _trace(self, items: list[pytest.Item], file: Path) -> None:
        tests: dict[str, tuple[float, dict[str, list[int]] | None]] = {}
        for item, following in zip(items, [*items[1:], None], strict=True):
            began = time.perf_counter()
            before, sys.settrace = sys.settrace, _Counting(sys.settrace)
            self.tracer.start()
            _run_item(item, following)
            sys.settrace, counting = before, sys.settrace
            sys.settrace(None)
            lines = {module: sorted(each) for module, each in self.tracer.take().items()}
            traces_itself = counting.calls > 1
            tests[item.nodeid] = time.perf_counter() - began, None if traces_itself else lines
            if self.failed is not None:
                break
        file.write_text(json.dumps({"failed": self.failed, "tests": tests}))


class _Counting:
    """Stands for `sys.settrace`: a test that uses it hides its lines from us."""

    def __init__(self, real: Callable[[Any], None]) -> None:
        self.real, self.calls = real, 0

    def __call__(self, function: Any) -> None:
        self.calls += 1
        self.real(function)


def _run_item(item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


class _Warm(_Child):
    """Code is exchanged in functions that are there already."""

    def __init__(
        self,
        watch: _Watch,
        mutant: Mutant,
        items: list[pytest.Item],
        reach: _Reach,
        functions: list[FunctionType],
    ) -> None:
        self.watch, self.mutant, self.functions = watch, mutant, functions
        self.items: list[pytest.Item] = []
        self._seconds = 0.0
        wanted = range(mutant.first, mutant.last + 1)
        for item in sorted(items, key=lambda each: reach.seconds[each.nodeid]):
            lines = reach.lines[item.nodeid]
            if lines is None or not lines[mutant.module].isdisjoint(wanted):
                self.items.append(item)
                self._seconds += reach.seconds[item.nodeid]

    @property
    def seconds(self) -> float:
        return self._seconds

    def __call__(self) -> str | None:
        _exchange(self.mutant, self.functions)
        for index, item in enumerate(self.items):
            following = self.items[index + 1] if index + 1 < len(self.items) else None
            _run_item(item, following)
            if self.watch.failed is not None:
                return self.watch.failed
        return None


class _Cold(_Child):
    """The module is imported with the mutant, and all tests are run."""

    def __init__(self, group: Group, mutant: Mutant, seconds: float) -> None:
        self.group, self.mutant, self._seconds = group, mutant, seconds

    @property
    def seconds(self) -> float:
        return self._seconds

    def __call__(self) -> str | None:
        mutant, path = self.mutant, self.group.files[self.mutant.module]
        get_code = importlib.machinery.SourceFileLoader.get_code

        def get_mutant(loader: Any, fullname: str) -> CodeType | None:
            is_it: bool = loader.get_filename(fullname) == path
            return mutant.code if is_it else get_code(loader, fullname)

        importlib.machinery.SourceFileLoader.get_code = get_mutant  # type: ignore[method-assign]
        _prepare_hypothesis()
        watch = _Watch()
        status = pytest.main([*OPTIONS, *self.group.tests], plugins=[watch])
        return watch.failed or (None if status == pytest.ExitCode.OK else "import")


# Code


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _body(mutant: Mutant) -> CodeType | None:
    """Return the function whose code differs; None if it is not inside of one."""
    inside = [
        each
        for each in _codes(mutant.code)
        if each.co_qualname == mutant.function and each.co_flags & 2  # CO_NEWLOCALS: no class
    ]
    return inside[0] if inside else None


def _functions(files: set[str]) -> list[FunctionType]:
    """Return all functions of these files that are there."""
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType) and each.__code__.co_filename in files
    ]


def _exchange(mutant: Mutant, functions: list[FunctionType]) -> None:
    new = {(each.co_qualname, each.co_firstlineno): each for each in _codes(mutant.code)}
    for function in functions:
        code = function.__code__
        if code.co_filename != mutant.code.co_filename:
            continue
        instead = new.get((code.co_qualname, code.co_firstlineno))
        if instead is not None and instead != code and instead.co_freevars == code.co_freevars:
            function.__code__ = instead
