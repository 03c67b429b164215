"""The last ten minutes as small curves: their values and their drawing.  No I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..stores.inspection import number_text, seconds_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ("HEIGHT", "PAUSE", "WIDTH", "Curve", "History", "Sample", "curves_of", "path_of")

PAUSE: Final = 5.0  # seconds between two samples
KEPT: Final = 120  # samples: ten minutes
MOST: Final = "at most"
LEAST: Final = "at least"
WIDTH: Final = 240
HEIGHT: Final = 40


@dataclass(frozen=True, slots=True)
class Sample:
    """The values at one moment; None for unknown values.

    Attributes:
        rate: ids per second that the generators issued.
        seconds_left: seconds for which the buffered ids last, for the generator that runs out
            first.
        latency: seconds that the slowest store took for its last answer.
        failures: the number of store calls that failed since the last sample, plus the stores that
            do not answer.
    """

    rate: float | None
    seconds_left: float | None
    latency: float | None
    failures: float | None


class History:
    """The samples of the last ten minutes.

    Attributes:
        samples: the samples, with the latest at the end.
    """

    __slots__ = ("_before", "samples")

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self._before: tuple[float, int, int] | None = None

    def note(
        self,
        now: float,
        *,
        ids: int,
        failures: int,
        silent: int,
        seconds_left: float | None,
        latency: float | None,
    ) -> None:
        """Add a sample.

        Args:
            now: monotonic seconds.
            ids: ids issued so far; fewer than before if a generator was reopened.
            failures: calls that failed so far.
            silent: stores that do not answer now.
            seconds_left: as in `Sample`.
            latency: as in `Sample`.
        """
        before, self._before = self._before, (now, ids, failures)
        rate = failed = None
        if before is not None and now > before[0]:
            rate = max(0, ids - before[1]) / (now - before[0])
            failed = float(max(0, failures - before[2]) + silent)
        self.samples.append(Sample(rate, seconds_left, latency, failed))


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve.

    Attributes:
        key: the curve's key.
        title: the curve's title.
        text: the latest and the worst value.
        path: the SVG path.
    """

    key: str
    title: str
    text: str
    path: str

    def as_tree(self) -> dict[str, str]:
        """Return the parts that change, ready for JSON."""
        return {"text": self.text, "path": self.path}


def curves_of(samples: Sequence[Sample]) -> list[Curve]:
    """Return the curves."""

    def curve(
        key: str,
        title: str,
        values: Sequence[float | None],
        text: Callable[[float], str],
        worst: str = MOST,
    ) -> Curve:
        known = [each for each in values if each is not None]
        now = values[-1] if values else None
        said = "-" if now is None else text(now)
        if known:
            said += f", {worst} {text(min(known) if worst == LEAST else max(known))}"
        return Curve(key, title, said, path_of(values))

    return [
        curve("rate", "Ids a second", [each.rate for each in samples], number_text),
        curve("left", "Seconds left", [each.seconds_left for each in samples], seconds_text, LEAST),
        curve("latency", "Store latency", [each.latency for each in samples], seconds_text),
        curve("failures", "Store failures", [each.failures for each in samples], number_text),
    ]


def path_of(values: Sequence[float | None]) -> str:
    """Return a path that ends at the right, with gaps at unknown values."""
    return " ".join(_steps(values))


def _steps(values: Sequence[float | None]) -> Iterator[str]:
    top = max((each for each in values if each is not None), default=0.0) or 1.0
    is_drawing = False
    for at, value in enumerate(values, KEPT - len(values)):
        if value is not None:
            x, y = WIDTH * at / (KEPT - 1), HEIGHT - 1 - (HEIGHT - 2) * value / top
            yield f"{'L' if is_drawing else 'M'}{x:.1f} {y:.1f}"
            if not is_drawing:
                yield "h0.1"  # makes a single point visible
        is_drawing = value is not None
