"""The way between a node and a store: slow, lossy, cut."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from aiocosid.errors import StoreUnavailableError

from ._distributors import LinkedIdSegmentDistributor, LinkedMachineIdDistributor
from ._faults import draw_between

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiocosid.abc import IdSegmentDistributor, MachineIdDistributor

    from ._faults import Faults
    from ._node import Node

__all__ = ("Link",)

_T = TypeVar("_T")

NONCE: Final = re.compile("[0-9a-f]{16,}")
"""What is drawn by the operating system, and must not tell two runs of one seed apart."""


class Link:
    """Carries calls from a node to a store, and replies back.

    What was sent arrives whatever becomes of the sender: a call outlives its caller's timeout,
    cancellation and death.

    Attributes:
        faults: what may go wrong.
    """

    def __init__(self, node: Node, faults: Faults) -> None:
        """Lay a link; see `Node.link`."""
        self.faults = faults
        self._node = node
        self._world = node.world
        self._loses_requests = False
        self._loses_replies = False

    def segments(self, inner: IdSegmentDistributor) -> IdSegmentDistributor:
        """Put the link before a distributor of segments.

        Args:
            inner: the distributor at the store; one that answers without I/O, as
                `MemoryIdSegmentDistributor` does.
        """
        return LinkedIdSegmentDistributor(self, inner)

    def machines(self, inner: MachineIdDistributor) -> MachineIdDistributor:
        """Put the link before a distributor of machine ids.

        Args:
            inner: the distributor at the store; one that answers without I/O.
        """
        return LinkedMachineIdDistributor(self, inner, self._node)

    def cut(self, *, requests: bool = True, replies: bool = True) -> None:
        """Cut the link; what is on its way is lost as well.

        Args:
            requests: lose what goes to the store.
            replies: lose what comes back.
        """
        self._world.note(self._node.name, "is cut off")
        self._loses_requests = requests
        self._loses_replies = replies

    def heal(self) -> None:
        """Mend the link."""
        if self._loses_requests or self._loses_replies:
            self._world.note(self._node.name, "is joined again")
        self._loses_requests = self._loses_replies = False

    async def call(
        self, store: str, what: str, operation: Callable[[], Awaitable[_T]]
    ) -> _T:  # fmt: skip
        """Have the store do something, and return its reply.

        Args:
            store: the kind of store, for the error.
            what: the call, for the trace.
            operation: what the store does when the call arrives.

        Raises:
            StoreUnavailableError: no reply came within the timeout, or the connection broke.
            Exception: what the operation raised.
        """

        def lost(reason: str) -> StoreUnavailableError:
            return StoreUnavailableError(store, reason)

        return cast("_T", await self.post(what, operation, late=lost, broken=lost))

    def post(
        self,
        what: str,
        operation: Callable[[], Awaitable[object]],
        *,
        late: Callable[[str], Exception],
        broken: Callable[[str], Exception],
    ) -> asyncio.Future[Any]:
        """Send a call, and return what its reply will come to.

        Args:
            what: the call, for the trace.
            operation: what the store does when the call arrives.
            late: makes the error of a reply that does not come in time.
            broken: makes the error of a connection that breaks.
        """
        world = self._world
        reply: asyncio.Future[Any] = world.loop.create_future()
        if world.is_over:
            reply.set_exception(broken("the world has ended"))
            return reply
        world.note(self._node.name, "calls", what)
        world.spawn(self._carry(what, operation, reply, broken), name=f"{what} under way")
        timeout = self.faults.timeout
        timer = world.loop.call_later(self._node._virtual(timeout), _expire, reply, late, timeout)
        reply.add_done_callback(lambda _: timer.cancel())
        return reply

    async def _carry(
        self,
        what: str,
        operation: Callable[[], Awaitable[object]],
        reply: asyncio.Future[Any],
        broken: Callable[[str], Exception],
    ) -> None:
        """Bring a call to the store and its reply back; runs outside of every node."""
        # A stalled sender sends when its step comes to it.
        await asyncio.sleep(self._node._lead + self._latency())
        if self._loses_requests or self._happens(self.faults.lose_request):
            await self._lose(f"request of {what}", reply, broken)
            return
        outcome = await self._apply(what, operation)
        if self._happens(self.faults.resend):
            # The first reply was lost on the way to the driver, which sends again.
            await asyncio.sleep(self._latency() + self._latency())
            if not self._loses_requests:
                outcome = await self._apply(f"{what} again", operation)
        if self._happens(self.faults.lose_reply):
            await self._lose(f"reply to {what}", reply, broken)
            return
        await asyncio.sleep(self._latency())
        if self._loses_replies:
            await self._lose(f"reply to {what}", reply, broken)
            return
        _settle(reply, outcome)

    async def _apply(
        self, what: str, operation: Callable[[], Awaitable[object]]
    ) -> object | Exception:
        try:
            outcome = await operation()
        except Exception as error:  # noqa: BLE001 - it is the reply
            self._world.note("store", "refuses", f"{what} of {self._node.name}: {error}")
            return error
        told = NONCE.sub("(nonce)", str(outcome))
        self._world.note("store", "does", f"{what} of {self._node.name}: {told}")
        return outcome

    async def _lose(
        self, what: str, reply: asyncio.Future[Any], broken: Callable[[str], Exception]
    ) -> None:
        """Lose something; the caller may learn of it from its connection."""
        self._world.note(self._node.name, "loses", f"the {what}")
        if self._happens(self.faults.reset):
            await asyncio.sleep(self._latency())
            _fail(reply, broken("the connection was reset"))

    def _latency(self) -> float:
        latency = draw_between(self._world.rng, self.faults.latency)
        if self._happens(self.faults.delay):
            latency += draw_between(self._world.rng, self.faults.delayed)
        return latency

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self._world.rng.random() < chance


def _settle(reply: asyncio.Future[Any], outcome: object | Exception) -> None:
    if isinstance(outcome, Exception):
        _fail(reply, outcome)
    elif not reply.done():
        reply.set_result(outcome)


def _expire(reply: asyncio.Future[Any], late: Callable[[str], Exception], timeout: float) -> None:
    _fail(reply, late(f"no reply within {timeout:g} s"))


def _fail(reply: asyncio.Future[Any], error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)
