"""The id service in the place of CosId's proxy: what its clients send, get, and leave behind."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from aiocosid import store_from_url
from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.abc import Store
from aiocosid.provider import IdProvider, configure
from aiocosid.server import App, Token, TokenScope, digest_of
from aiocosid.server.dialects import cosid
from aiocosid.stores.http import HttpStore
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import MachineIdDistributorContract, MakeMachineIdDistributor
from tests.machine_marks import initialize_namespace
from tests.servers import CosIdService, ValkeyServer
from tests.servers.cosid_service import age
from tests.simulation._cosid_proxy import CosIdProxyModel

from ._web import serve
from .test_http_machines import NOT_PROMISED

pytestmark = [pytest.mark.integration]

MINUTES: Final = "safeGuardDuration=PT5M"
FOREVER: Final = "safeGuardDuration=PT2562047788015H12M55.807S"
AT: Final = re.compile(r'"lastTimeStamp":(\d+)|lastTimeStamp=\d+')


def who(instance: str = "a:1", *, stable: bool = False) -> str:
    return f"instanceId={instance}&stable={str(stable).lower()}"


@contextmanager
def service(store: Store, **options: Any) -> Generator[httpx.Client]:
    """A server on a store that stays open."""
    app = App(lambda: IdProvider(store), dialects=[cosid.routes], **options)
    with serve(app) as client:
        yield client


def memory() -> MemoryStore:
    store = MemoryStore()
    asyncio.run(store.initialize(confirm_no_holders=True))
    return store


@pytest.fixture
def store() -> MemoryStore:
    return memory()


@pytest.fixture
def client(store: MemoryStore) -> Generator[httpx.Client]:
    with service(store) as found:
        yield found


async def hold(store: Store, fence_ms: int, *, released: bool = False) -> None:
    """Hold machine id 0 of two as a process of ours, whose ids may be as late as its mark."""
    mine = store.machine_id_distributor(namespace="ns", instance_id="ours")
    now_ms = SYSTEM_CLOCK.now_ms()
    await mine.distribute(1, now_ms=now_ms, latest_ms=now_ms)
    await mine.renew(0, now_ms=now_ms, fence_ms=fence_ms)
    if released:
        await mine.release(0, last_ms=fence_ms)


async def held(store: Store) -> dict[str, int]:
    """The machine ids that are held."""
    found = await store.machines(namespace="ns")
    return {each.instance_id: each.machine_id for each in found if each.instance_id}


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of an error, whose body has CosId's form."""
    body = answer.json()
    assert list(body) == ["code", "msg", "errors"]
    return answer.status_code, body["code"]


TRANSCRIPT: Final = (
    ("POST", "/segments/distributor/ns/order?offset=7&step=100"),
    ("PATCH", "/segments/ns/order?step=100"),
    ("POST", "/segments/distributor/ns/order?offset=9000&step=100"),
    ("PATCH", "/segments/ns/order?step=1"),
    ("PATCH", "/segments/ns/never%20created?step=10"),
    ("POST", "/segments/distributor/ns/never%20created?offset=5000&step=10"),
    ("PATCH", "/segments/ns/never%20created?step=10"),
    ("PATCH", "/segments/ns/order?step=0"),
    ("PATCH", "/segments/ns/order?step=-5"),
    ("POST", "/segments/distributor/ns/other?offset=1&step=0"),
    ("PATCH", f"/machines/ns?{who()}&{MINUTES}"),
    ("DELETE", f"/machines/ns?{who()}"),
    ("POST", f"/machines/ns?machineBit=1&{who()}&{MINUTES}"),
    ("POST", f"/machines/ns?machineBit=1&{who()}&{MINUTES}"),
    ("PATCH", f"/machines/ns?{who()}&{MINUTES}"),
    ("POST", f"/machines/ns?machineBit=1&{who('pod-1', stable=True)}&{FOREVER}"),
    ("PATCH", f"/machines/ns?{who('pod-1', stable=True)}&{FOREVER}"),
    ("POST", f"/machines/ns?machineBit=1&{who('c:3')}&{MINUTES}"),
    ("DELETE", f"/machines/ns?{who()}"),
    ("DELETE", f"/machines/ns?{who()}"),
    ("PATCH", f"/machines/ns?{who()}&{MINUTES}"),
    ("POST", f"/machines/ns?machineBit=1&{who('c:3')}&{MINUTES}"),
    ("DELETE", f"/machines/ns?{who('pod-1', stable=True)}"),
    ("POST", f"/machines/ns?machineBit=1&{who('pod-1', stable=True)}&{FOREVER}"),
    ("POST", f"/machines/ns?machineBit=0&{who('d:4')}&{MINUTES}"),
)
"""What Java's clients send in the life of two counters and three instances, and in error."""


