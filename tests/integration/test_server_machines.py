"""Attacks on machine ids through the id service: by every scope, and by every protocol.

The victim holds an id through a token of its own.  The attacker has another token, with every scope
but ``admin``, and knows all that can be seen.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from aiocosid import connect, store_from_url
from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.abc import InstanceId, MachineGrant, MachineIdDistributor, Store
from aiocosid.errors import (
    InvalidArgumentError,
    MachineIdInUseError,
    MachineIdLostError,
    MachineIdOverflowError,
    MachineIdQuarantineError,
    StoreAuthenticationError,
)
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.machine.operations import ReleaseOperation, RenewOperation, TakeOperation
from aiocosid.server import App, Token, TokenScope, digest_of
from aiocosid.server.dialects import cosid
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.remote import RemoteStore

from ._web import serve

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

SECRETS: Final = {name: f"aiocosid_of-{name}" for name in ("victim", "attacker", "operator")}
LESS: Final = tuple(verb for verb in TokenScope if verb is not TokenScope.ADMIN)
TOKENS: Final = [
    Token(
        name=name,
        digest=digest_of(secret),
        scopes=tuple(TokenScope) if name == "operator" else LESS,
    )
    for name, secret in SECRETS.items()
]
FAR: Final = 2**52
MINUTE: Final = 60_000
SPACE: Final = "shop"


class Arena:
    """A service on a store in memory, and who uses it.

    Attributes:
        store: the store itself.
        stores: the clients of the library, by the name of their token.
        web: the same for HTTP.
        now_ms: the time.
        fence_ms: no id of the victim is later.
    """

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.stores: dict[str, RemoteStore] = {}
        self.web: dict[str, httpx.Client] = {}
        self.now_ms = SYSTEM_CLOCK.now_ms()
        self.fence_ms = self.now_ms + MINUTE

    def of(self, token: str, instance: str, **options: Any) -> CellMachineIdDistributor:
        who = InstanceId(instance, stable=options.pop("stable", False))
        found: CellMachineIdDistributor = self.stores[token].machine_id_distributor(
            namespace=SPACE, instance_id=who, **options
        )
        return found

    async def take(self, machine: MachineIdDistributor, bits: int = 1) -> MachineGrant:
        return await machine.distribute(bits, now_ms=self.now_ms, latest_ms=FAR)

    async def check(self, victim: MachineIdDistributor) -> None:
        """Check that the victim's id is its own, and that its mark stands."""
        listed = await self.store.machines(namespace=SPACE)
        [held] = [each for each in listed if each.machine_id == 0]
        assert held.instance_id == "victim"
        assert held.fence_ms >= self.fence_ms
        await victim.renew(0, now_ms=self.now_ms, fence_ms=self.fence_ms)


@pytest.fixture
def served() -> Generator[tuple[App, MemoryStore, httpx.Client]]:
    store = MemoryStore()
    app = App(
        connect("memory://"),
        store=store,
        tokens=TOKENS,
        dialects=[cosid.routes],
        receipt_key="of all servers, and of nobody else",
    )
    with serve(app) as client:
        yield app, store, client


@pytest_asyncio.fixture
async def arena(served: tuple[App, MemoryStore, httpx.Client]) -> AsyncGenerator[Arena]:
    """A victim is at work elsewhere, and so is an attacker."""
    _, store, client = served
    found = Arena(store)
    url = client.base_url
    async with AsyncExitStack() as stack:
        for name, secret in SECRETS.items():
            remote = store_from_url(
                f"aiocosid+http://{url.host}:{url.port}?token={secret}&timeout=20"
            )
            assert isinstance(remote, RemoteStore)
            found.stores[name] = await stack.enter_async_context(remote)
            headers = {"authorization": f"Bearer {secret}"}
            found.web[name] = stack.enter_context(httpx.Client(base_url=url, headers=headers))
        yield found


@pytest_asyncio.fixture
async def victim(arena: Arena) -> CellMachineIdDistributor:
    """Has machine id 0."""
    found = arena.of("victim", "victim")
    assert (await arena.take(found)).machine_id == 0
    await found.renew(0, now_ms=arena.now_ms, fence_ms=arena.fence_ms)
    return found


