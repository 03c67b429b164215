"""The options of a broker and its store, with checks.  No I/O."""
# This module does without "from __future__ import annotations", because the bounds of options are
# needed at run time.

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
"""Ids in a counter's first spans, before its rate is known."""

WAIT_TIMEOUT: Final = 1.3  # seconds, so that a client's call is answered within its 1.5 s
FETCH_TIMEOUT: Final = 1.2  # seconds for a call to the underlying store


class SpanOptions(EnduranceOption):
    """The options of `SpanStore`.

    Attributes:
        endurance: seconds for which the buffered ids last at the measured rate while the root does
            not answer; at most ``largest`` and a thousandth of the remaining ids are buffered.
        span: ids in a counter's spans before its rate is known, 1 or more.
        largest: the maximum ids in one span, and in a counter's buffer, unless callers wait for
            more.  A larger segment is one call to the root, and discards the buffered ids.
        wait_timeout: maximum seconds that a call waits.
        fetch_timeout: seconds for one call to the root, at most ``wait_timeout``; the default is
            1.2 or, if that is less, ``wait_timeout``.
        owns_root: whether `aclose` closes the root.
        instrument: receives the events of a chain for each counter.
        clock: the time source; the system's clock by default.
    """

    span: int = SPAN
    largest: int = MAX_IDS_AHEAD
    wait_timeout: Seconds = WAIT_TIMEOUT
    fetch_timeout: float | None = None
    owns_root: bool = False
    instrument: "Instrument | None" = None
    clock: "Clock | None" = None

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` for the first option outside its range."""
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
            "fail_fast": True,  # a client asks again, and has its own buffered ids
        }


class BrokerOptions(EnduranceOption):
    """The options of `run_broker`.

    Attributes:
        socket: the path of the socket; by default the path from systemd's socket activation, or
            without that ``/run/aiocosid/broker.sock``.
        mode: the socket's permissions, for example ``"660"``; by default those in the settings.
        endurance: seconds for which the ids in memory last while the store is unavailable.
    """

    socket: str | None = None
    mode: str | None = None