class TestTranscript:
    def test_status_and_body_are_the_proxys(self, client: httpx.Client, store: MemoryStore) -> None:
        """Byte by byte but for the time; and what is left in the store is the same."""
        model = CosIdProxyModel(SYSTEM_CLOCK.now_ms)
        for method, target in TRANSCRIPT:
            path, _, query = target.partition("?")
            due = model.respond(method, path, dict(httpx.QueryParams(query)))
            found = client.request(method, target)
            body = AT.sub("<time>", found.text)
            assert (found.status_code, body) == (due[0], AT.sub("<time>", due[1].decode())), target
        counters = asyncio.run(store.counters(namespace="ns"))
        assert {each.namespaced_name: each.last_max_id for each in counters} == model.counters
        machines = asyncio.run(store.machines(namespace="ns"))
        held = {each.instance_id: each.machine_id for each in machines if each.instance_id}
        assert held == {name: entry[0] for name, entry in model.pools["ns"].entries.items()}

    def test_what_is_left_on_redis(self, valkey: ValkeyServer, namespace: str) -> None:
        """CosId's own keys, which its clients of Redis read beside."""
        initialize_namespace(valkey, namespace)
        with service(store_from_url(valkey.url)) as client:
            for method, target in TRANSCRIPT[:19]:
                client.request(method, target.replace("/ns", f"/{namespace}"))
        key = f"cosid:{{{namespace}}}"
        assert valkey.call("GET", f"cosid:{{{namespace}.order}}.adder") == "108"
        assert valkey.call("GET", f"cosid:{{{namespace}.never created}}.adder") == "20"
        assert valkey.call("GET", f"{key}:adder") == "1"
        entries: Any = valkey.call("HGETALL", f"{key}:itc_idx")
        assert str(entries).count("pod-1") == 1
        assert "a:1" not in str(entries)
        assert re.search(r"1\|\d{13}", str(entries))


class TestSegments:
    def test_a_counter_is_created_at_its_offset_once(self, client: httpx.Client) -> None:
        """By any number of clients, with any offset."""
        created = client.post("/segments/distributor/ns/a?offset=100&step=10")
        assert (created.status_code, created.content) == (200, b"")
        assert created.headers["cache-control"] == "no-store"
        assert client.patch("/segments/ns/a?step=10").json() == 110
        assert client.post("/segments/distributor/ns/a?offset=500&step=10").status_code == 200
        assert client.patch("/segments/ns/a?step=10").json() == 120

    def test_a_chain_at_full_speed(self, client: httpx.Client) -> None:
        """CosId's merges up to 10^8 segments into one, and owns all that it asked for."""
        for step in (10, 100, 1000):
            before = client.patch("/segments/ns/a?step=1").json()
            merged = client.patch(f"/segments/ns/a?step={10**8 * step}")
            assert merged.json() == before + 10**8 * step

    def test_two_servers_answer_as_one(self, client: httpx.Client, store: MemoryStore) -> None:
        with service(store) as other:
            for turn in range(20):
                asked = (client, other)[turn % 2].patch("/segments/ns/a?step=10")
                assert asked.json() == 10 * (turn + 1)

    @pytest.mark.parametrize("name", ["a/b", "a.b", "..", "%", "a b", "é", "{x}", "a?b", "x" * 150])
    def test_any_name(self, client: httpx.Client, store: MemoryStore, name: str) -> None:
        quoted = "".join(f"%{byte:02X}" for byte in name.encode())
        assert client.patch(f"/segments/ns/{quoted}?step=10").json() == 10
        found = asyncio.run(store.counters(namespace="ns"))
        assert [each.namespaced_name for each in found] == [f"ns.{name}"]

    @pytest.mark.parametrize(
        "target",
        [
            "/segments/ns/%00?step=1",
            "/segments/ns/%FF?step=1",
            "/segments/ns/?step=1",
            "/segments//a?step=1",
            f"/segments/ns/{'x' * 10_000}?step=1",
            "/segments/ns/a",
            "/segments/ns/a?step=",
            "/segments/ns/a?step=1.5",
            "/segments/ns/a?step=%D9%A1",
            f"/segments/ns/a?step={'9' * 5000}",
            "/segments/ns/a?step=1000000000001",
            "/segments/ns/a?step=9223372036854775808",
        ],
    )
    def test_what_is_refused(self, client: httpx.Client, store: MemoryStore, target: str) -> None:
        assert refusal(client.patch(target))[0] == 400
        assert asyncio.run(store.counters()) == []

    def test_a_missing_parameter_is_named(self, client: httpx.Client) -> None:
        body = client.post("/segments/distributor/ns/a?offset=-&step=1").json()
        said = [{"field": "offset", "msg": "must be a number"}]
        assert body == {"code": "400", "msg": None, "errors": said}
        below = client.post("/segments/distributor/ns/a?offset=-1&step=1")
        assert refusal(below) == (400, "500")

    def test_the_end_of_int64(self, client: httpx.Client) -> None:
        end = 2**63 - 1
        client.post(f"/segments/distributor/ns/a?offset={end - 5}&step=1")
        assert refusal(client.patch("/segments/ns/a?step=6")) == (500, "500")
        assert client.patch("/segments/ns/a?step=5").json() == end

    def test_other_paths_and_methods(self, client: httpx.Client) -> None:
        for method, path in (
            ("GET", "/segments/ns/a"),
            ("PATCH", "/segments/ns/a/b"),
            ("PUT", "/machines/ns"),
            ("POST", "/machines/ns/a"),
            ("POST", "/ids/a"),
            ("GET", "/ids/a/b"),
            ("GET", "/actuator/env"),
        ):
            assert refusal(client.request(method, path)) == (404, "404")


