"""What all stores share, on a backend in memory that fails or forks as it is told."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

import pytest

from aiocosid._life import fork
from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.abc import MAX_ID, Counter, MachineMarker
from aiocosid.errors import (
    CosIdError,
    CounterMissingError,
    ForkedError,
    IdOverflowError,
    InvalidArgumentError,
    MachineIdQuarantineError,
    NameTooLongError,
    StoreRolledBackError,
    UnsupportedByStoreError,
    WouldBlock,
)
from aiocosid.machine.cells import Changes, MachineSlot, Owner, ReadRequest, Snapshot
from aiocosid.stores import backend
from aiocosid.stores.backend import after_add, after_raise, counters_of
from aiocosid.stores.base import BackendStore
from aiocosid.stores.memory import MemoryBackend, MemoryStore

LONG = "x" * 92
DAY_MS = 24 * 3600 * 1000


class Backend(MemoryBackend):
    """Loses replies, and calls a function before a counter is read."""

    def __init__(self, *, creates: bool = False) -> None:
        super().__init__(SYSTEM_CLOCK)
        self.creates = creates
        self.before_peek: Callable[[], object] = lambda: None
        self.lost_commits = self.closings = 0

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> bool:
        return self.creates

    async def peek(self, name: str) -> int | None:
        self.before_peek()
        return await super().peek(name)

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        done = await super().commit(snapshot, changes)
        if done and self.lost_commits:
            self.lost_commits -= 1
            return False
        return done

    async def aclose(self) -> None:
        self.closings += 1


def store_on(backend: Backend) -> MemoryStore:
    return MemoryStore._on(backend, "memory:")


@pytest.mark.parametrize(
    ("call", "arguments", "name"),
    [
        ("counters", {"namespace": "\0"}, "namespace"),
        ("machines", {"namespace": LONG}, "namespace"),
        ("machine_markers", {"namespace": LONG}, "namespace"),
        ("machine_bits", {"namespace": LONG}, "namespace"),
        ("initialize_namespace", {"namespace": LONG}, "namespace"),
        ("set_machine_bits", {"namespace": LONG, "bits": 2}, "namespace"),
        ("evict_machine", {"namespace": LONG, "machine_id": 0}, "namespace"),
        ("evict_machine", {"machine_id": -1}, "machine_id"),
        ("evict_machine", {"machine_id": 2**31}, "machine_id"),
        ("raise_machine_fence", {"namespace": LONG, "machine_id": 0, "above_ms": 0}, "namespace"),
        ("raise_machine_fence", {"machine_id": -1, "above_ms": 0}, "machine_id"),
        ("raise_machine_fence", {"machine_id": 2**31, "above_ms": 0}, "machine_id"),
        ("raise_machine_fence", {"machine_id": 0, "above_ms": -1}, "above_ms"),
        *(
            ("set_floor", {"name": "a", "above": bad}, "above")
            for bad in (-1, 2**63, 1.5, True, "5")
        ),
        *(
            ("initialize_namespace", {"safe_guard": bad}, "safe_guard")
            for bad in (0, -1, nan, True, "40")
        ),
    ],
)
async def test_a_bad_argument_is_named(call: str, arguments: dict[str, Any], name: str) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidArgumentError) as caught:
        await getattr(store, call)(**arguments)
    assert caught.value.argument == name
    assert (await store.counters(), await store.machines()) == ([], [])


async def test_a_mark_is_raised_from_the_epoch_to_a_day_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def now_ms(_: object) -> int:
        return 1000

    monkeypatch.setattr(type(SYSTEM_CLOCK), "now_ms", now_ms)
    store = MemoryStore()
    for above_ms in (0, 1000 + DAY_MS):
        assert await store.raise_machine_fence(machine_id=0, above_ms=above_ms)
    with pytest.raises(InvalidArgumentError, match="above_ms"):
        await store.raise_machine_fence(machine_id=0, above_ms=1001 + DAY_MS)
    await store.raise_machine_fence(machine_id=2**31 - 1, above_ms=1)


async def test_a_counter_that_has_answered_is_missed() -> None:
    backend = Backend()
    counter = store_on(backend).segment_distributor(name="a")
    assert (counter.store, counter.order_risk) == ("memory", "")
    await counter.next_max_id(5)
    backend._counters.clear()
    with pytest.raises(StoreRolledBackError):
        await counter.next_max_id(5)
    with pytest.raises(StoreRolledBackError):
        counter.next_max_id_nowait(5)
    with pytest.raises(CounterMissingError):
        await store_on(backend).set_floor(name="a", above=5, create=False)


async def test_a_child_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it was forked while the counter was read."""
    backend = Backend()
    store = store_on(backend)
    counter = store.segment_distributor(name="a")
    own = fork.generation
    backend.before_peek = lambda: monkeypatch.setattr(fork, "generation", own + 1)
    backend._refuse_child = lambda: None  # type: ignore[method-assign]  # the distributor's own
    with pytest.raises(ForkedError):
        await counter.peek()
    reads: list[None] = []
    backend.before_peek = lambda: reads.append(None)
    with pytest.raises(ForkedError):
        await counter.peek()
    assert reads == [], "a child does not read at all"
    del backend._refuse_child
    for child in (store, counter):
        with pytest.raises(ForkedError):
            await child.aopen()


