"""What may go wrong, as chances.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

__all__ = ("CALM", "Faults", "draw_between", "draw_steps")

Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What may go wrong on the way between a node and its stores, and with the node itself.

    Chances are from 0 to 1; ranges are seconds, from which a value is drawn.

    Attributes:
        latency: of one way, drawn so that short ones are frequent.
        lose_request: the store never sees a call.
        lose_reply: the store did its part, and the caller never hears of it.
        resend: the driver sends a call again although the store has done it: it is applied twice.
        delay: one way takes long, so that later calls overtake it.
        delayed: how long.
        timeout: after which a caller without a reply gets `StoreUnavailableError`.
        reset: of the callers without a reply, those that learn of it at once instead.
        pause: the process is stopped, at each step of each of its tasks.
        stall: the same in the middle of a step, right after a reading of the clock.
        paused: for how long.
        hold: an id that was returned is used later.
        held: how much later.
    """

    latency: Range = (0.0005, 0.02)
    lose_request: float = 0.0
    lose_reply: float = 0.0
    resend: float = 0.0
    delay: float = 0.0
    delayed: Range = (0.5, 5.0)
    timeout: float = 1.0
    reset: float = 0.5
    pause: float = 0.0
    stall: float = 0.0
    paused: Range = (0.01, 3.0)
    hold: float = 0.0
    held: Range = (0.01, 3.0)


CALM = Faults()
"""Nothing goes wrong; calls take their time."""


def draw_between(rng: random.Random, bounds: Range) -> float:
    """Draw a duration, each order of magnitude as likely as the other."""
    low, high = bounds
    return exp(rng.uniform(log(low), log(high)))


def draw_steps(rng: random.Random, chance: float) -> int:
    """Draw after how many steps something happens that has that chance at each; 0 for never."""
    if chance <= 0:
        return 0
    if chance >= 1:
        return 1
    return 1 + int(log(1 - rng.random()) / log(1 - chance))
