"""What the pages say about servers, outside of code that runs: rights, URLs, statements, names."""

from __future__ import annotations

import re
import sqlite3
import tomllib
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from urllib.parse import quote

import nkeys
import pytest

import aiocosid
from aiocosid import errors
from aiocosid._life import open_state
from aiocosid.provider import IdProvider
from aiocosid.provider.specs import KindMethod
from aiocosid.segment import _opening, options, pace
from aiocosid.stores._mysql import MYSQL
from aiocosid.stores._postgres import POSTGRES
from aiocosid.stores._sqlite import SEQUENCE, SQLITE
from aiocosid.stores.redis._backend import ADD, RAISE
from tests.servers import (
    PASSWORD,
    EtcdServer,
    ValkeyCluster,
    ValkeyServer,
    ZookeeperServer,
)
from tests.unit._source import imports, load

from ._blocks import ROOT, blocks, pages

RIGHTS = ROOT / "docs" / "reference" / "rights.md"
OPERATE = ROOT / "docs" / "howto" / "operate.md"
EVIDENCE = ROOT / "docs" / "explanation" / "evidence.md"
SITE = "https://aiocosid.readthedocs.io/en/latest/"
SCRIPTS = ROOT / "aiocosid" / "stores" / "redis"

URL = re.compile(
    r"`((?:memory|sqlite|unix|postgresql|(?:redis|rediss)(?:\+\w+)?)://[^`]*|tiered:\?[^`]*)`"
)


def block_of(page: Path, language: str, beginning: str) -> str:
    """The one block of a page in that language that begins so."""
    (found,) = [
        block.source
        for block in blocks(page)
        if block.language == language and block.source.startswith(beginning)
    ]
    return found


@pytest.mark.integration
async def test_the_rights_that_a_redis_url_needs_besides(
    valkey: ValkeyServer, valkey_cluster: ValkeyCluster, namespace: str
) -> None:
    """For the options and for a cluster, each with its own line and no other."""
    rights = block_of(RIGHTS, "text", "~cosid").replace("{shop", f"{{{namespace}")
    tasks = ("segments of counters that are new", "aiocosid set-floor", "aiocosid inspect")
    base = [line.partition("#")[0] for line in rights.splitlines() if line.endswith(tasks)]
    lines = [line.partition("#") for line in block_of(RIGHTS, "text", "+select").splitlines()]
    extra = {what.strip(): rights for rights, _, what in lines}
    urls = {
        "a db other than 0": f"redis://{valkey.host}:{valkey.port}/9",
        "client_name": f"redis://{valkey.host}:{valkey.port}?client_name=x",
        "health_check_interval": f"redis://{valkey.host}:{valkey.port}?health_check_interval=1",
        "redis+cluster://": valkey_cluster.url,
    }
    async with aiocosid.store_from_url(urls["a db other than 0"]) as store:
        await store.initialize(confirm_no_holders=True)
    for what, url in urls.items():
        servers = valkey_cluster.masters if "cluster" in what else [valkey]
        for server in servers:
            user = f"{' '.join(base)} {extra[what]}".split()
            server.call("ACL", "SETUSER", namespace, "reset", "on", f">{PASSWORD}", *user)
        if "/9" in url:  # the test's servers are initialised, but for their other databases
            async with aiocosid.store_from_url(url) as store:
                await store.initialize(confirm_no_holders=True)
        login = f"//{namespace}:{quote(PASSWORD, safe='')}@"
        async with aiocosid.store_from_url(url.replace("//", login)) as store:
            for name in "abc":  # on a cluster on several of its servers
                counter = store.segment_distributor(namespace=namespace, name=name, offset=7)
                await counter.next_max_id(1)
                await store.set_floor(namespace=namespace, name=name, above=50)
            assert len(await store.counters(namespace=namespace)) == 3
        for server in servers:
            server.call("ACL", "DELUSER", namespace)
    assert extra.keys() == urls.keys()


@pytest.mark.integration
async def test_the_markers_that_a_restore_deletes(
    valkey: ValkeyServer, etcd: EtcdServer, zookeeper: ZookeeperServer
) -> None:
    """Each command names something that an initialised store has."""
    page = OPERATE.read_text()
    for url in (valkey.url, etcd.url, zookeeper.url):
        async with aiocosid.store_from_url(url) as store:
            await store.initialize(confirm_no_holders=True)
    (key,) = re.findall(r"`redis-cli DEL (\S+)`", page)
    assert valkey.call("EXISTS", key) == 1
    (key,) = re.findall(r"`etcdctl del (\S+)`", page)
    assert etcd.get(key)
    (path,) = re.findall(r"`deleteall (\S+)`", page)
    assert zookeeper.behind.exists(path)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_url_in_a_table_names_a_store(page: Path, tmp_path: Path) -> None:
    """A reader may copy any URL: it is understood as it stands."""
    authority = tmp_path / "ca.pem"
    authority.touch()  # a URL that names a file is refused when there is none
    seed = nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_USER).decode()
    (key := tmp_path / "user.creds").write_text(f"a.token.signed\n{seed}\n")
    for url in URL.findall(page.read_text()):
        if url.endswith(("://", "...", "?")):
            continue
        here = re.sub(r"(ssl_ca_certs=|sslrootcert=)[^&]*", rf"\g<1>{authority}", url)
        aiocosid.store_from_url(re.sub(r"((?:creds|nkey)=)[^&]*", rf"\g<1>{key}", here))


