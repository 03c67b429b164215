"""Events as log lines: what they say, at which level, and that they are no flood."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from aiocosid.abc import events
from aiocosid.abc.events import (
    Event,
    FetchFailed,
    Instruments,
    SegmentFetched,
    Starved,
    WaitTimedOut,
)
from aiocosid.errors import InvalidArgumentError, StoreError
from aiocosid.integrations.logging import LEVELS, LoggingInstrument

from ._told import DOWN, EVENTS, SHOP

NO_EVENTS = {"Event", "Instrument", "Instruments"}


@pytest.fixture
def wall() -> Iterator[list[float]]:
    """What the clock of log records shows."""
    now, make = [1000.0], logging.getLogRecordFactory()

    def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made = make(*args, **kwargs)
        made.created = now[0]
        return made

    logging.setLogRecordFactory(record)
    yield now
    logging.setLogRecordFactory(make)


def facts(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = record.__dict__["aiocosid"]
    return found


def test_each_event_has_a_level_and_a_line(caplog: pytest.LogCaptureFixture) -> None:
    kinds = {type(event) for event in EVENTS}
    assert kinds == set(LEVELS)
    assert {kind.__name__ for kind in kinds} == {*events.__all__} - NO_EVENTS
    caplog.set_level(logging.DEBUG, "aiocosid.abc.events")
    instrument = LoggingInstrument()
    for event in EVENTS:
        instrument.on_event(event)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:4] == [
        "shop.order: segment fetched max_id=2000 count=2000 took=0.004 starved=False",
        f"shop.order: fetch failed error='StoreUnavailableError: {DOWN}' attempt=1 took=2.0",
        "shop.order: starved",
        "shop.order: distance changed before=2 after=4",
    ]
    assert lines[-1].startswith("shop.10.0.0.1:80: machine id lost machine_id=3 error=")
    assert [record.levelno for record in caplog.records] == [LEVELS[type(e)] for e in EVENTS]
    for event, record in zip(EVENTS, caplog.records, strict=True):
        told = json.loads(json.dumps(facts(record)))
        assert (told.pop("event"), record.name) == (type(event).__name__, "aiocosid.abc.events")
        assert {"namespace": "shop", "name": event.name}.items() <= told.items()
        assert {*told} == {*event.__dataclass_fields__}


def test_what_repeats_is_written_now_and_then(
    caplog: pytest.LogCaptureFixture, wall: list[float]
) -> None:
    """A line of its kind, generator and error every ten seconds, with the count of the others."""
    caplog.set_level(logging.DEBUG, "aiocosid.abc.events")
    instrument = LoggingInstrument()
    late, other = WaitTimedOut(**SHOP, waited=5), WaitTimedOut(namespace="shop", name="b", waited=5)
    for event in (late, late, other, late, Starved(**SHOP)):
        instrument.on_event(event)
    wall[0] += 9.99
    instrument.on_event(late)
    assert len(caplog.records) == 3
    wall[0] += 0.01
    instrument.on_event(late)
    assert caplog.records[-1].getMessage().endswith("waited=5 (3 more like it were left out)")
    assert facts(caplog.records[-1])["left_out"] == 3
    wall[0] -= 3600  # the wall clock was set
    instrument.on_event(late)
    assert caplog.records[-1].getMessage() == "shop.order: wait timed out waited=5"
    down = FetchFailed(**SHOP, error=DOWN, attempt=1, took=2)
    caplog.clear()
    for failed in (down, replace(down, error=StoreError("redis", "no")), down):
        instrument.on_event(failed)
    assert len(caplog.records) == 2


def test_nothing_is_left_out_at_debug_or_without_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "shop")
    unhurried = LoggingInstrument(logging.getLogger("shop"), pause=0)
    fetched = SegmentFetched(**SHOP, max_id=1, count=1, took=0, starved=False)
    for instrument, event in ((LoggingInstrument(logging.getLogger("shop")), fetched),) * 2 + (
        (unhurried, Starved(**SHOP)),
    ) * 2:
        instrument.on_event(event)
    assert [record.name for record in caplog.records] == ["shop"] * 4


def test_levels_are_the_users(caplog: pytest.LogCaptureFixture) -> None:
    """Also of an event of the user's own; what the logger does not want costs no record."""

    class Own(Event):
        pass

    caplog.set_level(logging.INFO, "aiocosid.abc.events")
    instrument = LoggingInstrument(levels={Starved: logging.DEBUG, Own: logging.ERROR})
    for event in (Starved(**SHOP), Own(**SHOP), FetchFailed(**SHOP, error=DOWN, attempt=1, took=0)):
        instrument.on_event(event)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert len(instrument._limiter._written) == 2
    # The logger's level alone; caplog sets its handler's as well.
    logging.getLogger("aiocosid.abc.events").setLevel(logging.ERROR)
    instrument.on_event(WaitTimedOut(**SHOP, waited=5))
    assert len(caplog.records) == 2
    for pause in (-1, float("inf"), float("nan")):
        with pytest.raises(InvalidArgumentError, match="pause"):
            LoggingInstrument(pause=pause)


def test_several_instruments(caplog: pytest.LogCaptureFixture) -> None:
    """One that raises is logged, and the others are told."""

    class Broken:
        def on_event(self, event: Event, /) -> None:
            raise ZeroDivisionError

        def __repr__(self) -> str:
            return "broken one"

    caplog.set_level(logging.INFO, "aiocosid.abc.events")
    both = Instruments(Broken(), LoggingInstrument())
    both.on_event(Starved(**SHOP))
    assert [record.getMessage() for record in caplog.records] == [
        "broken one failed",
        "shop.order: starved",
    ]
