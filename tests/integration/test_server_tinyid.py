"""The id service in the place of tinyid's server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from aiocosid.compat.tinyid import TinyidStore
from aiocosid.provider import configure
from aiocosid.server import App, Limits, Token, TokenScope, digest_of
from aiocosid.server.dialects import tinyid
from aiocosid.stores.memory import MemoryStore

from ._web import serve

pytestmark = [pytest.mark.integration]

SECRET: Final = "0f673adf80504e2eaa552f5d791b644c"  # noqa: S105 - tinyid's own example
TOKENS: Final = (
    Token(
        name="shop",
        digest=digest_of(SECRET),
        scopes=(TokenScope.IDS, TokenScope.SEGMENTS),
        names=("test", "a b", "text", "day", "gone"),
    ),
    Token(name="ids", digest=digest_of("ids-only"), scopes=(TokenScope.IDS,)),
    Token(name="old", digest=digest_of("outdated"), scopes=(TokenScope.IDS,), expires_ms=1),
)
GENERATORS: Final[dict[str, Any]] = {
    "test": {"kind": "chain", "step": 1000},
    "a b": {"kind": "segment"},
    "other": {"kind": "chain"},
    "text": {"kind": "chain", "converter": "radix62"},
    "day": {"kind": "grouped", "group_by": "day", "zone": "UTC"},
}
ROUTES: Final = ("nextId", "nextIdSimple", "nextSegmentId", "nextSegmentIdSimple")
REFUSED: Final = '{"data":null,"code":5,"message":"token is error"}'


@contextmanager
def server(store: Any = None, generators: Any = None, **options: Any) -> Generator[httpx.Client]:
    given = {"store": store or MemoryStore(), "generators": generators or GENERATORS}
    limits = Limits(body=500)
    routes = partial(tinyid.routes, **options)
    app = App(configure(given, default=False), tokens=TOKENS, limits=limits, dialects=[routes])
    with serve(app) as client:
        client.base_url = client.base_url.join("/tinyid/id/")
        yield client


@pytest.fixture(scope="module")
def client() -> Generator[httpx.Client]:
    with server() as found:
        yield found


def form(**more: object) -> Mapping[str, Any]:
    return {"bizType": "test", "token": SECRET, **more}


class TestIds:
    def test_query_or_form(self, client: httpx.Client) -> None:
        """By any scope; a parameter of the query counts before one of the form."""
        first = client.get("nextId", params=form())
        assert first.headers["cache-control"] == "no-store"
        assert list(first.json()) == ["data", "code", "message"]
        (before,) = first.json()["data"]
        asked = (
            client.post("nextId", data=form()),
            client.post("nextId", params=form()),
            client.put("nextId", data=form()),
            client.post("nextId", params={"bizType": "test"}, data=form(bizType="nope")),
        )
        for turn, answer in enumerate(asked, 1):
            assert answer.text == f'{{"data":[{before + turn}],"code":200,"message":""}}'
            assert answer.status_code == 200

    def test_between_commas(self, client: httpx.Client) -> None:
        answer = client.get("nextIdSimple", params=form(batchSize=3))
        first, *rest = map(int, answer.text.split(","))
        assert rest == [first + 1, first + 2]
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert client.get("nextIdSimple", params=form(batchSize="")).text == str(first + 3)

    @pytest.mark.parametrize("name", ROUTES)
    @pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
    def test_head_takes_nothing(self, client: httpx.Client, method: str, name: str) -> None:
        asked = form(bizType="a b")
        before = int(client.get("nextIdSimple", params=asked).text)
        answer = client.request(method, name, params=asked)
        assert (answer.status_code, answer.content) == (200, b"")
        assert int(client.get("nextIdSimple", params=asked).text) == before + 1

    @pytest.mark.parametrize(
        "size", ["0", "-1", "100001", "x", "1.5", "٣", "9" * 400, str(2**63), " 1"]
    )
    def test_a_batch_that_is_none(self, client: httpx.Client, size: str) -> None:
        """Refused, and not cut down in silence."""
        body = client.get("nextId", params=form(batchSize=size)).json()
        assert (body["data"], body["code"]) == (None, 6)
        assert "batchSize" in body["message"]
        assert client.get("nextIdSimple", params=form(batchSize=size)).content == b""

    def test_the_largest_batch(self, client: httpx.Client) -> None:
        ids = client.get("nextId", params=form(batchSize=100_000)).json()["data"]
        assert len(set(ids)) == 100_000

    def test_cut_down_if_configured(self) -> None:
        """As tinyid does."""
        with server(cap_batches=True) as client:
            ids = client.get("nextId", params=form(batchSize=100_001)).json()["data"]
            assert len(ids) == 100_000
            assert client.get("nextId", params=form(batchSize=0)).json()["code"] == 6

    @pytest.mark.parametrize("name", ["gone", "text"])
    def test_an_unknown_name(self, client: httpx.Client, name: str) -> None:
        """Or one whose ids are text."""
        for route in ("nextId", "nextSegmentId"):
            answer = client.get(route, params=form(bizType=name))
            due = f'{{"data":null,"code":6,"message":"can not find biztype:{name}"}}'
            assert (answer.status_code, answer.text) == (200, due)
            simple = client.get(f"{route}Simple", params=form(bizType=name))
            assert (simple.status_code, simple.content) == (200, b"")


class TestTokens:
    @pytest.mark.parametrize("name", ROUTES)
    @pytest.mark.parametrize(
        "asked",
        [
            {"bizType": "test"},
            {"bizType": "test", "token": ""},
            {"bizType": "test", "token": "guess"},
            {"bizType": "test", "token": "outdated"},
            {"bizType": "other", "token": SECRET},
            {"bizType": "", "token": SECRET},
            {"token": SECRET},
            {"bizType": "x" * 300, "token": SECRET},
        ],
    )
    def test_who_may_not(self, client: httpx.Client, name: str, asked: dict[str, str]) -> None:
        answer = client.get(name, params=asked)
        assert answer.status_code == 200
        assert answer.text == ("" if "Simple" in name else REFUSED)

    def test_each_verb(self, client: httpx.Client) -> None:
        """Ids and segments are two permissions."""
        asked = {"bizType": "other", "token": "ids-only"}
        assert client.get("nextId", params=asked).json()["code"] == 200
        assert client.get("nextSegmentId", params=asked).text == REFUSED

    def test_the_header_is_no_token(self, client: httpx.Client) -> None:
        headers = {"Authorization": f"Bearer {SECRET}"}
        assert client.get("nextId?bizType=test", headers=headers).text == REFUSED

    def test_it_goes_into_no_log(
        self, client: httpx.Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.DEBUG, "aiocosid"):
            for name in ROUTES:
                client.post(name, data=form())
                client.post(name, data=form(bizType="gone"))
                client.post(name, data=form(batchSize="x"))
        ours = [each.getMessage() for each in caplog.records if each.name.startswith("aiocosid")]
        assert SECRET not in str(ours)

    def test_none_are_needed_if_public(self) -> None:
        with server(public=True) as client:
            other_site = {"Sec-Fetch-Site": "cross-site"}
            assert client.get("nextId?bizType=other", headers=other_site).json()["data"] is None
            assert client.get("nextId?bizType=other").json()["data"] == [1]
            assert client.get("nextId").json()["code"] == 6
            assert client.get(f"nextId?bizType={'x' * 10_000}").json()["code"] == 6


class TestSegments:
    def test_fields(self, client: httpx.Client) -> None:
        """Of the counter's own step; nobody else gets its ids."""
        answer = client.get("nextSegmentId", params=form())
        data = answer.json()["data"]
        assert list(data) == ["maxId", "loadingId", "currentId", "delta", "remainder"]
        current = data["currentId"]
        assert data["maxId"] == current + 1000
        assert data["loadingId"] == current + 200
        assert (data["delta"], data["remainder"]) == (1, 0)
        simple = client.post("nextSegmentIdSimple", data=form())
        low = data["maxId"]
        assert simple.text == f"{low},{low + 200},{low + 1000},1,0"
        mine = {int(client.get("nextIdSimple", params=form()).text) for _ in range(50)}
        assert not mine & {*range(current + 1, low + 1001)}

    def test_what_has_none(self, client: httpx.Client) -> None:
        body = client.get("nextSegmentId", params=form(bizType="day")).json()
        assert body["code"] == 6

    def test_a_body_that_is_too_long(self, client: httpx.Client) -> None:
        answer = client.post("nextId", data=form(padding="x" * 1000))
        assert answer.status_code == 413

    def test_other_paths(self, client: httpx.Client) -> None:
        for path in ("", "nextIds", "nextId/", "nextId/1", "%00"):
            assert client.get(path, params=form()).status_code == 404

    def test_bodies_that_are_no_form(self, client: httpx.Client) -> None:
        for content in (b"\xff\x00", b"{}", b"&&&=%zz"):
            assert client.post("nextId", content=content).text == REFUSED


