"""Secrets are planted everywhere, and nothing that anybody may read shows one of them."""

from __future__ import annotations

import base64
import gc
import json
import logging
import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

import aiocosid
from aiocosid.abc.events import Event
from aiocosid.converter import OpaqueIdConverter
from aiocosid.errors import (
    CosIdError,
    InvalidArgumentError,
    InvalidSettingsError,
    StoreError,
)
from aiocosid.provider import store_from_url
from aiocosid.provider.settings import Settings, check_settings, load_settings
from tests.command import in_process
from tests.servers import (
    GUEST,
    GUEST_PASSWORD,
    PASSWORD,
    FaultProxy,
    PostgresServer,
    RedisServer,
    ValkeyServer,
    free_port,
    wait_until,
)
from tests.servers._resp import RespError

pytestmark = pytest.mark.integration

WRONG: Final = "s3cr3t:h0rse/b4ttery@x"
KEY: Final = "0badc0de" * 8
PLANTED: Final = (
    *("s3cr3t", "h0rse", "b4ttery", "0badc0de", repr(bytes.fromhex(KEY))[2:-1]),
    *(PASSWORD, quote(PASSWORD, safe=""), GUEST_PASSWORD, quote(GUEST_PASSWORD, safe="")),
    base64.b64encode(f":{WRONG}".encode()).decode()[4:-4],
)


class Everything:
    """All that a program may show of what happens in it; also an instrument and a log handler."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.errors = 0

    def on_event(self, event: Event) -> None:
        self.of(event)

    def of(self, *things: object) -> None:
        """Take down what things say of themselves, and of what they hold."""
        for thing in things:
            self.said += [repr(thing), str(thing), f"{thing}"]

    def error(self, error: BaseException) -> None:
        """All of an error: what a traceback shows, its facts, its causes, and its pickle."""
        self.errors += 1
        self.said += traceback.format_exception(error)
        seen: list[BaseException] = []
        left: list[BaseException | None] = [error]
        while left:
            each = left.pop()
            if each is None or each in seen:
                continue
            seen.append(each)
            self.of(each, *each.args, *vars(each).values())
            shown = None if each.__suppress_context__ else each.__context__
            left += [each.__cause__, shown, *getattr(each, "exceptions", ())]
        if isinstance(error, CosIdError):
            self.said.append(repr(pickle.loads(pickle.dumps(error)).__dict__))  # noqa: S301 - ours

    def check(self, *more: str) -> None:
        """Raise if one of them is in it."""
        text = "\n".join(self.said)
        for secret in (*PLANTED, *more):
            at = text.find(secret)
            assert at < 0, f"{secret!r} in {text[max(0, at - 300) : at + 100]!r}"


class _Handler(logging.Handler):
    def __init__(self, everything: Everything) -> None:
        super().__init__(level=1)
        self.everything = everything

    def emit(self, record: logging.LogRecord) -> None:
        self.everything.said += [self.format(record), repr(record.__dict__)]
        if record.exc_info and record.exc_info[1] is not None:
            self.everything.error(record.exc_info[1])


@pytest.fixture
def everything() -> Iterator[Everything]:
    """Also what is logged, at every level, by drivers too."""
    found = Everything()
    handler, root = _Handler(found), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(1)
    yield found
    root.removeHandler(handler)
    root.setLevel(before)


def inside(thing: object) -> list[object]:
    """What an object of ours is made of, down to the drivers' own."""
    found: list[object] = [thing]
    for each in found:
        ours = type(each).__module__.startswith(("aiocosid", "redis", "asyncpg"))
        if ours and len(found) < 300 and not isinstance(each, str | type):
            found += [o for o in gc.get_referents(each) if not any(o is f for f in found)][:20]
    return [each for each in found if type(each).__module__.startswith("aiocosid")]


