"""Attacks by each scope but ``admin``, through every protocol: what a token may, and no more.

A victim has taken ids, a segment and machine ids.  Each attacker has one scope for all names, or
for another name only, and tries everything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import httpx
import pytest

from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.provider import configure
from aiocosid.server import App, Token, TokenScope, digest_of
from aiocosid.server._listen import EitherProtocol
from aiocosid.server.dialects import cosid, leaf, resp, tinyid
from aiocosid.stores.memory import MemoryStore

from ._id_server import connected
from ._web import serve

pytestmark = pytest.mark.integration

LESS: Final = [verb for verb in TokenScope if verb is not TokenScope.ADMIN]
VICTIM: Final = "aiocosid_of-the-victim"
FAR: Final = 2**52
OTHERS: Final = ("mine", "mine.*", "orde", "rder", "cosid", "cosid.orde", "shop.*", "sho")
MANY: Final = 20
"""Ids that the victim's segment has."""


def secret_of(verb: TokenScope, *, is_foreign: bool) -> str:
    return f"aiocosid_{verb}-{is_foreign}"


def tokens() -> Iterator[Token]:
    yield Token(name="victim", digest=digest_of(VICTIM), scopes=tuple(TokenScope))
    for verb in LESS:
        for is_foreign in (False, True):
            digest = digest_of(secret_of(verb, is_foreign=is_foreign))
            names = OTHERS if is_foreign else ("*",)
            yield Token(name=f"{verb}-{is_foreign}", digest=digest, scopes=(verb,), names=names)


@dataclass(frozen=True, slots=True)
class Act:
    """One thing to try.

    Attributes:
        scopes: what it needs one of.
        method: of HTTP; ``RESP`` for a command.
        target: the path, or the words of the command; ``{token}`` stands for the secret.
        body: of JSON.
    """

    scopes: tuple[TokenScope, ...]
    method: str
    target: str
    body: Any = None


HOLDER: Final = {"instance": "victim", "machine_id": 0, "token": "x", "guard_ms": 1, "now_ms": 5}
"""What can be known of the victim, but the token of its lease."""
V1: Final = {"instance_id": "victim", "safe_guard": 0.001}
JAVA: Final = "instanceId={}&stable=false&safeGuardDuration=PT0.001S&machineBit=2"
KEY: Final = "cosid:{cosid.order}.adder"


def of_store(verb: TokenScope, op: str, **args: Any) -> Act:
    return Act((verb,), "POST", f"/v1/store/{op}", args)


