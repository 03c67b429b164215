"""A machine id that somebody chose, held by a lock of the system."""

from __future__ import annotations

import errno
import os
from math import inf
from pathlib import Path
from typing import Any

import anyio
import pytest
from blockbuster import blockbuster_ctx

from aiocosid.abc import InstanceId
from aiocosid.errors import (
    ClosedError,
    CorruptMachineStateError,
    InvalidArgumentError,
    MachineBitsMismatchError,
    MachineIdInUseError,
    MachineIdLostError,
    StoreError,
)
from aiocosid.machine import (
    ManualMachineIdDistributor,
    StatefulSetMachineIdDistributor,
    files,
)

pytestmark = pytest.mark.anyio

NOW = 1_700_000_000_000
MARK = NOW + 4_500


def manual(folder: Path, machine_id: int = 7, **about: Any) -> ManualMachineIdDistributor:
    return ManualMachineIdDistributor(machine_id, state_dir=folder, **about)


async def take(distributor: ManualMachineIdDistributor, bits: int = 10) -> tuple[int, int]:
    grant = await distributor.distribute(bits, now_ms=NOW, latest_ms=NOW)
    return grant.machine_id, grant.floor_ms


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def mark_of(folder: Path, machine_id: int = 7) -> str:
    return (folder / f"aiocosid.Y29zaWQ.{machine_id}.mark").read_text().removesuffix("\n")


async def test_it_is_the_one_that_was_chosen(tmp_path: Path) -> None:
    """It is held, not leased; nobody had it before."""
    distributor = manual(tmp_path)
    assert (distributor.is_leased, distributor.safe_guard, distributor.interval) == (False, inf, 3)
    assert repr(distributor) == "<ManualMachineIdDistributor cosid 7>"
    await distributor.aopen()
    assert await take(distributor) == (7, -1)
    assert await take(distributor) == (7, -1)
    await distributor.aclose()


async def test_the_loop_never_touches_a_disk(tmp_path: Path) -> None:
    """Locks and files are worker threads' business."""
    distributor = manual(tmp_path, instance_id=InstanceId("a", stable=True))
    with blockbuster_ctx():
        await take(distributor)
        await distributor.renew(7, now_ms=NOW, fence_ms=MARK)
        await distributor.release(7, last_ms=NOW)
        await distributor.aclose()


async def test_a_second_one_is_refused(tmp_path: Path) -> None:
    """Also of the same process; the error says who holds it.  Another id or namespace is free."""
    first, second = manual(tmp_path), manual(tmp_path)
    await take(first)
    for _ in range(3):
        with pytest.raises(MachineIdInUseError, match="machine id 7 of namespace 'cosid'") as info:
            await take(second)
        assert f"process {os.getpid()} on" in str(info.value)
    others = [manual(tmp_path, 8), manual(tmp_path, namespace="other")]
    assert [await take(each) for each in others] == [(8, -1), (7, -1)]
    await first.aclose()
    assert await take(second) == (7, -1)
    with pytest.raises(MachineIdInUseError):
        await take(first)
    for each in (second, *others):
        await each.aclose()


async def test_an_unreadable_note_is_no_matter(tmp_path: Path) -> None:
    first = manual(tmp_path)
    await take(first)
    os.truncate(tmp_path / "aiocosid.Y29zaWQ.7.lock", 0)
    with pytest.raises(MachineIdInUseError, match="left no note"):
        await take(manual(tmp_path))
    await first.aclose()


async def test_the_mark_outlives_a_crash(tmp_path: Path) -> None:
    """Closed without being given back, the next one begins above the mark."""
    distributor = manual(tmp_path)
    await take(distributor)
    await distributor.renew(7, now_ms=NOW, fence_ms=MARK)
    await distributor.renew(7, now_ms=NOW, fence_ms=MARK - 1000)
    assert mark_of(tmp_path) == f"7|{MARK}"
    await distributor.aclose()
    after = manual(tmp_path)
    assert await take(after) == (7, MARK)
    await after.aclose()


