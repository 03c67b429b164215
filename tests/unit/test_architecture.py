"""Who may import whom, what stays pure, who reads the clock, and how big things may get.

The table is in _rooms, and from there on docs/contributing.md.
"""

from __future__ import annotations

import ast
import graphlib
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from aiocosid.abc import Store
from tests.script import run_python

from ._rooms import MAY_IMPORT, PAGE, page
from ._source import PACKAGE, Function, Import, Module, dotted, imports, load, room_of

TESTS: Final = Path(__file__).parents[1]

MODULES = load()
KNOWN = set(MODULES)

PURE = (
    *("abc/checks.py", "abc/dates.py", "abc/shards.py"),
    "segment/_group_key.py",
    "segment/chain.py",
    "segment/pace.py",
    *("compat/_stamps.py", "compat/_table.py", "compat/_url.py"),
    "segment/_double_buffer.py",
    *("_life/atomic_step.py", "_life/waiting_line.py"),
    "snowflake/_clearance.py",
    "snowflake/_cosid_state.py",
    "snowflake/_friendly.py",
    *(
        "machine/losses.py",
        "machine/restart.py",
        "machine/rules.py",
        "machine/cells.py",
    ),
    "snowflake/_layout.py",
    "snowflake/_ring.py",
    "snowflake/_sequencer.py",
    *("snowflake/_batch_size.py", "snowflake/_seconds_in_hand.py", "snowflake/_sharded_layout.py"),
    "snowflake/_availability.py",
    "converter/",
    "sharding/",
    "integrations/_line_limit.py",
    *("stores/_dialect.py", "stores/_url.py"),
    *("server/_attention.py", "server/_condition.py", "server/_curves.py"),
    *("server/_page.py", "server/_parse.py", "server/_view.py"),
    "cli/_findings.py",
    *("provider/settings/_places.py", "provider/settings/_warnings.py"),
)
IMPURE_IMPORTS = {
    *("anyio", "asyncio", "logging", "os", "random", "secrets", "socket", "threading", "time"),
}

# A wall clock, a monotonic clock, or a timer; by the last name, whatever it hangs on.
CLOCKS = {"current_time", "now", "time", "today", "utcnow"}  # loop.time() among them
TIMERS = {"call_at", "call_later", "sleep", "sleep_until"}
KEEPS_TIME = {"testing"}
THE_CLOCK = "_life/clock.py"
MAKES_A_USER_WAIT = {
    "cli/_session.py",
    "cli/_renewer.py",
    "cli/_supervisor.py",
}  # by real seconds, as nothing else does
# A scrape and a summary of log lines come in real seconds, too.
WRITE_LATER = {"integrations/failures.py", "integrations/prometheus.py"}

# A cohesive module of 500 lines is better than two that call each other.
MAX_MODULE_LINES = 700
LONGER = {
    "provider/kinds.py": 740,  # every kind, one after the other
    "machine/rules.py": 740,  # every rule about machine ids, which are read as one
}
MAX_FUNCTION_LINES = 25  # for nine in ten
MAX_PUBLIC_METHODS = 12
MORE_METHODS = {
    "Backend": 17,  # what a server does: its life, counters, cells
    "MemoryBackend": 13,  # the same, and what it does without a suspension
    "MachineStore": 13,  # what an operator does with machine ids
    "RemoteStore": 14,  # the same, each sent to the server
    "KindMethods": 14,  # one for each kind of generator
}

OTHERS = (
    *("aiosqlite", "asyncmy", "asyncpg", "cryptography", "django", "fastapi", "hiredis"),
    "opentelemetry",
    *("prometheus_client", "pydantic", "redis", "rich", "sqlalchemy", "sqlite3", "typer"),
    *("aetcd", "grpc", "kazoo", "nats"),
    *("_pytest", "click", "pytest", "trio"),
)


