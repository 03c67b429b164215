"""What the pages say about layouts, leases and machine ids, outside of code that runs."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

import aiocosid
from aiocosid import snowflake
from aiocosid.abc import DEFAULT_GUARD_INTERVAL, DEFAULT_SAFE_GUARD, InstanceId, Store
from aiocosid.machine import _options as machine_options
from aiocosid.machine._manual import DEFAULT_MARK_INTERVAL
from aiocosid.machine.cells import Count, MachineRecord, Marker, NamespaceCount, NamespaceRecord
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.snowflake import LAYOUTS, _sequencer, _stamping
from aiocosid.stores._dialect import (
    CELL_TABLE,
    COLUMNS,
    MACHINE_TABLE,
    Creation,
    Schema,
    creation_of,
)
from aiocosid.stores._mysql import MYSQL
from aiocosid.stores._postgres import POSTGRES
from aiocosid.stores._sqlite import SQLITE
from aiocosid.stores.redis._backend import CellCodec
from tests.machine_marks import initialize_namespace
from tests.servers import GUEST, GUEST_PASSWORD, PASSWORD, PostgresServer, ValkeyServer

from ._blocks import ROOT, blocks
from .test_facts import RIGHTS, SCRIPTS, block_of, unpadded

SCHEMA = ROOT / "docs" / "reference" / "schema.md"
SNOWFLAKE = ROOT / "docs" / "reference" / "snowflake.md"
API = ROOT / "docs" / "reference" / "api"
CHOOSE = ROOT / "docs" / "howto" / "choose-a-layout.md"

UNITS = {1: "1 ms", 10: "10 ms", 1000: "1 s"}


def included(source: str) -> str:
    """A block with the file in it that mkdocs puts there."""
    return re.sub(r'--8<-- "(.+)"', lambda found: (ROOT / found[1]).read_text(), source)


CELL_NAMES: dict[type, str] = {
    MachineRecord: "machine record",
    NamespaceCount: "namespaces",
    NamespaceRecord: "namespace record",
}


def first_creation() -> Creation:
    """What is created where there is nothing."""
    schema = Schema(frozenset())
    found = creation_of(schema, store="store", disposable=False, after_loss=False)
    assert found is not None
    return found


def test_the_schema_page_has_every_script_and_table() -> None:
    """Each script, and each statement that creates a table, word for word."""
    section = SCHEMA.read_text().split("\n## Machine ids\n")[1].split("\n## ")[0]
    page = blocks(SCHEMA, section)
    shown = {unpadded(included(block.source)) for block in page if block.language in {"sql", "lua"}}
    real = {path.read_text() for path in (SCRIPTS / "server.lua", *SCRIPTS.glob("cells_*.lua"))}
    real |= {dialect.create(first_creation()) for dialect in (POSTGRES, MYSQL, SQLITE)}
    assert shown == {unpadded(each) for each in real}


def test_the_schema_page_has_every_key() -> None:
    """A new key of machine ids needs its line."""
    text = SCHEMA.read_text().split("\n### Redis and Valkey: machine ids\n")[1].split("\n### ")[0]
    keys = re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)
    keys += re.findall(r"`(cosid:\{<namespace>\}:count)`", text)  # on a cluster
    real = {*CellCodec("a", is_cluster=False).keys, *CellCodec("a", is_cluster=True).keys}
    assert {key.replace("<namespace>", "a").encode() for key in keys} == real


def test_the_schema_page_has_every_column() -> None:
    """A new column of the two tables needs its line."""
    section = SCHEMA.read_text().split("\n### SQL: machine ids\n")[1].split("\n### ")[0]
    said = sorted(re.findall(r"^\| `(\w+)` \| `[a-z]+", section, re.MULTILINE))
    tables = COLUMNS[MACHINE_TABLE] + COLUMNS[CELL_TABLE].format("varchar(255)")
    assert said == sorted(re.findall(r"^    ([a-z_]+) [a-z]+", tables, re.MULTILINE))


@pytest.mark.parametrize("cell", [Count, Marker, NamespaceCount, MachineRecord, NamespaceRecord])
def test_the_schema_page_has_every_field_of_a_cell(cell: Any) -> None:
    """A new field needs its words."""
    page = SCHEMA.read_text().split("\n### Cells\n")[1].split("\n### ")[0]
    [row] = [
        line
        for line in page.splitlines()
        if line.startswith(f"| {CELL_NAMES.get(cell, cell.__name__.lower())} |")
    ]
    written = (
        NamespaceRecord(region_code=2) if cell is NamespaceRecord else cell()
    )  # with all that it may have
    stored = json.loads(written.text()).keys()
    assert set(re.findall(r"`(\w+)`", row.split("|")[3])) == stored


async def lease_and_give_back(store: Store) -> None:
    for instance_id in ("a", InstanceId("a", stable=True)):
        machine = store.machine_id_distributor(instance_id=instance_id)
        async with aiocosid.SnowflakeId(machine) as generator:
            await generator.next_id()
    await store.evict_machine(machine_id=0)


@pytest.mark.integration
async def test_the_rights_on_redis_suffice(valkey_factory: Callable[..., ValkeyServer]) -> None:
    """A user leases, gives back and frees; with one more line it looks at all namespaces."""
    server = valkey_factory()
    lines = block_of(RIGHTS, "text", "~cosid").replace("{shop", "{cosid").splitlines()
    rights_of = {
        task.strip(): rights for rights, _, task in (each.partition("#") for each in lines)
    }
    few = f"{rights_of['machine ids']} {rights_of['aiocosid machines evict']}"
    more = rights_of["aiocosid machines list"]
    for user, rights in (("app", few), ("operator", f"{few} {more}")):
        server.call("ACL", "SETUSER", user, "reset", "on", f">{PASSWORD}", *rights.split())
    initialize_namespace(server, "cosid")
    async with aiocosid.store_from_url(server.url_for(username="app", password=PASSWORD)) as store:
        await lease_and_give_back(store)
        assert len(await store.machines(namespace="cosid")) == 1
    url = server.url_for(username="operator", password=PASSWORD)
    async with aiocosid.store_from_url(url) as store:
        assert len(await store.machines()) == 1


@pytest.mark.integration
async def test_the_rights_on_postgresql_suffice(
    postgres: PostgresServer, postgres_database: str, namespace: str
) -> None:
    """A role with the grants of the page leases, gives back, frees and looks."""
    async with aiocosid.store_from_url(postgres_database) as store:
        await store.create_schema()  # which marks what it creates
    parts = block_of(RIGHTS, "sql", "-- segments").split("-- ")
    grants = {task: grant for task, _, grant in (each.partition("\n") for each in parts)}
    for task in ("machine ids", "aiocosid machines evict", "aiocosid machines list"):
        postgres.execute(grants[task].replace("TO app", f"TO {GUEST}"), database=namespace)
    url = postgres.url_for(user=GUEST, password=GUEST_PASSWORD, database=namespace)
    async with aiocosid.store_from_url(url) as store:
        await lease_and_give_back(store)
        assert len(await store.machines()) == 1


def rows(text: str) -> list[list[str]]:
    """The rows of the tables in a text whose first cell is a layout's name."""
    found = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.split("\n")]
    return [row for row in found if row[0] in LAYOUTS]