ACTS: Final = [
    *(
        Act((TokenScope.IDS,), method, path)
        for method, path in (
            ("POST", "/v1/ids/order"),
            ("POST", "/v1/ids/order?count=7"),
            ("GET", "/ids/order"),
            ("GET", "/ids/as-string/order"),
            ("GET", "/actuator/cosidGenerator/order"),
            ("GET", "/actuator/cosidStringGenerator/order"),
            ("GET", "/api/segment/get/order"),
            ("GET", "/api/snowflake/get/anything"),
            ("POST", "/tinyid/id/nextId?bizType=order&token={token}&batchSize=3"),
            ("GET", "/tinyid/id/nextIdSimple?bizType=order&token={token}"),
        )
    ),
    of_store(TokenScope.IDS, "take", name="order", count=5),
    *(
        Act((TokenScope.SEGMENTS,), method, path)
        for method, path in (
            ("POST", "/v1/segments/order?step=3"),
            ("PATCH", "/segments/cosid/order?step=3"),
            ("POST", "/segments/distributor/cosid/order?offset=0&step=1"),
            ("GET", "/api/segment/get/order/3"),
            ("POST", "/tinyid/id/nextSegmentId?bizType=order&token={token}"),
            ("POST", "/tinyid/id/nextSegmentIdSimple?bizType=order&token={token}"),
            ("RESP", f"INCRBY {KEY} 3"),
            ("RESP", f"INCR {KEY}"),
            ("RESP", f"SETNX {KEY} 0"),
            ("RESP", f"SET {KEY} 1 NX GET"),
        )
    ),
    of_store(TokenScope.SEGMENTS, "add", name="cosid.order", by=3),
    of_store(TokenScope.SEGMENTS, "add", name="cosid.order", by=1, first=1),
    of_store(TokenScope.SEGMENTS, "add", name="cosid.order", by=0, first=0),
    Act((TokenScope.SEGMENTS,), "RESP", 'AIOCOSID add {"name":"cosid.order","by":1,"first":1}'),
    Act((TokenScope.MACHINES,), "POST", "/v1/machines/shop", {**V1, "bits": 2, "now_ms": 5}),
    Act(
        (TokenScope.MACHINES,),
        "PATCH",
        "/v1/machines/shop/0",
        {**V1, "lease": "x", "now_ms": 5, "fence_ms": 9},
    ),
    Act(
        (TokenScope.MACHINES,), "DELETE", "/v1/machines/shop/0", {**V1, "lease": "x", "last_ms": 0}
    ),
    of_store(
        TokenScope.MACHINES,
        "take_machine",
        namespace="shop",
        asked={"instance": "victim", "token": "x", "bits": 2, "now_ms": 5, "latest_ms": FAR},
    ),
    of_store(
        TokenScope.MACHINES, "renew_machine", namespace="shop", asked={**HOLDER, "fence_ms": 9}
    ),
    of_store(
        TokenScope.MACHINES,
        "release_machine",
        namespace="shop",
        asked={each: HOLDER[each] for each in HOLDER if each != "now_ms"} | {"last_ms": 0},
    ),
    *(
        Act((TokenScope.MACHINES,), method, f"/machines/shop?{JAVA.format(instance)}")
        for method in ("POST", "PATCH", "DELETE")
        for instance in ("victim", "java")
    ),
    Act(
        (TokenScope.READ, TokenScope.ADMIN, TokenScope.MACHINES),
        "POST",
        "/v1/store/machine_bits",
        {"namespace": "shop"},
    ),
    *(
        Act((TokenScope.READ,), "GET", path)
        for path in (
            "/v1/parse/order/5",
            "/v1/statistics/order",
            "/actuator/cosid/order",
            "/actuator/cosid",
            "/cache",
            "/db",
            "/decodeSnowflakeId?snowflakeId=5",
            "/metrics",
        )
    ),
    of_store(TokenScope.READ, "peek", name="cosid.order"),
    of_store(TokenScope.READ, "machines", namespace="shop"),
    of_store(TokenScope.READ, "machine_markers", namespace="shop"),
    *(
        Act((TokenScope.READ, TokenScope.SEGMENTS), "RESP", f"{command} {KEY}")
        for command in ("GET", "MGET", "EXISTS", "TYPE")
    ),
    *(
        of_store(TokenScope.ADMIN, op, **args)
        for op, args in (
            ("create_schema", {"disposable": True}),
            ("raise_to", {"name": "cosid.order", "above": FAR, "create": True}),
            ("machine_holders", {"namespace": "shop", "machine_id": 0}),
            ("evict_machine", {"namespace": "shop", "machine_id": 0, "holders": ["victim"]}),
            ("repair_machines", {"namespace": "shop"}),
            ("raise_machine_fence", {"namespace": "shop", "machine_id": 0, "above_ms": FAR}),
            ("set_machine_bits", {"namespace": "shop", "bits": 3}),
            ("initialize", {"confirm_no_holders": True}),
            ("forget_namespace", {"namespace": "shop"}),
            ("initialize_namespace", {"namespace": "shop", "is_new": True}),
        )
    ),
    Act((TokenScope.ADMIN,), "POST", "/v1/repairs/shop"),
    Act((TokenScope.ADMIN,), "DELETE", "/actuator/cosid/order"),
    *(
        Act((TokenScope.ADMIN,), "RESP", f"{command} {KEY} 1")
        for command in ("SET", "GETSET", "DECRBY", "DEL", "INCRBYFLOAT")
    ),
]