@pytest.mark.parametrize("creates", [False, True])
@pytest.mark.parametrize("has_marker", [False, True])
async def test_a_disposable_store_is_marked(*, creates: bool, has_marker: bool) -> None:
    backend = Backend(creates=creates)
    backend.marker, backend.has_marker = None, has_marker
    store = store_on(backend)
    await store.create_schema()
    assert (backend.marker is not None) == (creates and has_marker)
    if has_marker:
        assert await store.is_initialized() == creates
        return
    with pytest.raises(UnsupportedByStoreError):
        await store.is_initialized()


@pytest.mark.parametrize("has_witness", [False, True])
async def test_a_store_for_tests_that_cannot_remember_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, has_witness: bool
) -> None:
    """This process knows it: one warning, and what its server is asked says it, too."""
    backend = Backend(creates=True)
    backend.has_witness = has_witness
    store = store_on(backend)
    assert not (await store.ask_server()).is_disposable
    monkeypatch.setenv("AIOCOSID_DISPOSABLE", "1")
    assert (await store.ask_server()).is_disposable is not has_witness
    monkeypatch.setenv("AIOCOSID_DISPOSABLE", "0")
    for _ in range(3):
        await store.create_schema()
    assert (await store.ask_server()).is_disposable is not has_witness
    assert [each.levelname for each in caplog.records] == ["WARNING"] * (not has_witness)
    assert ("memory: it is treated as disposable" in caplog.text) is not has_witness


async def test_markers_are_listed() -> None:
    """None where neither the namespace nor the store has one."""
    backend = Backend()
    store = store_on(backend)
    backend.marker = None
    assert await store.machine_markers(namespace="a") == []
    assert (await store.initialize_namespace(namespace="b")).is_created
    assert not (await store.initialize_namespace(namespace="b")).is_created
    due = [MachineMarker(namespace="b", seconds_left=0.0)]
    assert await store.machine_markers() == due
    await store.initialize(confirm_no_holders=True)
    assert await store.machine_markers(namespace="b") == due
    assert [each.namespace for each in await store.machine_markers(namespace="a")] == ["a"]


@pytest.mark.parametrize("heir", [None, "b"])
async def test_an_id_is_taken_away_once(heir: str | None) -> None:
    """Who has taken it since the reply was lost keeps it."""
    backend = Backend()
    store = store_on(backend)
    await store.machine_id_distributor(instance_id="a").distribute(2, now_ms=1, latest_ms=2)
    read = backend.read

    async def taken_meanwhile(namespace: str, need: ReadRequest) -> Snapshot:
        if heir is not None and not backend.lost_commits:
            backend.read = read  # type: ignore[method-assign]
            await store.machine_id_distributor(instance_id=heir).distribute(
                2, now_ms=1, latest_ms=2**53
            )
        return await read(namespace, need)

    backend.lost_commits = 1
    backend.read = taken_meanwhile  # type: ignore[method-assign]
    await store.evict_machine(machine_id=0)
    [found] = await store.machines()
    assert found.instance_id == (heir or "")


