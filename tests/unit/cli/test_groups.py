"""``groups check``: the period to come of each grouped generator of a file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from aiocosid.stores.memory import MemoryStore
from tests.command import Command

GROUPED = """\
namespace = "{namespace}"
store = "memory://"

[generators.plain]
kind = "chain"

[generators.order]
kind = "grouped"
group_by = "year"
zone = "UTC"
pattern = "{pattern}"
converter = {{ type = "to-string", pad_start = true, char_size = 6, group_prefix = {{}} }}
"""


@pytest.fixture
def write(
    aiocosid: Command,
    tmp_path: Path,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file with one grouped generator, of whole years."""
    monkeypatch.delenv("AIOCOSID_STORE")
    text = GROUPED.format(namespace=namespace, pattern="yyyy")
    (tmp_path / "ids.toml").write_text(text)
    (tmp_path / "short.toml").write_text(GROUPED.format(namespace=namespace, pattern="yy"))


pytestmark = pytest.mark.usefixtures("write")

CHECK = ("groups", "check", "ids.toml", "--format", "json", "--at")


def test_the_period_to_come_is_shown(aiocosid: Command, namespace: str) -> None:
    """With its counter and its first id; a date is a day of UTC."""
    for at in ("2099-01-01", "2099-01-01T08:00+08:00", 4070908800000):
        ended = aiocosid(*CHECK, at)
        assert (ended.code, ended.err) == (0, "")
        [found] = json.loads(ended.out)
        assert found.pop("present") < "2099"
        assert found == {
            "name": "order",
            "period": "2099",
            "counter": f"{namespace}.order@2099",
            "example": "2099-000001",
            "problems": [],
        }
    table = aiocosid("groups", "check", "ids.toml", "--at", "2099-01-01")
    assert (table.code, "2099-000001" in table.out) == (0, True)


def test_a_counter_that_is_there_already_is_a_problem(aiocosid: Command, namespace: str) -> None:
    """Its numbers would go on; that of the present period is none, and it is not changed."""
    for name in ("order@2099", "order@2098", "order@20990"):
        store = MemoryStore.from_url()
        asyncio.run(store.set_floor(namespace=namespace, name=name, above=7))
    ended = aiocosid("groups", "check", "ids.toml", "--at", "2099-01-01")
    problems = [line for line in ended.out.splitlines() if line.startswith("problem")]
    told = f"problem: order: counter {namespace}.order@2099 exists already, at 7"
    assert (ended.code, problems) == (1, [told])


@pytest.mark.parametrize(
    ("file", "at", "said"),
    [
        ("short.toml", "2101-01-01", "it sorts before the present one"),
        ("ids.toml", "10000-01-01", "a time such as"),
    ],
)
def test_keys_that_come_again(aiocosid: Command, file: str, at: str, said: str) -> None:
    """With two digits the next century sorts before this one."""
    ended = aiocosid("groups", "check", file, "--at", at)
    assert ended.code in {1, 2}
    assert said in ended.out + ended.err


def test_the_same_text_a_century_later(aiocosid: Command) -> None:
    """The present counter would continue."""
    [found] = json.loads(aiocosid(*CHECK, "2099-01-01").out)
    later = int(found["present"]) + 100
    ended = aiocosid("groups", "check", "short.toml", "--at", f"{later}-06-01")
    assert ended.code == 1
    assert "again: the present counter continues" in ended.out


def test_without_grouped_generators(aiocosid: Command, tmp_path: Path) -> None:
    (tmp_path / "plain.toml").write_text('store = "memory://"\n[generators.a]\nkind = "chain"\n')
    ended = aiocosid("groups", "check", "plain.toml", "--at", "2099-01-01")
    assert (ended.code, ended.out) == (0, "no grouped generators\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("ids.toml",), 2, "--at"),
        (("ids.toml", "--at", "soon"), 2, "a time such as"),
        (("ids.toml", "--at", "2099-01-01T00:00"), 2, "has no UTC offset"),
        (("none.toml", "--at", "2099-01-01"), 2, "none.toml"),
    ],
)
def test_what_cannot_be_checked(
    aiocosid: Command, words: tuple[str, ...], code: int, said: str
) -> None:
    assert said in aiocosid.refuses("groups", "check", *words, code=code)


def test_a_store_that_is_away(aiocosid: Command, tmp_path: Path) -> None:
    """It is worth another try."""
    text = (tmp_path / "ids.toml").read_text().replace("memory://", "redis://:s3cret@127.0.0.1:1/0")
    (tmp_path / "away.toml").write_text(text)
    assert "s3cret" not in aiocosid.refuses(
        "groups", "check", "away.toml", "--at", "2099-01-01", code=3
    )
