"""Ids that carry their shard, from the id service and from the broker of a host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import aiocosid
from aiocosid.errors import InvalidArgumentError
from aiocosid.provider import configure
from aiocosid.server import App, Limits, Token, TokenScope, digest_of, new_token
from aiocosid.server._listen import EitherProtocol
from aiocosid.server.dialects import resp
from aiocosid.snowflake import ShardedLayout
from aiocosid.stores.memory import MemoryStore

from ._web import serve

pytestmark = [pytest.mark.integration]

LAYOUT = ShardedLayout(1_546_300_800)
SHARDED = {"kind": "sharded", "epoch": 1_546_300_800}
GENERATORS: dict[str, dict[str, Any]] = {
    "order": SHARDED,
    "ninth": {**SHARDED, "sharding_id": 9},
    "small": {**SHARDED, "sharding_bits": 4},
    "plain": {"kind": "chain"},
    "int32": {"kind": "int32", "inner": {"kind": "chain"}},
    "text": {"kind": "chain", "converter": "radix62"},
    "coded": {**SHARDED, "converter": {"type": "to-string", "prefix": "o-"}},
}
SECRET = new_token()
QUOTA = Token(name="shop", digest=digest_of(SECRET), scopes=(TokenScope.IDS,), ids_per_request=5)


def app(**options: Any) -> App:
    given: Any = {"store": MemoryStore(), "create": True, "generators": GENERATORS}
    return App(lambda: configure(given, default=False), limits=Limits(ids=20_000), **options)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serve(app()) as found:
        yield found


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker on a thread of this process."""
    folder = tmp_path_factory.mktemp("b")
    served = app(unix_tokens=False, resp=resp.commands())
    with serve(served, http=EitherProtocol, uds=f"{folder}/s", proxy_headers=False):
        yield f"aiocosid+unix://{folder}/s"


def shards(ids: list[Any]) -> set[int]:
    return {LAYOUT.parse(int(each)).sharding_id for each in ids}


def problem(answer: httpx.Response) -> str:
    body = answer.json()
    assert (answer.status_code, body["kind"]) == (400, "invalid-argument")
    return str(body["detail"])


class TestOverHttp:
    def test_one_and_several(self, client: httpx.Client) -> None:
        """Ids of the shard that was asked for; without one, of the generator's own."""
        found = []
        for query, shard, size in (
            *(("shard=1234", 1234, 1), ("shard=0", 0, 1), ("count=500&shard=4095", 4095, 500)),
            *(("", 9, 1), ("count=3", 9, 3), ("shard=%31%32", 12, 1)),
        ):
            ids = client.post(f"/v1/ids/ninth?{query}").json()["ids"]
            assert (shards(ids), len(ids)) == ({shard}, size)
            found += ids
        assert len(set(found)) == 507

    def test_text(self, client: httpx.Client) -> None:
        ids = client.post("/v1/ids/coded?count=2&shard=5").json()["ids"]
        assert shards([each.removeprefix("o-") for each in ids]) == {5}

    @pytest.mark.parametrize("name", ["plain", "int32", "text"])
    def test_a_generator_without_shards(self, client: httpx.Client, name: str) -> None:
        before = client.get(f"/v1/statistics/{name}").json()
        for query in ("shard=1", "count=2&shard=0"):
            said = problem(client.post(f"/v1/ids/{name}?{query}"))
            assert said.endswith("cannot be given: the ids of this generator carry no shard")
        assert client.get(f"/v1/statistics/{name}").json() == before

    def test_a_shard_outside_its_bits(self, client: httpx.Client) -> None:
        for name, limit in (("order", 4095), ("small", 15)):
            said = problem(client.post(f"/v1/ids/{name}?shard={limit + 1}"))
            assert said == f"shard must be an integer from 0 to {limit}, not {limit + 1}"
            assert client.post(f"/v1/ids/{name}?shard={limit}").status_code == 200

    @pytest.mark.parametrize("shard", ["", "-1", "1.5", "x", "²", "1_0", "9" * 30, "None", "true"])
    def test_what_is_no_integer(self, client: httpx.Client, shard: str) -> None:
        answer = client.post("/v1/ids/order", params={"shard": shard})
        assert problem(answer).startswith("shard must be a whole number")

    def test_a_name_and_a_count_that_are_wrong_too(self, client: httpx.Client) -> None:
        assert client.post("/v1/ids/nope?shard=1").status_code == 404
        assert "count must be from 1 to 20000, not 20001" in problem(
            client.post("/v1/ids/order?shard=1&count=20001")
        )

    def test_the_description(self, client: httpx.Client) -> None:
        """An integer that may be left out."""
        paths = client.get("/v1/openapi.json").json()["paths"]
        count, shard = paths["/v1/ids/{name}"]["post"]["parameters"]
        assert (count["required"], shard["required"]) == (False, False)
        assert shard["schema"].keys() == {"type", "minimum", "description"}

    def test_a_quota_counts_them(self) -> None:
        """A refused shard costs nothing of it."""
        with serve(app(tokens=[QUOTA])) as client:
            client.headers["Authorization"] = f"Bearer {SECRET}"
            assert client.post("/v1/ids/order?shard=1&count=5").status_code == 200
            assert "at most 5" in problem(client.post("/v1/ids/order?shard=1&count=6"))
            assert "4095" in problem(client.post("/v1/ids/order?shard=4096&count=6"))


@pytest.mark.asyncio
class TestOverTheBroker:
    async def test_a_block_serves_all_shards(self, url: str) -> None:
        """Two workers share no id, and ids without a shard have the generator's own."""
        async with aiocosid.connect(url) as one, aiocosid.connect(url) as two:
            first, second = await one.remote("ninth"), await two.remote("ninth")
            assert shards([await first.next_id(), *await first.next_ids(3)]) == {9}
            assert shards([await first.next_id(7), *await first.next_ids(3000, 7)]) == {7}
            assert shards([await second.next_id(4095)]) == {4095}
            many = await first.next_ids(2000, 5) + await second.next_ids(2000, 5)
            many += [await second.next_id(5) for _ in range(500)]
        assert shards(many) == {5}
        assert len({LAYOUT.parse(each)[::2] for each in many}) == 4500  # seconds and sequences

    async def test_its_errors(self, url: str) -> None:
        """Those of the generator itself."""
        async with aiocosid.connect(url) as ids:
            with pytest.raises(InvalidArgumentError, match="integer from 0 to 15"):
                await (await ids.remote("small")).next_id(16)
            with pytest.raises(InvalidArgumentError, match="carry no shard"):
                await (await ids.remote("plain")).next_id(1)

    async def test_over_http_on_its_socket(self, url: str) -> None:
        transport = httpx.AsyncHTTPTransport(uds=url.partition("://")[2])
        async with httpx.AsyncClient(base_url="http://localhost", transport=transport) as client:
            ids = (await client.post("/v1/ids/ninth?count=2&shard=3")).json()["ids"]
            assert shards(ids) == {3}
            assert "carry no shard" in problem(await client.post("/v1/ids/plain?shard=3"))
