"""What a store reports about itself, for a dashboard or a command; reading changes nothing.

`read_store` queries a store, `Rates` turns two readings into ids per second, and the other
functions interpret and format what was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final

from .._life.clock import SYSTEM_CLOCK
from ..errors import CosIdError, StoreUnavailableError, UnsupportedByStoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from ..abc import Clock, Counter, Machine, MachineMarker, ServerInfo, Store

__all__ = (
    "NOT_KEPT",
    "Rates",
    "StoreReading",
    "held_until_ms",
    "is_clock_wrong",
    "label_of",
    "number_text",
    "parts_of",
    "ping",
    "read_store",
    "seconds_text",
)

_NOTHING: Final = "aiocosid.nothing"  # a counter that no store has
_READ_TIMEOUT: Final = 2.0  # seconds, for one question to a store
_OLDEST_SAMPLE: Final = 30.0  # seconds: a rate over a longer time says nothing about the present
_CLOSEST_SAMPLES: Final = 0.5  # seconds
_CLOCK_TOLERANCE: Final = 1.0  # seconds

NOT_KEPT: Final = "not kept by this store"


@dataclass(slots=True, kw_only=True)
class StoreReading:
    """The answers of one store.

    Attributes:
        label: the store's name, without credentials.
        at_ms: when it was asked, by this process's clock.
        took: seconds that one request took on an open connection; None if that is not known.
        silence: why the store did not answer; empty if it did.
        clock_error: seconds by which this process's clock is ahead of the store's, and the
            uncertainty of that value.
        is_initialized: whether the store has its marker.
        counters: its counters.
        machines: its machine ids.
        markers: its markers of namespaces.
        server: its version, and whether it is known to keep what it grants.
        errors: why a part could not be read, by the part's name, without anything that may be
            secret.
        causes: the exceptions of these parts, where the store raised one.
    """

    label: str
    at_ms: int
    took: float | None = None
    silence: CosIdError | str = ""
    clock_error: tuple[float, float] | None = None
    server: ServerInfo | None = None
    is_initialized: bool | None = None
    counters: Sequence[Counter] = ()
    machines: Sequence[Machine] = ()
    markers: Sequence[MachineMarker] = ()
    errors: dict[str, str] = field(default_factory=dict[str, str])
    causes: dict[str, CosIdError] = field(default_factory=dict[str, CosIdError])


def label_of(store: Store) -> str:
    """Return the name of a store, without credentials."""
    ours = type(store).__module__.startswith("aiocosid.")
    # The repr of a user's own class may show a password.
    return repr(store).strip("<>") if ours else type(store).__name__


def parts_of(store: Store) -> Iterator[Store]:
    """Yield the single-server stores that a store consists of, or the store itself."""
    if not store.parts:
        yield store
    for each in store.parts:
        yield from parts_of(each)


async def ping(store: Store) -> None:
    """Send a store its smallest request, which writes nothing.

    Raises:
        UnsupportedByStoreError: the store has no such request.
        StoreError: the store refuses or cannot be reached.
    """
    try:
        await store.segment_distributor(name=_NOTHING).peek()
    except CosIdError as error:
        if error.retryable or isinstance(error, StoreUnavailableError):
            raise
        await store.ask_server()


async def read_store(
    store: Store, clock: Clock = SYSTEM_CLOCK, *, within: float = _READ_TIMEOUT
) -> StoreReading:
    """Read everything that is displayed about a store; each part may fail alone, and none raises.

    A store that does not answer is sent no further request.

    Args:
        store: the store, open or not.
        clock: the time source; the system's clock by default.
        within: seconds for each request.
    """
    reading = StoreReading(label=label_of(store), at_ms=clock.now_ms())

    async def read(part: str, call: Callable[[], Awaitable[Any]]) -> None:
        reading.errors[part] = f"no answer in {within:g} s"
        try:
            with clock.move_on_after(within):
                setattr(reading, part, await call())
                del reading.errors[part]
        except UnsupportedByStoreError:
            reading.errors[part] = NOT_KEPT
        except CosIdError as error:
            reading.errors[part] = type(error).__name__
            reading.causes[part] = error

    async def answer_time() -> float:
        began = clock.monotonic()
        await ping(store)
        return clock.monotonic() - began

    async def clock_error() -> tuple[float, float]:
        before_ms, began = clock.now_ms(), clock.monotonic()
        store_ms = await store.clock_ms()
        doubt = (clock.monotonic() - began) / 2
        return (before_ms - store_ms) / 1000 + doubt, doubt

    questions = {
        "server": store.ask_server,  # the first request connects
        "took": answer_time,
        "clock_error": clock_error,
        "is_initialized": store.is_initialized,
        "counters": store.counters,
        "machines": store.machines,
        "markers": store.machine_markers,
    }
    why = NOT_KEPT
    for number, (part, ask) in enumerate(questions.items(), 1):
        await read(part, ask)
        why, cause = reading.errors.get(part, NOT_KEPT), reading.causes.get(part)
        has_answered = len(reading.errors) < number
        if not has_answered and why != NOT_KEPT and (cause is None or cause.retryable):
            reading.errors |= dict.fromkeys(questions, why)
            break
    if len(reading.errors) == len(questions):
        reading.silence = next(iter(reading.causes.values()), "" if why == NOT_KEPT else why)
    reading.errors.pop("took", None)
    reading.causes.pop("took", None)
    return reading


def is_clock_wrong(error: float, doubt: float) -> bool:
    """Return whether two clocks differ by more than a second, even allowing for the doubt.

    Args:
        error: seconds between the two clocks.
        doubt: seconds by which ``error`` may be wrong.
    """
    return abs(error) - doubt > _CLOCK_TOLERANCE


def held_until_ms(machine: Machine, marker: MachineMarker | None) -> int | float | None:
    """Return the time until which a machine id stays with its holder if it is not renewed.

    Args:
        machine: a machine id that is held.
        marker: the marker of its namespace, with the longest safe guard; None if it is not known.

    Returns:
        Unix time in milliseconds; ``inf`` if the lease does not expire; None if the time is not
        known.
    """
    seconds = None if marker is None else marker.safe_guard
    if machine.stable or seconds == inf:
        return inf
    return None if seconds is None else machine.last_timestamp_ms + round(seconds * 1000)


class Rates:
    """How fast numbers rise, computed from the times and values of successive readings."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        """Start without a sample."""
        # For each key: the latest sample, and the rate that was computed from it.
        self._samples: dict[object, tuple[float, int, float | None]] = {}

    def rate(self, key: object, value: int, now: float) -> float | None:
        """Return a number's rise per second, None while that is not known, and keep the sample.

        Args:
            key: identifies the number.
            value: its value.
            now: monotonic seconds.
        """
        at, before, rate = self._samples.get(key, (-inf, 0, None))
        if now - at > _OLDEST_SAMPLE or value < before:
            self._samples[key] = now, value, None
            return None
        if now - at >= _CLOSEST_SAMPLES:
            rate = (value - before) / (now - at)
            self._samples[key] = now, value, rate
        return rate

    def drop_old(self, now: float) -> None:
        """Drop the samples that are too old for a rate."""
        kept = [each for each in self._samples.items() if now - each[1][0] <= _OLDEST_SAMPLE]
        self._samples = dict(kept)


def number_text(value: float) -> str:
    """Return a number with thousands separators, and one decimal place below 100."""
    if value >= 100 or value == round(value):  # noqa: PLR2004 - see the docstring
        return f"{round(value):,}"
    return f"{value:,.1f}"


def seconds_text(seconds: float) -> str:
    """Return a duration in suitable units."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:  # noqa: PLR2004 - seconds
        return f"{seconds:.3g} s"
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if minutes < 120:  # noqa: PLR2004 - as above
        return f"{minutes:.0f} min"
    return f"{hours:.0f} h" if hours < 48 else f"{days:,.0f} days"  # noqa: PLR2004 - as above
