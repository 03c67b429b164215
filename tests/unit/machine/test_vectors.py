"""CosId's machine states, files and names, as its Java classes answered (tests/vectors).

Where Java's behaviour is a defect ours differs, and the test says in what:

* a state with empty fields (``|1|2|``) or more lines than one is read by Java; ours names the file;
* Java's states are equal if the ids are, and its total of 31 bits is negative;
* safe guard: Java asks whether the newcomer is stable; ours whether the owner is;
* a manual id: Java hands one to every process that asks, and to wider layouts than fit it later;
  ours is locked.  Java forgets a manual id's time when it is given back; ours remembers the mark.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

from aiocosid.abc import InstanceId
from aiocosid.abc.checks import check_machine_bits
from aiocosid.errors import (
    CorruptMachineStateError,
    InvalidArgumentError,
    MachineIdLostError,
    MachineIdOverflowError,
)
from aiocosid.machine import (
    ManualMachineIdDistributor,
    as_instance_id,
    host_port_instance_id,
)
from aiocosid.machine._held_id import NOT_FOUND, MachineState, StateFiles
from aiocosid.machine._manual import ordinal_of
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock

from .._vectors import params, unread

JAVAS_OWN = {
    "machine_state.to_string",  # the text of a Java object
    "namespaced_instance_id.text",  # as above
    "instance_id.none",  # a sentinel that we have no need of
    "clock_sync.defaults",  # threads that spin and sleep; ours is a setting of the generator
    "clock_sync.new",
    "clock_sync.sync",
    "machine_id.namespaced",  # the primary key of a table: tested where the table is
}

EMPTY_FIELDS = {"|1|2|", "1||2"}


def load(*ops: str) -> list[Any]:
    return params("machine", *ops)


def test_every_operation_has_its_test() -> None:
    assert unread(__file__, "machine") == []


# Texts.


@pytest.mark.parametrize("vector", load("machine_state.to_state_string"))
def test_a_state_as_text(vector: Any) -> None:
    args = vector["args"]
    state = MachineState(args["machine_id"], args["last_timestamp"])
    assert str(state) == vector["result"]
    assert MachineState.parse(str(state)) == state


def test_only_not_found_is_below_0() -> None:
    assert str(MachineState.parse("-1|-1")) == "-1|-1"
    for text in ("-2|5", "5|-2", "-2|-2"):
        with pytest.raises(InvalidArgumentError):
            MachineState.parse(text)


@pytest.mark.parametrize("vector", load("machine_state.of"))
def test_a_text_as_state(vector: Any) -> None:
    text = vector["args"]["s"]
    if "error" in vector or text in EMPTY_FIELDS:
        with pytest.raises(InvalidArgumentError) as info:
            MachineState.parse(text)
        assert info.value.value == text
    else:
        due = vector["result"]
        assert MachineState.parse(text) == MachineState(due["machine_id"], due["last_timestamp"])


@pytest.mark.parametrize("vector", load("machine_state.equals"))
def test_equal_states(vector: Any) -> None:
    """Java compares the ids alone."""
    a, b = (MachineState(*vector["args"][each]) for each in "ab")
    assert (a.machine_id == b.machine_id) == vector["result"]
    assert (a == b) == (vector["args"]["a"] == vector["args"]["b"])


@pytest.mark.parametrize("vector", load("machine_state.not_found"))
def test_no_state(vector: Any) -> None:
    due = vector["result"]
    assert MachineState(due["machine_id"], due["last_timestamp"]) == NOT_FOUND


@pytest.mark.parametrize("vector", load("instance_id.of_host_port"))
def test_host_and_port(vector: Any) -> None:
    """An empty host is refused here: it names nobody."""
    args, due = vector["args"], vector["result"]
    if not args["host"]:
        with pytest.raises(InvalidArgumentError, match="host"):
            host_port_instance_id(args["host"], args["port"])
        return
    made = host_port_instance_id(args["host"], args["port"], stable=args["stable"])
    assert made == InstanceId(due["instance_id"], stable=due["stable"])


@pytest.mark.parametrize("vector", load("instance_id.of"))
def test_any_text(vector: Any) -> None:
    """An empty one is refused here: in CosId's tables it means that nobody holds the id."""
    args, due = vector["args"], vector["result"]
    who = InstanceId(args["instance_id"], stable=args["stable"])
    if not who.text:
        with pytest.raises(InvalidArgumentError, match="instance_id"):
            as_instance_id(who)
        return
    assert as_instance_id(who) == InstanceId(due["instance_id"], stable=due["stable"])