async def try_all(url: str, everything: Everything) -> None:
    """Use a store in every way; what it raises is looked at, and so is all it consists of."""
    try:
        store = store_from_url(url)
    except CosIdError as error:
        everything.error(error)
        return
    counter = store.segment_distributor(namespace="secrets", name="n")
    machine = store.machine_id_distributor(namespace="secrets", instance_id="i")
    chain = aiocosid.SegmentChainId(counter, instrument=everything, wait_timeout=0.3)
    lease = aiocosid.MachineIdLease(machine, start_timeout=0.3, call_timeout=0.3)
    flake = aiocosid.SnowflakeId(lease, instrument=everything)
    ids = aiocosid.connect(url, instrument=everything)
    everything.of(store, counter, machine, chain, flake, ids)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: counter.next_max_id(1),
        lambda: store.initialize_namespace(namespace="secrets"),
        lambda: store.machine_markers(namespace="secrets"),
        lambda: machine.distribute(10, now_ms=1, latest_ms=2**53),
        store.counters,
        lambda: store.machines(namespace="secrets"),
        lambda: store.set_floor(namespace="secrets", name="n", above=5),
        store.create_schema,
        lambda: use(chain),
        lambda: use(flake),
        lambda: use_provider(ids),
    )
    try:
        for call in calls:
            try:
                everything.of(await call())
            except CosIdError as error:
                everything.error(error)
            everything.said.append(json.dumps(chain.statistics().as_tree()))
            everything.of(chain.statistics(), flake.statistics())
        everything.of(*inside(store), *inside(counter), *inside(machine), *inside(chain))
    finally:
        await store.aclose()


async def all_fail(urls: Iterable[str], everything: Everything) -> None:
    """Use stores that cannot be used."""
    for url in urls:
        before = everything.errors
        await try_all(url, everything)
        assert everything.errors > before, url
        everything.check()


async def use(generator: aiocosid.SegmentChainId | aiocosid.SnowflakeId) -> str:
    async with generator:
        return f"{await generator.next_id()} {generator!r} {generator.statistics()}"


async def use_provider(ids: aiocosid.IdProvider) -> str:
    async with ids:
        order = await ids.segment_chain("order", wait_timeout=0.3)
        return f"{await order.next_id()} {ids!r} {ids.statistics()}"


FEW_OR_MANY: Final = pytest.mark.parametrize(
    "many",
    [pytest.param(False, id="few"), pytest.param(True, id="many", marks=pytest.mark.nightly)],
)


@FEW_OR_MANY
async def test_redis(
    many: bool,
    valkey_password: ValkeyServer,
    redis_tls: RedisServer,
    tmp_path: Path,
    everything: Everything,
) -> None:
    """Logged in and refused, over TLS and not, reachable and not, alone and behind others."""
    password, nowhere = quote(WRONG, safe=""), f"127.0.0.1:{free_port()}"
    server, tls = (
        f"{valkey_password.host}:{valkey_password.port}",
        f"{redis_tls.host}:{redis_tls.port}",
    )
    key = tmp_path / "key.pem"
    key.write_text(f"-----BEGIN PRIVATE KEY-----\n{WRONG}\n-----END PRIVATE KEY-----\n")
    refused = [
        f"redis://:{password}@{server}",
        f"rediss://:{password}@{tls}",
        f"redis+sentinel://:{password}@{nowhere}/ids?sentinel_password={password}",
        f"redis://:{WRONG}@{server}",
        f"redis://{server}/{password}",
    ]
    others = [
        f"redis://s3cr3t-user:{password}@{server}/0?client_name=x",
        f"redis://{server}?password={password}",
        f"redis://:{password}@{nowhere}",
        f"rediss://:{password}@{server}",
        f"rediss://:{password}@{tls}?ssl_cert_reqs=none",
        f"rediss://:{password}@{tls}?ssl_certfile={key}&ssl_keyfile={key}",
        f"redis+cluster://:{password}@{nowhere}",
        f"redis+cluster://:{password}@{server}",
        f"redis+sentinel://:{password}@{server}/ids?sentinel_password={password}",
        f"unix://:{password}@{tmp_path}/none.sock",
        f"redis://{server}?passwort={password}",
    ]
    await all_fail(refused + others if many else refused, everything)
    before = everything.errors
    await try_all(valkey_password.url, everything)
    assert everything.errors == before
    token = json.loads(str(valkey_password.call("HGET", "cosid:{secrets}:note", "0")))["token"]
    everything.check(str(token))
    assert len(everything.said) > 100


def misconfigured(server: ValkeyServer) -> Iterator[tuple[tuple[str | int, ...], ...]]:
    """A server that could not save its data refuses writes: MISCONF."""
    server.call("CONFIG", "SET", "save", "3600 1")
    server.call("CONFIG", "SET", "rdbcompression", "no")
    (server.directory / "dump.rdb").mkdir(exist_ok=True)
    with suppress(RespError):
        server.call("SAVE")
    server.call("BGSAVE")
    wait_until(
        lambda: "rdb_last_bgsave_status:err" in str(server.call("INFO", "persistence")),
        "a failed save",
    )
    yield ("INFO",), ("CONFIG", "SET", "save", "")