async def test_a_width_is_stored_and_changed() -> None:
    store = MemoryStore()
    assert await store.machine_bits() is None
    await store.initialize_namespace()
    assert await store.machine_bits() is None
    await store.set_machine_bits(bits=3)
    assert await store.machine_bits() == 3
    with pytest.raises(InvalidArgumentError):
        await store.set_machine_bits(bits=32)
    store.forget_machines()
    with pytest.raises(MachineIdQuarantineError) as caught:
        await store.set_machine_bits(bits=4)
    assert caught.value.seconds_left == 305, "no safe guard was ever named"


async def test_a_peers_id_is_taken_away() -> None:
    """It has no note of ours."""
    backend = Backend()
    store = store_on(backend)
    backend.cells_of("cosid").slots[0] = MachineSlot((Owner("java", 1),))
    await store.evict_machine(machine_id=0)
    [found] = await store.machines()
    assert found.instance_id == ""


async def test_closing_it_closes_the_backend() -> None:
    backend = Backend()
    async with store_on(backend):
        assert backend.closings == 0
    assert backend.closings == 1


# For servers that cannot do it by themselves, or not at all.


@pytest.mark.parametrize(
    ("found", "first", "due"),
    [
        (None, 7, 7),
        (None, 0, 0),
        (None, None, CounterMissingError),
        (3, 7, 8),
        (MAX_ID - 5, None, MAX_ID),
        (MAX_ID - 4, None, IdOverflowError),
    ],
)
def test_adding_to_a_counter(
    found: int | None, first: int | None, due: int | type[CosIdError]
) -> None:
    def added() -> int:
        return after_add(found, 5, first=first, store="s", name="n")

    if isinstance(due, int):
        assert added() == due
        return
    with pytest.raises(due):
        added()


@pytest.mark.parametrize(
    ("found", "above", "create", "due"),
    [
        (None, 5, False, -1),
        (None, 5, True, 5),
        (None, 0, True, 0),
        (3, 5, False, 5),
        (7, 5, True, 7),
    ],
)
def test_raising_a_counter(found: int | None, above: int, create: bool, due: int) -> None:
    assert after_raise(found, above, create=create) == due


def test_damaged_counters_are_left_out() -> None:
    found = [("a.x", 0), ("a.y", None), ("b.x", 1)]
    named = [Counter(namespaced_name="a.x", last_max_id=0)]
    assert counters_of(found, "a.") == named
    assert counters_of(found, "") == [*named, Counter(namespaced_name="b.x", last_max_id=1)]


class Link:
    """Counts."""

    opened = closed = 0

    async def aopen(self) -> None:
        self.opened += 1

    async def aclose(self) -> None:
        self.closed += 1


class Least(backend.Backend):
    """A backend with what every one has to have."""

    name_width = 7

    async def add(self, *_: Any, **__: Any) -> int:
        return 1

    async def raise_to(self, *_: Any, **__: Any) -> None:
        return None

    async def counters(self, prefix: str) -> list[Counter]:
        return []


async def test_what_a_backend_need_not_support() -> None:
    link = Link()
    backend = Least("label", link)
    await backend.aopen()
    await backend.aclose()
    assert (link.opened, link.closed) == (1, 1)
    assert (backend.name, Least("label", name="name").name) == ("label", "name")
    assert not backend.is_local
    assert not await backend.create_schema()
    with pytest.raises(WouldBlock):
        backend.add_nowait("a", 1, first=None)
    for refused in (
        backend.peek("a"),
        backend.read("a", ReadRequest()),
        backend.commit(Snapshot("a", "b"), Changes()),
        backend.namespaces(),
    ):
        with pytest.raises(UnsupportedByStoreError):
            await refused
    store: BackendStore[Least] = BackendStore._on(backend, "memory:")
    store.segment_distributor(namespace="cosid", name="x")
    with pytest.raises(NameTooLongError):
        store.segment_distributor(namespace="cosid", name="xy")
