"""How fast callers take ids, and how far ahead that makes an opening buy."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ..abc.events import DistanceChanged, Starved
from .pace import RateMeter

if TYPE_CHECKING:
    from .._life.waiting_line import WaiterQueue
    from ._stock import Stock
    from .pace import Pace

__all__ = ("Demand",)


class Demand:
    """Sets the pace by hunger, batches and quiet.

    Attributes:
        is_starved: a starvation was counted, and nothing came since.
        starvations: how many there were.
    """

    __slots__ = (
        *("_ahead_at_takeoff", "_dry_at", "_hungry", "_life", "_line", "_meter", "_pace"),
        *("_quiet_period", "_stock", "_watched", "is_starved", "starvations"),
    )

    def __init__(self, stock: Stock, line: WaiterQueue, pace: Pace, quiet_period: float) -> None:
        self._life = stock.life
        self._stock = stock
        self._line = line
        self._pace = pace
        self._quiet_period = quiet_period
        self._meter = RateMeter(self._life.clock.monotonic())
        self._ahead_at_takeoff = 0  # ids in hand when the latest call to the store was sent
        self._hungry = False  # a caller found no id, and none have come since
        self._dry_at = 0.0  # when that was
        self._watched = False  # the quiet timer is running
        self.is_starved = False
        self.starvations = 0

    def plan(self, space: int) -> None:
        """Fit the pace to the rate before a look at what is missing, with ``space`` ids left."""
        now, handed_out = self._life.clock.monotonic(), self._stock.handed_out
        self._meter.note(now, handed_out)
        self._pace.plan(now, self._meter.sustained(now, handed_out), space)

    def rate(self, now: float) -> float:
        """Return ids a second lately."""
        return self._meter.rate(now, self._stock.handed_out)

    def expect(self, n: int) -> None:
        """Keep enough ahead for callers that take ``n`` ids at once."""
        before = self._pace.distance
        if self._pace.asked_for(n):
            self.tell_growth(before)

    def find_dry(self, *, waiting: bool) -> None:
        """Take note of a caller that found no id: the next landing makes the distance longer."""
        if not self._stock.fetched:
            return  # a new group's: nothing has been there yet
        if waiting and not self.is_starved:
            self.is_starved = True
            self.starvations += 1
            self._life.emit(Starved)
        if not self._hungry:
            self._hungry = True
            self._dry_at = self._life.clock.monotonic()

    def take_off(self) -> None:
        """A call to the store is sent."""
        self._ahead_at_takeoff = self._stock.hand.ahead

    def land(self, sent_at: float, now: float, *, was_down: bool) -> None:
        """Ids came: fit the distance to what was taken while their flight was under way.

        While the store was down, no distance would have been long enough.
        """
        hungry = self._hungry
        if not (hungry and was_down):
            taken = self._ahead_at_takeoff - self._stock.hand.ahead
            demand: float = taken
            if hungry:
                lasted = self._dry_at - sent_at
                demand = taken * (now - sent_at) / lasted if taken and lasted > 0 else inf
            self._pace.landed(taken=taken, demand=demand, starved=hungry)
        self._hungry = self.is_starved = False

    def note(self, now: float) -> None:
        """Take a sample of the rate."""
        self._meter.note(now, self._stock.handed_out)

    def tell_growth(self, before: int) -> None:
        """The distance has grown: say so, and watch for quiet."""
        self._life.emit(DistanceChanged, before=before, after=self._pace.distance)
        if not self._watched:
            self._watched = True  # first: an eager task may end before the call returns
            if not self._life.start_soon(self._watch_quiet, task="quiet"):
                self._watched = False

    async def _watch_quiet(self) -> None:
        """Halve the distance after each quiet period; exists only while it is grown."""
        life, line, pace, stock = self._life, self._line, self._pace, self._stock
        try:
            while pace.is_grown:
                demand = stock.handed_out + line.waits
                await life.sleep_for(self._quiet_period)
                if life.ended is not None:
                    break
                idle = demand == stock.handed_out + line.waits and not line
                before = pace.distance
                if pace.end_period(stock.hand.ahead, idle=idle):
                    life.emit(DistanceChanged, before=before, after=pace.distance)
        finally:
            self._watched = False