def client_ids(current: int, max_id: int, delta: int, remainder: int) -> list[int]:
    """The ids that tinyid's client takes of a segment."""
    return [each for each in range(current + 1, max_id + 1) if each % delta == remainder]


ROW: Final = "INSERT INTO tiny_id_info (biz_type, max_id, step, delta, remainder) VALUES ("


class TestTinyidsTable:
    def test_on_mariadb(self, mariadb_database: str) -> None:
        _beside_old_servers(mariadb_database.replace("mysql://", "mysql+asyncmy://"))

    def test_on_sqlite(self, tmp_path: Path) -> None:
        _beside_old_servers(f"sqlite+aiosqlite:///{tmp_path / 'tinyid.db'}")


def _beside_old_servers(url: str) -> None:
    """The row's step, delta and remainder; what is left in it is what tinyid would leave."""

    async def run(*statements: str) -> list[Any]:
        engine = create_async_engine(url)
        await TinyidStore(engine).create_schema()
        rows: list[Any] = []
        async with engine.begin() as connection:
            for each in statements:
                found = await connection.execute(text(each))
                rows = list(found) if found.returns_rows else []
        await engine.dispose()
        return rows

    asyncio.run(run(f"{ROW}'test', 1, 100000, 2, 1)", f"{ROW}'gone', 5, 10, 3, 0)"))
    row = "SELECT max_id, version FROM tiny_id_info WHERE biz_type = 'test'"
    store = TinyidStore.from_url(url.replace("+asyncmy", "").replace("+aiosqlite", ""))
    generators = {name: {"kind": "segment", "step": 3} for name in ("test", "gone")}
    taken: list[int] = []
    with server(store, generators) as client:
        ((before, version),) = asyncio.run(run(row))
        answer = client.get("nextSegmentId", params=form())
        # The very answer of tinyid's server for this row.
        assert answer.text == (
            f'{{"data":{{"maxId":{before + 100_000},"loadingId":{before + 20_000},'
            f'"currentId":{before},"delta":2,"remainder":1}},"code":200,"message":""}}'
        )
        assert [tuple(each) for each in asyncio.run(run(row))] == [(before + 100_000, version + 1)]
        for _ in range(3):
            simple = client.get("nextSegmentIdSimple", params=form(bizType="gone")).text
            current, _, max_id, delta, remainder = map(int, simple.split(","))
            assert (delta, remainder) == (3, 0)
            taken += client_ids(current, max_id, delta, remainder)
            ids = client.get("nextIdSimple", params=form(bizType="gone", batchSize=4)).text
            taken += map(int, ids.split(","))
    assert len(taken) == len(set(taken))
    assert {each % 3 for each in taken} == {0}
