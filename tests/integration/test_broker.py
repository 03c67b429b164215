"""The broker of a host, over its socket: its generators' ids as blocks, and the command."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import aiocosid
from aiocosid.abc import MAX_ID
from aiocosid.errors import InvalidArgumentError, StoreAuthenticationError, StoreError
from aiocosid.provider import configure
from aiocosid.segment import RemoteId
from aiocosid.server import App, Limits, SpanStore, Token, TokenScope, digest_of, new_token
from aiocosid.server._listen import EitherProtocol
from aiocosid.server.dialects import resp
from aiocosid.stores.remote import RemoteStore
from aiocosid.testing import IdGeneratorContract, MakeGenerator
from tests.command import command, environment, run
from tests.script import run_python
from tests.servers import Broker

from ._web import serve

pytestmark = [pytest.mark.integration]

KINDS: dict[str, dict[str, Any]] = {
    "chain": {"kind": "chain"},
    "segment": {"kind": "segment", "step": 7},
    "snowflake": {"kind": "snowflake"},
    "cached": {"kind": "cached_snowflake"},
    "counter": {"kind": "counter"},
    "int32": {"kind": "int32", "inner": {"kind": "chain"}},
    "uncertainty": {"kind": "uncertainty", "bits": 5, "inner": {"kind": "chain"}},
}
OTHERS: dict[str, dict[str, Any]] = {
    "text": {"kind": "chain", "converter": {"type": "to-string"}},
    "uuid": {"kind": "uuid7"},
    "grouped": {"kind": "grouped", "group_by": "year", "zone": "UTC"},
}
SECRET = new_token()
TOKEN = Token(name="shop", digest=digest_of(SECRET), scopes=(TokenScope.IDS,), names=("chain",))


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker on a thread of this process, with generators of all kinds."""
    folder = tmp_path_factory.mktemp("b", numbered=True)
    provider = configure(
        {
            "store": f"sqlite:///{folder}/ids.db",
            "create": True,
            "generators": KINDS | OTHERS,
        },
        default=False,
    )
    assert provider.store is not None
    app = App(
        provider,
        store=SpanStore(provider.store),
        tokens=getattr(request, "param", ()),
        limits=Limits(ids=20_000),
        unix_tokens=True,
        resp=resp.commands(),
    )
    with serve(app, http=EitherProtocol, uds=f"{folder}/s", proxy_headers=False):
        yield f"aiocosid+unix://{folder}/s"


def httpx_of(broker: Broker) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(broker.socket))
    return httpx.Client(base_url="http://localhost", transport=transport, timeout=20)


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["snowflake", "uncertainty"])
class TestContract(IdGeneratorContract):
    """Of a generator that the broker has: many ranges, or none longer than one id."""

    ids_per_worker = 1000

    @pytest.fixture
    def make_generator(self, url: str, name: str) -> MakeGenerator:
        store = RemoteStore.from_url(url)
        return lambda: RemoteId(store, namespace="shop", name=name, block=self.step)


class TestBlocks:
    @pytest.mark.parametrize("name", KINDS)
    async def test_of_each_kind_of_numbers(self, url: str, name: str) -> None:
        """Rising, and nobody else's."""
        async with aiocosid.connect(url) as one, aiocosid.connect(url) as two:
            first, second = await one.remote(name), await two.remote(name, max_age=None)
            ids = [await first.next_id() for _ in range(100)] + await first.next_ids(5000)
            others = await second.next_ids(5000)
        assert ids == sorted(ids)
        assert len({*ids, *others}) == 10_100

    @pytest.mark.parametrize("name", OTHERS)
    async def test_others_are_refused(self, url: str, name: str) -> None:
        """Texts, and numbers that begin anew in each group."""
        async with aiocosid.connect(url) as ids:
            with pytest.raises(InvalidArgumentError, match="rising numbers"):
                await ids.remote(name)

    async def test_a_name_that_the_broker_does_not_have(self, url: str) -> None:
        """Is refused at once, and creates nothing."""
        async with aiocosid.connect(url) as ids:
            with pytest.raises(StoreError, match="no generator has that name"):
                await ids.remote("missing")

    async def test_a_count_above_the_limit_is_refused(self, url: str) -> None:
        """The server's."""
        async with RemoteStore.from_url(url) as store:
            assert sum(map(len, await store.take_ids("chain", 20_000))) == 20_000
            for count in (0, 20_001, MAX_ID):
                with pytest.raises(InvalidArgumentError, match="from 1 to 20000"):
                    await store.take_ids("chain", count)

    @pytest.mark.parametrize("url", [[TOKEN]], indirect=True)
    async def test_a_token_is_for_ids_of_its_names(self, url: str) -> None:
        """As over HTTP."""
        async with RemoteStore.from_url(f"{url}?token={SECRET}") as store:
            assert await store.take_ids("chain", 3) == [range(1, 4)]
            with pytest.raises(StoreAuthenticationError):
                await store.take_ids("segment", 3)
        async with RemoteStore.from_url(url) as store:
            with pytest.raises(StoreAuthenticationError):
                await store.take_ids("chain", 3)

    async def test_a_new_counter_begins_with_the_workers_offset(self, url: str) -> None:
        """And goes on from there."""
        async with aiocosid.connect(url) as ids:
            order = await ids.segment_chain("order", offset=1000)
            assert await order.next_ids(3) == [1001, 1002, 1003]