@pytest.mark.parametrize("vector", load("instance_id.equals"))
def test_equal_instances(vector: Any) -> None:
    a, b = (InstanceId(text, stable=stable) for text, stable in vector["args"].values())
    assert (a == b) is vector["result"]


# Numbers.


@pytest.mark.parametrize("vector", load("machine_id.max", "machine_id.total"))
def test_how_many_there_are(vector: Any) -> None:
    """Java's total of 31 bits wraps to a negative number."""
    bits = vector["args"]["machine_bit"]
    if "error" in vector:
        with pytest.raises(InvalidArgumentError, match="bits"):
            check_machine_bits(bits)
        return
    size = check_machine_bits(bits)
    due = vector["result"] % 2**32
    assert (size - 1 if vector["op"] == "machine_id.max" else size) == due


@pytest.mark.parametrize("vector", load("machine_id.safe_guard_at"))
async def test_from_when_on_an_id_is_free(vector: Any) -> None:
    """Whoever was last seen at that moment or before has lost it; a stable owner never."""
    args, clock = vector["args"], ManualClock()
    guard_ms = inf if args["safe_guard_ms"] == "forever" else args["safe_guard_ms"]
    about: Any = {"safe_guard": guard_ms / 1000, "interval": 0.0001}
    store = MemoryStore(clock=clock)
    if guard_ms <= 0:  # nobody could hold an id
        with pytest.raises(InvalidArgumentError, match="safe_guard"):
            store.machine_id_distributor(**about)
        return

    async def take(text: str, *, stable: bool) -> int:
        who = store.machine_id_distributor(instance_id=InstanceId(text, stable=stable), **about)
        return (await who.distribute(1, now_ms=args["now_ms"], latest_ms=2**60)).machine_id

    for owner in ("a", "b"):
        await take(owner, stable=args["stable"])
    silence_ms = args["now_ms"] - vector["result"]
    await clock.advance((silence_ms - 1) / 1000)
    with pytest.raises(MachineIdOverflowError):
        await take("c", stable=False)
    await clock.advance(0.001)
    if args["stable"] or silence_ms < guard_ms:
        with pytest.raises(MachineIdOverflowError):
            await take("c", stable=False)
    else:
        assert await take("c", stable=False) == 0


@pytest.mark.parametrize("vector", load("stateful_set.resolve_machine_id"))
def test_the_ordinal_of_a_pod(vector: Any) -> None:
    name = vector["args"]["HOSTNAME"]
    if "error" in vector or name == "a-05":  # CosId takes it, and no pod is called so
        with pytest.raises(InvalidArgumentError, match="pod_name"):
            ordinal_of(name or "")
    else:
        assert ordinal_of(name) == vector["result"]


# Files.


def listing(folder: Path) -> list[dict[str, str]]:
    return [
        {"name": each.name, "content": each.read_bytes().decode()}
        for each in sorted(folder.iterdir())
    ]


@pytest.mark.parametrize("vector", load("local_storage.file"))
def test_a_file(vector: Any, tmp_path: Path) -> None:
    """Name and content, to the byte."""
    args, due = vector["args"], vector["result"]
    files = StateFiles(tmp_path)
    who = InstanceId(args["instance_id"], stable=args["stable"])
    assert files.get(args["namespace"], who) == NOT_FOUND
    state = MachineState(args["machine_id"], args["now_ms"])
    files.set(args["namespace"], who, state)
    assert listing(tmp_path) == due["files"]
    assert files.get(args["namespace"], who) == state


