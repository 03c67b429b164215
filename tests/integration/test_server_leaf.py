"""The id service in the place of Leaf's server."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from aiocosid.compat.leaf import LeafStore
from aiocosid.compat.tinyid import TinyidStore
from aiocosid.provider import IdProvider, configure
from aiocosid.server import App, Token, TokenScope, digest_of
from aiocosid.server.dialects import leaf
from aiocosid.stores.memory import MemoryStore
from tests.servers import eventually

from ._id_server import IdServer
from ._web import serve

pytestmark = [pytest.mark.integration]

GENERATORS: Final[dict[str, Any]] = {
    "order": {"kind": "chain"},
    "strict": {"kind": "segment"},
    "a/<b>&'": {"kind": "chain"},
    "text": {"kind": "chain", "converter": "radix62"},
    "day": {"kind": "grouped", "group_by": "day", "zone": "UTC"},
    "dry": {"kind": "chain", "max_id": 3, "step": 3},
}
GET: Final = "/api/segment/get"


@contextmanager
def server(tokens: Sequence[Token] = (), **options: Any) -> Generator[httpx.Client]:
    """A server on a store of its own."""
    # One process holds a machine id of a namespace once.
    snowflake = {"kind": "snowflake", "layout": "leaf", "namespace": uuid.uuid4().hex}
    given = {
        "store": MemoryStore(),
        "machine": {"source": "manual", "machine_id": 39},
        "generators": GENERATORS | {"snowflake": snowflake},
    }
    app = App(
        configure(given, default=False),
        tokens=tokens,
        dialects=[partial(leaf.routes, **options)],
    )
    with serve(app) as client:
        yield client


@pytest.fixture(scope="module")
def client() -> Generator[httpx.Client]:
    with server() as found:
        yield found


def failure(answer: httpx.Response, result: int) -> None:
    """Check that it is Spring's body for Leaf's result, byte by byte but for the time."""
    due = (
        '{"timestamp":<ms>,"status":500,"error":"Internal Server Error",'
        '"exception":"com.sankuai.inf.leaf.server.exception.LeafServerException",'
        f'"message":"Result{{id={result}, status=EXCEPTION}}","path":"{answer.request.url.path}"}}'
    )
    assert re.sub(r"\d{13}", "<ms>", answer.text, count=1) == due
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/json"


class TestSegments:
    @pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
    def test_any_verb(self, client: httpx.Client, method: str) -> None:
        first, second = (client.request(method, f"{GET}/order") for _ in range(2))
        assert int(second.text) == int(first.text) + 1
        assert first.headers["content-type"] == "text/plain; charset=utf-8"
        assert first.headers["cache-control"] == "no-store"

    @pytest.mark.parametrize("path", [f"{GET}/strict", f"{GET}/strict/10", "/api/snowflake/get/x"])
    @pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
    def test_head_takes_nothing(self, client: httpx.Client, method: str, path: str) -> None:
        before = int(client.get(f"{GET}/strict").text)
        answer = client.request(method, path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert int(client.get(f"{GET}/strict").text) == before + 1

    def test_nobody_gets_an_id_twice(self, client: httpx.Client) -> None:
        """Ids and ranges, asked for by many at a time."""

        def take(turn: int) -> list[int]:
            if turn % 4:
                return [int(client.get(f"{GET}/order").text)]
            first, size = map(int, client.post(f"{GET}/order/7").text.split(":"))
            return [*range(first, first + size)]

        with ThreadPoolExecutor(8) as pool:
            ids = Counter(each for found in pool.map(take, range(400)) for each in found)
        assert ids.total() == 300 + 700
        assert ids.most_common(1)[0][1] == 1

    @pytest.mark.parametrize(
        "key", ["nope", "text", "snowflake", "a", "%C3%A9", "%00", "..%2Forder", "x" * 256]
    )
    def test_an_unknown_tag(self, client: httpx.Client, key: str) -> None:
        """Also a generator of another kind: those whose ids are text, and Snowflakes."""
        answer = client.get(f"{GET}/{key}")
        path = answer.json()["path"]
        assert path.startswith(GET)
        assert answer.json()["message"] == "Result{id=-2, status=EXCEPTION}"
        assert answer.status_code == 500
        if key.isalnum():
            failure(answer, -2)

    def test_any_name(self, client: httpx.Client) -> None:
        key = "".join(f"%{byte:02X}" for byte in b"a/<b>&'")
        assert client.get(f"{GET}/{key}").text == "1"
        assert re.fullmatch(r"\d+:5", client.post(f"{GET}/{key}/5").text)

    def test_no_more_ids(self, client: httpx.Client) -> None:
        assert [client.get(f"{GET}/dry").text for _ in range(3)] == ["1", "2", "3"]
        failure(client.get(f"{GET}/dry"), -3)

    @pytest.mark.parametrize("path", [f"{GET}/", f"{GET}/order/5/6", "/api/snowflake/get/"])
    def test_an_empty_key(self, client: httpx.Client, path: str) -> None:
        body = client.get(path).json()
        assert list(body) == ["timestamp", "status", "error", "message", "path"]
        assert (body["status"], body["error"]) == (404, "Not Found")

    def test_another_path_is_not_meant(self, client: httpx.Client) -> None:
        """No redirect, which a client would follow."""
        for path in ("/cache/", "/db/", "/api/segment/get", "/api/segment/gett/order"):
            assert client.get(path).status_code == 404

    @pytest.mark.parametrize("size", ["0", "-1", "x", "1.5", "%D9%A1", "9" * 5000, "67108865", ""])
    def test_a_size_that_is_none(self, client: httpx.Client, size: str) -> None:
        assert client.post(f"{GET}/order/{size}").status_code == 400

    @pytest.mark.parametrize("name", ["day", "nope", "snowflake"])
    def test_ranges_of_what_has_no_segments(self, client: httpx.Client, name: str) -> None:
        assert client.post(f"{GET}/{name}/5").status_code in {409, 500}

    def test_a_name_that_is_too_long(self, client: httpx.Client) -> None:
        assert client.get(f"{GET}/{'x' * 10_000}").status_code == 400
        assert client.get(f"{GET}/%FF").status_code == 400

    def test_a_new_tag_is_created_only_if_configured(self) -> None:
        app = App(lambda: IdProvider(MemoryStore()), create=True, dialects=[leaf.routes])
        with serve(app) as client:
            assert client.get(f"{GET}/new").text == "1"
            failure(client.get("/api/snowflake/get/x"), -1)
            assert client.get(f"{GET}/%00").status_code == 400


class TestSnowflakes:
    def test_whatever_the_key(self, client: httpx.Client) -> None:
        ids = [int(client.get(f"/api/snowflake/get/{key}").text) for key in ("a", "b", "c%2Fd")]
        assert ids == sorted(set(ids))
        decoded = client.get(f"/decodeSnowflakeId?snowflakeId={ids[0]}").json()
        assert list(decoded) == ["timestamp", "workerId", "sequenceId"]
        assert decoded["workerId"] == "39"
        assert re.fullmatch(
            r"\d{13}\(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\)", decoded["timestamp"]
        )

    def test_decoding(self, client: httpx.Client) -> None:
        """Leaf's own answer, byte by byte; of a server in UTC."""
        new_id = (1_577_836_800_001 - 1_288_834_974_657) << 22 | 39 << 12 | 3448
        assert client.get(f"/decodeSnowflakeId?snowflakeId={new_id}").text == (
            '{"timestamp":"1577836800001(2020-01-01 00:00:00.001)",'
            '"workerId":"39","sequenceId":"3448"}'
        )

    @pytest.mark.parametrize("text", ["", "x", "-1", "9" * 5000, "9223372036854775808", "%D9%A1"])
    def test_what_is_no_id(self, client: httpx.Client, text: str) -> None:
        answer = client.get(f"/decodeSnowflakeId?snowflakeId={text}")
        assert answer.status_code == 200
        assert list(answer.json()) == ["errorMsg"]


