"""Any text as a name: refused at once with nothing written, or a counter of its own."""

from __future__ import annotations

import json
import unicodedata
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from aiocosid import GroupBy, GroupedSegmentId
from aiocosid.abc import InstanceId, Store
from aiocosid.errors import InvalidArgumentError, NameTooLongError, StoreError
from aiocosid.provider import store_from_url
from aiocosid.stores.memory import MemoryStore
from tests.command import in_process
from tests.contracts._stores import STORES, Backend
from tests.servers import ValkeyCluster

pytestmark = pytest.mark.integration

ACCEPTED: Final = (
    *("{a}", "{a", "a}", "}a", "{", "}", "{}", "}{", "{{a}}", "a}.adder", "a}:itc_idx"),
    *("'", '"', "a'b", "'; DROP TABLE cosid; --", "a`b", "$1", ":name", "%s", "%", "_", "a%b"),
    *("a_b", "axb", "a\\b", "a\\\\b", "\\", "a/b", "../a", "/", ":", "a:b", "*", "?", "[ab]", "a*"),
    *(" ", "a ", " a", "a  b", "a\tb", "a\nb", "a\r\nb", "\n", "\x01", "\x1b[31m", "\x7f", "\x85"),
    *("a", "A", "\N{FULLWIDTH LATIN SMALL LETTER A}", "\N{CYRILLIC SMALL LETTER A}", "1", "01"),
    *("\N{FULLWIDTH DIGIT ONE}", "\N{ARABIC-INDIC DIGIT ONE}", "a\N{ZERO WIDTH SPACE}"),
    *("a\N{ZERO WIDTH JOINER}", "\ufeffa", "\N{RIGHT-TO-LEFT OVERRIDE}a", "a\N{SOFT HYPHEN}"),
    *("\N{ANGSTROM SIGN}", "\N{LATIN CAPITAL LETTER A WITH RING ABOVE}", "A\u030a", "\ufffd"),
    *("\N{LATIN SMALL LETTER SHARP S}", "ss", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "i"),
    *("\N{GRINNING FACE}", "\U0001f468\u200d\U0001f4bb", "\U0010ffff", "\ud7ff", ".", "..", "a."),
    *(".a", "-", "--help", "-n", "None", "null", "NULL", "true", "0", "-1", "1e5", "a" * 60),
)
"""No two of them are the same text; some look so, or are so to whoever normalizes."""

REFUSED: Final = ("", "\0", "a\0b", "\ud800", "a\udfffb", "\udce9")

assert len({unicodedata.normalize("NFKC", each) for each in ACCEPTED}) < len(ACCEPTED)


KINDS: Final = (
    *("memory", "sqlite", "valkey", "postgres", "mariadb", "etcd", "nats", "zookeeper"),
)


