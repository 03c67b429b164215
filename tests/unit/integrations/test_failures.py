"""Failing requests: what they are answered, and how few lines they write."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

from aiocosid.errors import (
    CosIdError,
    MachineIdLostError,
    MachineIdQuarantineError,
    MachineIdUnavailableError,
    SegmentUnavailableError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from aiocosid.integrations import failures
from aiocosid.integrations._line_limit import MOST_CAUSES, LineLimiter
from aiocosid.integrations.asgi import ErrorMiddleware
from aiocosid.integrations.failures import FailureLog, answer_to

from ._kit import client

SECRET = "redis://app:hunter2@10.0.0.7"  # noqa: S105 - of nobody
STARVED = SegmentUnavailableError("shop.order", waited=5, reason=SECRET, retry_after=1.2)
LOST = MachineIdLostError("shop", 7, reason=SECRET)


class TestLineLimiter:
    def test_one_line_an_interval_and_a_count_of_the_others(self) -> None:
        limiter = LineLimiter(1.0)
        admitted = [limiter.admit("a", at / 1000) for at in range(3000)]
        assert {at: n for at, n in enumerate(admitted) if n is not None} == {
            0: 0,
            1000: 999,
            2000: 999,
        }

    def test_causes_do_not_hide_each_other(self) -> None:
        limiter = LineLimiter(1.0)
        assert [limiter.admit(cause, 5.0) for cause in "aba"] == [0, 0, None]

    def test_a_clock_that_is_set_back_silences_nothing(self) -> None:
        limiter = LineLimiter(1.0)
        assert [limiter.admit("a", at) for at in (100.0, 100.5, 40.0)] == [0, None, 1]

    def test_asking_for_a_summary_counts_nothing(self) -> None:
        limiter = LineLimiter(1.0)
        limiter.admit("a", 0.0)
        limiter.admit("a", 0.1)
        assert limiter.admit("a", 0.2, lines=0) is None
        assert limiter.admit("a", 1.0, lines=0) == 1

    def test_it_remembers_a_bounded_number(self) -> None:
        """A client that can choose the cause cannot fill the memory."""
        limiter = LineLimiter(1.0)
        for cause in range(MOST_CAUSES + 50):
            limiter.admit(cause, 0.0)
        assert len(limiter._written) == MOST_CAUSES
        assert limiter.admit(MOST_CAUSES + 49, 0.0) is None
        assert limiter.admit(0, 0.0) == 0


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock of log records shows."""
    now = [1000.0]

    def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        found = logging.LogRecord(*args, **kwargs)
        found.created = now[0]
        return found

    monkeypatch.setattr(logging, "_logRecordFactory", record)
    return now


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