class TestModes:
    def test_a_mode_that_is_off_is_an_error(self) -> None:
        """Never 0, which a client would take for an id."""
        with server(segment=False, snowflake="") as client:
            for path in (f"{GET}/order", f"{GET}/order/5", "/api/snowflake/get/x"):
                failure(client.get(path), -1)
            for path in ("/cache", "/db"):
                body = client.get(path).json()
                assert body["status"] == 500
                assert body["message"] == "You should config leaf.segment.enable=true first"

    def test_another_generator(self) -> None:
        with server(snowflake="strict", prefix="/leaf") as client:
            assert client.get("/leaf/api/snowflake/get/x").text == "1"
            assert client.get("/leaf/api/segment/get/strict").text == "2"
            assert client.post("/leaf/api/segment/get/strict/3").text == "1001:3"


class TestPages:
    def test_what_is_in_hand(self, client: httpx.Client) -> None:
        client.get(f"{GET}/order")
        page = client.get("/cache")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        head, *rows = re.findall(r"<tr>(.*?)</tr>", page.text)
        assert re.findall(r"<th>(.*?)</th>", head)[:4] == ["name", "init", "next", "pos"]
        cells = {found[0]: found for row in rows if (found := re.findall(r"<td>(.*?)</td>", row))}
        value, first_max, step = map(int, cells["order"][4:7])
        assert int(client.get(f"{GET}/order").text) == value
        assert value <= first_max
        assert step == 100
        assert "a/&lt;b&gt;&amp;&#x27;" in cells
        assert "snowflake" not in cells

    def test_the_counters_of_the_store(self, client: httpx.Client) -> None:
        rows = re.findall(r"<tr><td>(.*?)</td><td>(\d+)</td>", client.get("/db").text)
        before = int(dict(rows)["cosid.order"])
        assert client.post(f"{GET}/order/50").text == f"{before}:50"
        assert "<b>" not in client.get("/db").text


