from __future__ import annotations

import asyncio
import json

import pytest

from aiocosid.errors import StoreAuthenticationError
from aiocosid.snowflake import COSID_MS, LAYOUTS
from tests.command import Command

from ._doubles import ScriptedStore


def test_ids_rise_one_a_line(aiocosid: Command, scripted: ScriptedStore) -> None:
    """As many as asked for, from one machine id."""
    ended = aiocosid("snowflake", "-n", 5)
    ids = [int(line) for line in ended.out.split()]
    assert (ended.code, ended.err, len(ids)) == (0, "aiocosid: written to redis://host\n", 5)
    assert ids == sorted(set(ids))
    assert {COSID_MS.parse(each).machine_id for each in ids} == {0}


def test_one_id_is_the_default(aiocosid: Command, scripted: ScriptedStore) -> None:
    """Without -n it is one."""
    assert len(aiocosid("snowflake").out.split()) == 1


def test_json_is_one_array(aiocosid: Command, scripted: ScriptedStore) -> None:
    """A single document on a single line."""
    ended = aiocosid("snowflake", "-n", 3, "--format", "json")
    assert len(json.loads(ended.out)) == 3
    assert ended.out.count("\n") == 1


def test_more_ids_than_are_formatted_at_once(aiocosid: Command, scripted: ScriptedStore) -> None:
    """No id is lost or repeated between two chunks of text."""
    ids = aiocosid("snowflake", "-n", 25_001).out.split()
    assert len(set(ids)) == 25_001


def test_the_machine_id_is_given_back(aiocosid: Command, scripted: ScriptedStore) -> None:
    """A hundred calls need one machine id, and the mark is right after the last id."""
    last = [int(aiocosid("snowflake").out) for _ in range(3)][-1]
    [machine] = asyncio.run(scripted.memory.machines())
    assert (machine.machine_id, machine.instance_id) == (0, "")
    assert machine.fence_ms == COSID_MS.parse(last).timestamp_ms + 1
    assert scripted.closed == ["store"] * 3


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "uid-generator"])
def test_every_layout(aiocosid: Command, scripted: ScriptedStore, name: str) -> None:
    """The id is one of the layout."""
    made = int(aiocosid("snowflake", "--layout", name).out)
    assert LAYOUTS[name].parse(made).machine_id == 0


def test_own_bits_and_epoch(aiocosid: Command, scripted: ScriptedStore) -> None:
    """`parse` with the same options reads what was made, and when."""
    own = ("--bits", "40/2/3/8", "--unit", "10ms", "--epoch", "2026-01-01T00:00:00Z")
    made = int(aiocosid("snowflake", *own).out)
    [machine] = asyncio.run(scripted.memory.machines())
    found = aiocosid.json("parse", made, *own)
    assert (found["timestamp_ms"] + 1, found["region"], found["worker"]) == (machine.fence_ms, 0, 0)


def test_an_epoch_that_lies_ahead(aiocosid: Command, scripted: ScriptedStore) -> None:
    """Refused before a machine id is leased."""
    assert "at or before the wall clock" in aiocosid.refuses(
        "snowflake", "--epoch", "2999-01-01T00:00:00Z"
    )
    assert asyncio.run(scripted.memory.machines()) == []


def test_a_layout_that_has_ended(aiocosid: Command, scripted: ScriptedStore) -> None:
    """No id can be made any more: code 5, and what to do."""
    assert "uid-generator-spring" in aiocosid.refuses(
        "snowflake", "--layout", "uid-generator", code=5
    )


def test_a_store_that_refuses(aiocosid: Command, scripted: ScriptedStore) -> None:
    """Its own error is the answer, without a second attempt."""
    scripted.script = [StoreAuthenticationError("redis", "wrong password")]
    assert "wrong password" in aiocosid.refuses("snowflake", code=4)
