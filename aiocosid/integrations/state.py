"""A generator's state from its statistics: read once, for health checks and dashboards."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..machine import MachineIdStatistics
from ..segment import SegmentStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..abc import AnyGenerator, Statistics
    from ..errors import CosIdError

__all__ = ("GeneratorState", "calls_of", "inmost")

T = TypeVar("T")


class GeneratorState:
    """The state of one generator.

    Attributes:
        pictures: its statistics and the inner ones, the outermost first: those of a wrapped
            generator, a lease or a distributor.
        core: the statistics that count ids; the first ones if none do.
        lease: the statistics of its machine id's lease; None if it has none.
        chain: the statistics of its chain or segment; None if it has none.
        error: the latest error of its store; None after a success.
        tells_end: whether the statistics alone show that it no longer issues ids.
        ended: why it no longer issues ids; None if it does.
        remaining: buffered ids; None if it does not count them.
        calls: its calls to its store, and how many of them failed; None without a store.
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
        # The end of a group is told by inner statistics, so the outermost ones that tell it count.
        tells = [each for each in found if hasattr(each, "ended")]
        self.tells_end = bool(tells)
        self.ended: CosIdError | None = tells[0].ended if tells else None

    @property
    def has_machine_id(self) -> bool:
        """Whether it needs no machine id, or has a valid one."""
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
    """Return how many calls to a store the statistics count, and how many of them failed."""
    for name in ("fetches", "grants", "renewals"):
        answered = getattr(picture, name, None)
        if answered is not None:
            failures: int = picture.failures
            return answered + failures, failures
    return None


def inmost(generator: AnyGenerator) -> AnyGenerator:
    """Return the innermost generator, which counts ids; the outer ones only convert."""
    while (inner := getattr(generator, "inner", None)) is not None:
        generator = inner
    return generator
