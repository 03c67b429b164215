"""Quotas of a token count for every way of taking ids."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from aiocosid.server import token_table

from ._id_server import IdServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

SECRET = "aiocosid_quota"  # noqa: S105 - of a test
BEARER = {"Authorization": f"Bearer {SECRET}"}
DIALECTS = "[server.cosid]\n[server.leaf]\n[server.tinyid]\n[server.resp]\n"
TOKEN = token_table(
    SECRET, name="shop", scopes=["ids", "segments", "read"], ids_per_second=1, ids_per_request=1000
)
NAMES = (*("one", "many", "segment", "leaf", "range", "cosid", "batch"), "next", "took")
GENERATORS = "".join(f'[generators.{name}]\nkind = "chain"\n' for name in NAMES)

# How ids are taken: the method, the path and the body.
WAYS = {
    "ids one by one": ("POST", "/v1/ids/one", None),
    "ids by count": ("POST", "/v1/ids/many?count=50", None),
    "a segment": ("POST", "/v1/segments/segment?step=50", None),
    "the store's add": ("POST", "/v1/store/add", {"name": "shop.added", "by": 50, "first": 50}),
    "the store's take": ("POST", "/v1/store/take", {"name": "took", "count": 50}),
    "Leaf's id": ("GET", "/api/segment/get/leaf", None),
    "Leaf's range": ("GET", "/api/segment/get/range/50", None),
    "CosId's id": ("GET", "/ids/cosid", None),
    "CosId's segment": ("PATCH", "/segments/shop/patched?step=50", None),
    "tinyid's ids": ("GET", f"/tinyid/id/nextId?bizType=batch&token={SECRET}&batchSize=50", None),
    "tinyid's segment": ("GET", f"/tinyid/id/nextSegmentId?bizType=next&token={SECRET}", None),
}


def test_every_way_of_taking_ids_counts() -> None:
    with IdServer(
        server=DIALECTS + TOKEN, generators=GENERATORS, settings='namespace = "shop"'
    ) as (server):
        client = server.client
        client.headers.update(BEARER)
        for way, (method, path, body) in WAYS.items():
            refused = until_refused(lambda: client.request(method, path, json=body), way)  # noqa: B023 - called at once
            assert int(refused.headers["retry-after"]) >= 1, way
        too_many = client.post("/v1/ids/took?count=1001")
        assert (too_many.status_code, too_many.json()["kind"]) == (400, "invalid-argument")
        fault = client.post("/v1/store/add", json=WAYS["the store's add"][2]).json()["fault"]
        assert fault["kind"] == "StoreUnavailableError"
        found = client.get("/metrics").text
        counted = [line for line in found.splitlines() if 'aiocosid_status="429"' in line]
        assert {'/v1/ids/{name:path}"' in line for line in counted} == {True, False}
        assert "aiocosid_server_quotas_refused_total{" in found


def test_a_pipeline_counts_each_command() -> None:
    """Equal commands are joined to one addition, and yet the last ones are refused."""
    with IdServer(server=DIALECTS + TOKEN) as server, server.connect() as connection:
        auth = f"*2\r\n$4\r\nAUTH\r\n${len(SECRET)}\r\n{SECRET}\r\n"
        one = "*3\r\n$6\r\nINCRBY\r\n$1\r\na\r\n$2\r\n50\r\n"
        connection.sendall((auth + one * 5 + "*1\r\n$4\r\nQUIT\r\n").encode())
        found = b""
        while data := connection.recv(4096):
            found += data
        ok, first, *others, _, _ = found.split(b"\r\n")
        assert (ok, first) == (b"+OK", b":50")
        assert len(others) == 4
        assert all(each.startswith(b"-ERR this token may take 1 ids") for each in others)


def until_refused(ask: Callable[[], httpx.Response], way: str) -> httpx.Response:
    """Ask until the quota is used up, which few requests do."""
    seen: list[str] = []
    for _ in range(4):
        answer = ask()
        seen.append(f"{answer.status_code} {answer.text}")
        if answer.status_code == 429:
            assert len(seen) > 1, way
            return answer
        assert answer.status_code == 200, (way, seen)
    raise AssertionError(json.dumps([way, seen]))