class TestMachines:
    def test_another_server_renews_what_this_one_handed_out(self, store: MemoryStore) -> None:
        """And so does this one after a restart: nothing is kept but in the store."""
        with service(store) as first:
            taken = first.post(f"/machines/ns?machineBit=3&{who()}&{MINUTES}").json()
        with service(store) as second, service(store) as third:
            for client in (second, third, second):
                assert client.patch(f"/machines/ns?{who()}&{MINUTES}").status_code == 200
            again = third.post(f"/machines/ns?machineBit=3&{who()}&{MINUTES}").json()
            assert again["machineId"] == taken["machineId"] == 0
            # The second has seen another token for it before.
            assert second.patch(f"/machines/ns?{who()}&{MINUTES}").status_code == 200
            assert second.delete(f"/machines/ns?{who()}").status_code == 200
            # To the third it is lost, which is no error once.
            assert third.delete(f"/machines/ns?{who()}").status_code == 200
            assert refusal(third.delete(f"/machines/ns?{who()}")) == (400, "M-02")

    def test_an_id_that_another_one_holds_is_lost(
        self, client: httpx.Client, store: MemoryStore
    ) -> None:
        """After five silent minutes; the former holder is never told that it has it still."""
        for name in ("a", "b"):
            client.post(f"/machines/ns?machineBit=1&{who(name)}&{MINUTES}")
        age(store, "ns", 299)
        taker = f"/machines/ns?machineBit=1&{who('c')}&{MINUTES}"
        assert refusal(client.post(taker)) == (400, "M-01")
        client.patch(f"/machines/ns?{who('b')}&{MINUTES}")
        age(store, "ns", 2)
        assert client.post(taker).json()["machineId"] == 0
        former = f"/machines/ns?{who('a')}&{MINUTES}"
        assert refusal(client.patch(former)) == (400, "M-03")
        with service(store) as other:
            assert refusal(other.patch(former)) == (400, "M-02")
        # CosId's shutdown stops at the first release that fails.
        assert client.delete(f"/machines/ns?{who('a')}").status_code == 200
        assert refusal(client.delete(f"/machines/ns?{who('a')}")) == (400, "M-02")
        assert client.patch(f"/machines/ns?{who('c')}&{MINUTES}").status_code == 200
        assert client.patch(f"/machines/ns?{who('b')}&{MINUTES}").status_code == 200

    def test_a_stable_one_keeps_its_id(self, client: httpx.Client, store: MemoryStore) -> None:
        client.post(f"/machines/ns?machineBit=1&{who('pod-0', stable=True)}&{MINUTES}")
        client.delete(f"/machines/ns?{who('pod-0', stable=True)}")
        client.post(f"/machines/ns?machineBit=1&{who('a')}&{MINUTES}")
        age(store, "ns", 10**6)
        taken = client.post(f"/machines/ns?machineBit=1&{who('b')}&{MINUTES}").json()
        assert taken["machineId"] == 1
        assert refusal(client.post(f"/machines/ns?machineBit=1&{who('c')}&{MINUTES}"))[1] == "M-01"

    def test_never_the_time_of_the_former_owner(
        self, client: httpx.Client, store: MemoryStore
    ) -> None:
        """A client waits for what it is told, and may issue ids in that very second."""
        ahead_ms = SYSTEM_CLOCK.now_ms() + 60_000
        asyncio.run(hold(store, ahead_ms, released=True))
        first = client.post(f"/machines/ns?machineBit=1&{who('a')}&{MINUTES}").json()
        assert (first["machineId"], first["lastTimeStamp"] < ahead_ms) == (1, True)
        late = client.post(f"/machines/ns?machineBit=1&{who('b')}&{MINUTES}")
        assert refusal(late) == (503, "503")
        assert 58 <= int(late.headers["retry-after"]) <= 61
        # It is not held by an instance that could not start.
        assert len(asyncio.run(held(store))) == 1

    def test_a_start_is_answered_when_the_id_can_be_used(
        self, client: httpx.Client, store: MemoryStore
    ) -> None:
        """CosId's client fails if it is told a time more than 500 ms ahead of its clock."""
        ahead_ms = SYSTEM_CLOCK.now_ms() + 1500
        asyncio.run(hold(store, ahead_ms, released=True))
        for name in ("a", "a", "b"):  # the first one again: its own second is not over
            told = client.post(f"/machines/ns?machineBit=1&{who(name)}&{MINUTES}").json()
            assert told["lastTimeStamp"] <= SYSTEM_CLOCK.now_ms()
        assert SYSTEM_CLOCK.now_ms() > ahead_ms + 999

    def test_a_lease_is_released_by_its_token_alone(
        self, client: httpx.Client, store: MemoryStore
    ) -> None:
        """A process of ours with the name of a client keeps its id when that one ends."""
        asyncio.run(hold(store, SYSTEM_CLOCK.now_ms() + 15_000))
        assert refusal(client.delete(f"/machines/ns?{who('ours')}")) == (400, "M-02")
        assert asyncio.run(held(store)) == {"ours": 0}

    def test_an_endless_safe_guard_binds_its_sender_alone(
        self, client: httpx.Client, store: MemoryStore
    ) -> None:
        """Others' ids expire after an hour at most; who sent it takes no expired one."""
        client.post(f"/machines/ns?machineBit=1&{who('a')}&{FOREVER}")
        client.post(f"/machines/ns?machineBit=1&{who('b')}&{MINUTES}")
        age(store, "ns", 3599)
        taker = f"/machines/ns?machineBit=1&{who('c')}"
        assert refusal(client.post(f"{taker}&{MINUTES}")) == (400, "M-01")
        age(store, "ns", 2)
        assert refusal(client.post(f"{taker}&{FOREVER}")) == (400, "M-01")
        assert client.post(f"{taker}&{MINUTES}").json()["machineId"] == 0

    def test_a_store_that_lost_data(self, client: httpx.Client, store: MemoryStore) -> None:
        """Nobody is handed an id; who renews has its own when the quarantine is over, too."""
        for name in ("a", "b"):
            client.post(f"/machines/ns?machineBit=1&{who(name)}&{MINUTES}")
        store.forget_machines(namespace="ns", everything=False)
        other = f"/machines/ns?machineBit=1&{who('c')}&{MINUTES}"
        assert refusal(client.post(other)) == (500, "500")
        age(store, "ns", 304)
        assert client.patch(f"/machines/ns?{who('a')}&{MINUTES}").status_code == 200
        assert refusal(client.post(other)) == (500, "500")
        age(store, "ns", 2)
        assert client.post(other).json()["machineId"] == 1
        assert client.patch(f"/machines/ns?{who('a')}&{MINUTES}").status_code == 200
        assert refusal(client.patch(f"/machines/ns?{who('b')}&{MINUTES}")) == (400, "M-03")

    def test_an_emptied_store(self, client: httpx.Client, store: MemoryStore) -> None:
        """A client's renewal brings nothing back; only a new start does, after the quarantine."""
        take = f"/machines/ns?machineBit=1&{who('a')}&{MINUTES}"
        assert client.post(take).json()["machineId"] == 0
        store.forget_machines(namespace="ns", everything=True)
        asyncio.run(store.initialize(after_loss=True))
        for _ in range(2):
            assert refusal(client.patch(f"/machines/ns?{who('a')}&{MINUTES}")) == (400, "M-03")
            assert asyncio.run(held(store)) == {}
        assert refusal(client.post(take)) == (500, "500")
        age(store, "ns", 306)
        assert client.post(take).json()["machineId"] == 0
        assert client.patch(f"/machines/ns?{who('a')}&{MINUTES}").status_code == 200

    @pytest.mark.parametrize(
        "query",
        [
            f"machineBit=32&{who()}&{MINUTES}",
            f"machineBit=-1&{who()}&{MINUTES}",
            f"machineBit=&{who()}&{MINUTES}",
            f"machineBit=1&{who('')}&{MINUTES}",
            f"machineBit=1&{who('%00')}&{MINUTES}",
            f"machineBit=1&{who('x' * 101)}&{MINUTES}",
            f"machineBit=1&instanceId=a&stable=maybe&{MINUTES}",
            f"machineBit=1&stable=true&{MINUTES}",
            f"machineBit=1&{who()}",
            *(
                f"machineBit=1&{who()}&safeGuardDuration={each}"
                for each in ("5m", "PT", "P", "PT0S", "PT-5M", "-PT5M", "PT5", f"PT{'9' * 30}S")
            ),
        ],
    )
    def test_what_is_refused(self, client: httpx.Client, store: MemoryStore, query: str) -> None:
        assert refusal(client.post(f"/machines/ns?{query}"))[0] == 400
        assert asyncio.run(store.machines()) == []

    def test_two_widths_in_one_namespace(self, client: httpx.Client) -> None:
        """Refused, as for our own processes: the wider one's ids would not fit the narrower."""
        client.post(f"/machines/ns?machineBit=1&{who()}&{MINUTES}")
        wider = client.post(f"/machines/ns?machineBit=10&{who('b')}&{MINUTES}")
        assert refusal(wider) == (400, "500")

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("PT5M", 300),
            ("pt1h0.5s", 3600.5),
            ("P1DT2H", 93_600),
            ("PT0.001S", 0.001),
            ("PT-1M70S", 10),
            ("PT2562047788015H12M55.807S", float("inf")),
            ("P999999999D", 86_399_999_913_600),
        ],
    )
    def test_durations_as_java_reads_them(self, text: str, seconds: float) -> None:
        assert cosid._safe_guard({"safeGuardDuration": text}) == seconds