class TestTokens:
    def test_they_are_needed_unless_public(self) -> None:
        secret = "aiocosid_leaf"  # noqa: S105 - of a test
        token = Token(
            name="leaf",
            digest=digest_of(secret),
            scopes=(TokenScope.IDS,),
            names=("order", "snowflake"),
        )
        with server([token]) as client:
            refused = client.get(f"{GET}/order").json()
            assert (refused["status"], refused["error"]) == (401, "Unauthorized")
            client.headers["Authorization"] = f"Bearer {secret}"
            assert client.get(f"{GET}/order").text == "1"
            assert client.get("/api/snowflake/get/any").status_code == 200
            for path in (f"{GET}/strict", "/cache", "/db", "/decodeSnowflakeId?snowflakeId=1"):
                assert client.get(path).json()["status"] == 403
        with server([token], public=True) as client:
            assert client.get(f"{GET}/order").text == "1"


class TestLeafsTable:
    def test_beside_old_nodes(self, mariadb_database: str) -> None:
        """Ids of a tag's row, whose number is the first id of the next segment."""
        _beside_old_nodes(mariadb_database.replace("mysql://", "mysql+asyncmy://"))

    @pytest.mark.parametrize("workers", [1, 2])
    def test_tags_come_and_go(self, mariadb_database: str, workers: int) -> None:
        """While the server runs; a name that is no tag is refused without asking the database."""
        execute = partial(_execute, mariadb_database.replace("mysql://", "mysql+asyncmy://"))
        execute(_TABLE, _TAG.format("order", 501))
        tags = "[leaf_tags]\ninterval = 0.2"
        with IdServer(
            store=f"leaf+{mariadb_database}",
            server=f"workers = {workers}\n[server.leaf]",
            generators=tags,
            create=False,
        ) as found:
            get = partial(_answer, found.client)
            assert int(get("order")) >= 501
            assert get("order/7").endswith(":7")
            assert get("new") == get("new/7") == get("ORDER") == "-2"
            execute(_TAG.format("new", 101))
            _until(lambda: get("new").isdecimal())
            taken = [int(get("new")) for _ in range(50)]
            assert len({*taken}) == 50
            assert min(taken) > 100
            assert found.ids(3, "new")
            assert "<td>new</td>" in found.client.get("/cache").text or workers > 1
            execute("DELETE FROM leaf_alloc WHERE biz_tag = 'order'")
            _until(lambda: {get("order") for _ in range(9)} == {"-2"})
            assert get("order/7") == "-2"
            assert get("new").isdecimal()
            assert found.end() == 0

    def test_on_sqlite(self, tmp_path: Path) -> None:
        _beside_old_nodes(f"sqlite+aiosqlite:///{tmp_path / 'leaf.db'}")


