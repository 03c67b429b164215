"""``init``, ``inspect`` and ``set-floor``."""

from __future__ import annotations

import json

from aiocosid.abc import Counter
from tests.command import Command

from ._doubles import ScriptedStore


def test_inspect_as_json(aiocosid: Command, namespace: str) -> None:
    """One object a counter, with the names that `aiocosid.abc.Counter` has."""
    where = ("--store", "memory:", "--namespace", namespace)
    aiocosid("next", "b", "-n", 5, *where)
    aiocosid("next", "a", "-n", 3, *where)
    ended = aiocosid("inspect", *where, "--format", "json")
    assert json.loads(ended.out) == [
        {"namespaced_name": f"{namespace}.a", "last_max_id": 3, "last_fetch_time": None},
        {"namespaced_name": f"{namespace}.b", "last_max_id": 5, "last_fetch_time": None},
    ]


def test_inspect_shows_all_namespaces(aiocosid: Command, namespace: str) -> None:
    """Without --namespace nothing is left out."""
    aiocosid("next", "a", "--store", "memory:", "--namespace", namespace)
    aiocosid("next", "a", "--store", "memory:", "--namespace", f"{namespace}x")
    found = aiocosid.json("inspect", "--store", "memory:")
    assert {f"{namespace}.a", f"{namespace}x.a"} <= {each["namespaced_name"] for each in found}


def test_inspect_as_a_table(aiocosid: Command, scripted: ScriptedStore) -> None:
    """A row a counter; times in UTC, to the second."""
    scripted.held = [
        Counter(namespaced_name="cosid.order", last_max_id=2**63 - 1, last_fetch_time=1_700_000_000)
    ]
    ended = aiocosid("inspect")
    [row] = [line for line in ended.out.splitlines() if "cosid.order" in line]
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "cosid.order",
        "9223372036854775807",
        "2023-11-14 22:13:20",
    ]


def test_a_table_in_a_pipe_is_not_cut(aiocosid: Command, scripted: ScriptedStore) -> None:
    """Long names stay on one line where no terminal limits it: `inspect | grep` has to work."""
    name = "n" * 500
    scripted.held = [Counter(namespaced_name=name, last_max_id=1)]
    assert name in aiocosid("inspect").out


def test_what_the_store_holds_is_only_text(aiocosid: Command, scripted: ScriptedStore) -> None:
    """A name is neither markup nor a command to the terminal, a time need not be one."""
    scripted.held = [
        Counter(namespaced_name="[red]a[/red]\x1b[2J\n", last_max_id=1, last_fetch_time=10**18)
    ]
    out = aiocosid("inspect").out
    assert r"[red]a[/red]\x1b[2J\n" in out
    assert str(10**18) in out


def test_set_floor_raises_and_never_lowers(aiocosid: Command, namespace: str) -> None:
    """Compare and raise: a lower number changes nothing, and is no error."""
    where = ("--store", "memory:", "--namespace", namespace)
    told = [
        aiocosid("set-floor", "order", "--above", above, "--create", *where).out
        for above in (100, 50, 100)
    ]
    assert told == [
        f"{namespace}.order is at 100\n",
        f"{namespace}.order is at 100, already above 50\n",
        f"{namespace}.order is at 100\n",
    ]
    assert aiocosid("next", "order", *where).out == "101\n"


def test_set_floor_as_json(aiocosid: Command, namespace: str) -> None:
    """The counter as it is now, as `inspect` shows it."""
    where = ("--store", "memory:", "--namespace", namespace, "--format", "json")
    ended = aiocosid("set-floor", "order", "--above", 7, "--create", *where)
    counter = {"namespaced_name": f"{namespace}.order", "last_max_id": 7, "last_fetch_time": None}
    assert json.loads(ended.out) == counter
    assert json.loads(aiocosid("inspect", *where).out) == [counter]


def test_set_floor_of_an_unknown_counter(aiocosid: Command, namespace: str) -> None:
    """A misspelt name makes no counter; the error lists similar ones, and the way to make one."""
    where = ("--store", "memory:", "--namespace", namespace)
    aiocosid("next", "order", *where)
    refusal = aiocosid.refuses("set-floor", "ordr", "--above", 100, *where, code=4)
    assert f"no counter '{namespace}.ordr'; similar are '{namespace}.order'" in refusal
    assert "create it with --create" in refusal
    found = aiocosid.json("inspect", *where)
    assert [each["namespaced_name"] for each in found] == [f"{namespace}.order"]
    made = aiocosid("set-floor", "ordr", "--above", 100, "--create", *where)
    assert made.out == f"{namespace}.ordr is at 100\n"
