"""Commands run in this process, in a directory and with a store of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import Command, in_process

from ._doubles import ScriptedStore, Terminal


@pytest.fixture
def aiocosid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """Run ``aiocosid`` with the given words, in an empty directory, on a file that it may make."""
    monkeypatch.chdir(tmp_path)
    run = in_process(monkeypatch, capsys)
    monkeypatch.setenv("AIOCOSID_STORE", "sqlite:///ids.db")
    return run


@pytest.fixture
def scripted(aiocosid: Command, monkeypatch: pytest.MonkeyPatch) -> ScriptedStore:
    """The store that every URL names in this test, and the environment too."""
    store = ScriptedStore()

    def store_from_url(url: str) -> ScriptedStore:
        store.urls.append(url)
        return store

    monkeypatch.setattr("aiocosid.cli._stores.store_from_url", store_from_url)
    monkeypatch.setenv("AIOCOSID_STORE", "redis://host")
    return store


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have somebody at a terminal type something."""
    return lambda text: monkeypatch.setattr("sys.stdin", Terminal(text))