async def test_who_holds_it_still_begins_above_its_mark(tmp_path: Path) -> None:
    """Asked again without being given back: ids up to the mark may have been issued."""
    distributor = manual(tmp_path)
    await take(distributor)
    await distributor.renew(7, now_ms=NOW, fence_ms=MARK)
    assert await take(distributor) == (7, MARK)
    await distributor.release(7, last_ms=NOW)
    assert mark_of(tmp_path) == f"7|{MARK}"


async def test_giving_back_lowers_the_mark_and_unlocks(tmp_path: Path) -> None:
    """To the last time that was used, or not at all; twice is as good as once."""
    distributor = manual(tmp_path)
    await take(distributor)
    await distributor.renew(7, now_ms=NOW, fence_ms=MARK)
    await distributor.release(8, last_ms=1)
    for last in (NOW + 17, 1):
        await distributor.release(7, last_ms=last)
        assert mark_of(tmp_path) == f"7|{NOW + 17}"
    after = manual(tmp_path)
    assert await take(after) == (7, NOW + 17)
    await after.renew(7, now_ms=NOW, fence_ms=MARK)
    await after.release(7, last_ms=-1)
    assert mark_of(tmp_path) == f"7|{MARK}"


async def test_the_mark_never_goes_below_the_owner_before(tmp_path: Path) -> None:
    first, second = manual(tmp_path), manual(tmp_path)
    await take(first)
    await first.renew(7, now_ms=NOW, fence_ms=MARK)
    await first.aclose()
    await take(second)
    await second.release(7, last_ms=5)
    assert mark_of(tmp_path) == f"7|{MARK}"


async def test_only_the_holder_guards(tmp_path: Path) -> None:
    """Not before it is taken, not after it is given back, and no other id."""
    distributor = manual(tmp_path)
    with pytest.raises(MachineIdLostError, match="does not hold"):
        await distributor.renew(7, now_ms=NOW, fence_ms=MARK)
    await take(distributor)
    with pytest.raises(MachineIdLostError, match="this distributor has 7"):
        await distributor.renew(8, now_ms=NOW, fence_ms=MARK)
    await distributor.release(7, last_ms=-1)
    with pytest.raises(MachineIdLostError, match="does not hold"):
        await distributor.renew(7, now_ms=NOW, fence_ms=MARK)
    assert not (tmp_path / "aiocosid.Y29zaWQ.7.mark").exists()


async def test_a_lock_file_that_was_removed_is_noticed(tmp_path: Path) -> None:
    """Another process may lock a new one: this one must not go on, nor touch the other's mark."""
    first, second = manual(tmp_path), manual(tmp_path)
    await take(first)
    await first.renew(7, now_ms=NOW, fence_ms=MARK)
    (tmp_path / "aiocosid.Y29zaWQ.7.lock").unlink()
    assert await take(second) == (7, MARK)
    await second.renew(7, now_ms=NOW, fence_ms=MARK + 10_000)
    with pytest.raises(MachineIdLostError, match="was removed"):
        await first.renew(7, now_ms=NOW, fence_ms=MARK + 20_000)
    await first.release(7, last_ms=NOW)
    assert mark_of(tmp_path) == f"7|{MARK + 10_000}"
    await second.aclose()


