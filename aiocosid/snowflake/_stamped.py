"""What all generators of ids with a time share: buffered ids, callers, opening and closing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from .._life.callers import MAX_BATCH
from .._life.component import Component
from .._life.open_state import OpenState
from ..abc import IdGenerator
from ..abc.checks import check_integer
from ..errors import ClosedError, ForkedError, WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .._life.callers import Callers
    from .._life.open_state import Home
    from .._life.waiting_line import Waiter
    from ..abc.events import Instrument
    from ..errors import CosIdError
    from ..machine import MachineIdLease

__all__ = ("StampGenerator", "StampOpening")


class Hand(Protocol):
    """The source of single ids for callers."""

    @property
    def piece(self) -> Iterator[int]:
        """The ids that callers take while the clock is between two bounds."""
        ...

    @property
    def handed_out(self) -> int:
        """How many ids were handed out so far."""
        ...


H = TypeVar("H", bound=Hand)


class StampOpening(OpenState, Generic[H]):
    """One opening of a generator: issues ids at once, or a task serves the callers in line.

    Attributes:
        callers: wakes waiting callers and spreads their work over loop turns.
        hand: the source of single ids.
        joined: the lease that it has joined; None before, and once it has left.
        read_ns: reads the wall clock.
    """

    __slots__ = ("_joining", "callers", "hand", "joined", "read_ns")

    def __init__(
        self,
        home: Home,
        before: StampOpening[H] | None,
        hand: H,
        *,
        callers: Callers,
        namespace: str,
        name: str,
        instrument: Instrument | None,
    ) -> None:
        super().__init__(home, before, namespace=namespace, name=name, instrument=instrument)
        self.hand: H = hand
        self.callers = callers
        self.joined: MachineIdLease | None = None
        self._joining: anyio.CancelScope | None = None  # set while it joins the lease
        self.read_ns: Callable[[], int] = self.clock.wall_reader()
        if (check := home.loop_check) is not None:
            read_ns = self.read_ns
            self.read_ns = lambda: (check(), read_ns())[1]

    # What subclasses implement.

    def install(self) -> bool:
        """Install a piece of ids; return whether there is one."""
        raise NotImplementedError

    def _take_now(self, n: int) -> list[range] | None:
        """Take ``n`` ids if that many are available now."""
        raise NotImplementedError

    def _shut(self) -> int:
        """Discard the buffered ids; return how many there were."""
        raise NotImplementedError

    def _timed_out(self, waited: float) -> CosIdError:
        """Report a caller that has waited that many seconds; return its error."""
        raise NotImplementedError

    def serve(self) -> None:
        """Serve the callers in line for which there are ids now."""
        raise NotImplementedError

    async def pause(self) -> None:
        """Wait until more callers may be served."""
        raise NotImplementedError

    def _discard(self, count: int, reason: str) -> None:
        """Count discarded ids, if the generator counts them."""

    # Without waiting.

    def install_nowait(self) -> None:
        """Install a piece for a caller that does not wait.

        Raises:
            WouldBlock: there is none now.
            CosIdError: there is none, and none will come soon.
        """
        if self.callers.line or not self.install():
            raise WouldBlock

    async def take(self, n: int) -> list[range]:
        """Take ``n`` ids, after the callers that came before."""
        await self.callers.take_turn(self)
        pieces = None if self.callers.line else self._take_now(n)
        return await self.callers.wait(n, self) if pieces is None else pieces

    # For callers in line.

    @property
    def handed_out(self) -> int:
        """How many ids were handed out so far."""
        return self.hand.handed_out

    async def line_up(self, waiter: Waiter) -> None:
        """Queue a caller, and serve it at once if possible."""
        callers = self.callers
        callers.line.add(waiter)
        self.check()  # after the caller is in line, so that an end from here on fails it
        self.serve()
        if waiter.is_done:
            await checkpoint()
        elif not callers.is_pumped:
            callers.is_pumped = True  # first, because an eager task may end before the call returns
            if not self.start_soon(callers.pump, self, task="wait"):
                callers.is_pumped = False

    def step_out(self, waiter: Waiter) -> None:
        """Remove a waiting caller that has received nothing."""
        if self.has_ended():
            return
        line = self.callers.line
        is_first = line.is_first(waiter)
        line.discard(waiter)
        if is_first:
            self.drop(self.callers.empty_pool())  # higher ids may have been handed out by now
            if self.is_alive:
                self.serve()  # there may be enough ids for the callers behind it

    def time_out(self) -> None:
        """Fail the first caller in line, whose wait has timed out."""
        waited = self.clock.monotonic() - self.callers.line.first.since
        self.drop(self.callers.fail_first(self._timed_out(waited)))
        self.serve()

    def _fail_all(self, make_error: Callable[[], CosIdError]) -> None:
        """Fail all callers in line, each with an error of its own."""
        self.drop(self.callers.fail(make_error))

    def drop(self, count: int) -> None:
        """Count ids that a cancelled caller leaves as a gap."""
        self._discard(count, "cancelled")

    # Start and end.

    async def _join(self, lease: MachineIdLease) -> None:
        """Join a lease, unless the opening ends meanwhile.

        Raises:
            ClosedError: it has ended.
            CosIdError: opening the lease fails.
        """
        with anyio.CancelScope() as scope:
            self._joining = scope  # `until_woken` would not do: each reply of a store wakes it
            try:
                await lease.join()
            finally:
                self._joining = None
        if scope.cancelled_caught:
            raise ClosedError(self.label)
        if self.ended is not None:
            await lease.leave()
            raise ClosedError(self.label)
        self.joined = lease

    def stop(self, reason: CosIdError) -> None:
        """Hand out no more ids, and fail all waiting callers."""
        dropped = self._shut()
        self.end(reason)
        if isinstance(reason, ForkedError):
            return  # no caller in this process waits
        self._discard(dropped, "closed")
        self.callers.turns.release()
        self._fail_all(reason.again)
        self.wake()
        if self._joining is not None:
            self._joining.cancel()

    @property
    def has_to_drain(self) -> bool:
        """Whether closing must wait until it has left the lease."""
        return self.joined is not None

    async def drain(self) -> None:
        """Leave the lease."""
        lease, self.joined = self.joined, None
        if lease is not None:
            await lease.leave()


class StampGenerator(Component, IdGenerator):
    """Takes buffered ids of its opening, and waits there if there are none."""

    __slots__ = ("__weakref__",)

    async def _next_id_slow(self) -> int:
        self._check_usable()
        opening: StampOpening[Hand] = self._opening
        callers = opening.callers
        if not callers.line:
            await callers.take_turn(opening)
            if not callers.line and opening.install():
                for new_id in opening.hand.piece:
                    return new_id
        return (await callers.wait(1, opening))[0][0]

    def _next_id_nowait_slow(self) -> int:
        self._check_usable()
        opening: StampOpening[Hand] = self._opening
        opening.install_nowait()
        for new_id in opening.hand.piece:
            return new_id
        raise WouldBlock

    async def _next_ranges(self, n: int) -> list[range]:
        """Return ``n`` ids as ranges."""
        check_integer("n", n, at_least=1, at_most=MAX_BATCH)
        self._check_usable()
        opening: StampOpening[Hand] = self._opening
        return await opening.take(n)

    @property
    def _has_to_drain(self) -> bool:
        return bool(self._opening.has_to_drain)