class Arena:
    """A service, its victim and their ids.

    Attributes:
        client: of HTTP.
        taken: the ids of the counter that anybody got.
        lease: names the victim's.
        fence_ms: no id of the victim is later.
    """

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.taken: list[int] = []
        self.now_ms = SYSTEM_CLOCK.now_ms()
        self.fence_ms = self.now_ms + 60_000
        self.lease = ""

    def begin(self) -> None:
        """Let the victim take."""
        machine = {"instance_id": "victim", "bits": 2, "now_ms": self.now_ms}
        self.lease = self.done("POST", "/v1/machines/shop", machine)["lease"]
        assert self.asked(VICTIM, Act((), "POST", f"/machines/shop?{JAVA.format('java')}"))[0]
        self.check()

    def done(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.client.request(method, path, json=body, headers=bearer(VICTIM))
        assert answer.status_code == 200, answer.text
        return answer.json()

    def check(self) -> None:
        """The victim goes on: it has what it had, and gets what nobody got."""
        found = self.done("POST", f"/v1/segments/order?step={MANY}")
        self.taken += range(int(found["first"]), int(found["last"]) + 1)
        self.taken += map(int, self.done("POST", "/v1/ids/order?count=3")["ids"])
        renewal = {"lease": self.lease, "now_ms": self.now_ms, "fence_ms": self.fence_ms}
        self.done("PATCH", "/v1/machines/shop/0", {"instance_id": "victim", **renewal})
        java = Act((), "PATCH", f"/machines/shop?{JAVA.format('java')}")
        assert self.asked(VICTIM, java)[0]
        [one, other] = self.done("POST", "/v1/store/machines", {"namespace": "shop"})["answer"][:2]
        assert (one["instance_id"], one["fence_ms"]) == ("victim", self.fence_ms)
        assert other["instance_id"] == "java"
        assert len(set(self.taken)) == len(self.taken), "an id came twice"

    def asked(self, secret: str, act: Act) -> tuple[bool, str]:
        """Return whether an act was not refused for lack of rights; and the answer."""
        target = act.target.replace("{token}", secret)
        if act.method == "RESP":
            return self._command(secret, target)
        answer = self.client.request(act.method, target, json=act.body, headers=bearer(secret))
        text = answer.text
        is_refused = answer.status_code in {401, 403} or (
            "/tinyid/" in target and ('"code":5' in text or not text)
        )
        return not is_refused, text

    def _command(self, secret: str, target: str) -> tuple[bool, str]:
        where, text = self.client.base_url, ""
        with connected((where.host, where.port)) as connection:
            for words in (["AUTH", secret], target.split(" ")):
                parts = "".join(f"${len(each)}\r\n{each}\r\n" for each in words)
                connection.sendall(f"*{len(words)}\r\n{parts}".encode())
                text = connection.recv(65_536).decode()
        return not (
            text.startswith(("-NOPERM", "-NOAUTH", "-ERR")) or "AuthenticationError" in text
        ), text


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"} if secret else {}


@pytest.fixture(scope="module")
def arena() -> Generator[Arena]:
    generators = {"order": {"kind": "chain"}, "flake": {"kind": "snowflake"}}
    settings = {
        "store": MemoryStore(),
        "generators": generators,
        "machine": {"source": "manual", "machine_id": 5},
    }
    app = App(
        configure(settings, default=False),
        tokens=[*tokens()],
        dialects=[cosid.routes, partial(leaf.routes, snowflake="flake"), tinyid.routes],
        resp=resp.commands(),
        receipt_key="of this server, and of nobody else",
    )
    with serve(app, http=EitherProtocol, proxy_headers=False) as client:
        found = Arena(client)
        found.begin()
        yield found


def ids_in(act: Act, text: str) -> list[int]:
    """The ids of an answer, as far as it tells them by itself."""
    tree = json.loads(text) if text.startswith("{") else {}
    data = tree.get("data", tree.get("ids", []))
    size = next((int(each) for each in act.target.split() if each.isdecimal()), 1)
    last = 0
    if found := re.fullmatch(r"(\d+):(\d+)", text):  # Leaf's
        first, size = map(int, found.groups())
        last = first + size - 1
    elif act.method == "RESP" and act.target.startswith("INCR"):
        last = int(text.removeprefix(":"))
    elif text.isdecimal() and act.method in {"GET", "PATCH"}:
        last, size = int(text), 3 if act.method == "PATCH" else 1
    elif "first" in tree:
        last, size = int(tree["last"]), tree["step"]
    elif tree.get("max_id"):
        last, size = tree["max_id"], act.body.get("by", 0)
    elif type(data) is dict:
        last, size = data["maxId"], data["maxId"] - data["currentId"]
    else:
        return [*map(int, data or [])]
    return [*range(last - size + 1, last + 1)]


def is_empty(text: str) -> bool:
    """Whether it lists what the caller may see, which is nothing."""
    return text in {'{"answer": []}', '{"counters": []}'}


@pytest.mark.parametrize("is_foreign", [False, True], ids=["any name", "another name"])
@pytest.mark.parametrize("verb", LESS)
def test_a_verb_is_for_its_acts_and_names(
    arena: Arena, verb: TokenScope, *, is_foreign: bool
) -> None:
    """And whatever it does, the victim's ids come once, and its machine ids and marks stay."""
    secret = secret_of(verb, is_foreign=is_foreign)
    wrong: list[str] = []
    for act in ACTS:
        done, text = arena.asked(secret, act)
        may = verb in act.scopes and not is_foreign
        if done and not may and not is_empty(text):
            wrong.append(f"{act.method} {act.target}: {text[:100]}")
        if may and act.scopes == (TokenScope.IDS,) and "flake" not in text:
            assert done, (act, text)
        if done:
            arena.taken += ids_in(act, text)
        arena.check()
    assert wrong == []


def test_nobody_may_do_anything(arena: Arena) -> None:
    """Without a token, or with a wrong one."""
    for act in ACTS:
        for secret in ("", "wrong"):
            done, text = arena.asked(secret, act)
            assert not done, (act, text)
