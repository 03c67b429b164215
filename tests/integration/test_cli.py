"""The command line on real stores."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from tests.command import Command, Ended, command, environment, in_process, run
from tests.machine_marks import initialize_namespace
from tests.servers.postgres import EXECUTED, GUEST, GUEST_PASSWORD, PostgresServer
from tests.servers.proxy import FaultProxy
from tests.servers.valkey import READER, ValkeyServer

from ._snowflakes import until

pytestmark = pytest.mark.integration

WRONG = "wr0ng-s3cr3t"


@pytest.fixture(params=["sqlite", "valkey", "postgres"])
def store(aiocosid: Command, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store, ready for use."""
    match request.param:
        case "sqlite":
            url = f"sqlite:///{tmp_path}/ids.db"
        case "valkey":
            # Its own: a store is initialised here, but for its one namespace elsewhere.
            url = request.getfixturevalue("valkey_factory")().url
        case _:
            url = request.getfixturevalue("postgres_database")
    marked = ", initialised for machine ids"
    told = aiocosid("init", "--store", url, "--confirm-no-holders")
    assert Ended(told.code, told.out.replace(marked, ""), told.err) == Ended(
        0, f"{url} is ready\n", ""
    )
    return url


@pytest.fixture
def aiocosid(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run ``aiocosid`` in this process, where nothing more is needed."""
    return in_process(monkeypatch, capsys)


Take = Callable[..., list[int]]


@pytest.fixture
def take(aiocosid: Command, store: str, namespace: str) -> Take:
    """Return the ids that a command prints."""

    def run_next(*words: str | int) -> list[int]:
        ended = aiocosid("next", *words, "--store", store, "--namespace", namespace)
        assert (ended.code, ended.err.startswith("aiocosid: written to ")) == (0, True)
        return [int(line) for line in ended.out.splitlines()]

    return run_next


class TestCommands:
    """What each command does, the same on every store."""

    def test_ids_go_on_where_they_ended(
        self, aiocosid: Command, take: Take, store: str, namespace: str
    ) -> None:
        """A command uses up what it prints, and not one id more."""
        assert take("order", "-n", 3) == [1, 2, 3]
        assert take("order", "-n", 7, "--step", 3) == [*range(4, 11)]
        assert take("order") == [11]

    def test_init_then_inspect(
        self, aiocosid: Command, take: Take, store: str, namespace: str
    ) -> None:
        """A new store has no counters; then it has those that were used, in order of name."""
        where = ("--store", store, "--namespace", namespace)
        assert json.loads(aiocosid("inspect", *where, "--format", "json").out) == []
        take("b", "-n", 5)
        take("a")
        done = aiocosid("inspect", *where, "--format", "json")
        assert (done.code, done.err) == (0, "")
        counters = json.loads(done.out)
        assert [(each["namespaced_name"], each["last_max_id"]) for each in counters] == [
            (f"{namespace}.a", 1),
            (f"{namespace}.b", 5),
        ]
        table = aiocosid("inspect", *where).out
        assert f"{namespace}.a" in table
        assert f"{namespace}.b" in table

    def test_set_floor_makes_a_missing_counter(
        self, aiocosid: Command, take: Take, store: str, namespace: str
    ) -> None:
        """A restored backup may lack it altogether."""
        where = ("--store", store, "--namespace", namespace)
        assert aiocosid("set-floor", "order", "--above", 70, "--create", *where).code == 0
        assert take("order") == [71]

    def test_many_at_once_share_nothing(
        self, aiocosid: Command, take: Take, store: str, namespace: str
    ) -> None:
        """Processes that reserve at the same time get different ids, without a gap."""
        words = ("next", "order", "-n", 500, "--step", 5, "--store", store)
        processes = [
            subprocess.Popen(
                command(*words, "--namespace", namespace),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(),
            )
            for _ in range(4)
        ]
        ended = [(*process.communicate(timeout=50), process.returncode) for process in processes]
        assert [(code, err.count("\n")) for _, err, code in ended] == [(0, 1)] * 4
        ids = [[int(line) for line in out.splitlines()] for out, _, _ in ended]
        assert all(each == sorted(each) for each in ids)
        assert sorted(chain.from_iterable(ids)) == list(range(1, 2001))


class TestRefusals:
    """What a script is told when it does not work."""

    def test_wrong_password_on_valkey(
        self, aiocosid: Command, valkey_password: ValkeyServer
    ) -> None:
        """Code 4; the password is not repeated."""
        done = aiocosid("inspect", "--store", valkey_password.url_for(password=WRONG))
        self.check_refused(done)

    def test_wrong_password_on_postgres(self, aiocosid: Command, postgres: PostgresServer) -> None:
        """Code 4; the password is not repeated."""
        done = aiocosid("inspect", "--store", postgres.url_for(user=GUEST, password=WRONG))
        self.check_refused(done)

    def check_refused(self, done: Ended) -> None:
        assert (done.code, done.out) == (4, "")
        assert done.err.startswith("aiocosid: error: ")
        assert done.err.count("\n") == 1
        assert WRONG not in done.err

    def test_a_reader_may_only_look(
        self, aiocosid: Command, valkey_password: ValkeyServer, namespace: str
    ) -> None:
        """Without the right to write there are no ids, and looking still works."""
        url = valkey_password.url_for(username=READER, password=valkey_password.password)
        where = ("--store", url, "--namespace", namespace)
        initialize_namespace(valkey_password, namespace)
        self.check_refused(aiocosid("next", "order", *where))
        done = aiocosid("inspect", *where)
        assert done.code == 0
        told = "aiocosid: cannot show quarantines of machine ids: "
        assert done.err.startswith(told)
        assert done.err.count("\n") == 1

    def test_a_table_of_markers_that_is_missing(
        self,
        aiocosid: Command,
        postgres: PostgresServer,
        postgres_database: str,
        namespace: str,
    ) -> None:
        """What an older version has made, and a role that may read no more: looking still works."""
        where = ("--store", postgres_database)
        assert aiocosid("init", *where).code == 0
        guest = postgres.url_for(user=GUEST, password=GUEST_PASSWORD, database=namespace)
        tables = "cosid"
        postgres.execute(f"GRANT SELECT ON {tables} TO {GUEST}", database=namespace)
        for sql in ("", "DROP TABLE aiocosid_cell"):
            if sql:
                postgres.execute(sql, database=namespace)
            done = aiocosid("inspect", "--store", guest)
            assert (done.code, done.err.count("\n")) == (0, 1)
            assert "machine" in done.err or "aiocosid_cell" in done.err

    def test_missing_table(self, aiocosid: Command, postgres_database: str) -> None:
        """Code 4 names the table and the command that makes it; after that it works."""
        done = aiocosid("next", "order", "--store", postgres_database)
        self.check_refused(done)
        assert "'cosid'" in done.err
        assert "aiocosid init" in done.err
        assert aiocosid("init", "--store", postgres_database).code == 0
        assert aiocosid("next", "order", "--store", postgres_database).out == "1\n"

    def test_damaged_counter(self, aiocosid: Command, valkey: ValkeyServer, namespace: str) -> None:
        """Code 4; what is there stays there."""
        key = f"cosid:{{{namespace}.order}}.adder"
        valkey.call("SET", key, "some text")
        self.check_refused(
            aiocosid("next", "order", "--store", valkey.url, "--namespace", namespace)
        )
        assert valkey.call("GET", key) == "some text"

    def test_a_server_that_is_down(
        self, aiocosid: Command, valkey_factory: Callable[..., ValkeyServer]
    ) -> None:
        """Code 3 says: try again; and when the server is back it works."""
        server = valkey_factory(persistent=True)
        server.stop()
        done = aiocosid("next", "order", "--store", server.url)
        assert (done.code, done.out, done.err.count("\n")) == (3, "", 1)
        server.start()
        assert aiocosid("next", "order", "--store", server.url).out == "1\n"

    def test_bench_on_a_server_that_is_down(
        self, valkey_factory: Callable[..., ValkeyServer]
    ) -> None:
        """Nothing is said but the error, although the library logs what it tries."""
        server = valkey_factory()
        server.stop()
        done = run("bench", "--timeout", "0.2", "--store", server.url)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)

    def test_a_server_that_is_silent(
        self, aiocosid: Command, valkey_factory: Callable[..., ValkeyServer]
    ) -> None:
        """--timeout ends the wait, code 3."""
        server = valkey_factory()
        server.pause()
        done = aiocosid("next", "order", "--timeout", "0.2", "--store", server.url)
        server.resume()
        assert (done.code, done.out, done.err.count("\n")) == (3, "", 1)


class TestCtrlC:
    """Ctrl-C while the answer is on its way: the range is a gap and belongs to nobody."""

    async def test_valkey(self, valkey: ValkeyServer, namespace: str) -> None:
        """The server has acted, the reply is lost, the process ends at once and quietly."""
        async with FaultProxy(valkey.host, valkey.port) as proxy:
            url = f"redis://{proxy.host}:{proxy.port}"
            # One run before, so that the server knows the script.
            assert await self.next_ids(url, namespace) == (
                0,
                "1\n2\n3\n",
                f"aiocosid: written to {url}\n",
            )
            proxy.swallow_replies(1, to=namespace.encode(), reset=False)
            assert await self.next_ids(url, namespace, interrupt=proxy) == (130, "", "")
            code, out, _ = await self.next_ids(url, namespace)
        assert (code, out) == (0, "7\n8\n9\n")

    @pytest.mark.nightly
    async def test_postgres(
        self, postgres: PostgresServer, postgres_database: str, namespace: str
    ) -> None:
        """The same where a statement under way has to be cancelled on the server."""
        async with FaultProxy(postgres.host, postgres.port) as proxy:
            url = f"postgresql://postgres@{proxy.host}:{proxy.port}/{namespace}"
            url += "?durability=ignore"  # else its reply would be the first
            await asyncio.to_thread(run, "init", "--store", postgres_database)
            assert await self.next_ids(url, namespace) == (
                0,
                "1\n2\n3\n",
                f"aiocosid: written to {url}\n",
            )
            proxy.swallow_replies(1, matching=EXECUTED, reset=False)
            assert await self.next_ids(url, namespace, interrupt=proxy) == (130, "", "")
            code, out, _ = await self.next_ids(url, namespace)
        assert (code, out) == (0, "7\n8\n9\n")

    async def next_ids(
        self, url: str, namespace: str, *, interrupt: FaultProxy | None = None
    ) -> tuple[int | None, str, str]:
        """Take three ids; press Ctrl-C when the proxy has lost a reply."""
        words = command("next", "order", "-n", 3, "--store", url, "--namespace", namespace)
        process = await asyncio.create_subprocess_exec(
            *words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        if interrupt is not None:
            await until(lambda: interrupt.swallowed == 1)
            process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), 30)
        return process.returncode, out.decode(), err.decode()
