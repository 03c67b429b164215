"""Machine ids held by a lock of the operating system: chosen by hand, or a pod's ordinal."""

from __future__ import annotations

import os
import re
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

from .._life import fork
from .._life.fork import NotCopyable
from ..abc import DEFAULT_NAMESPACE, InstanceId, MachineGrant, MachineIdDistributor
from ..abc.checks import MAX_MACHINE_BITS, check_integer, check_machine_bits
from ..errors import ForkedError, InvalidArgumentError, MachineIdLostError
from ._held_id import HeldId
from .files import STORE, default_state_dir, in_thread
from .instance_ids import as_instance_id

__all__ = (
    "DEFAULT_MARK_INTERVAL",
    "ManualMachineIdDistributor",
    "StatefulSetMachineIdDistributor",
    "ordinal_of",
)

DEFAULT_MARK_INTERVAL: Final = 3.0
"""Seconds between two writes of the fence, which after a crash is about that far ahead.  No other
process waits for a renewal here, so it can be short; each write flushes a small file twice.
"""

VARIABLE: Final = "POD_NAME"

POD: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?-(0|[1-9][0-9]{0,9})")
"""The name of a StatefulSet, which is a DNS label, and an ordinal without leading zeros."""

TWO_NUMBERS: Final = re.compile(r".*-[0-9]+-[0-9]+")
"""An address such as ``ip-10-0-0-12``, or a pod of one of several numbered StatefulSets."""


class ManualMachineIdDistributor(NotCopyable, MachineIdDistributor):
    """A fixed machine id; the operator makes sure that each host has a different one.

    On one machine an exclusive lock protects it, on a file named after namespace and id: a second
    process or object with the same machine id gets `MachineIdInUseError` instead of equal ids.  The
    operating system unlocks it when the process ends, even after ``kill -9``.  If one host or pod
    runs several workers, the lowest bits hold the worker's index::

        ManualMachineIdDistributor(ordinal, worker=index, worker_bits=4)  # id: ordinal * 16 + index

    The lock and the fence are files in ``state_dir``: processes that do not share the directory
    (other hosts, containers without a common volume, other users with the default) do not see each
    other's locks.  If the directory is lost with the container, the fence is lost too, and ids that
    were ahead of the clock may be issued twice (see `CachedSnowflakeId`'s ``max_borrow``).

    No store knows of this machine id.  If other processes lease theirs, a lease may have the same
    number, and ids repeat: choose all machine ids of a system by hand, or lease all of them.

    A forked child cannot use it, because the id belongs to its parent.  Create a new distributor
    there.

    Attributes:
        machine_id: the machine id, including the worker's index.
    """

    __slots__ = ("_fork_generation", "_held", "machine_id")

    store = STORE
    is_leased = False

    def __init__(
        self,
        machine_id: int,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        worker: int | None = None,
        worker_bits: int = 0,
        state_dir: str | os.PathLike[str] | None = None,
        interval: float = DEFAULT_MARK_INTERVAL,
    ) -> None:
        """Set the machine id; nothing is locked yet.

        Args:
            machine_id: 0 to ``2^(bits - worker_bits) - 1`` of the layout that uses it.
            namespace: the namespace of the machine ids, at most 91 characters.
            instance_id: names this process in messages.  If it is stable, CosId's own state file of
                that instance is also read and written.
            worker: which of several workers with the same ``machine_id`` this is, from 0.
            worker_bits: how many of the lowest bits hold the worker; all workers use the same.
            state_dir: the directory of lock and fence; by default ``~/.cosid-machine-state``.
            interval: seconds between two writes of the fence.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__(
            namespace=namespace,
            instance_id=as_instance_id(instance_id),
            safe_guard=inf,
            interval=interval,
        )
        self.machine_id: int = _with_worker(machine_id, worker, worker_bits)
        self._held = HeldId(
            namespace=namespace,
            machine_id=self.machine_id,
            instance_id=self.instance_id,
            directory=default_state_dir() if state_dir is None else Path(state_dir),
        )
        self._fork_generation = fork.generation

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:  # noqa: ARG002 - there is no other id to prefer
        """Lock the machine id; an object that already holds it gets it again.

        A cancelled call may have locked it; `aclose` unlocks it.

        Raises:
            InvalidArgumentError: the machine id does not fit the layout's bits.
            MachineBitsMismatchError: the namespace has another width in ``state_dir``; nothing was
                written.
            MachineIdInUseError: another object or process on this machine holds it.
            StoreError: a file cannot be read or written, or is damaged.
            ForkedError: the machine id belongs to the parent process.
            ClosedError: it was closed in the meantime.
        """
        self._refuse_child()
        highest = check_machine_bits(bits) - 1
        if self.machine_id > highest:
            rule = f"must be at most {highest}, the highest of {bits} machine bits"
            raise InvalidArgumentError("machine_id", self.machine_id, rule)
        held = self._held
        held.takings += 1
        floor_ms = await in_thread(partial(held.take, bits, now_ms, leavings=held.leavings))
        self._refuse_child()
        return MachineGrant(self.machine_id, floor_ms)

    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Write the fence; a cancelled call may have done so.

        Raises:
            MachineIdLostError: it is not locked by this object, or the lock file was removed.
            StoreError: the file cannot be written.
            ForkedError: the machine id belongs to the parent process.
        """
        self._refuse_child()
        if machine_id != self.machine_id:
            reason = f"this distributor has {self.machine_id}"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)
        await in_thread(partial(self._held.renew, now_ms, fence_ms))
        self._refuse_child()

    async def release(self, machine_id: int, *, last_ms: int) -> None:
        """Lower the fence to the time of the last id, and unlock; do nothing if it is not held.

        A cancelled call may have done so.

        Raises:
            StoreError: the fence cannot be written; the machine id is unlocked anyway.
        """
        if machine_id != self.machine_id or self._fork_generation != fork.generation:
            return
        held = self._held
        held.leavings += 1
        await in_thread(partial(held.give_back, last_ms, takings=held.takings))

    async def aopen(self) -> None:
        """Check that this is not a forked child.

        Raises:
            ForkedError: the machine id belongs to the parent process.
        """
        self._refuse_child()

    async def aclose(self) -> None:
        """Unlock the machine id if it was not released; its fence stays as it is."""
        if self._fork_generation == fork.generation:
            held = self._held
            held.leavings += 1
            await in_thread(partial(held.release, takings=held.takings))

    def _refuse_child(self) -> None:
        if self._fork_generation != fork.generation:
            remedy = "make a distributor with another machine id or worker index in this process"
            raise ForkedError(f"machine id {self.machine_id}", remedy=remedy)

    def __repr__(self) -> str:
        """Show the namespace and the machine id."""
        return f"<{type(self).__name__} {self.namespace} {self.machine_id}>"


