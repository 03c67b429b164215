"""What a generator says about itself, as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

import aiocosid
from aiocosid.abc import Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    last_error: Exception | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer(Statistics):
    seconds_left: float
    pair: tuple[int, ...]
    inner: Inner


def test_what_json_has_no_word_for_becomes_text_or_nothing() -> None:
    seen = Outer(
        kind="Outer",
        namespace="shop",
        name="order",
        seconds_left=float("inf"),
        pair=(1, 2),
        inner=Inner(last_error=ValueError("no")),
    )
    assert seen.as_tree() == {
        "kind": "Outer",
        "namespace": "shop",
        "name": "order",
        "secondsLeft": None,
        "pair": [1, 2],
        "inner": {"lastError": "no"},
    }


@pytest.mark.asyncio
async def test_a_provider_tells_of_each_by_name() -> None:
    async with aiocosid.connect("memory://") as ids:
        await ids.segment_chain("order")
        await ids.snowflake()
        tree = ids.statistics()
    assert set(json.loads(json.dumps(tree))) == {"order", "__share__"}
    assert tree["order"]["kind"] == "SegmentChainId"
