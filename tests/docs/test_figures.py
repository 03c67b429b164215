"""Each figure on the pages that make promises comes from a constant, or from a recorded result.

A figure is a number with a unit.  It belongs to a *fact*: a few words of the page around values
that are computed here.  A constant that changes makes its facts miss on the page, and a figure that
belongs to no fact is a sentence that nothing checks.
"""

from __future__ import annotations

import inspect
import json
import re
from math import ceil
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from aiocosid import SegmentChainId, SnowflakeId
from aiocosid._life import open_state
from aiocosid.abc import DEFAULT_GUARD_INTERVAL, DEFAULT_SAFE_GUARD, DEFAULT_STEP, MAX_ID
from aiocosid.abc._sequences import DEFAULT_MAX_SEQUENCE
from aiocosid.abc.machines import QUARANTINE_MARGIN, RELEASE_MARGIN, STABLE_GUARD_INTERVAL
from aiocosid.abc.options import declared
from aiocosid.compat.leaf_snowflake._address import INTERVAL as LEAF_INTERVAL
from aiocosid.converter import Radix62IdConverter
from aiocosid.machine import _opening as lease_opening
from aiocosid.machine import _options, restart
from aiocosid.machine._manual import DEFAULT_MARK_INTERVAL
from aiocosid.segment import _opening, pace
from aiocosid.server import _options as server_options
from aiocosid.server import _pulse, _service
from aiocosid.snowflake import CachedSnowflakeId
from aiocosid.snowflake.sharded_id import LANE_BITS
from aiocosid.stores import striped, tiered
from aiocosid.stores.nats import OLDEST
from aiocosid.stores.redis._sequence import DEFAULT_MARGIN
from bench import plots

from ._blocks import ROOT
from ._exceptions import BOX, README

DOCS: Final = ROOT / "docs"
RESULTS: Final = json.loads((ROOT / "bench" / "results" / "py3.11.json").read_text("utf-8"))

UNIT: Final = (
    "seconds?|s|ms|min|minutes?|hours?|years|intervals?|ids|segments?|tasks|calls?|processes|bits"
    "|bytes|characters|lines|times|MB|kB|µs|%|x"
)
NUMBER: Final = r"\d[\d,.]*"
FIGURE: Final = re.compile(rf"(?<![\w.^=-]){NUMBER}(?: to {NUMBER})? (?:{UNIT})\b")


def default(made: type, name: str) -> Any:
    """The default of an option."""
    return inspect.signature(made).parameters[name].default


def rows(question: str) -> list[list[Any]]:
    """The table of a benchmark, as it was recorded last."""
    return RESULTS["answers"][question]["rows"]  # type: ignore[no-any-return]


def rounded(recorded: str) -> str:
    """A recorded number of ids, in thousands."""
    return f"{round(int(recorded.replace(',', '')), -3):,}"


WORDS: Final = {500: "half a second", 60.0: "minute"}  # milliseconds; seconds
GUARD: Final = DEFAULT_SAFE_GUARD
INTERVAL: Final = DEFAULT_GUARD_INTERVAL
STABLE: Final = STABLE_GUARD_INTERVAL
SHARE: Final = _options.LEAD_SHARE
LEAD: Final = SHARE * INTERVAL
STABLE_LEAD: Final = SHARE * STABLE
UNNOTICED: Final = f"{LEAD - INTERVAL:g} to {LEAD:g}"
UNNOTICED_IF_STABLE: Final = f"{STABLE_LEAD - STABLE:g} to {STABLE_LEAD:g}"
LEASE: Final = _options.LEASE_SHARE * GUARD
QUARANTINE: Final = GUARD + QUARANTINE_MARGIN
WAIT: Final = default(SnowflakeId, "wait_timeout")
BEHIND: Final = default(SnowflakeId, "broken_threshold")
BORROWED: Final = default(CachedSnowflakeId, "max_borrow")
RESERVE: Final = pace.ENDURANCE + pace.SPARE
RESERVED: Final = f"{RESERVE:g} to {RESERVE * pace.REFILL:g}"
ALARM: Final = pace.ENDURANCE / 2  # seconds that the ids last when health is degraded
PATIENCE: Final = default(SegmentChainId, "wait_timeout")
DISTANCE: Final = default(SegmentChainId, "safe_distance")
BROKER: Final = declared(server_options.SpanOptions)["endurance"].default
LANE: Final = (DEFAULT_MAX_SEQUENCE - 458_751) >> LANE_BITS  # sequences: docs/howto/sharded-ids.md
BY_HAND: Final = SHARE * DEFAULT_MARK_INTERVAL
LEAF: Final = SHARE * LEAF_INTERVAL
WHICH: Final = {row[0]: row[1:] for row in rows("q21_which")}
KINDS: Final = ("uuid4", "uuid7", "Snowflake", "SegmentId", "chain")
STRICT: Final = [
    1e6 / int(row[3].replace(",", "")) for row in rows("q30_strict") if row[1] == "1,000"
]


