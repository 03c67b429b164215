"""What a user may import: complete, exact, documented, and loaded no sooner than asked for."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator

import pytest

import aiocosid
from aiocosid import errors

from ._source import Function, Module, load, public_modules

PUBLIC = {name: load()[name] for name in sorted(public_modules())}

# No user's, although no underscore says so; a store's own module may see them.
INTERNAL = {
    "aiocosid.machine.distributor": {
        *("FIRST_PAUSE", "LONGEST_PAUSE", "LONGEST_TRY", "SPREAD", "MOST_SPREAD", "MOST_ALARMS"),
        *("MAX_MACHINE_ID", "NONCE_BYTES", "STAMPS_REMEMBERED"),
        *("nonce", "twin"),
    },
    "aiocosid.stores.memory": {"MemoryBackend"},
    "aiocosid.stores.nats": {
        *("BIAS", "BUSY", "CONFLICT", "CREATE_TIMEOUT", "EXPECTED", "IS_THERE", "LOWEST"),
        *("MOST_PENDING", "MOST_SEATS", "NO_MESSAGE", "NO_STREAM", "OLDEST", "PAUSE", "PLACE"),
        *("REFUSALS", "STARTING", "T"),
        "NatsBackend",
    },
    "aiocosid.stores.striped": {
        *("EXPECTED", "FEWEST_STORES", "MOST_OPENINGS", "MOST_STORES", "MisplacedError"),
        *("ResidueClass", "STORE_TIMEOUT", "SUFFIX", "Stripe", "StripedIdSegmentDistributor"),
        *("UNIT", "UnopenedError", "highest_id"),
    },
    "aiocosid.stores.tiered": {
        *("CACHE_TIMEOUT", "Call", "DIGITS", "LOCAL", "MAX_SPAN", "Outage", "PAUSE", "POLL"),
        *("RELEASE_TIMEOUT", "SECRET", "SPAN", "SPANS", "T", "TierTally"),
        *("TieredIdSegmentDistributor", "VARIABLES", "name_of_root", "name_of_url"),
    },
}

every_public_module = pytest.mark.parametrize("name", sorted(PUBLIC))


def bound_names(module: Module) -> set[str]:
    """Return the public names that a module defines or re-exports (``from .x import Y as Y``)."""
    names: set[str | None] = set()
    later = [n for n in module.tree.body if isinstance(n, ast.If)]  # TYPE_CHECKING: loaded later
    for node in (*module.tree.body, *(each for found in later for each in found.body)):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.Import() | ast.ImportFrom():
                names |= {a.asname for a in node.names if a.asname == a.name}
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            case _:
                pass
    return {name for name in names if name and not name.startswith("_")}


def declared_names(module: Module) -> list[str] | None:
    """Return what ``__all__`` says, if it is a tuple of literals."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            value: object = ast.literal_eval(node.value)
            return [str(name) for name in value] if isinstance(value, tuple) else None
    return None


def undocumented(name: str, thing: object) -> Iterator[str]:
    """Name a public class or function, and the public members of a class, without a docstring."""
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return  # a constant or an alias is described where it stands
    doc = thing.__doc__ or ""
    # A dataclass without a docstring is given its own signature for one.
    if not doc or doc.startswith(f"{getattr(thing, '__name__', '')}("):
        yield name
    if inspect.isclass(thing):
        for member in vars(thing):
            described = inspect.isroutine(value := getattr(thing, member)) or isinstance(
                vars(thing)[member], property
            )
            # An override may leave the words to the contract that it fulfils.
            if described and not member.startswith("_") and not inspect.getdoc(value):
                yield f"{name}.{member}"


@every_public_module
def test_all_is_an_exact_tuple(name: str) -> None:
    module = PUBLIC[name]
    declared = declared_names(module)
    assert declared is not None, "__all__ has to be a tuple of literals"
    internal = INTERNAL.get(name, set())
    bound = bound_names(module)
    assert internal - bound == set()
    assert sorted(declared) == sorted((bound - internal) | ({"__version__"} & set(declared)))


@every_public_module
def test_every_public_object_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    exported: tuple[str, ...] = getattr(module, "__all__", ())
    gaps = [gap for each in exported for gap in undocumented(each, getattr(module, each))]
    assert gaps == []


# Where a checker has to be lenient: generic types of other libraries, drivers without types, keys
# of shardings that only the properties know, and what stores and the lease keep for each other.
MAY_BE_ANY = {
    *("TypedIdType.impl", "TypedIdType.load_dialect_impl", "TypedIdType.coerce_compared_value"),
    *("WorkerIdStore.machine_id_distributor", "UidGeneratorStore.machine_id_distributor"),
    *("assign_ids_before_flush", "Executor.__init__", "GroupedSegmentId.__init__", "Node.of"),
    *("StandardTimeKey.local_span", "SnowflakeTimeKey.local_span", "ShardRange.all"),
    *("sharding_algorithm", "ConfiguredProvider.__init__", "Snapshot.raw", "Snapshot.__init__"),
    *("freed", "transact", "lease_of", "WatchedDistributor.__init__", "made_between"),
    # Overrides of methods of Django and its REST framework, which have no annotations.
    *("CosIdField.__init__", "CosIdField.assign", "CosIdField.contribute_to_class"),
    *("CosIdField.deconstruct", "CosIdQuerySet.bulk_create", "Command.handle"),
    *("ShardedField.__init__", "ShardedField.deconstruct"),
    *("IdModelSerializer.build_standard_field", "IdModelSerializer.build_relational_field"),
}
ANY = re.compile(r"\bAny\b")


