"""``watch``: what it prints, and that it uses nothing up."""

from __future__ import annotations

import gc
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aiocosid.abc import Counter, Machine, MachineMarker
from aiocosid.cli._session import StoreSession
from aiocosid.cli._watch import counter_lines, machine_lines
from aiocosid.errors import StoreUnavailableError
from aiocosid.stores.inspection import Rates, StoreReading
from tests.command import Command, command, environment

from ._doubles import ScriptedStore

DOWN = StoreUnavailableError("redis", "gone")


STORE = ("--store", "sqlite:///ids.db")


def test_ctrl_c_is_the_usual_end(tmp_path: Path) -> None:
    """Code 0, and nothing on standard error."""
    done = subprocess.run(
        command("init", *STORE), cwd=tmp_path, env=environment(), check=True, capture_output=True
    )
    with subprocess.Popen(
        command("watch", *STORE),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err, done.returncode) == (0, "", 0)


def test_ctrl_c_before_a_pause_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python warns of a coroutine that was never awaited, which fails this test."""

    def interrupted(_work: object) -> None:
        raise KeyboardInterrupt

    with StoreSession.on("memory:", None, timeout=1) as session:
        with monkeypatch.context() as patched:
            patched.setattr(session._runner, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.pause(1)
        gc.collect()


def test_watch_once(aiocosid: Command) -> None:
    """Plain lines, one for each counter and each machine id that is held."""
    aiocosid("init")
    first, answer = aiocosid("watch", "--once").out.splitlines()
    assert first == "no counters, and no machine ids in use"
    assert re.fullmatch(r"last answer 2\d{3}-.* UTC from SqliteStore sqlite .*ids.db", answer)
    aiocosid("next", "order", "-n", 5)
    assert aiocosid("watch", "--once").out.startswith(
        "counter cosid.order 5 - ids/s\nlast answer 2"
    )
    assert "cosid.order" not in aiocosid("watch", "--once", "--namespace", "shop").out


def test_watch_tells_what_it_cannot_read(aiocosid: Command, scripted: ScriptedStore) -> None:
    """Each reading may fail; it goes on."""
    scripted.script = [DOWN]
    ended = aiocosid("watch", "--once")
    assert (ended.code, "problem " in ended.out) == (0, True)
    assert "StoreUnavailableError" in ended.out


def test_watch_tells_when_a_store_answered_last(
    aiocosid: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks at old figures sees that they are old."""
    silent = StoreReading(label="redis", at_ms=2_000_000, silence="no answer in 10 s")
    readings = iter((silent, StoreReading(label="redis", at_ms=1_000_000), silent))
    left = 2

    async def read(*_: object, **__: object) -> StoreReading:
        return next(readings)

    def pause(*_: object) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1

    monkeypatch.setattr("aiocosid.cli._watch.read_store", read)
    monkeypatch.setattr(StoreSession, "pause", pause)
    told = [line for line in aiocosid("watch").out.splitlines() if "answer" in line]
    answered = "last answer 1970-01-01 00:16:40 UTC from redis"
    assert told == ["no answer yet from redis", answered, answered]


def test_rates_and_leases() -> None:
    """The rate between two readings, and the time left by the store's clock."""
    rates = Rates()

    def reading(value: int) -> StoreReading:
        held: Any = {"namespace": "shop", "last_timestamp_ms": 1_000_000, "fence_ms": -1}
        return StoreReading(
            label="redis",
            at_ms=1_100_000,
            clock_error=(40.0, 0.0),
            counters=[Counter(namespaced_name="shop.order", last_max_id=value)],
            machines=[
                Machine(machine_id=0, instance_id="a:1", stable=False, **held),
                Machine(machine_id=1, instance_id="b:1", stable=True, **held),
                Machine(machine_id=2, instance_id="", stable=False, **held),
            ],
            markers=[MachineMarker(namespace="shop", safe_guard=90.0)],
        )

    assert [*counter_lines(reading(100), None, rates, 0.0)] == [("shop.order", "100", "-")]
    assert [*counter_lines(reading(400), None, rates, 2.0)] == [("shop.order", "400", "150")]
    assert [*machine_lines(reading(1), "shop")] == [
        ("shop", "0", "a:1", "30 s"),
        ("shop", "1", "b:1", "no end"),
    ]
    assert [*machine_lines(reading(1), "other")] == []
