"""Commands run in this process, in a directory and with a store of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import Command, in_process

from ._doubles import ScriptedStore


@pytest.fixture
def aiocosid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """Run ``aiocosid`` with the given words, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return in_process(monkeypatch, capsys)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptedStore:
    """The store that every URL names in this test."""
    store = ScriptedStore()

    def open_store(url: str) -> ScriptedStore:
        store.urls.append(url)
        return store

    for module in ("_session", "_init"):
        monkeypatch.setattr(f"aiocosid.cli.{module}.open_store", open_store)
    return store
