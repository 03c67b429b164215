"""The dashboard's requests: who may see and do what, and what a page may not do."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import anyio
import httpx
import pytest
import pytest_asyncio

import aiocosid
from aiocosid.abc import Counter
from aiocosid.errors import StoreUnavailableError
from aiocosid.server import App, Token, TokenScope, digest_of
from aiocosid.server._overview import Watch
from aiocosid.server._tokens import Access
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock

WORDS = {wanted: f"aiocosid_{wanted}" for wanted in TokenScope}
TOKENS = [
    Token(name=wanted, digest=digest_of(word), scopes=(wanted, TokenScope.READ))
    for wanted, word in WORDS.items()
]
FORM = {"content-type": "application/x-www-form-urlencoded"}

TRY = {"action": "try", "generator": "order", "confirm": "yes"}
PARSE = {"action": "parse", "generator": "order", "id": "42"}
DRAIN = {"action": "drain", "confirm": "yes"}
FLOOR = {
    "action": "floor",
    "namespace": "shop",
    "name": "order",
    "above": "5000",
    "confirm": "shop.order",
}
REVERT = {"action": "evict", "namespace": "shop", "machine_id": "0", "confirm": "till:1"}


class Server:
    """An application that is open, and a client that talks to it."""

    def __init__(self, app: App, client: httpx.AsyncClient) -> None:
        self.app = app
        self.client = client

    async def act(
        self,
        fields: dict[str, str],
        wanted: TokenScope | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> httpx.Response:
        sent = {"accept": "application/json", **headers}
        if wanted is not None:
            sent["authorization"] = f"Bearer {WORDS[wanted]}"
        return await self.client.post("/dashboard", data=fields, headers=sent)


@pytest_asyncio.fixture(params=[()])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    ids = aiocosid.connect(MemoryStore(), namespace="shop", instance_id="till:1")
    app = App(ids, namespace="shop", tokens=request.param, hosts=["ids"])
    async with ids:
        await ids.store.initialize()
        await ids.segment("order", step=100)
        await ids.snowflake("event")
        app.service.adopt(ids)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://ids") as client:
            yield Server(app, client)


with_tokens = pytest.mark.parametrize("server", [TOKENS], indirect=True, ids=["tokens"])


class TestAccess:
    @with_tokens
    async def test_without_a_token_nothing_is_shown(self, server: Server) -> None:
        answer = await server.client.get("/dashboard/overview.json")
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/problem+json"
        page = await server.client.get("/dashboard")
        assert page.status_code == 200
        assert "needs a token" in page.text
        assert "order" not in page.text

    @with_tokens
    @pytest.mark.parametrize("word", ["", "aiocosid_nobodys", f"{WORDS[TokenScope.READ]} "])
    async def test_a_token_in_the_form(self, server: Server, word: str) -> None:
        page = await server.client.post("/dashboard", data={"token": word})
        is_right = word.strip() == WORDS[TokenScope.READ]
        assert ("Generators" in page.text) is is_right
        assert word.strip() not in page.text or not word.strip()

    @with_tokens
    @pytest.mark.parametrize(
        ("fields", "needed"),
        [
            (TRY, TokenScope.IDS),
            (PARSE, TokenScope.READ),
            (DRAIN, TokenScope.ADMIN),
            ({**DRAIN, "action": "undrain"}, TokenScope.ADMIN),
            (FLOOR, TokenScope.ADMIN),
            (REVERT, TokenScope.ADMIN),
        ],
    )
    async def test_each_action_needs_its_verb(
        self, server: Server, fields: dict[str, str], needed: TokenScope
    ) -> None:
        assert (await server.act(fields)).status_code == 401
        for wanted in TokenScope:
            if wanted is not needed and needed is not TokenScope.READ:
                assert (await server.act(fields, wanted)).status_code == 403
        assert (await server.act(fields, needed)).status_code == 200

    async def test_without_tokens_everybody_may(self, server: Server) -> None:
        assert (await server.client.get("/dashboard/overview.json")).status_code == 200
        assert (await server.act(TRY)).status_code == 200

    async def test_head_is_get_without_a_body(self, server: Server) -> None:
        for path in ("/", "/dashboard", "/dashboard/overview.json", "/dashboard/dashboard.css"):
            answer = await server.client.head(path)
            assert (answer.status_code, answer.content) == (200, b"")
            assert int(answer.headers["content-length"]) > 100

    async def test_no_other_file_is_served(self, server: Server) -> None:
        for name in ("_page.py", "..%2f_page.py", "%2e%2e", "x"):
            assert (await server.client.get(f"/dashboard/{name}")).status_code == 404

    async def test_a_page_of_full_tables_is_light(self, server: Server) -> None:
        provider = server.app.service.provider
        assert isinstance(provider, aiocosid.IdProvider)
        for number in range(210):
            await provider.segment(f"generator-{number}")
        page = await server.client.get("/dashboard")
        assert "12 more rows are not shown" in page.text
        assert int(page.headers["content-length"]) < 50_000

    async def test_it_can_be_left_out(self) -> None:
        app = App(aiocosid.connect("memory://"), dashboard=False, hosts=["ids"])
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://ids") as client:
            assert (await client.get("/dashboard")).status_code == 404


class TestOtherSites:
    @pytest.mark.parametrize(
        ("headers", "is_ours"),
        [
            ({}, True),  # no browser
            ({"sec-fetch-site": "same-origin", "origin": "http://proxied"}, True),
            ({"sec-fetch-site": "none"}, True),
            ({"sec-fetch-site": "same-site"}, False),
            ({"sec-fetch-site": "cross-site"}, False),
            ({"origin": "http://ids"}, True),
            ({"origin": "http://evil"}, False),
            ({"origin": "null"}, False),
        ],
    )
    async def test_their_forms_are_refused(
        self, server: Server, headers: dict[str, str], is_ours: bool
    ) -> None:
        answer = await server.act(DRAIN, headers=headers)
        assert (answer.status_code == 200) is is_ours
        assert server.app.service.is_draining is is_ours

    async def test_what_a_browser_is_told(self, server: Server) -> None:
        headers = (await server.client.get("/dashboard")).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in headers
        assert "access-control-allow-origin" not in headers


class TestActions:
    async def test_try(self, server: Server) -> None:
        first = await server.act(TRY)
        second = await server.act(TRY)
        assert (first.json()["values"], second.json()["values"]) == ({"id": "1"}, {"id": "2"})

    async def test_parse(self, server: Server) -> None:
        [new_id] = await server.app.service.next_ids("event", 1, access=Access())
        found = (await server.act({**PARSE, "generator": "event", "id": f" {new_id} "})).json()
        assert found["values"]["machine_id"] == "0"
        assert found["values"]["id"] == str(new_id)

    async def test_drain_and_serve_again(self, server: Server) -> None:
        await server.act(DRAIN)
        assert server.app.service.is_draining
        page = await server.client.get("/")
        assert "draining" in page.text
        await server.act({**DRAIN, "action": "undrain"})
        assert not server.app.service.is_draining

    async def test_a_floor(self, server: Server) -> None:
        answer = await server.act(FLOOR)
        assert answer.json()["values"] == {"last max id": "5000"}
        assert "5000" in (await server.client.get("/")).text  # not what was read before
        answer = await server.act({**FLOOR, "above": "10"})
        assert answer.json()["values"] == {"last max id": "5000"}

    async def test_a_floor_creates_only_if_it_is_said(self, server: Server) -> None:
        fields = {**FLOOR, "name": "new", "confirm": "shop.new"}
        assert (await server.act(fields)).status_code == 404
        assert (await server.act({**fields, "create": "yes"})).status_code == 200

    async def test_a_dead_holder(self, server: Server) -> None:
        assert (await server.act(REVERT)).status_code == 200
        [machine] = await server.app.service.store.machines(namespace="shop")
        assert machine.instance_id == ""
        again = await server.act(REVERT)
        assert "does not hold" in again.json()["detail"]

    @pytest.mark.parametrize(
        "fields",
        [
            {**TRY, "confirm": ""},
            {**TRY, "confirm": "no"},
            {"action": "try", "generator": "order"},
            {"action": "drain"},
            {"action": "undrain"},
            {**FLOOR, "confirm": "shop.orders"},
            {**FLOOR, "confirm": "yes"},
            {**FLOOR, "above": "-1"},
            {**FLOOR, "above": "9" * 30},
            {**FLOOR, "above": str(2**63)},
            {**FLOOR, "name": ""},
            {**REVERT, "confirm": "till:2"},
            {**REVERT, "machine_id": "7"},
            {"action": "delete"},
            {"action": ""},
            {**PARSE, "id": ""},
            {**PARSE, "id": "<b>"},
        ],
    )
    async def test_what_is_not_confirmed_is_not_done(
        self, server: Server, fields: dict[str, str], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "aiocosid.server.audit")
        store = server.app.service.store
        before = await store.counters(), await store.machines(namespace="shop")
        answer = await server.act(fields)
        assert answer.status_code == 400
        assert (await store.counters(), await store.machines(namespace="shop")) == before
        assert not server.app.service.is_draining
        assert caplog.messages == []
        page = await server.client.post("/dashboard", data=fields)
        assert page.status_code == 400
        assert 'class="bad"' in page.text
        assert "<b>" not in page.text

    async def test_an_unknown_generator(self, server: Server) -> None:
        assert (await server.act({**TRY, "generator": "none"})).status_code == 404
        assert (await server.act({**PARSE, "generator": "none"})).status_code == 404

    @with_tokens
    async def test_who_has_done_it_is_noted(
        self, server: Server, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "aiocosid.server.audit")
        await server.act(TRY, TokenScope.IDS)
        for fields in (DRAIN, {**DRAIN, "action": "undrain"}, FLOOR, REVERT):
            await server.act(fields, TokenScope.ADMIN)
        assert caplog.messages == [
            "ids: took an id of 'order' by the dashboard",
            "admin: drains",
            "admin: serves again",
            "admin: raised the floor of 'shop.order' above 5000, create=False",
            "admin: took machine id 0 of 'shop' from 'till:1'",
        ]

    @pytest.mark.parametrize(
        ("body", "headers", "status"),
        [
            (b"action=drain&confirm=yes", {"content-type": "text/plain"}, 415),
            (b"action=drain&confirm=yes", {}, 415),
            (b"\xff=1", FORM, 400),
            (b"a=%ff", FORM, 400),
            (b"a=1&" * 50, FORM, 400),
            (b"a=" + b"x" * 70_000, FORM, 413),
        ],
    )
    async def test_no_form(
        self, server: Server, body: bytes, headers: dict[str, str], status: int
    ) -> None:
        answer = await server.client.post("/dashboard", content=body, headers=headers)
        assert answer.status_code == status
        assert not server.app.service.is_draining


class FailingStore(MemoryStore):
    """Refuses to list its counters, and counts how often it is asked."""

    calls = 0
    is_silent = False

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        self.calls += 1
        if self.is_silent:
            await anyio.sleep_forever()
        raise StoreUnavailableError("redis", "redis://user:password@host is away")


@asynccontextmanager
async def watching(store: MemoryStore, *clock: ManualClock) -> AsyncGenerator[Watch]:
    """The watch of a server on a store."""
    ids = aiocosid.connect(store, namespace="shop")
    app = App(ids)
    async with ids:
        app.service.adopt(ids)
        yield Watch(app.service, *clock)


async def tables_of(watch: Watch) -> dict[str, Any]:
    tree: Any = (await watch.overview()).as_tree()
    tables: dict[str, Any] = tree["tables"]
    return tables


class TestWatch:
    async def test_a_part_that_fails_hides_no_other(self) -> None:
        async with watching(FailingStore()) as watch:
            tables = await tables_of(watch)
        [store] = tables["stores"]["rows"]
        assert store[1] == {"text": "fails", "why": "StoreUnavailableError", "level": "bad"}
        assert tables["counters"]["note"].endswith("StoreUnavailableError")
        assert tables["machines"]["note"] == "None was ever handed out."
        assert "password" not in f"{tables}"

    async def test_a_silent_store_delays_it_by_half_a_second(self) -> None:
        """It is read on beside the requests."""
        clock, store = ManualClock(), FailingStore()
        store.is_silent = True
        async with watching(store, clock) as watch, anyio.create_task_group() as group:
            notes: list[str] = []

            async def show() -> None:
                notes.append((await tables_of(watch))["counters"]["note"])

            group.start_soon(show)
            await anyio.wait_all_tasks_blocked()
            assert notes == []
            await clock.advance(0.5)
            await anyio.wait_all_tasks_blocked()
            assert notes == ["The store has not been read yet."]
            await clock.advance(1.5)
            await anyio.wait_all_tasks_blocked()
            await show()
            assert notes[1].endswith("no answer in 2 s")

    async def test_browsers_share_what_was_read(self) -> None:
        clock, store = ManualClock(), FailingStore()
        async with watching(store, clock) as watch:
            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(watch.overview)
            for seconds, calls in ((0.0, 1), (1.9, 1), (0.2, 2)):
                await clock.advance(seconds)
                await watch.overview()
                assert store.calls == calls
            watch.refresh()
            await watch.overview()
            assert store.calls == 3

    async def test_a_foreign_store_is_named_by_its_class(self) -> None:
        class Secretive(FailingStore):
            def __repr__(self) -> str:
                return "<Secretive redis://user:password@host>"

        async with watching(Secretive()) as watch:
            [store] = (await tables_of(watch))["stores"]["rows"]
        assert store[0] == {"text": "Secretive"}