@pytest.mark.stress
async def test_a_redis_that_takes_no_writes(
    valkey_factory: Callable[..., ValkeyServer], everything: Everything
) -> None:
    """NOREPLICAS, OOM, READONLY and MISCONF: the server's sentence is told, and no more."""
    server = valkey_factory(password=PASSWORD)
    for bad, good in (
        (
            ("CONFIG", "SET", "min-replicas-to-write", 1),
            ("CONFIG", "SET", "min-replicas-to-write", 0),
        ),
        (("CONFIG", "SET", "maxmemory", 1), ("CONFIG", "SET", "maxmemory", 0)),
        (("REPLICAOF", server.host, free_port()), ("REPLICAOF", "NO", "ONE")),
        *misconfigured(server),
    ):
        server.call(*bad)
        before = everything.errors
        await try_all(server.url, everything)
        assert everything.errors > before, bad
        server.call(*good)
    assert "MISCONF" in "".join(everything.said)
    everything.check()


@FEW_OR_MANY
async def test_postgresql(
    many: bool,
    postgres: PostgresServer,
    postgres_database: str,
    namespace: str,
    everything: Everything,
) -> None:
    """Logged in and refused, without a right or a table, reachable and not, and cut off."""
    password, nowhere = quote(WRONG, safe=""), f"127.0.0.1:{free_port()}"
    server = f"{postgres.host}:{postgres.port}"
    refused = [
        f"postgresql://{GUEST}:{password}@{server}/{namespace}",
        f"postgresql://{GUEST}:{password}@{server}/{namespace}?sslmode={password}",
    ]
    others = [
        f"postgresql://{GUEST}@{server}/{namespace}?password={password}",
        f"postgresql://{GUEST}:{password}@{nowhere}/{namespace}",
        f"postgresql://{GUEST}:{password}@{nowhere},{nowhere}/{namespace}",
        f"postgresql://{GUEST}:{password}@{server}/{namespace}?sslmode=require",
        f"postgresql://{GUEST}:{WRONG}@{server}/{namespace}",
        postgres.url_for(user=GUEST, password=GUEST_PASSWORD, database=namespace),
        postgres.url_for(user=GUEST, password=GUEST_PASSWORD, database="nowhere"),
    ]
    await all_fail(refused + others if many else refused, everything)
    before = everything.errors
    async with store_from_url(postgres_database) as store:
        await store.create_schema()
    sql = "CREATE ROLE {0} LOGIN PASSWORD '{1}'; GRANT ALL ON ALL TABLES IN SCHEMA public TO {0}"
    postgres.execute(sql.format(namespace, WRONG), database=namespace)
    try:
        async with FaultProxy(postgres.host, postgres.port) as proxy:
            login = f"postgresql://{namespace}:{password}@{proxy.host}:{proxy.port}/{namespace}"
            await try_all(login, everything)
            assert everything.errors == before
            note = postgres.execute(
                "SELECT max(value) FROM aiocosid_cell WHERE name LIKE 'note/%'", database=namespace
            )
            token = json.loads(note)["token"]
            proxy.swallow_replies()
            await try_all(login, everything)
        assert everything.errors > before
        everything.check(token)
        assert len(token) > 8
    finally:
        postgres.execute(f"DROP OWNED BY {namespace}; DROP ROLE {namespace}", database=namespace)


def settings_text(url: str, *, key: str = KEY, more: str = "") -> str:
    return (
        f'store = "{url}"\n[stores]\nother = "{url}"\n[generators.order]\nkind = "chain"\n{more}\n'
        f'[generators.order.converter]\ntype = "opaque"\nkey = "{key}"\n'
    )