def unpadded(text: str) -> str:
    """A statement without blanks at the ends of its lines, which no page keeps."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def test_the_statements_are_those_that_are_sent() -> None:
    """docs/reference/schema.md shows each statement that writes, word for word, and no other."""
    path = ROOT / "docs" / "reference" / "schema.md"
    page = blocks(path, path.read_text().split("\n## Machine ids\n")[0])
    shown = {unpadded(block.source) for block in page if block.language in {"sql", "lua"}}
    sent = {script.text.decode() for script in (ADD, RAISE)}
    others = (SCRIPTS / f"{name}.lua" for name in ("server", "sequence_grant"))
    included = (*SCRIPTS.glob("span_*.lua"), *others)
    sent |= {f'--8<-- "{path.relative_to(ROOT)}"' for path in included}
    for dialect in (POSTGRES, MYSQL, SQLITE):
        sent |= {*dialect.add, dialect.raise_to.creating}
    sent.add(SEQUENCE)
    assert shown == {unpadded(statement) for statement in sent}


def test_every_error_has_its_place() -> None:
    """docs/reference/errors.md tells of each error in the tree, and of no other."""
    text = (ROOT / "docs" / "reference" / "errors.md").read_text()
    table = set(re.findall(r"^\| <span id=\"\w+\">`(\w+)`</span> \|", text, re.MULTILINE))
    assert table == set(errors.__all__) - {"CosIdError"}


def test_each_error_leads_to_its_row() -> None:
    text = (ROOT / "docs" / "reference" / "errors.md").read_text()
    rows = {row: f"{SITE}reference/errors.html#{row}" for row in re.findall(r'id="(\w+)"', text)}
    classes = [getattr(errors, name) for name in errors.__all__]
    led = {each.__name__.lower(): each.__new__(each).url for each in classes}
    assert rows == led

    class Ours(errors.StoreError):
        pass

    assert Ours("a", "b").url == rows["storeerror"]


def test_retryable_errors_are_marked() -> None:
    """The table's second column is the class's ``retryable``."""
    text = (ROOT / "docs" / "reference" / "errors.md").read_text()
    said = dict(re.findall(r"`(\w+)`</span> \| (yes|no) \|", text))
    real = {name: "yes" if getattr(errors, name).retryable else "no" for name in said}
    assert said == real


def test_the_numbers_of_the_chain_are_those_of_the_code() -> None:
    """docs/explanation/segment-chain.md states these; whoever changes one finds the page here."""
    stated = {
        "short piece": (_opening.SHORT_PIECE, 1000),
        "long piece": (_opening.LONG_PIECE, 10_000),
        "quiet period": (pace.QUIET_PERIOD, 5.0),
        "calm": (pace.CALM, 2 / 3),
        "tight": (pace.TIGHT, 3 / 5),
        "finer": (pace.FINER, 4),
        "longest distance": (pace.MAX_DISTANCE, 4_096_000),
        "most ids ahead": (pace.MAX_IDS_AHEAD, 2**24),
        "endurance": (pace.ENDURANCE, 60.0),
        "spare": (pace.SPARE, 2.0),
        "window of the rate": (pace.WINDOW, 2.0),
        "refill": (pace.REFILL, 1.5),
        "share of the space": (pace.SPACE_SHARE, 1000),
        "share of the ttl": (pace.FRESH, 3 / 4),
        "most waiters": (options.MAX_WAITERS, 10_000),
        "first back-off": (open_state.FIRST_BACKOFF, 0.05),
        "last back-off": (open_state.LAST_BACKOFF, 1.0),
        "share of a fetch": (options.FETCH_SHARE, 2 / 5),
    }
    assert {what: real for what, (real, _) in stated.items()} == {
        what: said for what, (_, said) in stated.items()
    }


def public(module: str) -> list[str]:
    """The names that a module is there for, as its page of the reference may show them first."""
    return list(getattr(import_module(module), "__all__", ()))


def test_the_api_pages_have_every_module() -> None:
    """What no module of ours imports is there for users, as is each name of the front door."""
    pages = ROOT / "docs" / "reference" / "api"
    text = "".join(page.read_text("utf-8") for page in pages.glob("*.md"))
    shown = set(re.findall(r"^::: (aiocosid\.[a-z_.]+)$", text, re.MULTILINE))
    front = {f"aiocosid.{name}" for name in aiocosid.__all__}
    modules = load()
    used = {found.module for each in modules.values() for found in imports(each, set(modules))}
    by_place = ("aiocosid.integrations.django.", "aiocosid.server.dialects.")
    others = {name for name in modules if "._" in name or name.startswith(by_place)}
    others |= {"aiocosid", "aiocosid.stores", "aiocosid.integrations", "aiocosid.server.dialects"}
    named = {f"{name}.{each}" for name in shown & modules.keys() for each in public(name)}
    assert modules.keys() - used - others <= shown <= modules.keys() | front | named
    first = set(re.findall(r"`(\w+)`", (pages / "index.md").read_text("utf-8")))
    assert set(aiocosid.__all__) - first <= {"errors"}


def test_each_line_before_production_leads_to_a_page() -> None:
    """A line that only admonishes cannot be ticked off."""
    page = (ROOT / "docs" / "howto" / "before-production.md").read_text("utf-8")
    lines = re.findall(r"^- \[ \] (.+(?:\n  .+)*)", page, re.MULTILINE)
    assert len(lines) > 25
    assert [line for line in lines if not re.search(r"\]\([\w./#-]+\.md", line)] == []


async def test_numbers_with_a_step_of_1_have_a_gap_for_each_insert_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart leaves none."""
    monkeypatch.chdir(tmp_path)
    config = block_of(ROOT / "docs" / "howto" / "configure.md", "toml", "namespace = ")
    settings = tomllib.loads(config) | {"store": "sqlite:///ids.db", "create": True}
    table = sqlite3.connect(":memory:")
    table.execute("CREATE TABLE tickets (number TEXT, title TEXT UNIQUE)")
    for titles in (["tea", "tea"], ["cups"]):  # in two lives of the application
        async with aiocosid.configure(settings) as ids:
            for title in titles:
                row = (str(await ids["bill"].next_id()), title)
                with suppress(sqlite3.IntegrityError), table:
                    table.execute("INSERT INTO tickets VALUES (?, ?)", row)
    numbers = [number[-6:] for (number,) in table.execute("SELECT number FROM tickets")]
    assert numbers == ["000001", "000003"]