async def prepare(url: str) -> None:
    async with store_from_url(url) as store:
        await store.create_schema()


class TestOnSqlite:
    def test_state_survives(self, tmp_path: Path) -> None:
        """Counters and machine ids, from one server to the next."""
        url = f"sqlite:///{tmp_path / 'ids.db'}"
        asyncio.run(prepare(url))
        for turn in range(3):
            with service(store_from_url(url)) as client:
                asked = client.post(f"/machines/ns?machineBit=3&{who(f'i{turn}')}&{MINUTES}")
                assert asked.json()["machineId"] == turn
                for known in range(turn + 1):
                    again = client.patch(f"/machines/ns?{who(f'i{known}')}&{MINUTES}")
                    assert again.status_code == 200
                client.post("/segments/distributor/ns/order?offset=50&step=10")
                assert client.patch("/segments/ns/order?step=10").json() == 50 + 10 * (turn + 1)


GENERATORS: Final[dict[str, Any]] = {
    "order": {"kind": "chain"},
    "text": {"kind": "chain", "converter": "radix62"},
    "__share__": {"kind": "segment"},
}


@pytest.fixture(scope="module")
def configured() -> Generator[httpx.Client]:
    """A server with generators."""
    settings = {"store": memory(), "generators": GENERATORS}
    with serve(App(configure(settings, default=False), dialects=[cosid.routes])) as client:
        yield client