def test_settings_and_opaque_keys(tmp_path: Path, everything: Everything) -> None:
    """Sound and wrong, as a file, a mapping and a model; a report, an error, a repr and a dump."""
    password = quote(WRONG, safe="")
    good = f"redis://:{password}@h"
    path = tmp_path / "ids.toml"
    texts = (
        settings_text(good),
        settings_text(f"postgresql://u:{password}@h/x"),
        settings_text(f"redis://:{WRONG}@h"),
        settings_text(f"host=h password={WRONG}"),
        settings_text(f"nosuch://:{password}@h"),
        settings_text(good, key=KEY[:-1]),
        settings_text(good, key=KEY + "zz"),
        settings_text(good, more='step = "x"\nkey = "s3cr3t"'),
        settings_text(good, more=f'store = ["redis://:{password}@h"]'),
        settings_text(good, more=f"passwort = 1\nnamespace = {{ key = '{KEY}' }}"),
        settings_text(good) + "\n[[",
        settings_text(good) + "\udcff",
        settings_text(good).replace('key = "', "key = 0x"),
        settings_text(good).replace("kind", "knd"),
        settings_text(good).replace('"chain"', '"redis://:s3cr3t@h"'),
    )
    sound = 0
    readers: tuple[Callable[..., Any], ...] = (check_settings, load_settings, aiocosid.configure)
    for text in texts:
        path.write_bytes(text.encode(errors="surrogateescape"))
        for read in readers:
            try:
                found: Any = read(path)
                sound += 1
                everything.of(found)
                if isinstance(found, Settings):
                    everything.said += [str(found.model_dump()), found.model_dump_json()]
            except InvalidSettingsError as error:
                everything.error(error)
        everything.check()
    assert sound == 6
    makers: tuple[Callable[[], OpaqueIdConverter], ...] = (
        lambda: OpaqueIdConverter.from_text(KEY),
        lambda: OpaqueIdConverter(bytes.fromhex(KEY)[:-1]),
        lambda: OpaqueIdConverter.from_text(KEY[1:]),
        lambda: OpaqueIdConverter(KEY),  # type: ignore[arg-type]  # a user's mistake
    )
    for make in makers:
        try:
            made = make()
            everything.of(made, made.as_tree(), aiocosid.StringIdGenerator)
            made.as_int("!")
        except CosIdError as error:
            everything.error(error)
    everything.check()


def test_the_command_line(
    valkey_password: ValkeyServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    everything: Everything,
) -> None:
    """Commands that end well and badly, with the URL on the line and in the environment."""
    aiocosid_ = in_process(monkeypatch, capsys)
    path, password = tmp_path / "ids.toml", quote(WRONG, safe="")
    server = f"{valkey_password.host}:{valkey_password.port}"
    path.write_text(settings_text(f"redis://:{password}@{server}"))
    codes = []
    for url in (
        valkey_password.url,
        f"redis://:{password}@{server}",
        f"redis://:{WRONG}@{server}",
        f"host=h password={WRONG}",
    ):
        for words in (
            ("init",),
            ("next", "order", "-n", 2),
            ("machines", "list"),
            ("set-floor", "order", "--above", 5),
            ("check-config", path),
        ):
            given = () if words[0] == "check-config" else ("--store", url)
            ended = aiocosid_(*words, *given)
            codes.append(ended.code)
            everything.said += [ended.out, ended.err]
        monkeypatch.setenv("AIOCOSID_STORE", url)
        ended = aiocosid_("inspect")
        everything.said += [ended.out, ended.err]
        monkeypatch.delenv("AIOCOSID_STORE")
        everything.check()
    assert codes.count(0) >= 5
    assert len(set(codes)) > 2


def test_sqlite(everything: Everything) -> None:
    """SQLCipher's URLs have a password where ours have nothing."""
    for url in (f"sqlite://:{WRONG}@/ids.db", f"sqlite:///ids.db?key={WRONG}", f"sqlite:{WRONG}"):
        with pytest.raises(InvalidArgumentError) as caught:
            store_from_url(url)
        everything.error(caught.value)
    everything.check()


def test_the_nets_have_no_hole(everything: Everything) -> None:
    """A secret in any of the places is found."""
    cause = ValueError(WRONG)
    hidden = StoreError("x", "y")
    hidden.__cause__ = cause
    shows: tuple[Callable[[], object], ...] = (
        lambda: everything.error(hidden),
        lambda: everything.error(StoreError("x", WRONG)),
        lambda: logging.getLogger("redis").debug("%s", WRONG),
        lambda: everything.of(Counterfeit(WRONG)),
    )
    for show in shows:
        everything.check()
        show()
        with pytest.raises(AssertionError):
            everything.check()
        everything.said.clear()


class Counterfeit:
    def __init__(self, said: str) -> None:
        self.said = said

    def __repr__(self) -> str:
        return self.said