def misplaced_imports(module: Module, known: set[str]) -> Iterator[str]:
    """Name what a module imports although its room may not; for types, and in functions, too."""
    allowed = MAY_IMPORT.get(module.room)
    if allowed is None:
        yield f"{module.name}: room {module.room!r} has no place on a floor"
        return
    for found in imports(module, known):
        top, room = found.module.split(".")[0], room_of(found.module)
        if top != PACKAGE or (room == module.room and room):
            continue
        if room not in allowed:
            yield f"{module.name} imports {found.module}"
        elif is_inside(found.module):
            yield f"{module.name} imports {found.module}, which is private to its room"


def is_inside(module: str) -> bool:
    """Tell whether a module is private to a room; a room may itself be private to the package."""
    return any(part.startswith("_") for part in module.split(".")[2:])


def impurities(module: Module) -> Iterator[str]:
    """Name what a pure module must not hold."""
    for found in imports(module, KNOWN):
        if not found.for_types and found.module.split(".")[0] in IMPURE_IMPORTS:
            yield f"{module.name} imports {found.module}"
    for top in module.tree.body:
        if isinstance(top, ast.ClassDef) and any(dotted(b) == "Protocol" for b in top.bases):
            continue  # what others have to be able to do
        yield from waits(module, top)


def waits(module: Module, tree: ast.AST) -> Iterator[str]:
    """Name where a piece of a module waits."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"{module.name}:{node.lineno} {type(node).__name__}"


def clock_reads(module: Module) -> Iterator[str]:
    """Name where a module reads a clock or sets a timer instead of asking its `Clock`."""
    for found in imports(module, KNOWN):
        if found.module.split(".")[0] == "time":
            yield f"{module.name} imports time"
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        owner, _, name = called.rpartition(".")
        if owner.lower().endswith("clock"):
            continue  # the seam itself
        zero = [ast.dump(argument) for argument in node.args] == [ast.dump(ast.Constant(0))]
        if name in CLOCKS or (name in TIMERS and not zero):
            yield f"{module.name}:{node.lineno} {called}()"


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return one cycle of the graph, or nothing."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def functions(modules: Iterable[Module]) -> dict[str, int]:
    """Return the length of every function in lines, by its place."""
    return {
        f"{module.path}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, Function)
    }


def public_methods(node: ast.ClassDef) -> list[str]:
    """Name a class's public methods; no tests in a contract, properties or overloads."""
    return [
        child.name
        for child in node.body
        if isinstance(child, Function)
        and not child.name.startswith(("_", "test_"))
        and not any(
            dotted(mark).endswith(("property", "setter", "overload"))
            for mark in child.decorator_list
        )
    ]


def own_methods(node: ast.ClassDef) -> list[str]:
    """Name a class's public methods, of a store without those that its contract demands."""
    is_store = any(dotted(base) == "Store" for base in node.bases)
    return [name for name in public_methods(node) if not (is_store and hasattr(Store, name))]


def test_a_room_imports_only_what_it_may() -> None:
    assert [line for m in MODULES.values() for line in misplaced_imports(m, KNOWN)] == []


def test_the_page_shows_the_table() -> None:
    """``python -m tests.unit._rooms`` writes it anew."""
    text = PAGE.read_text()
    assert text == page(text)


def test_there_is_no_import_cycle() -> None:
    graph = {
        name: {i.module for i in imports(m, KNOWN) if not (i.for_types or i.deferred)} & KNOWN
        for name, m in MODULES.items()
    }
    assert cycle(graph) == []


def test_there_is_no_circle_of_rooms() -> None:
    """Not even one that is hidden in functions."""
    graph: dict[str, set[str]] = {module.room: set() for module in MODULES.values()}
    for module in MODULES.values():
        found = {i.module for i in imports(module, KNOWN) if not i.for_types} & KNOWN
        graph[module.room] |= {room_of(name) for name in found} - {module.room}
    assert cycle(graph) == []


def test_pure_modules_are_pure() -> None:
    pure = [m for m in MODULES.values() if m.path.startswith(PURE)]
    assert [path for path in PURE if not any(m.path.startswith(path) for m in pure)] == []
    assert [line for m in pure for line in impurities(m)] == []


def test_only_the_clock_reads_a_clock_or_sleeps() -> None:
    others = [m for m in MODULES.values() if m.room not in KEEPS_TIME]
    others = [m for m in others if m.path not in {THE_CLOCK, *MAKES_A_USER_WAIT, *WRITE_LATER}]
    assert [line for m in others for line in clock_reads(m)] == []


