"""The options of a broker and of its store, checked.  Pure."""
# Without "from __future__ import annotations": the bounds of options are there at run time.

from typing import TYPE_CHECKING, Final

from ..abc.checks import check_integer
from ..abc.options import Seconds
from ..segment.options import EnduranceOption
from ..segment.pace import MAX_IDS_AHEAD

if TYPE_CHECKING:
    from ..abc import Clock
    from ..abc.events import Instrument

__all__ = ("BrokerOptions", "SpanOptions")

SPAN: Final = 10_000
"""Ids of a counter's first spans, before its rate is known."""

WAIT_TIMEOUT: Final = 1.3  # seconds: a client's call has 1.5, and is to be answered
FETCH_TIMEOUT: Final = 1.2  # seconds of a call to the store beneath


class SpanOptions(EnduranceOption):
    """The options of `SpanStore`.

    Attributes:
        endurance: seconds that the ids in hand last at the measured rate while the root does not
            answer; at most ``largest`` and a thousandth of the ids that are left are held.
        span: ids of a counter's spans before its rate is known, 1 or more.
        largest: ids that one span, or what is in hand of a counter, has at most, unless callers
            wait for more; a larger segment is one call to the root, and ends what is in hand.
        wait_timeout: seconds that a call waits at most.
        fetch_timeout: seconds of one call to the root, at most ``wait_timeout``; 1.2 by default, or
            ``wait_timeout``.
        owns_root: whether `aclose` closes the root.
        instrument: receives the events of a chain for each counter.
        clock: time; the system's by default.
    """

    span: int = SPAN
    largest: int = MAX_IDS_AHEAD
    wait_timeout: Seconds = WAIT_TIMEOUT
    fetch_timeout: float | None = None
    owns_root: bool = False
    instrument: "Instrument | None" = None
    clock: "Clock | None" = None

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` for the first one outside its range."""
        check_integer("span", self.span, at_least=1)
        check_integer("largest", self.largest, at_least=self.span)

    def of_chains(self) -> dict[str, object]:
        """Return the options of the counters' chains."""
        usual = min(self.wait_timeout, FETCH_TIMEOUT)
        return {
            "endurance": self.endurance,
            "max_ids_ahead": self.largest,
            "wait_timeout": self.wait_timeout,
            "fetch_timeout": usual if self.fetch_timeout is None else self.fetch_timeout,
            "fail_fast": True,  # a client asks again, and has ids in hand of its own
        }


class BrokerOptions(EnduranceOption):
    """The options of `run_broker`.

    Attributes:
        socket: the path of the socket; by default that of systemd's socket activation, and without
            it ``/run/aiocosid/broker.sock``.
        mode: its permissions, for example ``"660"``; by default those of the settings.
        endurance: seconds that the ids in memory last while the store is away.
    """

    socket: str | None = None
    mode: str | None = None