class Files:
    """The steps of a scenario, on a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = StateFiles(folder)

    def take(self, step: dict[str, Any], due: dict[str, Any]) -> None:
        who = InstanceId(step.get("id", ""), stable=step.get("stable", False))
        match step["do"]:
            case "get" | "exists":
                self.get(step, who, due["result"])
            case "set":
                self.set(step, who, due["result"])
            case "remove":
                self.files.remove(step["ns"], who)
            case "write_file":
                (self.folder / step["name"]).write_bytes(step["content"].encode())
            case "corrupt":
                for each in self.folder.iterdir():
                    each.write_bytes(step["content"].encode())
            case other:
                assert other in {"size", "clear"}  # what Java's own tests need
                names = {each["name"] for each in due["files"]}
                for each in [*self.folder.iterdir()]:
                    if each.name not in names:
                        each.unlink()

    def get(self, step: dict[str, Any], who: InstanceId, due: Any) -> None:
        if step["ns"] == "":
            return  # no distributor of ours has such a namespace
        contents = {each.read_bytes() for each in self.folder.iterdir()}
        if contents & {b"garbage", b"11|22\nsecond line", b"\n11|22"}:
            with pytest.raises(CorruptMachineStateError):
                self.files.get(step["ns"], who)
            return
        found = self.files.get(step["ns"], who)
        if step["do"] == "exists":
            assert (found != NOT_FOUND) is due
        else:
            assert found == MachineState(due["machine_id"], due["last_timestamp"])

    def set(self, step: dict[str, Any], who: InstanceId, due: Any) -> None:
        if step["ns"] == "":
            return
        state = MachineState(step["machine_id"], step["now_ms"])
        if due is not None:
            with pytest.raises(InvalidArgumentError):
                self.files.set(step["ns"], who, state)
        else:
            self.files.set(step["ns"], who, state)


@pytest.mark.parametrize("vector", load("local_storage.scenario"))
def test_files(vector: Any, tmp_path: Path) -> None:
    """The older name is read where the new one is missing, and goes when that is written."""
    files = Files(tmp_path)
    for step, due in zip(vector["args"]["steps"], vector["result"], strict=True):
        files.take(step, due)
        assert listing(tmp_path) == due["files"], step


@pytest.mark.parametrize("vector", load("manual_distributor.scenario"))
async def test_a_manual_id(vector: Any, tmp_path: Path) -> None:
    """The id and, of a stable instance, what lies in CosId's file for a peer in Java."""
    args = vector["args"]
    who = InstanceId(args["instance_id"], stable=True)  # Java keeps a file of stable ones only
    distributor = ManualMachineIdDistributor(
        args["machine_id"], namespace=args["namespace"], instance_id=who, state_dir=tmp_path
    )
    files, seen = StateFiles(tmp_path), -1
    for step, due in zip(args["steps"], vector["result"], strict=True):
        now = step["now_ms"]
        match step["do"]:
            case "distribute" if step["machine_bit"] in {0, 2}:
                with pytest.raises(InvalidArgumentError):
                    await distributor.distribute(step["machine_bit"], now_ms=now, latest_ms=now)
            case "distribute":
                # Ours leaves it to the lease to wait for the floor, or to give up.
                grant = await distributor.distribute(10, now_ms=now, latest_ms=now)
                assert grant.machine_id == args["machine_id"]
                seen = max(seen, files.get(args["namespace"], who).last_timestamp_ms)
            case "guard" if "error" in (due["result"] or {}):
                with pytest.raises(MachineIdLostError):
                    await distributor.renew(args["machine_id"], now_ms=now, fence_ms=-1)
            case "guard":
                seen = max(seen, now)
                await distributor.renew(args["machine_id"], now_ms=now, fence_ms=-1)
            case _:
                await distributor.release(args["machine_id"], last_ms=-1)
        assert files.get(args["namespace"], who).last_timestamp_ms == seen
    await distributor.aclose()