class TestOtherTables:
    def test_ids_with_gaps_are_no_range(self, tmp_path: Path) -> None:
        """As of one of tinyid's databases, which has every second id."""
        url = f"sqlite+aiosqlite:///{tmp_path / 'tinyid.db'}"
        row = "INSERT INTO tiny_id_info (biz_type, step, delta, remainder) VALUES ('odd', 9, 2, 1)"

        async def prepare() -> None:
            engine = create_async_engine(url)
            await TinyidStore(engine).create_schema()
            async with engine.begin() as connection:
                await connection.execute(text(row))
            await engine.dispose()

        asyncio.run(prepare())
        given = {
            "store": TinyidStore.from_url(url.replace("+aiosqlite", "")),
            "generators": {"odd": {"kind": "segment", "step": 3}},
        }
        with serve(App(configure(given, default=False), dialects=[leaf.routes])) as client:
            assert [client.get(f"{GET}/odd").text for _ in range(2)] == ["1", "3"]
            assert client.post(f"{GET}/odd/2").status_code == 400


_TABLE: Final = """
CREATE TABLE leaf_alloc (
  biz_tag varchar(128) NOT NULL DEFAULT '' PRIMARY KEY, max_id bigint(20) NOT NULL DEFAULT 1,
  step int(11) NOT NULL, description varchar(256) DEFAULT NULL,
  update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP
)"""
_TAG: Final = "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('{}', {}, 100)"


def _execute(url: str, *statements: str) -> None:
    """Run SQL, by nobody's leave."""

    async def execute() -> None:
        engine = create_async_engine(url)
        async with engine.begin() as connection:
            for each in statements:
                await connection.execute(text(each))
        await engine.dispose()

    asyncio.run(execute())


def _answer(client: httpx.Client, key: str) -> str:
    """Return an id, a range, or Leaf's code."""
    answer = client.post(f"{GET}/{key}")
    if answer.status_code == 200:
        return answer.text
    found = re.fullmatch(r"Result\{id=(-\d), status=EXCEPTION\}", answer.json()["message"])
    assert found is not None, answer.text
    return found[1]


def _until(attempt: Callable[[], bool]) -> None:
    """Wait for what the server reads."""

    async def asking() -> bool:
        return await asyncio.to_thread(attempt)

    asyncio.run(eventually(asking))


def _beside_old_nodes(url: str) -> None:
    async def prepare() -> None:
        store = LeafStore(engine := create_async_engine(url))
        await store.create_schema()
        await store.create_tag("order", step=100, above=500)
        await engine.dispose()

    asyncio.run(prepare())
    given = {
        "store": LeafStore.from_url(url.replace("+asyncmy", "").replace("+aiosqlite", "")),
        "generators": {"order": {"kind": "segment", "step": 100}},
    }
    with serve(App(configure(given, default=False), dialects=[leaf.routes])) as client:
        assert client.get(f"{GET}/order").text == "501"
        assert client.post(f"{GET}/order/30").text == "601:30"
        assert client.get(f"{GET}/order").text == "502"
        assert "<td>631</td>" in client.get("/db").text