def span(seconds: float) -> str:
    """Seconds, with a digit behind the point if there are few."""
    return f"{seconds:.1f}".removesuffix(".0") if seconds < 10 else f"{seconds:.0f}"


def reserved(rate: int, endurance: float) -> tuple[str, str, int]:
    """What a chain keeps at a rate: the ids reserved, the calls to the store, ids of a call."""
    chain = pace.Pace(step=pace.CHAIN_STEP, safe_distance=DISTANCE, endurance=endurance)
    chain.plan(0.0, rate, MAX_ID)
    least = max(chain.reserve, chain.target)
    call = chain.missing(least - 1, 0) * pace.CHAIN_STEP
    return f"{least:,} to {least + call:,} ids", f"one in {span(call / rate)} s", call


def settled(rate: int, latency: float) -> str:
    """The ids that a chain without a reserve keeps ahead of a steady load."""
    chain = pace.Pace(step=pace.CHAIN_STEP, safe_distance=DISTANCE)
    taken = round(rate * latency)
    for _ in range(100):
        chain.landed(taken=taken, demand=taken, starved=taken > chain.target)
    return f"{chain.target:,} ids"


FACTS: Final[dict[Path, tuple[str, ...]]] = {
    README: (
        f"(a chain continues for {pace.ENDURANCE:g} seconds,",
        f"a Snowflake for {UNNOTICED} seconds",
        f"a stable instance for {UNNOTICED_IF_STABLE} seconds",
        f"set back by more than {BEHIND:g} seconds",
        f"NATS {'.'.join(map(str, OLDEST))} and later",
    ),
    DOCS / "howto" / "do-i-need-this.md": (
        f"{8 * len(uuid4().bytes)} bits, {len(str(uuid4()))} characters",
    ),
    DOCS / "index.md": (
        f"adds a *step* to it, say {DEFAULT_STEP}",
        f"ids for the next {WORDS[pace.ENDURANCE]}, at the measured rate",
        f"NATS {'.'.join(map(str, OLDEST))} and later",
    ),
    DOCS / "reference" / "cosid-names.md": (
        "up to 124 segments for one short wait",  # 4 + 8 + 16 + 32 + 64: CosId's
        f"`step=`, {pace.CHAIN_STEP} by default for a chain, else {DEFAULT_STEP};",
        f"`safe_distance=`, {DISTANCE} ",
    ),
    BOX: (
        f"the ids of [{RESERVE:g} to {RESERVE * pace.REFILL:g} seconds]",
        f"a chain continues for [{pace.ENDURANCE:g} seconds]",
        f"A Snowflake continues for [{UNNOTICED} seconds]",
        f"a stable instance for {UNNOTICED_IF_STABLE} seconds",
        f"no machine id for [{QUARANTINE:g} seconds]",
        f"a killed process is free after {GUARD / 60:g} minutes",
        f"set back by more than [{BEHIND:g} seconds]",
    ),
    DOCS / "explanation" / "guarantees.md": (
        f"stops within `margin`, {DEFAULT_MARGIN} s;",
        "`sync_interval` at its default, 2 min",  # NATS'
        f"[new processes wait]: {QUARANTINE:g} seconds by default",
        f"a chain holds ids for [{RESERVE:g} to {RESERVE * pace.REFILL:g} seconds]",
        f"the current piece, up to {_opening.LONG_PIECE:,} ids",
        f"a turn after every {_opening.LONG_PIECE:,} ids",
    ),
    DOCS / "explanation" / "leases.md": (
        f"for the *safe guard duration*, {GUARD / 60:g} minutes",
        f"Every `interval`, {INTERVAL:g} seconds, it renews",
        f"`lead`, {SHARE:g} intervals, after the last renewal: {LEAD:g} s;",
        f"for a stable instance {STABLE_LEAD:g} s |",
        (
            f"{_options.LEASE_SHARE:g} of the shortest safe guard after the last renewal was "
            f"*sent*: {LEASE:g} s"
        ),
        f"calls wait for `wait_timeout`, {WAIT:g} seconds, and then raise",
        f"do not notice an outage of the store for {UNNOTICED} seconds.",
        f"A stable instance renews every {STABLE:g} seconds;",
        f"its callers do not notice an outage for {UNNOTICED_IF_STABLE} seconds.",
        f"an instance that is not stable outlasts {200 - INTERVAL:g} to 200 seconds",
        f"The lead may be up to {_options.LEASE_SHARE:g} of the safe guard",
        (
            f"The id's fence is up to {LEAD:g} seconds ahead of the clock, or up to "
            f"{STABLE_LEAD:g} for a stable instance."
        ),
        f"The old one is handed out after {GUARD / 60:g} minutes without a renewal",
        (
            f"up to `lead`: {STABLE_LEAD:g} seconds, because a stable instance renews every "
            f"{STABLE:g} seconds"
        ),
        f"the fence on its disk has passed, which takes {STABLE_LEAD:g} seconds at most",
        (
            f"written every {DEFAULT_MARK_INTERVAL:g} seconds, so it waits for {BY_HAND:g} "
            "seconds at most"
        ),
        (
            f"with `interval=5` it waits for {SHARE * 5:g} seconds at most, and makes "
            f"{60 / 5:g} calls a minute"
        ),
        f"instead of {STABLE_LEAD:g}. The record",
        f"a nearer one, {STABLE_LEAD:g} seconds ahead",
        f"does not answer within {lease_opening.OFFLINE_PATIENCE:g} seconds",
        f"tries for `start_timeout`, {_options.USUAL_PATIENCE:g} seconds by default",
        f"ids stop within {STABLE_LEAD:g} seconds, with an error",
        f"A quarantine takes {QUARANTINE_MARGIN:g} seconds more than the longest safe guard",
        f"in the namespace: {QUARANTINE:g} seconds by default",
        f"`max_borrow` of a `CachedSnowflakeId`, {BORROWED:g} seconds by default",
        f"A thousand processes make {ceil(1000 / INTERVAL)} calls a second",
        f"unavailable for {GUARD / 60:g} minutes",
        f"died within the last {GUARD / 60:g} minutes",
        f"plus {WORDS[restart.MARGIN_MS]}",
        f"jumps forward by more than {WORDS[restart.MARGIN_MS]}",
    ),
    DOCS / "howto" / "step-and-endurance.md": (
        f"a step of {pace.CHAIN_STEP} and an endurance of {pace.ENDURANCE:g} seconds",
        f"for `endurance` plus {pace.SPARE:g} seconds, and refills to {pace.REFILL:g} times that",
        f"the default of {pace.ENDURANCE:g} seconds a process",
        *(
            f"| {rate:,} a second | {ids} | {calls} | {call:,} |"
            for rate in (10**power for power in range(6))
            for ids, calls, call in (reserved(rate, pace.ENDURANCE),)
        ),
        "At 1,000 ids a second, another",
        *(
            f"| {endurance} | {ids} | {calls} |"
            for endurance in (0, 10, 60, 300, 900)
            for ids, calls, _ in (reserved(1000, endurance),)
        ),
        f"`max_ids_ahead`, {pace.MAX_IDS_AHEAD:,} ids by default",
        f"`safe_distance` times `step`, {DISTANCE * pace.CHAIN_STEP} ids by default",
        "answers in 1 ms | in 5 ms | in 50 ms |",
        *(
            f"| {rate:,} a second | {' | '.join(settled(rate, ms / 1000) for ms in (1, 5, 50))} |"
            for rate in (10**power for power in range(2, 6))
        ),
        f"| chain | {pace.CHAIN_STEP} |",
        f"| segment | {DEFAULT_STEP:,} |",
        f"for example daily numbers | {DEFAULT_STEP:,} |",
        f"| `wait_timeout` | {PATIENCE:g} s |",
        f"| `max_waiters` | {default(SegmentChainId, 'max_waiters'):,} |",
    ),
    DOCS / "howto" / "store-is-down.md": (
        f"at most {DEFAULT_STEP:,} ids with the default step",
        f"| 0 to {PATIENCE:g} | counters in web applications |",
        f"| 0 to {_service.CALL_TIMEOUT:g} | id service | A request for a segment",
        f"| {_pulse.PAUSE + _pulse.ANSWER:g} to 3 | id service | `/health/ready` names",
        f"| {PATIENCE:g} | segment, `strict=True`, `step=1` | `wait_timeout` ends",
        f"| {UNNOTICED_IF_STABLE} | Snowflake of a stable instance |",
        f"Calls wait for `wait_timeout`, {WAIT:g} seconds, and then raise `MachineIdUnavailable",
        f"| {UNNOTICED} | Snowflake |",
        f"| {RESERVE - ALARM:g} to {RESERVE * pace.REFILL - ALARM:g} | chain |",
        f"last for less than {ALARM:g} seconds:",
        f"| {RESERVED} | chain |",
        f"Calls wait for `wait_timeout`, {PATIENCE:g} seconds, and then raise `SegmentUnavailable",
        f"| {GUARD:g} | Snowflake |",
        f"tries for {_options.USUAL_PATIENCE:g} seconds",
        f"`strict=True` | within {open_state.LAST_BACKOFF:g} second.",
        f"| Snowflake | within {_options.LAST_BACKOFF:g} seconds |",
        f"| sharded | within {open_state.LAST_BACKOFF:g} second.",
        f"grants no new ones for {QUARANTINE:g} seconds",
        "| chains | 900 seconds at the usual rate",  # as given on the left
        f"loses up to {pace.REFILL:g} times the ids",
        "| 3,600 seconds, also starts",  # as given on the left
        f"reaches its fence: {UNNOTICED} seconds,",
        f"at most {LANE:,} ids a second on each node",
        f"the span in Redis, {tiered.SPAN:,} ids, is used up",
        f"as long as one of the {striped.FEWEST_STORES} to {striped.MOST_STORES} stores answers",
        f"| {BROKER:g} seconds at the usual rate, also",
        f"loses up to {pace.MAX_IDS_AHEAD / 1e6:.1f} million ids",
        f"`lead=200` bridges {200 - INTERVAL:g} to 200 seconds",
    ),
    DOCS / "howto" / "which-generator.md": (
        "".join(f" | {rounded(WHICH[kind][1])} ({WHICH[kind][0]} x)" for kind in KINDS),
        "".join(f" | {WHICH[kind][2]} µs" for kind in KINDS),
        "| bytes" + "".join(f" | {WHICH[kind][3]}" for kind in KINDS),
        f"continues for {UNNOTICED} s, a stable instance for {UNNOTICED_IF_STABLE} s",
        "with 1000 ids a segment",  # of the benchmark
        f"Radix62IdConverter())`: {len(Radix62IdConverter().as_str(1))} characters",
    ),
}