async def test_a_lock_file_that_is_removed_while_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on a file that nobody else can find is none: the new file is locked."""
    lock = files._lock
    removed: list[str] = []

    def remove_first(descriptor: int) -> bool:
        if not removed:
            removed.append("once")
            (tmp_path / "aiocosid.Y29zaWQ.7.lock").unlink()
        return lock(descriptor)

    monkeypatch.setattr(files, "_lock", remove_first)
    first = manual(tmp_path)
    await take(first)
    assert removed
    with pytest.raises(MachineIdInUseError):
        await take(manual(tmp_path))
    await first.aclose()


@pytest.mark.parametrize("content", ["", "garbage", "8|1700000000000\n", "7|\n", "7|17000"])
async def test_a_damaged_mark_is_no_guess(tmp_path: Path, content: str) -> None:
    """No id is handed out, the file is named, and nothing stays locked."""
    (tmp_path / "aiocosid.Y29zaWQ.7.mark").write_text(content)
    first = manual(tmp_path)
    with pytest.raises(CorruptMachineStateError, match=r"aiocosid\.Y29zaWQ\.7\.mark"):
        await take(first)
    (tmp_path / "aiocosid.Y29zaWQ.7.mark").unlink()
    second = manual(tmp_path)
    assert await take(second) == (7, -1)
    await second.aclose()


async def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="state_dir"):
        await take(manual(tmp_path / "file"))


async def test_a_stable_instance_keeps_cosids_file(tmp_path: Path) -> None:
    """With the plain time, for a peer in Java; the time found there is a floor."""
    who = InstanceId("h:1", stable=True)
    state = tmp_path / "v2.Y29zaWQ.aDox.true"
    state.write_text(f"7|{NOW + 9}")
    distributor = manual(tmp_path, instance_id=who)
    assert await take(distributor) == (7, NOW + 9)
    await distributor.renew(7, now_ms=NOW + 5, fence_ms=MARK)
    assert state.read_text() == f"7|{NOW + 9}"
    await distributor.renew(7, now_ms=NOW + 20, fence_ms=MARK)
    assert state.read_text() == f"7|{NOW + 20}"
    await distributor.release(7, last_ms=NOW + 19)
    state.write_text(f"6|{MARK + 99}")
    assert await take(distributor) == (7, NOW + 19), "the time of another id was taken"
    assert state.read_text() == f"7|{NOW}"
    await distributor.aclose()


async def test_giving_back_raises_cosids_stamp(tmp_path: Path) -> None:
    """A peer in Java reads no mark, and ids of borrowed seconds were ahead of the clock."""
    state = tmp_path / "v2.Y29zaWQ.aDox.true"
    distributor = manual(tmp_path, instance_id=InstanceId("h:1", stable=True))
    for last, stamp in ((MARK - 100, MARK - 100), (NOW + 7, MARK - 100), (-1, MARK - 100)):
        await take(distributor)
        await distributor.renew(7, now_ms=NOW + 20, fence_ms=MARK)
        await distributor.release(7, last_ms=last)
        assert state.read_text() == f"7|{stamp}"
    state.write_text(f"7|{NOW}")  # without the stamp there is the mark of the owner before
    await take(distributor)
    await distributor.release(7, last_ms=NOW + 1)
    assert state.read_text() == f"7|{MARK}"


async def test_damage_of_cosids_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "v2.Y29zaWQ.aDox.true").write_text("?")
    with pytest.raises(CorruptMachineStateError, match=r"v2\.Y29zaWQ\.aDox\.true"):
        await take(manual(tmp_path, instance_id=InstanceId("h:1", stable=True)))


async def test_an_instance_that_is_not_stable_keeps_none(tmp_path: Path) -> None:
    distributor = manual(tmp_path, instance_id="h:1")
    await take(distributor)
    await distributor.renew(7, now_ms=NOW, fence_ms=MARK)
    await distributor.aclose()
    assert names(tmp_path) == {
        *("aiocosid.Y29zaWQ.7.lock", "aiocosid.Y29zaWQ.7.mark", "aiocosid.Y29zaWQ.bits")
    }


@pytest.mark.parametrize("namespace", ["n/s", "../x", "命" * 91, "-:/{} \n", "n" * 91])
async def test_a_namespace_of_any_characters(tmp_path: Path, namespace: str) -> None:
    """It makes no directory and fits a file name, and a second one is refused all the same."""
    first = manual(tmp_path, namespace=namespace)
    await take(first)
    await first.renew(7, now_ms=NOW, fence_ms=MARK)
    with pytest.raises(MachineIdInUseError):
        await take(manual(tmp_path, namespace=namespace))
    await first.aclose()
    assert len(names(tmp_path)) == 3


async def test_a_namespace_has_one_width(tmp_path: Path) -> None:
    """In one directory; another one is refused before anything is locked or written."""
    first = manual(tmp_path)
    await take(first)
    await first.aclose()
    before = names(tmp_path)
    for each in (manual(tmp_path, 8), first):
        with pytest.raises(MachineBitsMismatchError, match=r"remove .*Y29zaWQ\.bits") as caught:
            await take(each, 12)
        assert (caught.value.namespace, caught.value.bits, caught.value.found) == ("cosid", 12, 10)
    assert names(tmp_path) == before
    for fits, bits in ((manual(tmp_path, 8), 10), (manual(tmp_path, 8, namespace="other"), 12)):
        assert await take(fits, bits) == (8, -1)
        await fits.aclose()


@pytest.mark.parametrize("has_links", [True, False])
async def test_of_two_widths_at_once_one_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_links: bool
) -> None:
    """Also on a file system without hard links; who comes second lets go of its lock."""
    link = os.link

    def late(source: Path, target: Path) -> None:
        target.write_text("10")  # somebody else was faster
        if not has_links:
            raise OSError(errno.EPERM, "no links here")
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    second = manual(tmp_path)
    with pytest.raises(MachineBitsMismatchError):
        await take(second, 12)
    assert await take(manual(tmp_path)) == (7, -1)


@pytest.mark.parametrize("damage", ["", "0", "32", "10\n", "ten"])
async def test_a_damaged_width_is_named(tmp_path: Path, damage: str) -> None:
    """No width is guessed."""
    (tmp_path / "aiocosid.Y29zaWQ.bits").write_text(damage)
    with pytest.raises(CorruptMachineStateError, match="1 to 31") as caught:
        await take(manual(tmp_path))
    assert caught.value.place == str(tmp_path / "aiocosid.Y29zaWQ.bits")


async def test_workers_of_one_host(tmp_path: Path) -> None:
    """Each has the ordinal in the high bits and its own index in the low ones."""
    made = [manual(tmp_path, 5, worker=n, worker_bits=4) for n in range(16)]
    assert [(await take(each))[0] for each in made] == [5 * 16 + n for n in range(16)]
    with pytest.raises(MachineIdInUseError, match="machine id 83"):
        await take(manual(tmp_path, 5, worker=3, worker_bits=4))
    for each in made:
        await each.aclose()


@pytest.mark.parametrize(
    ("about", "named"),
    [
        ({"machine_id": -1}, "machine_id"),
        ({"machine_id": True}, "machine_id"),
        ({"machine_id": 2**31}, "machine_id"),
        ({"machine_id": 2**27, "worker": 0, "worker_bits": 4}, "machine_id"),
        ({"machine_id": 1, "worker": 16, "worker_bits": 4}, "worker"),
        ({"machine_id": 1, "worker": -1, "worker_bits": 4}, "worker"),
        ({"machine_id": 1, "worker": 1}, "worker"),
        ({"machine_id": 1, "worker_bits": 4}, "worker"),
        ({"machine_id": 1, "worker": 1, "worker_bits": 31}, "worker_bits"),
        ({"machine_id": 1, "interval": 0}, "interval"),
        ({"machine_id": 1, "namespace": ""}, "namespace"),
    ],
)
async def test_arguments_out_of_range(about: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgumentError) as info:
        ManualMachineIdDistributor(**about)
    assert info.value.argument == named


@pytest.mark.parametrize(("bits", "fits"), [(3, True), (2, False), (31, True)])
async def test_it_has_to_fit_the_layout(tmp_path: Path, bits: int, *, fits: bool) -> None:
    """The error names the highest that does; nothing is locked then."""
    distributor = manual(tmp_path)
    if fits:
        assert await take(distributor, bits) == (7, -1)
        await distributor.aclose()
        return
    with pytest.raises(InvalidArgumentError, match="at most 3, the highest of 2 machine bits"):
        await take(distributor, bits)
    assert names(tmp_path) == set()


async def test_closed_while_it_is_taken(tmp_path: Path) -> None:
    """A worker thread that comes late takes nothing: nobody would give it back."""
    distributor = manual(tmp_path)
    held = distributor._held
    leavings = held.leavings
    await distributor.aclose()
    with pytest.raises(ClosedError):
        held.take(10, NOW, leavings=leavings)
    other = manual(tmp_path)
    assert await take(other) == (7, -1)
    await other.aclose()


async def test_taken_anew_while_it_is_given_back(tmp_path: Path) -> None:
    """A return that comes late, from a thread that was given up, does not take it away again."""
    distributor = manual(tmp_path)
    await take(distributor)
    takings = distributor._held.takings
    await take(distributor)
    await distributor.renew(7, now_ms=NOW, fence_ms=MARK)
    distributor._held.give_back(NOW, takings=takings)
    distributor._held.release(takings=takings)
    await distributor.renew(7, now_ms=NOW, fence_ms=MARK)
    assert mark_of(tmp_path) == f"7|{MARK}"
    await distributor.aclose()


async def test_a_cancelled_call_is_found_again(tmp_path: Path) -> None:
    """Cancelled before, or while the thread works: the object can take it, and closing unlocks."""
    distributor = manual(tmp_path)
    for turns in range(4):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(take, distributor)
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        assert await take(distributor) == (7, -1)
        await distributor.aclose()
        other = manual(tmp_path)
        assert await take(other) == (7, -1)
        await other.aclose()


async def test_concurrent_calls_of_one_object(tmp_path: Path) -> None:
    """They find the one lock; concurrent objects get it one alone."""
    one, others = manual(tmp_path), [manual(tmp_path, 9) for _ in range(20)]
    grants: list[object] = []
    refused: list[MachineIdInUseError] = []

    async def ask(distributor: ManualMachineIdDistributor) -> None:
        try:
            grants.append(await take(distributor))
        except MachineIdInUseError as error:
            refused.append(error)

    async with anyio.create_task_group() as group:
        for distributor in [one] * 20 + others:
            group.start_soon(ask, distributor)
    assert grants.count((7, -1)) == 20
    assert (grants.count((9, -1)), len(refused)) == (1, 19)
    for distributor in [one, *others]:
        await distributor.aclose()


# StatefulSet.


async def test_the_ordinal_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From POD_NAME, unless a name is given; the same pod comes back, so that it is stable."""
    monkeypatch.setenv("POD_NAME", "web-3")
    pod = StatefulSetMachineIdDistributor(state_dir=tmp_path)
    assert (pod.machine_id, pod.instance_id) == (3, InstanceId("web-3", stable=True))
    assert StatefulSetMachineIdDistributor(pod_name="a-b-12").machine_id == 12
    assert await take(pod) == (3, -1)
    await pod.renew(3, now_ms=NOW, fence_ms=MARK)
    await pod.release(3, last_ms=NOW + 1)
    again = StatefulSetMachineIdDistributor(pod_name="web-3", state_dir=tmp_path)
    assert await take(again) == (3, NOW + 1)
    await again.aclose()


