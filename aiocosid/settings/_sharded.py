"""Ids that carry their shard, as settings describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgumentError
from ..snowflake import ShardedLayout
from ._layouts import check_layout

if TYPE_CHECKING:
    from ..abc import SequenceDistributor
    from ._generators import ShardedSettings
    from ._planned import Planned

__all__ = ("sequences_of", "sharded_layout_of")


def sharded_layout_of(section: ShardedSettings, now_ms: int) -> ShardedLayout:
    """Return the layout, if ids can be made now.

    Raises:
        InvalidArgumentError: the keys do not go together, or the epoch is yet to come.
        LayoutExpiredError: the layout has ended.
    """
    layout = ShardedLayout(
        section.epoch,
        timestamp_bits=section.timestamp_bits,
        sharding_bits=section.sharding_bits,
        sequence_bits=section.sequence_bits,
        zone=section.zone,
    )
    check_layout(layout.bits, now_ms)
    return layout


def sequences_of(store: Any, planned: Planned) -> SequenceDistributor:  # noqa: ANN401 - of any kind
    """Return what grants the sequences.

    Raises:
        InvalidArgumentError: an argument is outside its range, or the store grants none.
    """
    section, layout = planned.section, planned.sharded
    make = getattr(store, "sequence_distributor", None)
    if make is None or layout is None:
        expected = "Redis: no other store grants sequences of a second"
        raise InvalidArgumentError("store", planned.store, expected=expected)
    made: SequenceDistributor = make(
        namespace=planned.namespace,
        name=planned.counter,
        key=section.key,
        max_sequence=section.max_sequence or layout.max_sequence,
        tolerance=section.tolerance,
        margin=section.margin,
        ttl=section.ttl,
    )
    return made
