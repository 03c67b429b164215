"""What an etcd store does about machine ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    MachineMarker,
    Store,
)
from ...abc._ids import check_integer, check_text
from ...abc._machine import NAME_WIDTH, check_machine_bits, check_safe_guard
from ._machine import MAX_MACHINE_ID, EtcdMachineIdDistributor
from ._machine_calls import Namespace, Outcome, narrow, with_quarantine
from ._machine_keys import MachineKeys
from ._machine_state import MachineState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...abc import InstanceId, Machine
    from ._link import Link
    from ._server import Member

__all__ = ("EtcdMachineStore",)


class EtcdMachineStore(Store):
    """The machine ids of all namespaces on one cluster; `EtcdStore` inherits it."""

    __slots__ = ()

    _link: Link
    _prefix: str

    def machine_id_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> EtcdMachineIdDistributor:
        """Return a distributor of machine ids on this store's connections; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return EtcdMachineIdDistributor(
            self._link,
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
            prefix=self._prefix,
        )

    async def machines(self, *, namespace: str | None = None) -> Sequence[Machine]:
        """Return the machine ids that were ever handed out, by namespace and number.

        Raises:
            InvalidArgumentError: the namespace is no text, or too long.
            CorruptMachineStateError: an entry is damaged.
            StoreError: the cluster refuses or cannot be reached.
            ForkedError: the connections are the parent's.
        """
        states = await self._states(namespace)
        return [machine for state in states for machine in state.pool.machines()]

    async def revert_machine(self, *, namespace: str = DEFAULT_NAMESPACE, machine_id: int) -> None:
        """Take a machine id from its owner; its mark stays.

        A cancelled call may have taken effect.

        Raises:
            InvalidArgumentError: nobody holds the id.
            CorruptMachineStateError: an entry is damaged; nothing was written.
            StoreError: the cluster refuses or cannot be reached.
            ForkedError: the connections are the parent's.
        """
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        found: list[tuple[str, object]] = []

        def take_away(state: MachineState) -> Outcome:
            entry = state.pool.entries.get(machine_id)
            owner = (entry.holder, entry.token) if entry is not None else ("", None)
            if found and owner != found[0]:
                return Outcome()  # it was applied already; whoever took it since keeps it
            state.pool.take_away(machine_id)
            found[:] = [owner]
            return Outcome()

        await self._space(namespace).run(take_away, machine_id=machine_id)

    async def machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE) -> int | None:
        """Return the width of a namespace's machine ids, or None if none is noted yet.

        Raises:
            InvalidArgumentError: the namespace is no text, or too long.
            CorruptMachineStateError: the marker is damaged.
            StoreError: the cluster refuses or cannot be reached.
            ForkedError: the connections are the parent's.
        """
        keys = self._keys(namespace)
        state = await self._link.call(lambda member: narrow(member, keys, None))
        return state.pool.bits

    async def set_machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE, bits: int) -> None:
        """Change the width of a namespace's machine ids, while nobody holds one.

        A cancelled call may have taken effect.

        Raises:
            MachineIdInUseError: somebody does; nothing was written.
            MachineIdQuarantineError: the cluster may have forgotten who does.
            InvalidArgumentError: an argument is outside its range.
            CorruptMachineStateError: an entry is damaged; nothing was written.
            StoreError: the cluster refuses or cannot be reached.
            ForkedError: the connections are the parent's.
        """
        check_machine_bits(bits)

        def change(state: MachineState) -> Outcome:
            state.pool.set_bits(bits, seen=state.elapsed)
            return Outcome(hands_out=True)  # nobody may have been handed one meanwhile

        await self._space(namespace).run(change, reads_all=True)

    async def mark_machines(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        is_new: bool = False,
        safe_guard: float | None = None,
    ) -> MachineMarker:
        """Mark the cluster as one that has forgotten nothing; see `aiocosid.abc.Store`.

        A cancelled call may have taken effect.

        Raises:
            InvalidArgumentError: the namespace is no text, or too long, or the safe guard no time.
            CorruptMachineStateError: the marker is damaged; nothing was written.
            StoreError: the cluster refuses or cannot be reached.
            ForkedError: the connections are the parent's.
        """
        named = check_safe_guard(safe_guard)

        def mark(state: MachineState) -> Outcome:
            marker = state.pool.marker
            written = marker.mark(state.elapsed, named, is_new=is_new)
            left = marker.left(state.elapsed)
            about = MachineMarker(namespace=namespace, is_new=written, seconds_left=left)
            return Outcome(about, hands_out=written)

        made: MachineMarker = await self._space(namespace).run(mark)
        return made

    async def machine_markers(self, *, namespace: str | None = None) -> Sequence[MachineMarker]:
        """Return the markers, by namespace.

        Raises:
            InvalidArgumentError: the namespace is no text, or too long.
            CorruptMachineStateError: a marker is damaged.
            StoreError: the cluster refuses or cannot be reached.
            ForkedError: the connections are the parent's.
        """
        return [
            MachineMarker(namespace=state.keys.namespace, seconds_left=state.left_for_all)
            for state in await self._states(namespace)
            if state.pool.marker.is_there
        ]

    def _space(self, namespace: str) -> Namespace:
        return Namespace(self._link, self._keys(namespace))

    def _keys(self, namespace: str) -> MachineKeys:
        check_text("namespace", namespace, at_most=NAME_WIDTH)
        return MachineKeys(self._prefix, namespace)

    async def _states(self, namespace: str | None) -> Sequence[MachineState]:
        """Read one namespace, or all, by their names."""
        every = MachineKeys.all_of(self._prefix)
        root = every if namespace is None else self._keys(namespace).root

        async def read(member: Member) -> list[MachineState]:
            header, found = await member.scan(root)
            of: dict[str, list[object]] = {}
            for each in found:
                of.setdefault(MachineKeys.namespace_of(self._prefix, each.key), []).append(each)
            states = [
                MachineState(MachineKeys(self._prefix, name), header, of[name])
                for name in sorted(of)
            ]
            return [await with_quarantine(member, state) for state in states]

        return await self._link.call(read)
