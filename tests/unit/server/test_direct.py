"""Past the framework a request gets the framework's answer, and is counted like it."""

from __future__ import annotations

from itertools import count
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from aiocosid.provider import configure
from aiocosid.server import App, Token, TokenScope, digest_of
from aiocosid.server._routes import Direct
from aiocosid.server.dialects import cosid, leaf, tinyid

SECRET = "aiocosid_direct"  # noqa: S105 - of a test
BEARER = {"authorization": f"Bearer {SECRET}"}
TOKENS = [
    Token(
        name="shop",
        digest=digest_of(SECRET),
        scopes=(TokenScope.IDS,),
        names=("order",),
        ids_per_request=9,
    )
]
LEAF = "/api/segment/get"
NUMBERS = count()  # of namespaces: a store in memory is the process's

CASES: list[tuple[str, str, dict[str, str]]] = [
    ("POST", "/v1/ids/order", BEARER),
    ("POST", "/v1/ids/order?count=3", BEARER),
    ("POST", "/v1/ids/order?count=10", BEARER),  # its quota
    ("POST", "/v1/ids/order?count=x", BEARER),
    ("POST", "/v1/ids/%6Frder", BEARER),
    ("POST", "/v1/ids/other", BEARER),
    ("POST", "/v1/ids/", BEARER),
    ("POST", "/v1/ids", BEARER),
    ("POST", "/v1/ids/order/", BEARER),
    ("POST", "/v1/ids/a%2Forder", BEARER),
    ("POST", "/v1/ids/order%0A", BEARER),
    ("POST", "/v1/ids/order", {}),
    ("POST", "/v1/ids/order", {"authorization": "Bearer wrong"}),
    ("GET", "/v1/ids/order", BEARER),
    ("POST", "/v1/segments/order?step=5", BEARER),
    ("GET", f"{LEAF}/order", BEARER),
    ("GET", f"{LEAF}/other", BEARER),
    ("HEAD", f"{LEAF}/order", BEARER),
    ("GET", f"{LEAF}/order/2", BEARER),
    ("GET", f"/tinyid/id/nextIdSimple?bizType=order&token={SECRET}", {}),
    ("GET", "/tinyid/id/nextId?bizType=order&token=wrong", {}),
    ("GET", "/tinyid/id/unknown", {}),
    ("GET", "/tinyid/id/", {}),
    ("POST", "/v1/store/", BEARER),
    ("GET", "/ids/order", BEARER),
    ("GET", "/dashboard/dashboard.css", {}),
    ("GET", "/dashboard/unknown.js", {}),
]


def service(namespace: str = "ours", *, tokens: bool = True) -> App:
    generators = {"order": {"kind": "chain"}}
    given = {
        "store": "memory:",
        "namespace": f"{namespace}-{next(NUMBERS)}",
        "generators": generators,
    }
    dialects = [cosid.routes, leaf.routes, tinyid.routes]
    ids = configure(given, default=False)
    return App(ids, tokens=TOKENS if tokens else (), dialects=dialects)


async def answers(app: App, host: str = "ids") -> list[tuple[int, dict[str, str], str]]:
    found: list[tuple[int, dict[str, str], str]] = []
    async with app.running():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}:8688") as client:
            for method, path, headers in CASES:
                answer = await client.request(method, path, headers=headers)
                text = answer.text.partition('"timestamp":')[0]
                found.append((answer.status_code, dict(answer.headers), text))
    return found


@pytest.mark.parametrize(
    ("tokens", "host"), [(True, "ids"), (False, "localhost"), (False, "stranger.example")]
)
async def test_the_answers_are_the_frameworks(tokens: bool, host: str) -> None:
    ours, theirs = service(tokens=tokens), service("theirs", tokens=tokens)
    theirs._direct = Direct([])
    assert ours._direct._ways
    assert await answers(ours, host) == await answers(theirs, host)
    ours_counted, theirs_counted = (
        {metric.name: sorted(series) for metric, series in app.service.meters.figures().items()}
        for app in (ours, theirs)
    )
    assert ours_counted == theirs_counted


async def test_a_bug_is_answered_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    app = service()
    app.service.tokens = None  # type: ignore[assignment] # breaks whatever looks for a token
    async with app.running():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://ids") as client:
            answer = await client.post("/v1/ids/order")
    assert (answer.status_code, answer.json()["kind"]) == (500, "bug")
    assert caplog.text.count("a request has failed") == 1


class Answering:
    """An endpoint."""

    async def __call__(self, *_: object) -> None:
        """Answer nothing."""


@pytest.mark.parametrize(
    "paths",
    [
        ("/a/b.json", "/a/{x}"),  # the first one is for a path of the second
        ("/{y:path}", "/a/{x}"),
        ("/a/{x}/b",),
        ("/a/{x}/{y}",),
        ("/a/{x}.json",),
        ("/a",),
    ],
)
async def test_what_the_framework_has_to_look_at_itself(paths: tuple[str, ...]) -> None:
    scope: Any = {"path": "/a/c", "method": "GET"}
    found = Direct([Route(path, Answering()) for path in paths])
    assert found.find(scope) is None
    assert scope == {"path": "/a/c", "method": "GET"}
    plain = Direct([Route("/a/b/{z}", Answering()), Route("/a/{x}", Answering())])
    assert plain.find({"path": "/a/b/c", "method": "GET"}) is not None


class Server:
    """One request's, as ours: it takes a whole answer if it is usual."""

    def __init__(self, *, is_usual: bool) -> None:
        self.is_usual = is_usual
        self.whole: list[tuple[int, bytes, bytes]] = []
        self.messages: list[Any] = []

    def send_whole(self, status: int, head: bytes, body: bytes) -> bool:
        """Take an answer."""
        if self.is_usual:
            self.whole.append((status, head, body))
        return self.is_usual

    async def send(self, message: Any) -> None:
        """Take a message."""
        self.messages.append(message)

    async def ask(self, app: App, *, hides: bool = False) -> None:
        """Send a request; something in front of the application may want to see the answer."""

        async def seeing(message: Any) -> None:
            await self.send(message)

        raw = [(name.encode(), value.encode()) for name, value in BEARER.items()]
        scope = {"type": "http", "method": "POST", "path": "/v1/ids/order", "query_string": b""}
        await app({**scope, "headers": raw}, None, seeing if hides else self.send)  # type: ignore[arg-type]  # no body is read


HEAD = b"content-type: application/json\r\ncontent-length: 27\r\ncache-control: no-store\r\n\r\n"


async def test_an_answer_is_sent_at_once() -> None:
    app, server = service(), Server(is_usual=True)
    async with app.running():
        await server.ask(app)
    assert server.whole == [(200, HEAD, b'{"ids":["1"],"numbers":[1]}')]
    assert not server.messages


@pytest.mark.parametrize(("is_usual", "hides"), [(False, False), (True, True)])
async def test_an_answer_is_sent_in_messages(is_usual: bool, hides: bool) -> None:
    app, server = service(), Server(is_usual=is_usual)
    async with app.running():
        await server.ask(app, hides=hides)
    assert not server.whole
    assert [each["type"].rpartition(".")[2] for each in server.messages] == ["start", "body"]
    lines = [b"%b: %b\r\n" % pair for pair in server.messages[0]["headers"]]
    assert b"".join([*lines, b"\r\n"]) == HEAD