def with_any(thing: object) -> Iterator[str]:
    """Name the functions, methods and attributes that have an `Any` in their signature."""
    name = getattr(thing, "__qualname__", "")
    if inspect.isfunction(thing):
        forms = [thing, *typing.get_overloads(thing)]
        if any(ANY.search(str(each)) for form in forms for each in form.__annotations__.values()):
            yield name
    elif inspect.isclass(thing) and thing.__module__.startswith("aiocosid"):
        for attribute, annotation in inspect.get_annotations(thing).items():
            if not attribute.startswith("_") and ANY.search(str(annotation)):
                yield f"{name}.{attribute}"
        for member, value in vars(thing).items():
            if not member.startswith("_") or member in {"__init__", "__getitem__", "__reduce__"}:
                yield from with_any(getattr(value, "fget", getattr(value, "__func__", value)))
        for base in thing.__bases__:
            yield from with_any(base)


@every_public_module
def test_no_signature_has_an_any(name: str) -> None:
    """A checker looks no closer there: an `object`, a protocol or a type parameter says more."""
    module = importlib.import_module(name)
    exported: tuple[str, ...] = getattr(module, "__all__", ())
    found = {each for public in exported for each in with_any(getattr(module, public))}
    assert found - MAY_BE_ANY == set()


def test_init_modules_only_re_export() -> None:
    """A room's front door holds no code of its own, but for the one class of a server."""
    code = [
        f"{module.path}:{node.lineno}"
        for module in PUBLIC.values()
        if module.path.endswith("__init__.py") and module.room != "cli"
        for top in module.tree.body
        if not (isinstance(top, ast.ClassDef) and declared_names(module) == [top.name])
        for node in ast.walk(top)
        if isinstance(node, Function | ast.ClassDef)
        and node.name not in {"__getattr__", "__dir__"}  # for names that are loaded later
    ]
    assert code == []


LATER = {name: module for name, module in PUBLIC.items() if " = later(" in module.source}


@pytest.mark.parametrize("name", LATER)
def test_what_is_loaded_later_is_what_type_checkers_see(name: str) -> None:
    """A room says twice which module has a name: for them, and for `_later`."""
    room = importlib.import_module(name)
    blocks = [node for node in LATER[name].tree.body if isinstance(node, ast.If)]
    for each in ast.walk(blocks[0]):
        if isinstance(each, ast.ImportFrom):
            module = importlib.import_module("." * each.level + (each.module or ""), name)
            assert all(getattr(room, it.name) is getattr(module, it.name) for it in each.names)
    assert {*room.__all__} <= {*dir(room)}


@pytest.mark.parametrize(
    ("code", "most"),
    [("import aiocosid", 20), ("from aiocosid import connect, SegmentChainId, SnowflakeId", 45)],
)
def test_an_import_loads_little(code: str, most: int) -> None:
    """What few programs need is not loaded for all of them."""
    command = [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    loaded = {*done.stdout.split()}
    assert sum(name.startswith("aiocosid") for name in loaded) <= most
    few = {"hashlib", "secrets", "socket", "tempfile", "urllib.parse", "uuid", "zoneinfo"}
    assert loaded & few == set()


def test_the_front_door_is_small() -> None:
    """What most programs begin with; of the errors the root, and what every nowait call raises."""
    assert len(aiocosid.__all__) <= 30
    assert set(errors.__all__) & set(aiocosid.__all__) == {"CosIdError", "WouldBlock"}
    assert aiocosid.errors is errors


def test_the_version_is_that_of_the_distribution() -> None:
    assert aiocosid.__version__ == importlib.metadata.version("aiocosid")


def test_every_error_has_the_one_root() -> None:
    classes = [getattr(errors, name) for name in errors.__all__]
    assert [c for c in classes if not issubclass(c, errors.CosIdError)] == []


def test_a_planted_gap_is_seen() -> None:
    class Undocumented:
        def method(self) -> None: ...

    found = list(undocumented("Undocumented", Undocumented))
    assert found == ["Undocumented", "Undocumented.method"]


def test_planted_names_are_seen() -> None:
    source = "from .x import A as A, B\nc: int = 1\n_d = 2\ndef e(): ...\n__all__ = ('A', 'c')"
    module = Module("aiocosid.x", "x.py", source)
    assert bound_names(module) == {"A", "c", "e"}
    assert declared_names(module) == ["A", "c"]
