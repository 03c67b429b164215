from __future__ import annotations

import json

import pytest

from aiocosid.errors import StoreUnavailableError
from tests.command import Command

from ._doubles import ScriptedStore


def test_ids_come_one_a_line(aiocosid: Command, namespace: str) -> None:
    """Text is what `while read id` takes."""
    ended = aiocosid("next", "order", "-n", 3, "--store", "memory:", "--namespace", namespace)
    assert (ended.code, ended.out, ended.err) == (0, "1\n2\n3\n", "aiocosid: written to memory:\n")


def test_json_is_one_array(aiocosid: Command, namespace: str) -> None:
    """JSON is a single document on a single line, over several reservations as well."""
    words = ("next", "order", "-n", 7, "--step", 3, "--store", "memory:", "--namespace", namespace)
    ended = aiocosid(*words, "--format", "json")
    assert json.loads(ended.out) == [1, 2, 3, 4, 5, 6, 7]
    assert ended.out.count("\n") == 1


def test_more_ids_than_are_formatted_at_once(aiocosid: Command, namespace: str) -> None:
    """No id is lost or repeated where one chunk of text ends and the next begins."""
    words = ("next", "order", "-n", 25_001, "--store", "memory:", "--namespace", namespace)
    assert aiocosid(*words).out.split() == [str(i) for i in range(1, 25_002)]
    assert aiocosid.json(*words) == list(range(25_002, 50_003))


def test_exactly_what_is_asked_for_is_reserved(aiocosid: Command, scripted: ScriptedStore) -> None:
    """Ten ids cost ten: no segment of a thousand is thrown away."""
    assert aiocosid("next", "order", "-n", 10).out.split()[-1] == "10"
    assert aiocosid("next", "order", "-n", 5).out.split()[0] == "11"
    assert scripted.steps == [10, 5]


def test_step_bounds_one_reservation(aiocosid: Command, scripted: ScriptedStore) -> None:
    """--step splits the reservation, and the last part is only as large as needed."""
    ended = aiocosid("next", "order", "-n", 10, "--step", 4)
    assert scripted.steps == [4, 4, 2]
    assert ended.out.split() == [str(i) for i in range(1, 11)]
    assert scripted.closed == ["store"]


def test_a_store_of_one_residue_class(aiocosid: Command, scripted: ScriptedStore) -> None:
    """The ids lie apart, and no call asks for more than the store grants."""
    scripted.stride, scripted.step_limit = 3, 2
    ended = aiocosid("next", "order", "-n", 5)
    assert scripted.steps == [2, 2, 1]
    assert ended.out.split() == ["3", "6", "9", "12", "15"]


def test_text_shows_what_was_reserved_before_an_error(
    aiocosid: Command, scripted: ScriptedStore
) -> None:
    """Ids that are the caller's are not withheld because later ones could not be had."""
    scripted.script = [None, StoreUnavailableError("redis", "gone")]
    ended = aiocosid("next", "order", "-n", 4, "--step", 2)
    assert (ended.code, ended.out) == (3, "1\n2\n")
    assert ended.err == f"aiocosid: error: redis: gone; {StoreUnavailableError.remedy}\n"


def test_json_is_whole_or_nothing(aiocosid: Command, scripted: ScriptedStore) -> None:
    """An error leaves no half an array for a parser to stumble over."""
    scripted.script = [None, StoreUnavailableError("redis", "gone")]
    ended = aiocosid("next", "order", "-n", 4, "--step", 2, "--format", "json")
    assert (ended.code, ended.out) == (3, "")


def test_closing_has_an_end(
    aiocosid: Command, scripted: ScriptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that cannot be closed takes nothing away from what was done."""
    monkeypatch.setattr("aiocosid.cli._session.CLOSE_TIMEOUT", 0.01)
    scripted.stuck = True
    ended = aiocosid("next", "order")
    assert (ended.code, ended.out, ended.err) == (0, "1\n", "aiocosid: written to redis://host\n")


def test_name_and_namespace_are_the_counter(aiocosid: Command, namespace: str) -> None:
    """Each name in each namespace counts for itself."""
    for words in (("a",), ("b",), ("a", "--namespace", f"{namespace}x")):
        ended = aiocosid("next", "--store", "memory:", "--namespace", namespace, *words)
        assert ended.out == "1\n"


def test_used_up(aiocosid: Command, namespace: str) -> None:
    """A counter at int64's end is code 5."""
    where = ("--store", "memory:", "--namespace", namespace)
    aiocosid("set-floor", "order", "--above", 2**63 - 1, "--create", *where)
    assert "used up" in aiocosid.refuses("next", "order", *where, code=5)