def _with_worker(machine_id: int, worker: int | None, worker_bits: int) -> int:
    """Return the machine id with the worker's index in its lowest bits."""
    check_integer("worker_bits", worker_bits, at_least=0, at_most=MAX_MACHINE_BITS - 1)
    highest = (1 << MAX_MACHINE_BITS - worker_bits) - 1
    check_integer("machine_id", machine_id, at_least=0, at_most=highest)
    if (worker is None) != (worker_bits == 0):
        rule = f"is required by worker_bits={worker_bits}; give both or neither"
        if not worker_bits:
            rule = "requires worker_bits above 0; give both or neither"
        raise InvalidArgumentError("worker", worker, rule)
    if worker is None:
        return machine_id
    check_integer("worker", worker, at_least=0, at_most=(1 << worker_bits) - 1)
    return machine_id << worker_bits | worker


class StatefulSetMachineIdDistributor(ManualMachineIdDistributor):
    """The number after the last hyphen of the pod's name: ``web-3`` has machine id 3.

    The name comes from Kubernetes through the downward API's ``metadata.name``, and never from the
    host name.  On the host's network the host name is the node's, and other machines have numbers
    in their names, too.  Kubernetes runs at most one pod of each name, unless a pod is deleted by
    force.  Everything else is as in `ManualMachineIdDistributor`.  Put ``state_dir`` on the pod's
    own volume, so that the fence outlives the container.
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        pod_name: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        worker: int | None = None,
        worker_bits: int = 0,
        state_dir: str | os.PathLike[str] | None = None,
        interval: float = DEFAULT_MARK_INTERVAL,
    ) -> None:
        """Read the ordinal; nothing is locked yet.

        Args:
            pod_name: the pod's name; by default the environment's ``POD_NAME``, which the pod's
                template sets from ``metadata.name``.
            namespace: the namespace of the machine ids, at most 91 characters.
            worker: which of the pod's several workers this is, from 0.
            worker_bits: how many of the lowest bits hold the worker.
            state_dir: the directory of lock and fence; by default ``~/.cosid-machine-state``.
            interval: seconds between two writes of the fence.

        Raises:
            InvalidArgumentError: no name is given; it does not end in a hyphen and an ordinal; it
                ends in two numbers, as the host name ``ip-10-0-0-12`` does; or another argument is
                outside its range.
        """
        name = os.environ.get(VARIABLE, "") if pod_name is None else pod_name
        # Workers of one pod must not share a state file.
        text = name if worker is None else f"{name}:{worker}"
        super().__init__(
            ordinal_of(name),
            namespace=namespace,
            instance_id=InstanceId(text, stable=True),
            worker=worker,
            worker_bits=worker_bits,
            state_dir=state_dir,
            interval=interval,
        )


def ordinal_of(pod_name: str) -> int:
    """Return the number after the last hyphen of a pod's name.

    Raises:
        InvalidArgumentError: no pod of a StatefulSet has such a name, or other pods may have the
            same number.
    """
    found = POD.fullmatch(pod_name)
    if found is None:
        rule = (
            f"must be the name of a StatefulSet's pod, such as web-3; give it, or set {VARIABLE} "
            "from metadata.name in the pod's template"
        )
        raise InvalidArgumentError("pod_name", pod_name, rule)
    if TWO_NUMBERS.fullmatch(pod_name):
        rule = (
            "must be a name with one number at its end: a host's address ends in several, and so "
            "does a pod of one of several StatefulSets, whose ordinals are the same; choose "
            "numbers with ManualMachineIdDistributor, or lease them from a store"
        )
        raise InvalidArgumentError("pod_name", pod_name, rule)
    return int(found[1])