class TestIds:
    def test_numbers_and_texts(self, configured: httpx.Client) -> None:
        numbers = [configured.get(path).json() for path in ("/ids", "/ids/order", "/ids/order")]
        assert numbers == [1, 1, 2]
        as_text = configured.get("/ids/as-string/order")
        # Without a converter, CosId's by default.
        assert as_text.text == "00000000003"
        assert as_text.headers["content-type"] == "text/plain; charset=utf-8"
        assert configured.get("/ids/as-string").text == "00000000002"
        assert len(configured.get("/ids/as-string/text").text) == 11
        assert refusal(configured.get("/ids/text")) == (400, "500")
        assert configured.get("/actuator/cosidGenerator").json() == 3
        assert configured.get("/actuator/cosidStringGenerator/order").text == "00000000004"

    def test_an_unknown_name(self, configured: httpx.Client) -> None:
        answer = configured.get("/ids/x")
        body = b'{"code":"500","msg":"Not found ID generator named:[x]!","errors":[]}'
        assert (answer.status_code, answer.content) == (400, body)
        assert configured.get("/actuator/cosid/x").content == body

    def test_head_takes_nothing(self, configured: httpx.Client) -> None:
        before = configured.get("/ids/order").json()
        for method in ("HEAD", "OPTIONS"):
            assert configured.request(method, "/ids/order").status_code == 200
        assert configured.get("/ids/order").json() == before + 1

    def test_the_actuator(self, configured: httpx.Client) -> None:
        assert configured.get("/actuator/health").json() == {"status": "UP"}
        tree = configured.get("/actuator/cosid").json()
        assert set(tree) == set(GENERATORS)
        assert {each["kind"] for each in tree.values()} == {"StringSegmentId"}
        assert configured.get("/actuator/cosid/order").json()["actual"]["kind"] == "SegmentChainId"
        assert b"null" not in configured.get("/actuator/cosid").content
        assert refusal(configured.delete("/actuator/cosid/order")) == (400, "500")
        assert configured.get("/ids/order").status_code == 200