def test_the_table_of_layouts_is_that_of_the_code() -> None:
    """The reference: name, constant, bits, tick, epoch and end of each, in their order."""
    found = rows(SNOWFLAKE.read_text())
    for name, constant, bits, tick, epoch, last, _ in found:
        layout = getattr(snowflake, constant)
        assert layout is LAYOUTS[name]
        assert repr(layout) == f"<SnowflakeLayout {name} {bits} {tick} from {epoch}>"
        assert layout.last_instant_text == last
    assert [row[0] for row in found] == [*LAYOUTS]


def test_the_choice_of_layouts_is_that_of_the_code() -> None:
    """The how-to: what people choose by."""
    assert rows(CHOOSE.read_text()) == [
        [
            name,
            each.last_instant_text.split("T")[0],
            str(each.machine_count),
            f"{each.ids_per_tick} in {UNITS[each.unit_ms]}",
            "yes" if each.is_javascript_safe else "no",
        ]
        for name, each in LAYOUTS.items()
    ]


@pytest.mark.parametrize(
    ("page", "name", "made"),
    [
        ("snowflake", "aiocosid.snowflake.SnowflakeId", aiocosid.SnowflakeId.__init__),
        ("snowflake", "aiocosid.snowflake.CachedSnowflakeId", snowflake.CachedSnowflakeId.__init__),
        ("machine", "aiocosid.machine.MachineIdLease", aiocosid.MachineIdLease.__init__),
        ("abc", "aiocosid.abc.Store.machine_id_distributor", Store.machine_id_distributor),
    ],
)
def test_the_options_are_on_the_page_that_is_linked(
    page: str, name: str, made: Callable[..., Any]
) -> None:
    """The API, which shows the defaults of a signature, says what each option means."""
    assert f"](api/{page}.md#{name})" in SNOWFLAKE.read_text()
    shown = (API / f"{page}.md").read_text()
    assert any(f"::: {name[:end]}\n" in shown for end in (len(name), name.rfind(".")))
    text = inspect.getdoc(made) or ""
    said = re.findall(r"^    (\w+): \S", text.partition("\nArgs:\n")[2], re.MULTILINE)
    parameters = inspect.signature(made).parameters.values()
    options = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert len(options) > 8
    assert options - {*said} == set()


@pytest.mark.parametrize("made", [Store.machine_id_distributor, CellMachineIdDistributor])
def test_a_distributor_has_the_same_defaults_everywhere(made: Callable[..., Any]) -> None:
    """Those of the page are those of each store that keeps cells."""
    defaults = {
        each.name: each.default
        for each in inspect.signature(made).parameters.values()
        if each.kind is each.KEYWORD_ONLY
    }
    assert defaults == {
        "namespace": "cosid",
        "instance_id": None,
        "safe_guard": DEFAULT_SAFE_GUARD,
        "interval": None,
        "state_dir": None,
        "offline": 0.0,
        "region": None,
        "region_bits": 0,
        "offline_beside_cosid": False,
    }


def test_the_numbers_of_the_lease_are_those_of_the_code() -> None:
    """The explanations state these; whoever changes one finds the pages here."""
    stated = {
        "interval": (DEFAULT_GUARD_INTERVAL, 60.0),
        "safe guard": (DEFAULT_SAFE_GUARD, 300.0),
        "lead, in intervals": (machine_options.LEAD_SHARE, 1.5),
        "lease, in safe guards": (machine_options.LEASE_SHARE, 0.9),
        "interval by hand": (DEFAULT_MARK_INTERVAL, 3.0),
        "ticks back": (_sequencer.MAX_TICKS_BACK, 3),
        "looks at a clock that is behind": (_stamping.LOOK, 0.1),
    }
    assert {what: real for what, (real, _) in stated.items()} == {
        what: said for what, (_, said) in stated.items()
    }
