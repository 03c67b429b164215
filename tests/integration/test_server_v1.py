"""The id service's own API, over HTTP as any language uses it."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.provider import configure
from aiocosid.server import App, Limits, Token, TokenScope, digest_of
from aiocosid.stores.memory import MemoryStore

from ._web import serve

pytestmark = [pytest.mark.integration]

SECRET, READER, OUTDATED = (f"aiocosid_{each}" for each in ("shop", "eyes", "old"))
TOKENS = [
    Token(
        name="shop",
        digest=digest_of(SECRET),
        scopes=(TokenScope.IDS, TokenScope.SEGMENTS, TokenScope.MACHINES),
    ),
    Token(name="eyes", digest=digest_of(READER), scopes=(TokenScope.READ,), names=("order", "a/b")),
    Token(name="old", digest=digest_of(OUTDATED), scopes=(TokenScope.IDS,), expires_ms=1),
]
AUTHORIZED = {"Authorization": f"Bearer {SECRET}"}
GENERATORS = {
    "order": {"kind": "chain"},
    "strict": {"kind": "segment"},
    "a/b": {"kind": "chain"},
    "event": {"kind": "snowflake"},
    "text": {"kind": "chain", "converter": "radix62"},
    "uuid": {"kind": "uuid7"},
}
NOW_MS = SYSTEM_CLOCK.now_ms()
LEASE = {"instance_id": "go:1", "bits": 10, "now_ms": NOW_MS}


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    return MemoryStore()


def app(store: MemoryStore, more: Any = None, **options: Any) -> App:
    generators = GENERATORS | (more or {})
    given: Any = {"store": store, "create": True, "generators": generators}
    return App(lambda: configure(given, default=False), **options)


@pytest.fixture(scope="module")
def client(store: MemoryStore) -> Generator[httpx.Client]:
    small = {"small": {"kind": "chain", "max_id": 3, "step": 1}}
    limits = Limits(ids=1000, body=500)
    with serve(app(store, small, tokens=TOKENS, limits=limits)) as found:
        found.headers.update(AUTHORIZED)
        yield found


@pytest.fixture(scope="module")
def open_client(store: MemoryStore) -> Generator[httpx.Client]:
    """A server on the same store, without tokens, which creates what it is asked for."""
    with serve(app(store, create=True)) as found:
        yield found


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert body["status"] == answer.status_code
    assert body["type"] == f"urn:aiocosid:problem:{body['kind']}"
    return answer.status_code, body["kind"]


class TestIds:
    def test_one(self, client: httpx.Client) -> None:
        first, second = (client.post("/v1/ids/order").json() for _ in range(2))
        assert list(map(int, first["ids"])) == first["numbers"]
        assert second["numbers"][0] == first["numbers"][0] + 1

    def test_exactly_so_many(self, client: httpx.Client) -> None:
        found = client.post("/v1/ids/order?count=1000").json()["numbers"]
        assert len(set(found)) == 1000
        assert found == sorted(found)

    def test_numbers_are_left_out_where_javascript_rounds_them(self, client: httpx.Client) -> None:
        found = client.post("/v1/ids/event?count=2").json()
        assert found.keys() == {"ids"}
        assert all(int(each) >= 2**53 for each in found["ids"])

    @pytest.mark.parametrize("name", ["text", "uuid"])
    def test_text(self, client: httpx.Client, name: str) -> None:
        found = client.post(f"/v1/ids/{name}?count=2").json()
        assert found.keys() == {"ids"}
        assert all(type(each) is str for each in found["ids"])

    def test_a_name_with_a_slash(self, client: httpx.Client) -> None:
        assert client.post("/v1/ids/a%2Fb").json()["numbers"] == [1]

    @pytest.mark.parametrize("count", ["0", "-1", "1001", "9" * 30, "1.5", "x", "", "²", "1_0"])
    def test_a_bad_count(self, client: httpx.Client, count: str) -> None:
        answer = client.post("/v1/ids/order", params={"count": count})
        assert problem(answer) == (400, "invalid-argument")

    def test_ids_that_are_used_up(self, client: httpx.Client) -> None:
        assert client.post("/v1/ids/small?count=3").json()["numbers"] == [1, 2, 3]
        assert problem(client.post("/v1/ids/small")) == (409, "ids-used-up")

    @pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
    def test_only_post_takes_ids(self, client: httpx.Client, method: str) -> None:
        before = client.post("/v1/ids/order").json()["numbers"][0]
        answer = client.request(method, "/v1/ids/order")
        assert answer.status_code == 405
        assert "POST" in answer.headers["allow"]
        assert client.post("/v1/ids/order").json()["numbers"] == [before + 1]

    def test_no_page_of_another_origin_may_ask(self, client: httpx.Client) -> None:
        headers = {"Origin": "https://example.com", "Access-Control-Request-Method": "POST"}
        answer = client.options("/v1/ids/order", headers=headers)
        assert not any(each.startswith("access-control") for each in answer.headers)


class TestNames:
    def test_an_unknown_name_is_not_created_by_asking(self, client: httpx.Client) -> None:
        for path in ("/v1/ids/nope", "/v1/segments/nope?step=1"):
            assert problem(client.post(path)) == (404, "unknown-name")

    def test_unless_the_server_is_configured_to(self, open_client: httpx.Client) -> None:
        assert open_client.post("/v1/ids/made").json()["numbers"] == [1]
        assert open_client.post("/v1/segments/cut?step=10").json()["last"] == "10"
        assert open_client.post("/v1/segments/cut?step=10").json()["first"] == "11"

    def test_a_name_that_is_too_long(self, open_client: httpx.Client) -> None:
        answer = open_client.post(f"/v1/ids/{'n' * 257}")
        assert problem(answer) == (400, "invalid-argument")

    def test_paths_that_are_none(self, client: httpx.Client) -> None:
        for path in ("/v1", "/v2/ids/order", "/v1/idz/order"):
            assert client.get(path).status_code == 404


class TestOtherSites:
    """Where callers need no token, a page of another site takes and changes nothing."""

    @pytest.mark.parametrize(
        "headers",
        [
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://["},
        ],
    )
    def test_its_requests_are_refused(
        self, open_client: httpx.Client, headers: dict[str, str]
    ) -> None:
        for path in ("/v1/ids/order", "/v1/store/raise_to", "/v1/machines/x"):
            assert problem(open_client.post(path, headers=headers)) == (403, "other-site")
        assert open_client.post("/", headers=headers).status_code == 403

    def test_its_own_are_not(self, open_client: httpx.Client) -> None:
        own = str(open_client.base_url).rstrip("/")
        for headers in ({"Sec-Fetch-Site": "none"}, {"Origin": own}):
            assert open_client.post("/v1/ids/order", headers=headers).status_code == 200


class TestSegments:
    def test_each_is_one_addition_to_the_generators_counter(
        self, client: httpx.Client, open_client: httpx.Client
    ) -> None:
        """Also on another server: nothing is cut from a chain of one of them."""
        found = [
            each.post("/v1/segments/strict?step=10").json()
            for each in (client, open_client, client)
        ]
        lows = [int(each["first"]) for each in found]
        assert lows == [lows[0], lows[0] + 10, lows[0] + 20]
        assert all(int(each["last"]) == int(each["first"]) + 9 for each in found)

    def test_a_generator_without_a_counter(self, client: httpx.Client) -> None:
        assert problem(client.post("/v1/segments/event?step=1")) == (409, "no-segments")

    @pytest.mark.parametrize("query", ["", "?step=0", "?step=67108865", "?step=x"])
    def test_a_bad_step(self, client: httpx.Client, query: str) -> None:
        answer = client.post(f"/v1/segments/strict{query}")
        assert problem(answer) == (400, "invalid-argument")


class TestMachineIds:
    def test_a_life(self, client: httpx.Client, open_client: httpx.Client) -> None:
        asked = {**LEASE, "bits": 1}
        taken = client.post("/v1/machines/go", json=asked).json()
        number, lease = taken["machine_id"], taken["lease"]
        renewal = {
            "instance_id": "go:1",
            "lease": lease,
            "now_ms": NOW_MS,
            "fence_ms": NOW_MS + 90_000,
        }
        # Another server knows as much: all of it is in the store.
        answer = open_client.patch(f"/v1/machines/go/{number}", json=renewal)
        assert (answer.status_code, answer.json()) == (200, {})
        other = client.post("/v1/machines/go", json={**asked, "instance_id": "go:2"}).json()
        assert other["machine_id"] != number
        end = {"instance_id": "go:1", "lease": lease, "last_ms": NOW_MS + 5}
        path = f"/v1/machines/go/{number}"
        assert client.request("DELETE", path, json=end).status_code == 200
        assert problem(client.patch(path, json=renewal)) == (409, "machine-id-lost")
        again = client.post("/v1/machines/go", json={**asked, "instance_id": "go:3"}).json()
        assert again["machine_id"] == number
        assert again["above_ms"] >= end["last_ms"]

    def test_an_older_lease_of_the_same_instance(self, client: httpx.Client) -> None:
        first, second = (client.post("/v1/machines/twice", json=LEASE).json() for _ in range(2))
        assert first["machine_id"] == second["machine_id"]
        assert first["lease"] != second["lease"]
        renewal = {"instance_id": "go:1", "now_ms": NOW_MS, "fence_ms": NOW_MS}
        path = f"/v1/machines/twice/{first['machine_id']}"
        lost = client.patch(path, json={**renewal, "lease": first["lease"]})
        assert problem(lost) == (409, "machine-id-lost")
        assert client.patch(path, json={**renewal, "lease": second["lease"]}).status_code == 200

    def test_all_are_held(self, client: httpx.Client) -> None:
        answers = [
            client.post("/v1/machines/full", json={**LEASE, "bits": 1, "instance_id": f"go:{each}"})
            for each in range(3)
        ]
        assert problem(answers[-1]) == (409, "machine-ids-used-up")

    def test_a_region(self, client: httpx.Client) -> None:
        split = {**LEASE, "region": 5, "region_bits": 3}
        taken = client.post("/v1/machines/split", json=split).json()
        assert taken["machine_id"] == 5 << 7
        for other in (LEASE, {**split, "region": 4}, {**split, "region": 1, "region_bits": 2}):
            refused = client.post("/v1/machines/split", json={**other, "instance_id": "go:2"})
            assert problem(refused) == (409, "machine-bits-mismatch")
        for wrong in ({"region": 8}, {"region": None}, {"region_bits": 10}, {"region_bits": 31}):
            answer = client.post("/v1/machines/split", json={**split, **wrong})
            assert problem(answer) == (400, "invalid-argument")

    def test_a_clock_that_counts_microseconds(self, client: httpx.Client) -> None:
        """It spoils no id: what it takes and what it renews are refused."""
        far = NOW_MS * 1000
        taken = client.post("/v1/machines/clock", json={**LEASE, "now_ms": far})
        assert problem(taken) == (409, "clock-ahead")
        lease = client.post("/v1/machines/clock", json=LEASE).json()
        path = f"/v1/machines/clock/{lease['machine_id']}"
        ours = {"instance_id": "go:1", "lease": lease["lease"]}
        for times in ({"now_ms": far, "fence_ms": -1}, {"now_ms": NOW_MS, "fence_ms": far}):
            assert problem(client.patch(path, json={**ours, **times})) == (409, "clock-ahead")
        last = client.request("DELETE", path, json={**ours, "last_ms": far})
        assert problem(last) == (409, "clock-ahead")
        again = client.post("/v1/machines/clock", json={**LEASE, "instance_id": "go:2"}).json()
        assert again["above_ms"] <= NOW_MS

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"[]",
            b"{}",
            *({"bits": 0}, {"bits": True}, {"now_ms": "1"}, {"instance_id": ""}),
            *({"instance_id": "\ud800"}, {"safe_guard": 0}, {"extra": 1}),
        ],
    )
    def test_a_bad_body(self, client: httpx.Client, body: bytes | dict[str, Any]) -> None:
        content = body if isinstance(body, bytes) else json.dumps({**LEASE, **body}).encode()
        answer = client.post("/v1/machines/bad", content=content)
        assert problem(answer) == (400, "invalid-argument")

    def test_a_body_that_is_too_long(self, client: httpx.Client) -> None:
        answer = client.post("/v1/machines/bad", content=b" " * 501)
        assert problem(answer) == (413, "body-too-long")


class TestTokens:
    @pytest.mark.parametrize("secret", [None, "x", OUTDATED])
    def test_none_or_a_wrong_one(self, client: httpx.Client, secret: str | None) -> None:
        headers = {"Authorization": "" if secret is None else f"Bearer {secret}"}
        for path in ("/v1/ids/order", "/v1/segments/order?step=1", "/v1/machines/x"):
            answer = client.post(path, headers=headers)
            assert problem(answer) == (401, "no-access")
            assert answer.headers["www-authenticate"].startswith("Bearer")

    def test_another_verb_or_name(self, client: httpx.Client) -> None:
        reader = {"Authorization": f"bearer {READER}"}
        assert problem(client.post("/v1/ids/order", headers=reader)) == (403, "not-allowed")
        assert client.get("/v1/statistics/order", headers=reader).status_code == 200
        refused = client.get("/v1/statistics/strict", headers=reader)
        assert problem(refused) == (403, "not-allowed")
        assert problem(client.get("/v1/statistics/order")) == (403, "not-allowed")
        seen = client.get("/v1/generators", headers=reader).json()["generators"]
        assert [each["name"] for each in seen] == ["order", "a/b"]

    def test_it_is_in_no_log(self, client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG):
            client.post("/v1/ids/order")
            client.post("/v1/ids/order", headers={"Authorization": "Bearer aiocosid_wrong"})
        ours = [each for each in caplog.records if not each.name.startswith(("http", "asyncio"))]
        assert all("aiocosid_" not in each.getMessage() for each in ours)


class TestReading:
    def test_generators(self, open_client: httpx.Client) -> None:
        found = open_client.get("/v1/generators").json()["generators"]
        kinds = {each["name"]: (each["kind"], each["ids"]) for each in found}
        assert kinds["order"] == ("SegmentChainId", "number")
        assert kinds["text"][1] == "text"

    def test_metrics(self, open_client: httpx.Client, client: httpx.Client) -> None:
        open_client.post("/v1/ids/order")
        answer = open_client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        assert "aiocosid_ids_handed_out_total{" in answer.text
        reader = {"Authorization": f"Bearer {READER}"}  # it may read two names, not all
        assert problem(client.get("/metrics", headers=reader)) == (403, "not-allowed")

    def test_what_an_id_says(self, open_client: httpx.Client) -> None:
        (event,) = open_client.post("/v1/ids/event").json()["ids"]
        found = open_client.get(f"/v1/parse/event/{event}").json()
        assert found["id"] == event
        assert found["time"].startswith("20")
        assert open_client.get("/v1/parse/a%2Fb/5").json() == {"id": "5"}
        for wrong in ("order/x", "order/9999999999999999999", "text/!"):
            assert problem(open_client.get(f"/v1/parse/{wrong}")) == (400, "invalid-argument")
        assert problem(open_client.get("/v1/parse/nope/1")) == (404, "unknown-name")

    def test_statistics(self, open_client: httpx.Client) -> None:
        whole = open_client.get("/v1/statistics").json()
        one = open_client.get("/v1/statistics/order").json()
        assert whole["order"].keys() == one.keys()
        assert one["name"] == "order"
        assert problem(open_client.get("/v1/statistics/nope")) == (404, "unknown-name")
        head = open_client.head("/v1/statistics")
        assert (head.status_code, head.content) == (200, b"")


CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]


def test_it_keeps_to_its_description(open_client: httpx.Client) -> None:
    """Requests made from the OpenAPI document get what it says, and never a 500."""
    schema = schemathesis.openapi.from_url(f"{open_client.base_url}/v1/openapi.json")
    operations: list[Any] = list(schema.get_all_operations())
    operations = [each.ok() for each in operations]
    for operation in operations:

        @given(case=operation.as_strategy())
        @settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        def keeps(case: Any) -> None:
            answer = case.call(base_url=str(open_client.base_url))
            case.validate_response(answer, checks=CHECKS)

        keeps()
    assert len(operations) == 10
