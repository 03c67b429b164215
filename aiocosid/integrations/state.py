"""What a generator's statistics say of its state: read once, for health checks and dashboards."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..machine import MachineIdStatistics
from ..segment import SegmentStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..abc import Statistics
    from ..errors import CosIdError

__all__ = ("GeneratorState", "calls_of")

T = TypeVar("T")


class GeneratorState:
    """The state of one generator.

    Attributes:
        pictures: its statistics and those inside, the outermost first: of a wrapped generator, a
            lease, a distributor.
        core: of these the one that counts ids; the first if none does.
        lease: that of its machine id; None if it has none.
        chain: that of its chain or segment; None if it has none.
        error: the latest error of its store; None after a success.
        tells_end: whether it tells without being asked for an id that it hands out no more.
        ended: why it hands out no more ids; None if it does.
        remaining: ids in hand; None if it counts none.
        calls: its calls to its store, and those of them that failed; None without a store.
    """

    def __init__(self, statistics: Statistics) -> None:
        """Read the statistics."""
        self.pictures = found = [*_pictures_of(statistics)]
        self.core: Any = next((each for each in found if hasattr(each, "ids_handed_out")), found[0])
        self.lease = next((each for each in found if isinstance(each, MachineIdStatistics)), None)
        self.chain = next((each for each in found if isinstance(each, SegmentStatistics)), None)
        self.error: Exception | None = _first(getattr(each, "last_error", None) for each in found)
        self.remaining: int | None = _first(getattr(each, "remaining", None) for each in found)
        self.calls = _first(map(calls_of, found))
        # Of a group that is over the end is told inside: the outermost that tells it counts.
        tells = [each for each in found if hasattr(each, "ended")]
        self.tells_end = bool(tells)
        self.ended: CosIdError | None = tells[0].ended if tells else None

    @property
    def has_machine_id(self) -> bool:
        """Whether it needs no machine id, or has one that is valid."""
        lease = self.lease
        return lease is None or (lease.machine_id is not None and lease.seconds_left > 0)


def _first(found: Iterable[T | None]) -> T | None:
    return next((each for each in found if each is not None), None)


def _pictures_of(statistics: Any) -> Iterator[Any]:  # noqa: ANN401 - a dataclass of any kind
    yield statistics
    for each in fields(statistics):
        if is_dataclass(inner := getattr(statistics, each.name)):
            yield from _pictures_of(inner)


def calls_of(picture: Any) -> tuple[int, int] | None:  # noqa: ANN401 - a dataclass of any kind
    """Return the calls to a store that statistics count, and those of them that failed."""
    for name in ("fetches", "grants", "renewals"):
        answered = getattr(picture, name, None)
        if answered is not None:
            failures: int = picture.failures
            return answered + failures, failures
    return None