# The operations of a holder.


async def test_nobody_takes_the_id_of_anothers_instance(
    arena: Arena, victim: CellMachineIdDistributor
) -> None:
    """Neither by its name, nor as stable, nor by any safe guard."""
    for options in ({}, {"stable": True}, {"safe_guard": 0.001, "interval": 0.0001}):
        with pytest.raises(MachineIdInUseError):
            await arena.take(arena.of("attacker", "victim", **options))
    one = await arena.take(arena.of("attacker", "other"))
    assert one.machine_id == 1
    hasty = arena.of("attacker", "third", safe_guard=0.001, interval=0.0001)
    with pytest.raises(MachineIdOverflowError):
        await arena.take(hasty)
    await arena.check(victim)


async def test_a_servers_words_are_not_a_clients(
    arena: Arena, victim: CellMachineIdDistributor
) -> None:
    """Who it is, how careful the rules are, and the time are the server's."""
    asked = TakeOperation(
        instance="victim",
        guard_ms=1,
        owner="",
        is_guest=False,
        clock_ms=FAR,
        bits=1,
        now_ms=arena.now_ms,
        latest_ms=FAR,
        token="mine",  # noqa: S106 - of a call
        over="any",
    )
    with pytest.raises(MachineIdInUseError):
        await arena.of("attacker", "victim").ask_take(asked)
    await arena.check(victim)


async def test_nothing_is_asserted_without_a_proof(
    arena: Arena, victim: CellMachineIdDistributor
) -> None:
    """After a loss the attacker says that it was first; the quarantine runs."""
    mine = arena.of("attacker", "mine")
    number = (await arena.take(mine)).machine_id
    await mine.renew(number, now_ms=arena.now_ms, fence_ms=-1)
    proof = victim._receipt
    arena.store.forget_machines(namespace=SPACE, everything=True)
    asked = RenewOperation(
        instance="mine",
        guard_ms=1,
        machine_id=number,
        now_ms=arena.now_ms,
        fence_ms=-1,
        token=mine._token,
        bits=1,
        requested_ms=arena.now_ms,
        is_valid=True,
        receipt=mine._receipt,
    )
    until, _, digest = mine._receipt.partition(".")
    for lie in (
        *({"receipt": each} for each in ("", "x", "1", proof, f"{int(until) + 1}.{digest}")),
        *({"receipt": f"{until}.1.{digest.partition('.')[2]}"}, {"machine_id": 0}, {"bits": 2}),
        *({"token": victim._token}, {"instance": "victim"}, {"instance": "other"}),
        {"instance": "victim", "machine_id": 0, "token": victim._token, "receipt": proof},
    ):
        with pytest.raises(MachineIdQuarantineError):
            await mine.ask_renew(replace(asked, **lie))  # type: ignore[arg-type]
    assert [each for each in await arena.store.machines() if each.instance_id] == []
    await victim.reassert(0, now_ms=arena.now_ms, fence_ms=arena.fence_ms)
    await mine.ask_renew(asked)
    listed = await arena.store.machines(namespace=SPACE)
    assert [(each.instance_id, each.fence_ms) for each in listed] == [
        ("victim", arena.fence_ms),
        ("mine", -1),
    ]


async def test_a_twin_learns_no_token(arena: Arena, victim: CellMachineIdDistributor) -> None:
    """A caller of the same access is told that another process has the id, and cannot be it."""
    door = arena.of("victim", "victim")
    about: dict[str, Any] = {"instance": "victim", "stable": True}
    asked = TakeOperation(**about, bits=1, now_ms=0, latest_ms=FAR, token="mine")  # noqa: S106 - of a call
    took = await door.ask_take(asked)
    assert took.twin_ms > 0
    for token in (took.former, took.former.partition(" ")[0]):
        await door.ask_release(ReleaseOperation(**about, machine_id=0, last_ms=0, token=token))
        with pytest.raises(MachineIdInUseError):
            await arena.take(arena.of("attacker", "victim"))
    await arena.check(victim)