ELSEWHERE: Final = {  # what other pages say of the same constants
    "reference/schema.md": (
        f"does not wait for the {LEAF:g} seconds",
        f"The file's time is up to {LEAF_INTERVAL:g} seconds old",
    ),
    "reference/cosid-peers.md": (
        f"Our ids end {LEASE:g} seconds after the last stamp, and CosId takes over after {GUARD:g}",
        f"Clocks that differ by less than {GUARD - LEASE:g} seconds are safe",
        f"For {LEAD + RELEASE_MARGIN:g} seconds at most, a Java process",
        f"repeat ids of that process's last {LEAD:g} seconds",
    ),
    "reference/snowflake.md": (
        f"with `safe_guard=40, interval=10` it is {40 + QUARANTINE_MARGIN:g} seconds",
        f"by up to `max_borrow` ({BORROWED:g} seconds by default)",
    ),
    "reference/generators.md": (
        "1,000 waiting tasks",
        "1,000 tasks that ask together",
        f"an id then costs {min(STRICT):.0f} to {max(STRICT):.0f} µs",
    ),
    "howto/kubernetes.md": (
        f"killed within the last {GUARD / 60:g} minutes",
        f"holds {GUARD / 10:g} machine ids. The default layout",
        f"the safe guard duration, {GUARD / 60:g} minutes",
        f"for [{QUARANTINE:g} seconds]",
        f"at most {BY_HAND:g} seconds",
    ),
    "howto/operate.md": (
        f"handed out again after {GUARD / 60:g} minutes of silence",
        f"each is free {GUARD / 60:g} minutes after its last renewal",
        f"at most {QUARANTINE:g} s by default",
        f"`broken_threshold`, {BEHIND:g} s",
        f"the quarantine, {QUARANTINE:g} seconds by default",
    ),
    "howto/task-queues.md": (f"machine id taken for {GUARD / 60:g} minutes",),
    "howto/threads-and-celery.md": (f"the safe guard duration, {GUARD / 60:g} minutes",),
    "howto/workers.md": (f"at most {BY_HAND:g} seconds",),
    "glossary.md": (f"without a renewal; {GUARD / 60:g} minutes by default",),
    "reference/server-api.md": (
        f"fail within {_service.CALL_TIMEOUT:g} seconds, because each is a call to the store",
        f"free after the safe guard duration, {GUARD / 60:g} minutes",
    ),
    "reference/statistics.md": (
        f"{UNNOTICED} s ahead (of a stable instance {UNNOTICED_IF_STABLE} s)",
        f"ahead of the clock, {INTERVAL / 4:g} s (of a stable instance {STABLE / 4:g} s)",
    ),
    "reference/cli.md": (f"duration, {GUARD / 60:g} minutes by default",),
}


