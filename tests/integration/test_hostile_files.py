"""State files as a broken disk, a wrong user or a stranger leaves them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from aiocosid import SnowflakeId
from aiocosid.abc import InstanceId
from aiocosid.errors import CorruptMachineStateError, CosIdError, StoreError
from aiocosid.machine import ManualMachineIdDistributor
from aiocosid.machine._held_id import MachineState, StateFiles

pytestmark = pytest.mark.integration

NOW: Final = 1_777_000_000_000
MARK: Final = NOW + 5000
WHO: Final = InstanceId("web-7", stable=True)
NOBODY: Final = 65534


def manual(folder: Path) -> ManualMachineIdDistributor:
    return ManualMachineIdDistributor(7, namespace="n", instance_id=WHO, state_dir=folder)


async def floor_of(folder: Path) -> int:
    """Above which time ids would have to be."""
    machine = manual(folder)
    try:
        return (await machine.distribute(10, now_ms=NOW, latest_ms=2**53)).floor_ms
    finally:
        await machine.aclose()


def files_in(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


async def used(folder: Path) -> dict[str, bytes]:
    """The files of one who has used ids up to `MARK`, and was killed."""
    machine = manual(folder)
    await machine.distribute(10, now_ms=NOW, latest_ms=2**53)
    await machine.renew(7, now_ms=NOW, fence_ms=MARK)
    await machine.aclose()
    return files_in(folder)


def of_kind(files: dict[str, bytes], end: str) -> str:
    (name,) = [each for each in files if each.endswith(end)]
    return name


async def test_a_file_that_was_cut_anywhere(tmp_path: Path) -> None:
    """Never a time below the one that was used: the mark knows where it ends."""
    whole = await used(tmp_path)
    assert await floor_of(tmp_path) == MARK
    for end in (".mark", ".true", ".bits"):
        path = tmp_path / of_kind(whole, end)
        for size in range(len(whole[path.name])):
            for name, content in whole.items():
                (tmp_path / name).write_bytes(content)
            path.write_bytes(whole[path.name][:size])
            before = files_in(tmp_path)
            try:
                floor = await floor_of(tmp_path)
            except CosIdError as error:
                assert path.name in str(error), (end, size)  # noqa: PT017 - or none
                assert not error.retryable  # noqa: PT017 - or none
                assert files_in(tmp_path) == before, (end, size)
            else:
                # The state of a peer in Java, which has no end: what it says is not all there is.
                assert (end, floor) == (".true", MARK), (end, size)
            path.write_bytes(whole[path.name])  # repaired by hand
            assert await floor_of(tmp_path) == MARK


async def test_what_is_no_state(tmp_path: Path) -> None:
    """It is named and left as it is, and no id comes; once it is repaired they go on above."""
    whole = await used(tmp_path)
    junk = (
        *(
            b"\xff\xfe\0",
            b"x" * 10_000_000,
            b"7|1\n7|2\n",
            b"7|1 \n",
            b" 7|1\n",
            b"7|1\r\n",
            b"0x7|1\n",
        ),
        *(
            b"7|9223372036854775808\n",
            b"7|-2\n",
            b"7|1e5\n",
            b"\xef\xbb\xbf7|1\n",
            b"8|1\n",
            b"7\n",
        ),
        *("\N{FULLWIDTH DIGIT SEVEN}|1\n".encode(), b"7|" + b"9" * 4094 + b"\n"),
    )
    for end in (".mark", ".bits"):
        path = tmp_path / of_kind(whole, end)
        for content in junk:
            path.write_bytes(content)
            before = files_in(tmp_path)
            with pytest.raises(CorruptMachineStateError) as caught:
                async with SnowflakeId(manual(tmp_path)):
                    pass
            assert path.name in str(caught.value)
            assert len(str(caught.value)) < 600
            assert files_in(tmp_path) == before
        path.unlink()
        path.mkdir()
        with pytest.raises(StoreError, match="directory") as told:
            await floor_of(tmp_path)
        assert not told.value.retryable
        path.rmdir()
        path.write_bytes(whole[path.name])
        assert await floor_of(tmp_path) == MARK


def test_the_state_of_cosid(tmp_path: Path) -> None:
    """The file of its own, read by itself."""
    storage = StateFiles(tmp_path)
    storage.set("n", WHO, MachineState(7, NOW))
    (path,) = tmp_path.iterdir()
    for content in (b"\xff", b"7|", b"|7", b"7", b"a|b", b"7|1|2", b"x" * 5000, b"7|1\n\n", b"\0"):
        path.write_bytes(content)
        with pytest.raises(CorruptMachineStateError, match=path.name):
            storage.get("n", WHO)
        assert path.read_bytes() == content
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(StoreError):
        storage.get("n", WHO)


@contextmanager
def as_nobody() -> Generator[None]:
    """Root may write anywhere; worker threads have the user of the whole process."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def change_mode(path: Path, mode: int) -> None:
    path.chmod(mode)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that nobody else than its owner may write, in a place that all may look at."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


async def test_a_folder_that_may_not_be_written(folder: Path) -> None:
    """Told at once, with the way out, and nothing is guessed from what can be read."""
    whole = await used(folder)
    change_mode(folder, 0o555)
    for name in whole:
        (folder / name).chmod(0o444)
    with as_nobody(), pytest.raises(StoreError, match="state_dir") as caught:
        await floor_of(folder)
    assert not caught.value.retryable
    change_mode(folder, 0o755)
    for name in whole:
        (folder / name).chmod(0o000 if name.endswith(".mark") else 0o666)
    with as_nobody(), pytest.raises(StoreError) as caught:
        await floor_of(folder)
    assert not caught.value.retryable
    for name in whole:
        (folder / name).chmod(0o600)
    assert files_in(folder) == whole
    assert await floor_of(folder) == MARK
