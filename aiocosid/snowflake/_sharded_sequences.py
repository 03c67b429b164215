"""How many sequences of a store a generator of sharded ids may use."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..abc.checks import check_integer
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from ..abc import SequenceDistributor
    from ..machine import MachineIdLease
    from ._sharded_layout import ShardedLayout
    from .options import ShardedOptions

__all__ = ("grant_size", "lane_width")

logger = logging.getLogger("aiocosid")


def grant_size(options: ShardedOptions, max_sequence: int) -> int:
    """Return the maximum number of sequences per request; warn about a size that is too large.

    Args:
        options: the generator's options.
        max_sequence: the highest sequence that is granted.

    Raises:
        InvalidArgumentError: the fixed size is above ``max_sequence``.
    """
    if options.batch is None:
        return max(1, max_sequence // options.nodes)
    check_integer("batch", options.batch, at_least=1, at_most=max_sequence)
    if options.batch * options.nodes > max_sequence:
        logger.warning(
            "batch=%d on %d nodes uses up a second's %d sequences with one grant each; "
            "use at most %d",
            *(options.batch, options.nodes, max_sequence, max(1, max_sequence // options.nodes)),
        )
    return options.batch


def lane_width(
    layout: ShardedLayout, distributor: SequenceDistributor, lease: MachineIdLease
) -> int:
    """Return how many sequences each lane has, above those that the store grants.

    Raises:
        InvalidArgumentError: there are too few sequences for that many lanes.
    """
    room, lanes = layout.max_sequence - distributor.max_sequence, 1 << lease.bits
    if room < lanes:
        raise InvalidArgumentError(
            "max_sequence",
            distributor.max_sequence,
            f"must be at most {layout.max_sequence - lanes} on all nodes, so that each of the "
            f"{lanes} lanes has a sequence above it",
        )
    return room // lanes