def test_modules_stay_small() -> None:
    lines = {m.path: len(m.source.splitlines()) for m in MODULES.values()}
    assert {p: n for p, n in lines.items() if n > LONGER.get(p, MAX_MODULE_LINES)} == {}


def test_nine_in_ten_functions_stay_small() -> None:
    lengths = functions(MODULES.values())
    longer = {place: n for place, n in lengths.items() if n > MAX_FUNCTION_LINES}
    assert len(longer) * 10 <= len(lengths), longer


def test_classes_stay_small() -> None:
    classes = {
        f"{m.path}:{node.lineno} {node.name}": own_methods(node)
        for m in MODULES.values()
        for node in ast.walk(m.tree)
        if isinstance(node, ast.ClassDef)
        and len(own_methods(node)) > MORE_METHODS.get(node.name, MAX_PUBLIC_METHODS)
    }
    assert classes == {}


# The same thing for two frameworks, under the name that a user of either looks for.
NAMESAKES = {"CosIdDefault"}


def test_no_two_classes_have_one_name() -> None:
    """But for those that are private to a module."""
    names = Counter(
        node.name
        for module in MODULES.values()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, times in names.items() if times > 1} == NAMESAKES


# Names that had two meanings, or none at the first reading; the glossary has the term instead.
BANNED_WORDS = {
    *("undivided", "asked", "translated", "listed", "judged", "told", "made", "lasts", "born"),
    *(
        "let_go",
        "look",
        "sent",
        "stand",
        "place_of",
        "claimed_by",
        "exhume",
        "bury",
        "tear",
        "wish",
    ),
    *("InnerLife", "Standing", "Stand", "Uncopied", "Keeper", "EntryText", "Wish"),
    *("LET_GO", "TEARS", "LAST_RITES"),
    *("CosId", "Asker", "Leasing", "Need", "Note", "Root", "Seat", "ServerFacts", "Space"),
    *("Stamping", "Taken", "Verb", "born_ms", "guard", "hurry", "mark_machines", "mark_ms"),
    *("open_store", "order", "revert", "revert_machine", "take_off", "turn", "weaknesses"),
}
BANNED_MODULES = {
    "strangers",
    "listing",
    "inner_life",
    "machine_texts",
    "keeper",
    "caller",
    "place",
}


def names_defined(module: Module) -> Iterator[str]:
    """The names of classes, functions, methods and of what a module assigns, but private ones."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        yield from (each.id for each in targets if isinstance(each, ast.Name))


def banned_names(module: Module) -> list[str]:
    found = BANNED_WORDS & set(names_defined(module))
    stem = module.path.removesuffix(".py").rpartition("/")[2].lstrip("_")
    return sorted(found | (BANNED_MODULES & {stem}))


def test_no_riddle_is_a_name() -> None:
    found = {m.path: banned_names(m) for m in MODULES.values()}
    assert {path: names for path, names in found.items() if names} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [m.path for m in MODULES.values() if not ast.get_docstring(m.tree)] == []


def test_what_is_mutated_exists() -> None:
    folder = TESTS / "mutation"
    groups = tomllib.loads((folder / "modules.toml").read_text())["group"]
    explained = tomllib.loads((folder / "equivalent.toml").read_text())["mutant"]
    mutated = {f"{each}.py" for group in groups for each in group["modules"]}
    tests = {each.partition("::")[0] for group in groups for each in group["tests"]}
    assert sorted(mutated - {module.path for module in MODULES.values()}) == []
    assert sorted(each for each in tests if not (TESTS / each).exists()) == []
    assert sorted({f"{each['module']}.py" for each in explained} - mutated) == []


def test_importing_loads_no_driver_and_no_extra() -> None:
    """Nor what a command line needs, or a runner of tests: a stranger's may be another one."""
    code = f"""
import json, sys
import {PACKAGE}, {PACKAGE}.cli, {PACKAGE}.compat.leaf_snowflake, {PACKAGE}.testing
print(json.dumps(sorted(sys.modules.keys() & {set(OTHERS)})))
"""
    assert run_python(code) == []


