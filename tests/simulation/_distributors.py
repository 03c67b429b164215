"""Distributors at the far end of a link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiocosid.abc import IdSegmentDistributor, MachineGrant, MachineIdDistributor

if TYPE_CHECKING:
    from ._link import Link
    from ._node import Node

__all__ = ("LinkedIdSegmentDistributor", "LinkedMachineIdDistributor")


class LinkedIdSegmentDistributor(IdSegmentDistributor):
    """A counter at the far end of a link."""

    __slots__ = ("_inner", "_link")

    def __init__(self, link: Link, inner: IdSegmentDistributor) -> None:
        """See `Link.segments`."""
        super().__init__(
            namespace=inner.namespace, name=inner.name, offset=inner.offset, step=inner.step
        )
        self._link = link
        self._inner = inner

    @property
    def store(self) -> str:  # type: ignore[override]  # the inner one's
        """The kind of store, for error messages."""
        return self._inner.store

    @property
    def stride(self) -> int:  # type: ignore[override]  # the inner one's
        """From one id to the next."""
        return self._inner.stride

    @property
    def step_limit(self) -> int | None:  # type: ignore[override]  # the inner one's
        """The most ids that one call may ask for."""
        return self._inner.step_limit

    async def next_max_id(self, step: int) -> int:
        """Send the call."""
        return await self._link.call(
            self.store, f"next_max_id({step})", lambda: self._inner.next_max_id(step)
        )

    def resume_above(self, reached: int) -> None:
        """Pass it on."""
        self._inner.resume_above(reached)

    async def aopen(self) -> None:
        """Pass it on."""
        await self._inner.aopen()

    async def aclose(self) -> None:
        """Pass it on."""
        await self._inner.aclose()


class LinkedMachineIdDistributor(MachineIdDistributor):
    """Machine ids at the far end of a link; the world takes note of who is given which."""

    __slots__ = ("_inner", "_link", "_node", "restart")

    def __init__(self, link: Link, inner: MachineIdDistributor, node: Node) -> None:
        """See `Link.machines`."""
        self.restart = inner.restart
        super().__init__(
            namespace=inner.namespace,
            instance_id=inner.instance_id,
            safe_guard=inner.safe_guard,
            interval=inner.interval,
        )
        self._link = link
        self._inner = inner
        self._node = node

    @property
    def store(self) -> str:  # type: ignore[override]  # the inner one's
        """The kind of store, for error messages."""
        return self._inner.store

    @property
    def is_leased(self) -> bool:  # type: ignore[override]  # the inner one's
        """Whether an id is lost without a renewal."""
        return self._inner.is_leased

    @property
    def keeps_fences(self) -> bool:  # type: ignore[override]  # the inner one's
        """Whether the next owner begins above the mark."""
        return self._inner.keeps_fences

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Send the call."""
        process = self._node._current()

        async def take() -> MachineGrant:
            grant = await self._inner.distribute(bits, now_ms=now_ms, latest_ms=latest_ms)
            ledger = self._node.world.ledger
            # A process that has a record of the former one may begin below the mark.
            floor_ms = grant.floor_ms if self.restart is None else -1
            ledger.granted(self.namespace, grant.machine_id, process, floor_ms=floor_ms)
            return grant

        return await self._link.call(self.store, f"distribute({bits})", take)

    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Send the call."""
        await self._renew("guard", machine_id, now_ms=now_ms, fence_ms=fence_ms)

    async def reassert(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Send the call."""
        await self._renew("reassert", machine_id, now_ms=now_ms, fence_ms=fence_ms)

    async def _renew(self, how: str, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        world, process = self._node.world, self._node._current()
        inner = self._inner.renew if how == "guard" else self._inner.reassert

        async def renew() -> None:
            await inner(machine_id, now_ms=now_ms, fence_ms=fence_ms)
            until = world.time + self.safe_guard
            world.ledger.renewed(self.namespace, machine_id, process, until=until)

        await self._link.call(self.store, f"{how}({machine_id}, mark {fence_ms})", renew)

    async def release(self, machine_id: int, *, last_ms: int) -> None:
        """Send the call."""
        await self._link.call(
            self.store,
            f"revert({machine_id}, last {last_ms})",
            lambda: self._inner.release(machine_id, last_ms=last_ms),
        )

    async def aopen(self) -> None:
        """Pass it on."""
        await self._inner.aopen()

    async def aclose(self) -> None:
        """Pass it on."""
        await self._inner.aclose()