@pytest.mark.parametrize(
    ("lie", "argument"), [({"bits": 2**53 - 1}, "bits"), ({"machine_id": 2}, "machine_id")]
)
async def test_a_renewal_of_a_width_that_cannot_be(
    arena: Arena, victim: CellMachineIdDistributor, lie: dict[str, Any], argument: str
) -> None:
    """After a loss of data it would be the width of the namespace."""
    arena.store.forget_machines(namespace=SPACE, everything=True)
    asked = RenewOperation(
        instance="victim",
        machine_id=0,
        now_ms=arena.now_ms,
        fence_ms=-1,
        token=victim._token,
        bits=1,
        is_valid=True,
        receipt=victim._receipt,
    )
    with pytest.raises(InvalidArgumentError, match=argument):
        await victim.ask_renew(replace(asked, **lie))
    await victim.reassert(0, now_ms=arena.now_ms, fence_ms=arena.fence_ms)
    [held] = await arena.store.machines(namespace=SPACE)
    assert (held.instance_id, held.fence_ms) == ("victim", arena.fence_ms)


@pytest.mark.parametrize("token", ["", "a b", "a@b", "a|b", "x" * 65])
async def test_what_names_no_call(
    arena: Arena, victim: CellMachineIdDistributor, token: str
) -> None:
    """An empty one was stored, and the id counted as lost."""
    mine = arena.of("attacker", "mine")
    about: dict[str, Any] = {"instance": "mine", "guard_ms": MINUTE, "now_ms": arena.now_ms}
    with pytest.raises(InvalidArgumentError, match="token"):
        await mine.ask_take(TakeOperation(**about, bits=1, latest_ms=FAR, token=token))
    await arena.check(victim)


async def test_offline_for_longer_than_a_mark_may_be_ahead(arena: Arena, tmp_path: Path) -> None:
    """It is refused at once; the first renewal said that the clock was wrong."""
    for offline in (86_400, 86_401):
        options = {"offline": offline, "state_dir": tmp_path / f"{offline}"}
        machine = arena.of("victim", f"pod-{offline}", stable=True, **options)
        if offline == 86_400:
            assert (await arena.take(machine)).machine_id == 0
            continue
        with pytest.raises(InvalidArgumentError, match="at most 86400 seconds"):
            await arena.take(machine)


async def test_nothing_is_asserted_at_a_brokers_socket_without_a_proof() -> None:
    """No caller has a token there, and none is an administrator."""
    store = MemoryStore()
    key = "of one broker, while it runs, and of nobody else"
    app = App(connect("memory://"), store=store, offers=LESS, receipt_key=key)
    with serve(app) as client:
        url = f"aiocosid+http://{client.base_url.host}:{client.base_url.port}?timeout=20"
        async with RemoteStore.from_url(url) as remote:
            one, other = (
                remote.machine_id_distributor(namespace=SPACE, instance_id=text) for text in "ab"
            )
            now_ms = SYSTEM_CLOCK.now_ms()
            assert (await one.distribute(1, now_ms=now_ms, latest_ms=FAR)).machine_id == 0
            await one.renew(0, now_ms=now_ms, fence_ms=now_ms + MINUTE)
            store.forget_machines(namespace=SPACE, everything=True)
            lie: dict[str, Any] = {"instance": "b", "token": "t", "bits": 1, "is_valid": True}
            for receipt in ("", one._receipt):
                asked = RenewOperation(
                    **lie, machine_id=0, now_ms=now_ms, fence_ms=-1, receipt=receipt
                )
                with pytest.raises(MachineIdQuarantineError):
                    await other.ask_renew(asked)
            await one.reassert(0, now_ms=now_ms, fence_ms=now_ms + MINUTE)
    [held] = await store.machines(namespace=SPACE)
    assert (held.instance_id, held.fence_ms) == ("a", now_ms + MINUTE)