# The rules above are only as good as their eyes: each planted fault has to be seen.


def planted(path: str, source: str) -> Module:
    name = f"{PACKAGE}.{path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"
    return Module(name, path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("errors.py", "from .abc import Clock"),
        ("segment/_x.py", "from .. import provider"),
        ("segment/_x.py", "from ..snowflake.x import Y"),
        ("segment/_x.py", "import aiocosid.stores.memory"),
        ("segment/__init__.py", "from ..provider import IdProvider as IdProvider"),
        ("stores/x.py", "from aiocosid import SegmentChainId"),
        ("stores/x.py", "from .. import __version__"),
        ("stores/x.py", "from ..testing import ManualClock"),
        ("provider/x.py", "def f():\n    from ..cli import main"),
        ("abc.py", "if TYPE_CHECKING:\n    from .segment import IdSegment"),
        ("cli/x.py", "from ..segment._stock import Stock"),
        ("compat/x.py", "from ..stores._watermark import HighWater"),
        ("compat/x.py", "if TYPE_CHECKING:\n    from ..stores._executor import Row"),
        ("nowhere/x.py", ""),
    ],
)
def test_a_misplaced_import_is_seen(path: str, source: str) -> None:
    assert list(misplaced_imports(planted(path, source), KNOWN)) != []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("abc.py", "if TYPE_CHECKING:\n    from .errors import CosIdError"),
        ("cli/x.py", "from ..provider import connect"),
        ("cli/x.py", "from ._table import draw"),
        (
            "compat/leaf/_x.py",
            "from .._table import CounterTable\nfrom ...abc.checks import check_text",
        ),
        ("compat/x.py", "from ..stores.sql import SqlExecutor"),
        ("provider/store_urls.py", "def f():\n    from ..stores import memory"),
        ("segment/_x.py", "import anyio\nfrom ..errors import ClosedError\nfrom .chain import X"),
    ],
)
def test_a_proper_import_is_let_through(path: str, source: str) -> None:
    assert list(misplaced_imports(planted(path, source), KNOWN)) == []


@pytest.mark.parametrize(
    "source", ["import time", "from os import path", "async def f(): ...", "import anyio.abc"]
)
def test_an_impurity_is_seen(source: str) -> None:
    assert list(impurities(planted("segment/chain.py", source))) != []


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("import time", True),
        ("from time import monotonic", True),
        ("anyio.sleep(1)", True),
        ("asyncio.sleep(delay)", True),
        ("sleep(0.1)", True),
        ("datetime.now(UTC)", True),
        ("loop.call_later(1, f)", True),
        ("anyio.current_time()", True),
        ("asyncio.get_running_loop().time()", True),
        ("anyio.sleep(0)", False),
        ("self._clock.sleep(1)", False),
        ("SYSTEM_CLOCK.sleep(1)", False),
        ("clock.now_ms()", False),
    ],
)
def test_a_clock_read_is_seen(source: str, *, seen: bool) -> None:
    assert bool(list(clock_reads(planted("segment/_x.py", source)))) is seen


def test_a_cycle_is_seen() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []


def test_relative_imports_are_resolved() -> None:
    module = planted("segment/_x.py", "from . import chain\nfrom ..abc import Clock")
    assert list(imports(module, KNOWN)) == [
        Import("aiocosid.segment.chain"),
        Import("aiocosid.abc"),
    ]


@pytest.mark.parametrize(
    ("path", "source", "seen"),
    [
        ("segment/_x.py", "class Keeper: ...", ["Keeper"]),
        ("segment/_x.py", "class C:\n    async def let_go(self): ...", ["let_go"]),
        ("segment/_x.py", "TEARS: Final = 3", ["TEARS"]),
        ("segment/_x.py", "LAST_RITES = 3", ["LAST_RITES"]),
        ("segment/_strangers.py", "", ["strangers"]),
        ("segment/_x.py", "class LeaseRenewer: ...", []),
    ],
)
def test_a_banned_name_is_seen(path: str, source: str, seen: list[str]) -> None:
    assert banned_names(planted(path, source)) == seen