async def test_workers_of_one_pod(tmp_path: Path) -> None:
    """Each keeps a state of its own."""
    pods = [
        StatefulSetMachineIdDistributor(
            pod_name="web-3", worker=n, worker_bits=2, state_dir=tmp_path
        )
        for n in range(4)
    ]
    assert [(await take(each))[0] for each in pods] == [12, 13, 14, 15]
    assert len({each.instance_id for each in pods}) == 4
    for each in pods:
        await each.aclose()


NO_PODS = (
    "web",
    "web-",
    "-5",
    "web-x",
    "web-3.svc",
    "web-+3",
    "web-٣",
    "web-03",
    "Web-3",
    "web-\n-3",
)


@pytest.mark.parametrize("name", NO_PODS)
async def test_a_name_without_an_ordinal(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="such as web-3"):
        StatefulSetMachineIdDistributor(pod_name=name)


@pytest.mark.parametrize("name", ["ip-10-0-0-12", "ip-10-0-7-12", "shard-0-12"])
async def test_a_name_with_two_numbers(name: str) -> None:
    """A host's address, or one of several StatefulSets: another one ends in the same number."""
    with pytest.raises(InvalidArgumentError, match="one number at its end"):
        StatefulSetMachineIdDistributor(pod_name=name)


async def test_a_host_name_is_no_pod_s_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host's network it is the node's; and a machine elsewhere has numbers, too."""
    monkeypatch.delenv("POD_NAME", raising=False)
    monkeypatch.setenv("HOSTNAME", "web-3")
    with pytest.raises(InvalidArgumentError, match=r"POD_NAME.*metadata\.name"):
        StatefulSetMachineIdDistributor()


async def test_an_ordinal_beyond_an_int() -> None:
    with pytest.raises(InvalidArgumentError, match="machine_id"):
        StatefulSetMachineIdDistributor(pod_name="web-2147483648")