class TestFailureLog:
    def test_a_flood_is_one_line_a_second(
        self, caplog: pytest.LogCaptureFixture, wall: list[float]
    ) -> None:
        """Of 3,000 failures in three seconds of one cause, whichever generator it met."""
        failures = FailureLog()
        for each in range(3000):
            wall[0] = 1000 + each / 1000
            error = StoreRolledBackError(
                "redis", namespace="shop", name=f"n{each}", seen=1, expected=2
            )
            failures.note(error, "a request was answered with 500")
        first, second, third = lines(caplog)
        assert first.startswith("a request was answered with 500: StoreRolledBackError: redis: ")
        assert "shop.n0" in first
        assert all(line.endswith("(999 more like it were left out)") for line in (second, third))
        assert {record.levelname for record in caplog.records} == {"ERROR"}
        assert caplog.records[1].__dict__["aiocosid"]["left_out"] == 999

    def test_what_the_driver_said_makes_no_cause_of_its_own(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        failures = FailureLog()
        for store in ("redis", "postgres"):
            for driver in (OSError(), TimeoutError(), None):
                error = SegmentUnavailableError("shop.order", waited=0)
                error.__cause__ = StoreUnavailableError(store, "down")
                error.__cause__.__cause__ = driver
                failures.note(error, "failed")
        assert len(caplog.records) == 2

    def test_the_end_of_a_flood_is_told_in_threads_too(
        self, caplog: pytest.LogCaptureFixture, wall: list[float]
    ) -> None:
        failures = FailureLog()
        failures.write_due()
        for _ in range(10):
            failures.note(STARVED, "failed")
        failures.write_due()
        assert len(caplog.records) == 1
        wall[0] += 1
        failures.write_due()
        failures.write_due()
        assert len(caplog.records) == 2
        assert lines(caplog)[1].endswith("(8 more like it were left out)")  # and two are shown

    def test_what_a_line_has_told_is_not_told_again(
        self, caplog: pytest.LogCaptureFixture, wall: list[float]
    ) -> None:
        failures = FailureLog()
        for _ in range(2):
            failures.note(STARVED, "failed")
        for _ in range(2):
            wall[0] += 1
            failures.note(STARVED, "failed")
            wall[0] += 1
            failures.write_due()
        assert [line.rpartition("(")[2] for line in lines(caplog)[1:-1]] == [
            "1 more like it were left out)"
        ]
        assert len(caplog.records) == 3

    async def test_a_loop_writes_the_summary_by_itself(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, wall: list[float]
    ) -> None:
        """By one timer, and by none when nothing was left out."""
        timers: list[tuple[float, Callable[[], None]]] = []
        loop = asyncio.get_running_loop()

        def call_later(seconds: float, call: Callable[[], None]) -> None:
            timers.append((seconds, call))

        monkeypatch.setattr(loop, "call_later", call_later)
        failures = FailureLog()
        failures.note(STARVED, "failed")
        assert timers == []
        for _ in range(5):
            failures.note(STARVED, "failed")
        ((seconds, summarise),) = timers
        assert 1 <= seconds < 1.1
        summarise()  # too early: it is tried again
        assert (len(timers), len(caplog.records)) == (2, 1)
        wall[0] += seconds
        timers[1][1]()
        assert (len(timers), len(caplog.records)) == (2, 2)
        assert caplog.records[-1].created == wall[0]  # when it was written
        assert lines(caplog)[1].endswith("(4 more like it were left out)")

    def test_a_line_names_the_place_and_has_no_traceback(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        failures = FailureLog()
        for level, count in ((logging.INFO, 1), (logging.DEBUG, 2)):
            caplog.set_level(level, "aiocosid.requests")
            try:
                raise StoreUnavailableError(f"store{level}", "down\nfor good")
            except CosIdError as error:
                failures.note(error, "failed")
            assert len(caplog.records) == count
            assert "test_failures.py:" in lines(caplog)[-1]
            assert "\n" not in lines(caplog)[-1]
            assert bool(caplog.records[-1].exc_info) is (level == logging.DEBUG)

    def test_a_logger_that_wants_nothing_costs_nothing(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        logger = logging.getLogger("shop.silent")
        logger.setLevel(logging.CRITICAL)
        FailureLog(logger).note(STARVED, "failed")
        assert caplog.records == []


class TestAnswer:
    def test_what_may_pass_is_an_invitation(self) -> None:
        answer = answer_to(STARVED)
        assert (answer.status, answer.headers["retry-after"]) == (503, "2")
        assert json.loads(answer.body) == {
            "type": STARVED.url,
            "title": "Service Unavailable",
            "status": 503,
            "detail": "no id just now",
        }

    def test_what_does_not_is_a_500_without_its_facts(self) -> None:
        answer = answer_to(LOST)
        assert answer.status == 500
        assert "retry-after" not in answer.headers
        assert json.loads(answer.body) == {
            "type": LOST.url,
            "title": "Internal Server Error",
            "status": 500,
        }

    @pytest.mark.parametrize(
        ("seconds_left", "header"), [(0.2, "1"), (17.1, "18"), (math.inf, "1")]
    )
    def test_a_cause_says_how_long(self, seconds_left: float, header: str) -> None:
        error = MachineIdUnavailableError("shop", waited=5)
        error.__cause__ = MachineIdQuarantineError(
            "redis", namespace="shop", seconds_left=seconds_left
        )
        assert answer_to(error).headers["retry-after"] == header

    def test_a_user_s_own_error_may_never_end(self) -> None:
        class OwnError(CosIdError):
            retryable = True
            retry_after = math.inf

        assert answer_to(OwnError()).headers["retry-after"] == "1"


class TestErrorMiddleware:
    @pytest.mark.parametrize(("error", "status"), [(STARVED, 503), (LOST, 500)])
    async def test_any_asgi_application_is_served(self, error: CosIdError, status: int) -> None:
        async def app(_scope: Any, _receive: Any, _send: Any) -> None:
            raise error

        async with client(ErrorMiddleware(app)) as http:
            reply, head = await http.get("/"), await http.head("/")
        assert reply.status_code == head.status_code == status
        assert reply.headers["content-type"] == failures.PROBLEM_JSON
        assert reply.json()["type"] == error.url
        assert "hunter2" not in reply.text
        assert "10.0.0.7" not in reply.text
        assert head.content == b""

    async def test_an_answer_that_has_begun_is_broken_off(self) -> None:
        """A second one cannot follow; the server cuts the connection."""

        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise LOST.again()

        async with client(ErrorMiddleware(app)) as http:
            with pytest.raises(MachineIdLostError):
                await http.get("/")

    async def test_other_errors_and_other_connections_pass(self) -> None:
        async def broken(scope: Any, _receive: Any, _send: Any) -> None:
            raise ZeroDivisionError if scope["type"] == "http" else LOST

        served = ErrorMiddleware(broken)
        for kind, error in (("http", ZeroDivisionError), ("websocket", MachineIdLostError)):
            with pytest.raises(error):
                await served({"type": kind}, None, None)  # type: ignore[arg-type]