def prose(page: Path) -> str:
    """The text of a page in one line, without code and the targets of links."""
    text = page.read_text("utf-8")
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return " ".join(re.sub(r"\]\([^)]*\)", "]", text).split())


@pytest.mark.parametrize(
    ("page", "facts"),
    [*FACTS.items(), *((DOCS / page, facts) for page, facts in ELSEWHERE.items())],
    ids=lambda each: getattr(each, "name", ""),
)
def test_each_fact_is_on_its_page(page: Path, facts: tuple[str, ...]) -> None:
    text = prose(page)
    assert [fact for fact in facts if fact not in text] == []


@pytest.mark.parametrize("page", FACTS, ids=lambda page: page.name)
def test_each_figure_belongs_to_a_fact(page: Path) -> None:
    text = prose(page)
    known = [m.span() for fact in FACTS[page] for m in re.finditer(re.escape(fact), text)]
    unknown = [
        text[max(0, found.start() - 40) : found.end() + 20]
        for found in FIGURE.finditer(text)
        if not any(start <= found.start() and found.end() <= end for start, end in known)
    ]
    assert unknown == []


def test_the_plots_are_made_from_the_recorded_results() -> None:
    pictures = {"cost": plots.cost(RESULTS["answers"]["q21_which"]), "ratios": plots.course()}
    shown = {name: (DOCS / "img" / f"{name}.svg").read_text("utf-8") for name in pictures}
    assert shown == pictures


@pytest.mark.parametrize("text", ["for 5 s.", "1,000 tasks", "some 30 to 90 seconds", "(0.9 x)"])
def test_a_figure_is_seen(text: str) -> None:
    assert FIGURE.search(text)