def anchors(page: Path) -> set[str]:
    """What the headings of a page may be linked by, on a web page made from it."""
    headings = re.findall(r"^#+ (.+?)(?: \{ #([\w-]+) \})?$", page.read_text(), re.MULTILINE)
    return {
        given or re.sub(r"[^\w\- ]", "", text).lower().replace(" ", "-") for text, given in headings
    }


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 7 * 1024


def test_the_links_of_the_readme_lead_somewhere() -> None:
    """They are absolute, since package indexes show the README too; each is a page of the site."""
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"\]\((?!https://)[^)]*\)", text) == []
    links = re.findall(rf"\]\({re.escape(SITE)}([^)#]*)(?:#([^)]*))?\)", text)
    found = {ROOT / "docs" / re.sub(r"\.html$", ".md", path): anchor for path, anchor in links}
    assert [path for path in found if not path.exists()] == []
    assert [(p, a) for p, a in found.items() if a and a not in anchors(p)] == []


def test_the_tests_that_the_evidence_names_are_there() -> None:
    """The guarantees, and the track record, are as good as the tests behind them."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", EVIDENCE.read_text())
    assert len(named) > 100
    assert [f"{path}::{name}" for path, name in named if not has_test(ROOT / path, name)] == []


def has_test(path: Path, name: str) -> bool:
    """Whether a file has a test of that name."""
    return re.search(rf"^ *(?:async )?def {name}\(", path.read_text(), re.MULTILINE) is not None


def test_the_table_of_kinds_has_the_methods_of_a_provider() -> None:
    """All of them, under the names that they have."""
    text = (ROOT / "docs" / "reference" / "generators.md").read_text("utf-8")
    rows = re.findall(r"^\| (`\w+\(name.*?) \|", text, re.MULTILINE)
    methods = {name for row in rows for name in re.findall(r"`(\w+)\(", row)}
    kinds = {name for name in vars(IdProvider) if isinstance(vars(IdProvider)[name], KindMethod)}
    assert methods - {"add"} == kinds - {"remote"}  # of a server, on its page


@pytest.mark.parametrize(
    ("page", "first"),
    [
        ("index", "aiocosid.connect"),
        ("provider", "aiocosid.provider.IdProvider"),
        ("segment", "aiocosid.segment.SegmentChainId"),
        ("snowflake", "aiocosid.snowflake.SnowflakeId"),
        ("sync", "aiocosid.sync.connect"),
        ("machine", "aiocosid.machine.MachineIdLease"),
        ("abc", "aiocosid.abc.Store"),
    ],
)
def test_an_api_page_begins_with_what_people_call(page: str, first: str) -> None:
    """Constants, options and helpers come after it."""
    text = (ROOT / "docs" / "reference" / "api" / f"{page}.md").read_text("utf-8")
    assert re.findall(r"^::: (\S+)$", text, re.MULTILINE)[0] == first
