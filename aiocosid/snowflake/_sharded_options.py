"""The options of a generator of sharded ids, checked."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ..abc.checks import check_integer, check_seconds
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from ..abc import SequenceDistributor
    from ..abc.events import Instrument
    from ..machine import MachineIdLease
    from ._sharded_layout import ShardedLayout

__all__ = ("OnUnavailable", "ShardedOptions", "lane_width")

logger = logging.getLogger("aiocosid")

OnUnavailable: TypeAlias = Literal["raise", "wait", "lane", "random_unsafe"]
"""What to do while the store cannot be reached and no id of the second is in hand."""

POLICIES: Final[tuple[OnUnavailable, ...]] = ("raise", "wait", "lane", "random_unsafe")
FETCH_SHARE: Final = 2 / 5  # of wait_timeout
MAX_NODES: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedOptions:
    """The options of `ShardedId`; see there."""

    on_unavailable: OnUnavailable
    batch: int | None
    nodes: int
    broken_threshold: float | None
    wait_timeout: float
    close_timeout: float
    instrument: Instrument | None

    def __post_init__(self) -> None:
        """Check what does not depend on other options."""
        if self.on_unavailable not in POLICIES:
            raise InvalidArgumentError(
                "on_unavailable", self.on_unavailable, expected=f"one of {POLICIES}"
            )
        if self.broken_threshold is not None:
            check_seconds("broken_threshold", self.broken_threshold, or_zero=True)
        for name in ("wait_timeout", "close_timeout"):
            check_seconds(name, getattr(self, name))
        check_integer("nodes", self.nodes, at_least=1, at_most=MAX_NODES)

    @property
    def fetch_timeout(self) -> float:
        """The timeout of a call to the store, in seconds."""
        return self.wait_timeout * FETCH_SHARE

    def most(self, max_sequence: int) -> int:
        """Return the maximum number of sequences per request; warn of a size that is too large.

        Args:
            max_sequence: the highest sequence that is granted.

        Raises:
            InvalidArgumentError: the fixed size is above that.
        """
        if self.batch is None:
            return max(1, max_sequence // self.nodes)
        check_integer("batch", self.batch, at_least=1, at_most=max_sequence)
        if self.batch * self.nodes > max_sequence:
            logger.warning(
                "batch=%d on %d nodes uses up a second's %d sequences with one grant each; "
                "use at most %d",
                *(self.batch, self.nodes, max_sequence, max(1, max_sequence // self.nodes)),
            )
        return self.batch


def lane_width(
    layout: ShardedLayout, distributor: SequenceDistributor, lease: MachineIdLease
) -> int:
    """Return how many sequences each lane has, above those that the store grants.

    Raises:
        InvalidArgumentError: there is no room for so many lanes.
    """
    room, lanes = layout.max_sequence - distributor.max_sequence, 1 << lease.bits
    if room < lanes:
        raise InvalidArgumentError(
            "max_sequence",
            distributor.max_sequence,
            expected=f"at most {layout.max_sequence - lanes} on all nodes, so that each of the "
            f"{lanes} lanes has a sequence above it",
        )
    return room // lanes
