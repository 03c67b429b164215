"""Guides are few and short, and the defaults that they name are those of the declarations."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from aiocosid import SegmentChainId
from aiocosid.abc._sequences import DEFAULT_MAX_SEQUENCE, DEFAULT_TOLERANCE
from aiocosid.cli import _supervisor
from aiocosid.segment.options import MAX_GROUPS
from aiocosid.snowflake import ShardedLayout
from aiocosid.snowflake.sharded_id import LANE_BITS
from aiocosid.stores import striped, tiered
from aiocosid.stores.redis._sequence import DEFAULT_MARGIN, DEFAULT_TTL
from aiocosid.sync import _batches, _generator, _session

from .test_figures import DOCS, GUARD, INTERVAL, LEAD, default, prose

GUIDES: Final = sorted((DOCS / "howto").glob("*.md"))
BITS: Final = ShardedLayout().bits
BELOW_LANES: Final = 458_751  # the highest sequence of nodes with lanes
LANE: Final = (DEFAULT_MAX_SEQUENCE - BELOW_LANES) >> LANE_BITS
WORDS: Final = {2: "two", 9: "nine"}
CACHE: Final = tiered.CACHE_TIMEOUT
ENDING: Final = 10 + _supervisor.KILL_MARGIN  # before the fence, with the default of --grace

DEFAULTS: Final = {
    "howto/daily-numbers.md": (f"The generator keeps {MAX_GROUPS} groups in memory by default",),
    "howto/several-stores.md": (
        f"{WORDS[striped.FEWEST_STORES]} to {WORDS[striped.MOST_STORES]} stores",
        f"`store_timeout`, {striped.STORE_TIMEOUT:g} s",
    ),
    "howto/sharded-ids.md": (
        f"your sharding id from 0 to {BITS.machine_count - 1}",
        f"{BITS.timestamp_bits} bits of seconds since CosId's epoch,",
        f"{BITS.machine_bits} of sharding id and {BITS.sequence_bits} of sequence",
        f"One name has {DEFAULT_MAX_SEQUENCE:,} ids a second",
        f"one of {2**LANE_BITS} parts of the upper end of the sequences, with {LANE} ids a second",
        f"`max_sequence={BELOW_LANES:_}`",
    ),
    "howto/threads-and-celery.md": (
        f"`timeout`, {_generator.DEFAULT_TIMEOUT:g} seconds by default",
        f"`wait_timeout`, {default(SegmentChainId, 'wait_timeout'):g} seconds",
        f"Closing takes {_session.EXIT_TIMEOUT:g} seconds at most",
        f"A batch is the step, {_batches.DEFAULT_BATCH} at most",
    ),
    "howto/tiered-store.md": (
        f"does not answer within `cache_timeout`, {CACHE:g} s |",
        f"each `pause`, {tiered.PAUSE:g} s,",
        "spans of a million ids" if tiered.SPAN == 10**6 else "another span",
        f"at most 2^{tiered.MAX_SPAN.bit_length() - 1}.",
    ),
    "howto/worker-id-for-any-program.md": (
        f"`--safe-guard {GUARD:g}`, `--interval {INTERVAL:g}`",
        f"{LEAD / INTERVAL:g} intervals by default, {LEAD:g} s.",
        f"an outage of {LEAD - INTERVAL - ENDING:g} to {LEAD - ENDING:g} seconds",
        f"with `--lead 200` one of {200 - INTERVAL - ENDING:g} to {200 - ENDING:g} seconds",
    ),
    "reference/api/sync.md": (
        f"the step, {_batches.DEFAULT_BATCH} at most |",
        f"discarded after {_batches.AGE_LIMIT:g} seconds",
    ),
    "reference/snowflake.md": (
        f"the highest sequence of a second that the store grants | {DEFAULT_MAX_SEQUENCE} |",
        f"differ from the server's | {DEFAULT_TOLERANCE} |",
        f"how long an old master may keep serving | {DEFAULT_MARGIN} |",
        f"the server keeps a counter | {DEFAULT_TTL} |",
    ),
}


@pytest.mark.parametrize("page", DEFAULTS)
def test_each_default_is_on_its_page(page: str) -> None:
    text = prose(DOCS / page)
    assert [fact for fact in DEFAULTS[page] if fact not in text] == []


LONGEST: Final = 1200  # words; what a person seldom needs is on a page of reference
MOST: Final = 28
LONG: Final = {"operate.md"}  # symptoms, causes and commands of every store


def test_guides_are_few() -> None:
    assert len(GUIDES) <= MOST


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_is_short(guide: Path) -> None:
    assert guide.name in LONG or len(guide.read_text("utf-8").split()) <= LONGEST
