"""Options that settings have too: one range and one meaning for both."""

from __future__ import annotations

from math import inf, nextafter
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from aiocosid.provider import OPTIONS, SYSTEMS
from aiocosid.provider.settings import ChainSettings, CosIdSettings, MachineSettings
from tests.command import Command

from ._doubles import ScriptedStore
from .test_reference_page import COMMANDS

WORDS: dict[str, tuple[str, ...]] = {
    "step": ("next", "order", "--step"),
    "machine_bits": ("machines", "bits", "--set"),
    "machine_id": ("machines", "evict", "--yes", "--"),
    "safe_guard": ("init", "--wait", "--safe-guard"),
    "call_timeout": ("inspect", "--timeout"),
}
TABLES: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {
    "step": (ChainSettings, {"kind": "chain"}),
    "machine_bits": (CosIdSettings, {"kind": "cosid_text"}),
    "machine_id": (MachineSettings, {}),
    "safe_guard": (MachineSettings, {}),
    "call_timeout": (MachineSettings, {}),
}
RANGES = {key: spec for key, spec in OPTIONS.items() if spec.at_least is not None}


def beyond(key: str) -> list[float]:
    """Return the values just outside of the range."""
    low, high = OPTIONS[key].at_least, OPTIONS[key].at_most
    assert low is not None
    assert high is not None
    if isinstance(low, int):
        return [low - 1, high + 1]
    return [nextafter(low, -inf), -5.0, float("nan")]


@pytest.mark.parametrize("key", RANGES)
def test_a_value_outside_its_range_is_refused_at_once(
    aiocosid: Command, scripted: ScriptedStore, key: str
) -> None:
    """It is named with the range, and no store is opened; a negative safe guard waited for none."""
    for value in beyond(key):
        ended = aiocosid(*WORDS[key], value)
        assert (ended.code, ended.out, scripted.urls) == (2, "", [])
        assert f" must be from {OPTIONS[key].at_least} to " in ended.err


@pytest.mark.parametrize("key", RANGES)
def test_settings_have_the_same_range(key: str) -> None:
    section, others = TABLES[key]
    for value in beyond(key):
        with pytest.raises(ValidationError, match=key):
            section.model_validate({**others, key: value})
    section.model_validate({**others, key: OPTIONS[key].at_least})
    section.model_validate({**others, key: OPTIONS[key].at_most})


@pytest.mark.parametrize("key", ["namespace", "step", "layout", "unit", "epoch", "zone"])
def test_the_help_has_the_declared_meaning(key: str) -> None:
    """An option of that name has it in every command."""
    found = [each for command in COMMANDS.values() for each in command.params if each.name == key]
    declared = [each for each in found if "format" not in "".join(each.opts)]
    assert declared
    assert [each.help for each in declared if OPTIONS[key].doc[1:] not in each.help] == []


def test_a_system_that_is_none(aiocosid: Command, scripted: ScriptedStore) -> None:
    """The error names all whose tables a URL can name, and the help does, too."""
    ended = aiocosid("migrate", "check", "--from", "oracle", "--store", "mysql://h/db")
    assert (ended.code, scripted.urls) == (2, [])
    [system] = [each.help for each in COMMANDS["migrate check"].params if "--from" in each.opts]
    assert [name for name in SYSTEMS if name not in ended.err or name not in system] == []