@pytest.fixture(params=KINDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return STORES[request.param](request)


@pytest.fixture
def accepted(backend: Backend) -> tuple[str, ...]:
    """Texts that are counters of their own: MySQL does not see spaces at the end."""
    if isinstance(backend, STORES["mariadb"]):
        return tuple(each for each in ACCEPTED if not each.endswith(" "))
    return ACCEPTED


@pytest_asyncio.fixture
async def store(backend: Backend) -> AsyncIterator[Store]:
    async with backend.open() as store:
        await store.create_schema(disposable=True)
        yield store


async def listed(store: Store, namespace: str | None = None) -> dict[str, int]:
    found = await store.counters(namespace=namespace)
    assert len({each.namespaced_name for each in found}) == len(found)
    return {each.namespaced_name: each.last_max_id for each in found}


def both(namespace: str, number: int, name: str) -> list[tuple[str, str]]:
    """A text as a name, and every fourth as part of a namespace too."""
    return [(namespace, name), (f"{namespace}{name}", "n")][: 1 if number % 4 else 2]


async def test_counters(store: Store, namespace: str, accepted: tuple[str, ...]) -> None:
    """Each has its own count, is listed as it was written, and is raised alone."""
    for number, name in enumerate(accepted):
        for of, called in both(namespace, number, name):
            counter = store.segment_distributor(namespace=of, name=called)
            assert await counter.next_max_id(5) == 5, (of, called)
            raised = await store.set_floor(namespace=of, name=called, above=100 + number)
            assert raised.namespaced_name == f"{of}.{called}"
            assert await counter.next_max_id(1) == 101 + number, (of, called)
    all_of_them = {
        f"{of}.{called}": 101 + number
        for number, name in enumerate(accepted)
        for of, called in both(namespace, number, name)
    }
    for of in (namespace, *(f"{namespace}{name}" for name in accepted[::4])):
        expected = {each: all_of_them[each] for each in all_of_them if each.startswith(f"{of}.")}
        assert await listed(store, of) == expected
    assert all_of_them.items() <= (await listed(store)).items()


async def test_what_no_store_can_hold(store: Store, namespace: str) -> None:
    """It is refused before anything is sent, whichever part it is."""
    before = await listed(store)
    for name in REFUSED:
        for of, called in ((namespace, name), (name, namespace)):
            with pytest.raises(InvalidArgumentError) as caught:
                await store.segment_distributor(namespace=of, name=called).next_max_id(1)
            assert caught.value.argument in {"namespace", "name", "namespace.name"}
            with pytest.raises(InvalidArgumentError):
                await store.set_floor(namespace=of, name=called, above=1)
        machines = store.machine_id_distributor
        for arguments in ({"namespace": name}, {"namespace": namespace, "instance_id": name}):
            with pytest.raises(InvalidArgumentError):
                machines(**arguments)  # type: ignore[arg-type]  # texts
        with pytest.raises(InvalidArgumentError):
            await store.evict_machine(namespace=name, machine_id=0)
        with suppress(InvalidArgumentError):
            assert await store.machine_bits(namespace=name) is None
    assert await listed(store) == before
    assert not await store.machines(namespace=namespace)


async def test_a_name_of_ten_thousand_characters(
    backend: Backend, store: Store, namespace: str
) -> None:
    """A counter of its own, or too long for a column; a machine's is always refused."""
    width = 256 if isinstance(backend, STORES["nats"]) else 100
    for name in ("x" * 10_000, "x" * 9_999, "\N{GRINNING FACE}" * 5_000):
        try:
            assert (
                await store.segment_distributor(namespace=namespace, name=name).next_max_id(5) == 5
            )
        except NameTooLongError as error:
            assert len(str(error)) < 300  # noqa: PT017 - or none
            assert error.limit == width  # noqa: PT017 - or none
            assert await listed(store, namespace) == {}
            fits = store.segment_distributor(
                namespace=namespace[:6], name="\N{GRINNING FACE}" * (width - 7)
            )
            assert await fits.next_max_id(5) > 0
        else:
            assert (await listed(store, namespace))[f"{namespace}.{name}"] == 5
        for arguments in ({"namespace": name}, {"namespace": namespace, "instance_id": name}):
            with pytest.raises(InvalidArgumentError, match=r"maximum \d+"):
                store.machine_id_distributor(**arguments)  # type: ignore[arg-type]  # texts


async def test_a_dot_may_belong_to_either(store: Store, namespace: str) -> None:
    """CosId joins them by a dot and so do we: these two are one counter, on every store."""
    one = store.segment_distributor(namespace=f"{namespace}.b", name="c")
    other = store.segment_distributor(namespace=namespace, name="b.c")
    assert [await each.next_max_id(5) for each in (one, other, one)] == [5, 10, 15]
    assert await listed(store, namespace) == await listed(store, f"{namespace}.b")


async def test_instances_and_their_namespaces(store: Store, namespace: str) -> None:
    """Each instance has a machine id of its own, each namespace its own numbers."""
    ids, some = {}, ACCEPTED[::4]
    for of in ("", *some[::2]):
        marked = f"{namespace}{of}"
        assert not (await store.initialize_namespace(namespace=marked)).is_quarantined
        markers = await store.machine_markers(namespace=marked)
        assert {each.namespace for each in markers} <= {marked}
    for name in some:
        machine = store.machine_id_distributor(namespace=namespace, instance_id=name)
        grant = await machine.distribute(8, now_ms=1, latest_ms=2**53)
        assert grant.machine_id not in ids, name
        ids[grant.machine_id] = name
        for stable in (False, True):  # the same instance, whatever it says of itself
            again = store.machine_id_distributor(
                namespace=namespace, instance_id=InstanceId(name, stable=stable)
            )
            same = await again.distribute(8, now_ms=1, latest_ms=2**53)
            assert same.machine_id == grant.machine_id, name
    held = await store.machines(namespace=namespace)
    assert {each.machine_id: each.instance_id for each in held} == ids
    for machine_id in (*ids,)[::7]:
        await store.evict_machine(namespace=namespace, machine_id=machine_id)
        del ids[machine_id]
    held = await store.machines(namespace=namespace)
    assert {each.machine_id: each.instance_id for each in held if each.instance_id} == ids
    for name in some[::2]:
        of = f"{namespace}{name}"
        machine = store.machine_id_distributor(namespace=of, instance_id=name)
        assert (await machine.distribute(3, now_ms=1, latest_ms=2**53)).machine_id == 0, of
        (each,) = await store.machines(namespace=of)
        assert (each.namespace, each.instance_id) == (of, name)
    assert {f"{namespace}{name}" for name in some[::2]} <= {
        each.namespace for each in await store.machines()
    }


async def test_the_namespace_of_a_listing(store: Store) -> None:
    """A text that no counter can have finds none, or is refused by name."""
    for name in REFUSED:
        for look in (store.counters, store.machines, store.machine_markers):
            try:
                assert name == "" or not await look(namespace=name)
            except InvalidArgumentError as error:
                assert error.argument == "namespace"  # noqa: PT017 - or none


async def test_groups() -> None:
    """A group is a counter's name too: two texts, two counts; what cannot be one is refused."""
    store = MemoryStore()
    key = ""
    async with GroupedSegmentId(
        store.segment_distributor,
        namespace="n",
        name="g",
        group_by=GroupBy.key(lambda: key),
        max_groups=10_000,
    ) as groups:
        for key in ACCEPTED:
            assert int(await groups.next_id()) == 1, key
        assert len(await store.counters(namespace="n")) == len(ACCEPTED)
        for key in REFUSED:  # noqa: B007 - as above
            with pytest.raises(InvalidArgumentError):
                await groups.next_id()
        key = "a"
        assert int(await groups.next_id()) == 2
    assert len(await store.counters(namespace="n")) == len(ACCEPTED)


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can be typed is raised and listed as it is, and no listing controls the terminal."""
    aiocosid = in_process(monkeypatch, capsys)
    namespace = f"t{uuid.uuid4().hex[:12]}"
    (tmp_path / "ids.db").touch()
    store = ("--store", f"sqlite:///{tmp_path}/ids.db")
    names = ["\x1b[31m", "a\nb", "--help", "'; --", "{a", "\N{RIGHT-TO-LEFT OVERRIDE}a", "%", "a b"]
    for name in names:
        raised = aiocosid(
            "set-floor", "--namespace", namespace, "--above", 7, "--create", *store, "--", name
        )
        assert raised.code == 0, raised
        assert raised.out.isprintable() or raised.out[:-1].isprintable()
    shown = aiocosid("inspect", "--namespace", namespace, *store)
    assert shown.code == 0
    assert all(line.isprintable() for line in shown.out.split("\n"))
    as_json = aiocosid("inspect", "--namespace", namespace, "--format", "json", *store)
    assert {each["namespaced_name"] for each in json.loads(as_json.out)} >= (
        {f"{namespace}.{name}" for name in names}
    )
    for refused in ("a\0b", "\ud800"):
        ended = aiocosid("set-floor", "--namespace", namespace, "--above", 7, *store, "--", refused)
        assert (ended.code, ended.out) == (2, "")
        assert "Traceback" not in ended.err


async def test_braces_on_a_cluster(valkey_cluster: ValkeyCluster, namespace: str) -> None:
    """One slot for all keys of a namespace; where a brace would scatter them, none is written."""
    async with store_from_url(valkey_cluster.url) as store:
        for number, name in enumerate(("{", "}", "{}", "}{", "{a}", "a}b{", "}}", "a")):
            counter = store.segment_distributor(namespace=f"{name}{namespace}", name=name, offset=7)
            assert await counter.next_max_id(5) == 12, name
            await store.set_floor(namespace=f"{name}{namespace}", name=name, above=100)
            assert await counter.next_max_id(1) == 101, name
            machine = store.machine_id_distributor(namespace=f"{name}{namespace}", instance_id=name)
            try:
                await store.initialize_namespace(namespace=f"{name}{namespace}")
                grant = await machine.distribute(3, now_ms=1, latest_ms=2**53)
            except StoreError as error:
                assert name.startswith("}"), (name, error)  # noqa: PT017 - or none
                assert not error.retryable  # noqa: PT017 - or none
            else:
                assert (grant.machine_id, name[0]) == (0, name[0].strip("}"))
                (held,) = await store.machines(namespace=f"{name}{namespace}")
                assert held.instance_id == name
            assert number < 8
        found = await store.machines()
        assert all(not each.namespace.startswith("}") for each in found)
