"""What an instance remembers in CosId's files."""

from __future__ import annotations

import os
import stat
import sys
from base64 import b64encode
from pathlib import Path

import pytest

from aiocosid.abc import InstanceId
from aiocosid.errors import (
    CorruptMachineStateError,
    InvalidArgumentError,
    StoreError,
    StoreUnavailableError,
)
from aiocosid.machine._held_id import NOT_FOUND, MachineState, StateFiles
from aiocosid.machine.files import default_state_dir, os_errors, read_text, write_text

WHO = InstanceId("h:1")
FILE = "v2.bnM.aDox.false"
LEGACY = "bnNfX2g6MQ=="


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


@pytest.fixture
def storage(tmp_path: Path) -> StateFiles:
    return StateFiles(tmp_path / "new" / "directory")


def test_what_is_set_is_remembered(storage: StateFiles) -> None:
    """By namespace, text and stability; forgotten when it is removed, also twice."""
    stable = InstanceId("h:1", stable=True)
    assert storage.get("ns", WHO) is NOT_FOUND
    storage.set("ns", WHO, MachineState(3, 1))
    storage.set("ns", stable, MachineState(4, 2))
    storage.set("other", WHO, MachineState(5, 3))
    storage.set("ns", WHO, MachineState(6, 4))
    assert storage.get("ns", WHO) == MachineState(6, 4)
    assert storage.get("ns", stable) == MachineState(4, 2)
    for _ in range(2):
        storage.remove("ns", WHO)
        assert storage.get("ns", WHO) is NOT_FOUND
    assert storage.get("other", WHO) == MachineState(5, 3)


def test_nothing_is_not_remembered(storage: StateFiles) -> None:
    with pytest.raises(InvalidArgumentError, match="state"):
        storage.set("ns", WHO, NOT_FOUND)


def test_the_default_is_cosids_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    StateFiles(default_state_dir()).set("ns", WHO, MachineState(3, 1))
    assert (tmp_path / ".cosid-machine-state" / FILE).read_text() == "3|1"


def test_no_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(InvalidArgumentError, match="state_dir"):
        StateFiles(default_state_dir())


@pytest.mark.parametrize(
    "content",
    [
        *("garbage", "1", "1|", "|1", "1|2|3", "x|1", "1|x", " 1|2", "1|2 ", "1|2\nsecond"),
        *("2147483648|1", "1|9223372036854775808", "-2|1", "1|-2", "\u0661|1", "\n1|2"),
        *("1|2\n\n", "\ufeff1|2"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: str) -> None:
    """The error says which file and what it holds."""
    path = tmp_path / FILE
    path.write_text(content, encoding="utf-8")
    storage = StateFiles(tmp_path)
    with pytest.raises(CorruptMachineStateError) as info:
        storage.get("ns", WHO)
    assert info.value.place == str(path)
    assert repr(content)[1:5] in str(info.value)
    assert not info.value.retryable


def test_bytes_that_are_no_text_are_damage(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"\xff\xfe\x00" * 5000)
    with pytest.raises(CorruptMachineStateError, match=r"xff"):
        StateFiles(tmp_path).get("ns", WHO)


def test_damage_of_the_older_file_is_named_too(tmp_path: Path) -> None:
    (tmp_path / LEGACY).write_text("?")
    with pytest.raises(CorruptMachineStateError, match="bnNfX2g6MQ=="):
        StateFiles(tmp_path).get("ns", WHO)


def test_an_older_name_that_is_no_file_name(tmp_path: Path) -> None:
    """Its base64 has a slash: CosId could not have written it, whatever lies in the way."""
    who = InstanceId("x>>>???~~~")
    name = b64encode(b"ns__x>>>???~~~").decode()
    (tmp_path / name.split("/")[0]).write_text("in the way")
    storage = StateFiles(tmp_path)
    assert "/" in name
    assert storage.get("ns", who) is NOT_FOUND
    storage.set("ns", who, MachineState(1, 2))
    storage.remove("ns", who)
    assert storage.get("ns", who) is NOT_FOUND


def test_what_cannot_be_had_by_waiting(tmp_path: Path) -> None:
    """A directory that is a file, or a name that is too long: not retryable, and named."""
    (tmp_path / "file").write_text("")
    for storage, who in (
        (StateFiles(tmp_path / "file"), WHO),
        (StateFiles(tmp_path), InstanceId("命" * 100)),
    ):
        with pytest.raises(StoreError, match="state_dir may name another directory") as info:
            storage.set("ns", who, MachineState(1, 1))
        assert not info.value.retryable


def test_what_a_full_disk_gives(tmp_path: Path) -> None:
    """The same call may succeed later."""
    with pytest.raises(StoreUnavailableError, match="No space left"), os_errors(tmp_path):
        raise OSError(28, "No space left on device")


def test_a_crash_leaves_the_old_file_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step it is that fails; and no temporary file stays."""
    path = tmp_path / "state"
    write_text(path, "old")
    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:

            def fail(*_: object) -> None:
                raise OSError(5, "Input/output error")

            patch.setattr(os if step == "fsync" else Path, step, fail)
            with pytest.raises(StoreUnavailableError, match="Input/output error"):
                write_text(path, "new")
        assert (read_text(path), names(tmp_path)) == ("old", {"state"})
    write_text(path, "new")
    assert read_text(path) == "new"


@pytest.mark.skipif(sys.platform == "win32", reason="a directory cannot be flushed there")
def test_file_and_name_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the text, then, after it has its name, the directory."""
    flushed: list[str] = []
    fsync = os.fsync

    def listen(descriptor: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        flushed.append(f"{kind} {(tmp_path / 'state').exists()}")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", listen)
    write_text(tmp_path / "state", "1|2")
    assert flushed == ["file False", "directory True"]


def test_only_its_user_may_read_it(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "state", "1|2")
    if sys.platform != "win32":
        made = (tmp_path / "new", tmp_path / "new" / "state")
        assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700, 0o600]