class TestCommand:
    def test_it_ends_in_order(self, namespace: str) -> None:
        """On SIGTERM, and removes its socket."""
        with Broker(namespace) as broker:
            mode = broker.socket.stat().st_mode & 0o777
            assert mode == 0o660
            process = broker._popen
            assert process is not None
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
            assert not broker.socket.exists()

    def test_it_offers_what_workers_need(self, namespace: str) -> None:
        """Nobody at its socket raises a floor: it could be to the end, for all hosts."""
        with Broker(namespace) as broker, httpx_of(broker) as client:
            taken = {"name": f"{namespace}.order", "by": 1}
            first = client.post("/v1/store/add", json=taken | {"first": 1})
            assert first.json() == {"max_id": 1}
            raised = {"name": f"{namespace}.order", "above": MAX_ID - 1}
            for op, args in (("raise_to", raised), ("create_schema", {"after_loss": True})):
                answer = client.post(f"/v1/store/{op}", json=args)
                assert (answer.status_code, answer.json()["kind"]) == (403, "not-allowed"), op
            assert client.post("/v1/store/add", json=taken).json() == {"max_id": 2}
            assert client.get("/v1/generators").status_code == 200

    def test_systemd_has_the_socket(self, namespace: str, tmp_path: Path) -> None:
        """It outlives the broker: who connects meanwhile waits, and is served by the next one."""
        with Broker(namespace) as broker, socket.socket(socket.AF_UNIX) as listener:
            broker.stop()
            listener.bind(str(broker.socket))
            listener.listen()
            launch = (
                "import os, sys; os.dup2(int(sys.argv[1]), 3); os.set_inheritable(3, True); "
                "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid())); "
                "os.execv(sys.argv[2], sys.argv[2:])"
            )
            words = command("broker", "--config", broker.directory / "ids.toml")
            number = listener.fileno()
            asked: list[list[int]] = []
            for _ in range(2):
                begun = subprocess.Popen(
                    [sys.executable, "-c", launch, str(number), *words],
                    pass_fds=[number],
                    env=environment(),
                    cwd=tmp_path,
                )
                try:  # at once: it is not there yet
                    asked.append(asyncio.run(_three(broker.url)))
                finally:
                    begun.terminate()
                    begun.wait(20)
                assert begun.returncode == 0
                assert broker.socket.exists()
        assert asked[0] == [1, 2, 3]
        assert asked[1][0] > 3

    def test_a_store_in_memory_is_refused(self) -> None:
        """The next broker would begin anew."""
        done = run("broker", "--store", "memory:")
        assert done.returncode == 2
        assert "must outlive the broker" in done.stderr

    @pytest.mark.parametrize(
        "words", [("--mode", "9"), ("--config", "a.toml"), ("--endurance", "-1")]
    )
    def test_wrong_options(self, words: tuple[str, ...], tmp_path: Path) -> None:
        done = run("broker", "--store", f"sqlite:///{tmp_path}/ids.db", *words)
        assert done.returncode == 2
        assert words[0].strip("-") in done.stderr


async def _three(url: str) -> list[int]:
    async with aiocosid.connect(f"{url}?timeout=30", namespace="shop") as ids:
        order = await ids.segment_chain("order", wait_timeout=60, fetch_timeout=40)
        return await order.next_ids(3)


FORK = """
import asyncio, os, sys
from aiocosid.server import SpanStore
from aiocosid.stores.sqlite import SqliteStore

store = SpanStore(SqliteStore.from_url(sys.argv[1]), owns_root=True)
order = store.segment_distributor(name="order")

async def begin():
    await store.create_schema()
    return await order.next_max_id(10)

async def child():
    found = await order.next_max_id(10)
    await store.aclose()
    return found

with asyncio.Runner() as runner:
    print("[", runner.run(begin()), ",", flush=True)
    if (pid := os.fork()) == 0:
        with asyncio.Runner() as other:
            print(other.run(child()), ",", flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    print(runner.run(order.next_max_id(10)), "]")
    runner.run(store.aclose())
"""


def test_a_child_has_spans_of_its_own(tmp_path: Path) -> None:
    """What the parent has in hand is not the child's."""
    parent, child, again = run_python(FORK, f"sqlite:///{tmp_path}/ids.db")
    assert (parent, again) == (10, 20)
    assert child > 10_000