class TestTokens:
    def test_they_are_needed_unless_public(self, store: MemoryStore) -> None:
        secret = "aiocosid_java"  # noqa: S105 - of a test
        token = Token(
            name="java",
            digest=digest_of(secret),
            scopes=(TokenScope.SEGMENTS, TokenScope.MACHINES),
            names=("ns", "ns.*"),
        )
        with service(store, tokens=[token]) as client:
            assert refusal(client.patch("/segments/ns/a?step=1")) == (401, "401")
            client.headers["Authorization"] = f"Bearer {secret}"
            assert client.patch("/segments/ns/a?step=1").json() == 1
            assert refusal(client.patch("/segments/other/a?step=1")) == (403, "403")
            assert refusal(client.get("/ids/a")) == (403, "403")
            taken = client.post(f"/machines/ns?machineBit=1&{who()}&{MINUTES}")
            assert taken.status_code == 200
            assert refusal(client.patch(f"/machines/nt?{who()}&{MINUTES}")) == (403, "403")

        def public(service: Any) -> Any:
            return cosid.routes(service, public=True, prefix="/cosid")

        with serve(App(lambda: IdProvider(store), tokens=[token], dialects=[public])) as client:
            assert client.patch("/cosid/segments/other/a?step=1").json() == 1


@pytest.mark.nightly
@pytest.mark.asyncio
class TestContract(MachineIdDistributorContract):
    """Our own client of CosId's proxy, which does not know whose server it is."""

    @pytest.fixture(autouse=True)
    def _promised(self, request: pytest.FixtureRequest) -> None:
        if why := NOT_PROMISED.get(request.node.originalname):
            pytest.skip(why)

    @pytest_asyncio.fixture
    async def make_machines(
        self, cosid_service: CosIdService
    ) -> AsyncIterator[MakeMachineIdDistributor]:
        self.server = cosid_service
        # Many open a connection each and are cancelled, on a machine that is busy as well.
        async with httpx.AsyncClient(
            base_url=cosid_service.url.removeprefix("cosid+"), timeout=15, trust_env=False
        ) as client:
            yield HttpStore(client).machine_id_distributor

    async def age(self, namespace: str, seconds: float) -> None:
        self.server.age(namespace, seconds)