async def test_a_receipt_ends_with_its_lease(
    arena: Arena, victim: CellMachineIdDistributor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each renewal is answered with a later one."""
    early = victim._receipt
    later_ms = arena.now_ms + 100_000
    monkeypatch.setattr("aiocosid.server._machines.SYSTEM_CLOCK", At(later_ms))
    await victim.renew(0, now_ms=arena.now_ms, fence_ms=arena.fence_ms)
    late = victim._receipt
    assert int(late.partition(".")[0]) == later_ms + 300_000
    arena.store.forget_machines(namespace=SPACE, everything=True)
    monkeypatch.setattr("aiocosid.server._machines.SYSTEM_CLOCK", At(later_ms + 300_000))
    victim._receipt = early
    with pytest.raises(MachineIdQuarantineError):
        await victim.reassert(0, now_ms=arena.now_ms, fence_ms=arena.fence_ms)
    victim._receipt = late
    await victim.reassert(0, now_ms=arena.now_ms, fence_ms=arena.fence_ms)


class At:
    """A clock that stands still."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


async def test_without_a_key_the_quarantine_runs(
    served: tuple[App, MemoryStore, httpx.Client],
    arena: Arena,
    victim: CellMachineIdDistributor,
) -> None:
    served[0].service.receipt_key = ""
    arena.store.forget_machines(namespace=SPACE, everything=True)
    with pytest.raises(MachineIdQuarantineError):
        await victim.reassert(0, now_ms=arena.now_ms, fence_ms=arena.fence_ms)


@pytest.mark.parametrize("asks_for_tokens", [True, False])
async def test_a_server_whose_store_is_another_server_passes_receipts(
    *, asks_for_tokens: bool
) -> None:
    """Each signs for its own caller; what one of them has not signed is no proof."""
    store, now_ms = MemoryStore(), SYSTEM_CLOCK.now_ms()
    far = App(
        connect("memory://"),
        store=store,
        tokens=TOKENS if asks_for_tokens else (),
        receipt_key="of the far server, and of nobody else",
    )
    with serve(far) as client:
        where = f"{client.base_url.host}:{client.base_url.port}?timeout=20"
        token = f"&token={SECRETS['operator']}" if asks_for_tokens else ""
        near = App(
            connect("memory://"),
            store=store_from_url(f"aiocosid+http://{where}{token}"),
            tokens=TOKENS,
            receipt_key="of the near server, and of nobody else",
        )
        with serve(near) as other:
            where = f"{other.base_url.host}:{other.base_url.port}?timeout=20"
            async with AsyncExitStack() as stack:
                machines: list[Any] = []
                for name in ("victim", "attacker"):
                    url = f"aiocosid+http://{where}&token={SECRETS[name]}"
                    remote = await stack.enter_async_context(store_from_url(url))
                    machines.append(
                        remote.machine_id_distributor(namespace=SPACE, instance_id=name)
                    )
                victim, attacker = machines
                for number, each in enumerate(machines):
                    assert (
                        await each.distribute(1, now_ms=now_ms, latest_ms=FAR)
                    ).machine_id == number
                    await each.renew(number, now_ms=now_ms, fence_ms=now_ms + MINUTE)
                store.forget_machines(namespace=SPACE, everything=True)
                real = attacker._receipt
                ours, _, further = real.partition(" ")
                assert further
                for lie in ("", further, f"{ours[:-1]}x {further}", victim._receipt):
                    attacker._receipt = lie
                    with pytest.raises(MachineIdQuarantineError):
                        await attacker.reassert(1, now_ms=now_ms, fence_ms=now_ms + MINUTE)
                if asks_for_tokens:
                    attacker._receipt = ours
                    with pytest.raises(MachineIdQuarantineError):
                        await attacker.reassert(1, now_ms=now_ms, fence_ms=now_ms + MINUTE)
                attacker._receipt = real
                for number, each in enumerate(machines):
                    await each.reassert(number, now_ms=now_ms, fence_ms=now_ms + MINUTE)
    held = await store.machines(namespace=SPACE)
    assert [(each.instance_id, each.fence_ms) for each in held] == [
        ("victim", now_ms + MINUTE),
        ("attacker", now_ms + MINUTE),
    ]


# What operators do.


def commands(store: Store) -> dict[str, Callable[[], Any]]:
    """All of them."""
    about: dict[str, Any] = {"namespace": SPACE}
    return {
        "revert": lambda: store.evict_machine(**about, machine_id=0),
        "raise": lambda: store.raise_machine_fence(**about, machine_id=0, above_ms=1),
        "bits": lambda: store.set_machine_bits(**about, bits=5),
        "forget": lambda: store.forget_namespace(**about),
        "repair": lambda: store.repair_machines(**about),
        "mark": lambda: store.initialize_namespace(**about, confirm_no_holders=True),
        "initialize": lambda: store.initialize(confirm_no_holders=True),
        "create": store.create_schema,
    }


@pytest.mark.parametrize("name", [*commands(MemoryStore())])
async def test_a_command_needs_admin(
    arena: Arena, victim: CellMachineIdDistributor, name: str
) -> None:
    with pytest.raises(StoreAuthenticationError, match="admin"):
        await commands(arena.stores["attacker"])[name]()
    await arena.check(victim)


async def test_an_operator_may(arena: Arena, victim: CellMachineIdDistributor) -> None:
    """Each command does what it does on the store itself."""
    operator = arena.stores["operator"]
    assert [each.instance_id for each in await operator.machines(namespace=SPACE)] == ["victim"]
    await operator.evict_machine(namespace=SPACE, machine_id=0)
    with pytest.raises(MachineIdLostError):
        await victim.renew(0, now_ms=arena.now_ms, fence_ms=-1)
    above_ms = arena.now_ms + 2 * MINUTE
    assert await operator.raise_machine_fence(namespace=SPACE, machine_id=0, above_ms=above_ms)
    await operator.set_machine_bits(namespace=SPACE, bits=5)
    assert await operator.machine_bits(namespace=SPACE) == 5
    assert not await operator.forget_namespace(namespace="gone")
    assert (
        await operator.initialize_namespace(namespace=SPACE, confirm_no_holders=True, safe_guard=7)
    ).is_created
    [marker] = await operator.machine_markers(namespace=SPACE)
    assert marker.safe_guard == 7
    await operator.initialize(confirm_no_holders=True)
    assert await operator.is_initialized()


async def test_an_operator_repairs(arena: Arena, victim: CellMachineIdDistributor) -> None:
    """An id that is held stays as it is, until it is taken from its holder."""
    direct = arena.store.machine_id_distributor(namespace=SPACE, instance_id="micro")
    number = (await arena.take(direct)).machine_id
    await direct.renew(number, now_ms=arena.now_ms * 1000, fence_ms=arena.now_ms * 1000)
    url = f"/v1/repairs/{SPACE}"
    assert arena.web["attacker"].post(url).status_code == 403
    assert arena.web["operator"].post(url).json() == {"repaired": [], "held": [number]}
    operator = arena.stores["operator"]
    await operator.evict_machine(namespace=SPACE, machine_id=number)
    [found] = await operator.repair_machines(namespace=SPACE)
    assert (found.machine_id, found.fence_ms) == (number, arena.now_ms * 1000)
    assert arena.web["operator"].post(url).json() == {"repaired": [], "held": []}
    floor = (await arena.take(arena.of("attacker", "next"))).floor_ms
    assert arena.now_ms < floor <= arena.now_ms + 2 * MINUTE
    await arena.check(victim)


async def test_no_cells_are_read_or_written(arena: Arena) -> None:
    for op in ("read", "commit", "namespaces"):
        for name in SECRETS:
            answer = arena.web[name].post(f"/v1/store/{op}", json={})
            assert (answer.status_code, answer.json()["kind"]) == (404, "unknown-operation")


# Version 1.


async def test_version_1(arena: Arena, victim: CellMachineIdDistributor) -> None:
    """The same, by anybody's HTTP."""
    web, who = arena.web["attacker"], {"instance_id": "victim", "safe_guard": 0.001}
    asked = {**who, "bits": 1, "now_ms": arena.now_ms}
    answer = web.post(f"/v1/machines/{SPACE}", json=asked)
    assert (answer.status_code, answer.json()["kind"]) == (409, "machine-id-in-use")
    for lease in ("x", "victim"):
        renewal = {**who, "lease": lease, "now_ms": arena.now_ms, "fence_ms": FAR}
        answer = web.patch(f"/v1/machines/{SPACE}/0", json=renewal)
        assert (answer.status_code, answer.json()["kind"]) == (409, "machine-id-lost")
        end = {**who, "lease": lease, "last_ms": 0}
        web.request("DELETE", f"/v1/machines/{SPACE}/0", json=end)
    await arena.check(victim)


# CosId's proxy, whose clients have no lease.


def named(instance: str, **more: str) -> dict[str, str]:
    return {"instanceId": instance, "stable": "false", "safeGuardDuration": "PT0.001S", **more}


async def test_cosids_clients(arena: Arena, victim: CellMachineIdDistributor) -> None:
    """They have no id of another access, whoever took it by whatever protocol."""
    java = arena.web["victim"].post(f"/machines/{SPACE}", params=named("java", machineBit="1"))
    assert java.json()["machineId"] == 1
    direct = arena.store.machine_id_distributor(namespace="direct", instance_id="victim")
    await arena.take(direct)
    web = arena.web["attacker"]
    for space, instance in ((SPACE, "victim"), (SPACE, "java"), ("direct", "victim")):
        taken = web.post(f"/machines/{space}", params=named(instance, machineBit="1"))
        assert taken.status_code >= 400
        assert web.patch(f"/machines/{space}", params=named(instance)).json()["code"] == "M-02"
        assert web.delete(f"/machines/{space}", params=named(instance)).json()["code"] == "M-02"
    other = web.post(f"/machines/{SPACE}", params=named("hasty", machineBit="1"))
    assert other.json()["code"] == "M-01"
    renewed = arena.web["victim"].patch(f"/machines/{SPACE}", params=named("java"))
    assert renewed.status_code == 200
    await arena.check(victim)
    await direct.renew(0, now_ms=arena.now_ms, fence_ms=-1)


async def test_public_clients_of_cosid_have_their_own_ids_alone() -> None:
    """Without a token they are one access."""
    store = MemoryStore()
    dialects = [partial(cosid.routes, public=True)]
    app = App(connect("memory://"), store=store, tokens=TOKENS, dialects=dialects)
    with serve(app) as web:
        auth = {"authorization": f"Bearer {SECRETS['victim']}"}
        asked = {"instance_id": "victim", "bits": 1, "now_ms": SYSTEM_CLOCK.now_ms()}
        assert web.post(f"/v1/machines/{SPACE}", json=asked, headers=auth).status_code == 200
        for instance, status in (("victim", 400), ("mine", 200)):
            taken = web.post(f"/machines/{SPACE}", params=named(instance, machineBit="1"))
            assert (taken.status_code == 200) == (status == 200)
            for ask in (web.patch, web.delete):
                assert ask(f"/machines/{SPACE}", params=named(instance)).status_code == status


async def test_cosids_clients_ask_the_server_that_has_the_store() -> None:
    """One behind it could hand out a machine id, and then not renew it by its instance alone."""
    store = MemoryStore()
    with serve(App(connect("memory://"), store=store)) as far:
        url = f"aiocosid+http://{far.base_url.host}:{far.base_url.port}?timeout=20"
        near = App(connect("memory://"), store=store_from_url(url), dialects=[cosid.routes])
        with serve(near) as web:
            for method in ("POST", "PATCH", "DELETE"):
                path = f"/machines/{SPACE}"
                answer = web.request(method, path, params=named("java", machineBit="1"))
                assert (answer.status_code, answer.json()["code"]) == (501, "501")
                assert "ask that one" in answer.json()["msg"]
    assert await store.machines(namespace=SPACE) == []


# An instance moves.
