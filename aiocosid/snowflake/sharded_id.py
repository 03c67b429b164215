"""The generator of ids that contain their shard: its parts, its hot path, opening and closing."""

from __future__ import annotations

from .._life import fork
from .._life.callers import expand_ranges
from ..abc import MachineIdDistributor, SequenceDistributor
from ..abc.checks import check_integer
from ..abc.options import takes
from ..errors import InvalidArgumentError
from ..machine import lease_of
from ._granting import Granting
from ._sharded_layout import ShardedLayout
from ._sharded_sequences import grant_size, lane_width
from ._stamped import StampGenerator
from ._statistics import ShardedStatistics
from .options import ShardedOptions

__all__ = ("ShardedId",)

LANE_BITS = 6  # 64 lanes


class ShardedId(StampGenerator):
    """Ids made of the second, the caller's sharding id and a sequence that a store grants.

    All processes under one name share the sequences of a second, for all sharding ids.  Each of
    them requests some, and hands them out during the second.  Seconds only go forward.

    Attributes:
        layout: the layout of the ids.
        sharding_id: the default sharding id.
    """

    _opening: Granting

    __slots__ = (
        "_distributor",
        "_lease",
        "_most",
        "_offset",
        "_options",
        "layout",
        "sharding_id",
    )

    @takes(ShardedOptions)
    def __init__(self, distributor: SequenceDistributor, options: ShardedOptions, /) -> None:
        """Describe a generator; nothing is sent yet.

        Args:
            distributor: grants the sequences.
            options: the keyword arguments: see `ShardedOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        if not isinstance(distributor, SequenceDistributor):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            rule = "must be a SequenceDistributor"  # type: ignore[unreachable]
            raise InvalidArgumentError("distributor", distributor, rule)
        layout, lane = options.layout or ShardedLayout(), options.lane
        highest = layout.max_sharding_id
        check_integer("sharding_id", options.sharding_id, at_least=0, at_most=highest)
        if distributor.max_sequence > layout.max_sequence:
            rule = f"must be at most {layout.max_sequence}, the highest sequence of the layout"
            raise InvalidArgumentError("max_sequence", distributor.max_sequence, rule)
        if (lane is not None) is not (options.on_unavailable == "lane"):
            rule = "is required by on_unavailable='lane'; give both or neither"
            if lane is not None:
                rule = "requires on_unavailable='lane'; give both or neither"
            raise InvalidArgumentError("lane", lane, rule)
        if isinstance(lane, MachineIdDistributor):
            lane = lease_of(
                lane, bits=LANE_BITS, instrument=options.instrument, clock=options.clock
            )
        self.sharding_id: int = options.sharding_id
        self._offset = options.sharding_id << layout.bits.sequence_bits
        self.layout: ShardedLayout = layout
        self._distributor = distributor
        self._options = options
        self._most = grant_size(options, distributor.max_sequence)  # sequences per request
        self._lease = lane
        if lane is not None:
            lane_width(layout, distributor, lane)  # raises
        super().__init__(options.clock)
        self._reset()

    # The hot path.

    async def next_id(self, sharding_id: int | None = None) -> int:
        """Return the next id; see `aiocosid.abc.IdGenerator.next_id`.

        Ids of one sharding id rise; ids of several rise from second to second.

        Args:
            sharding_id: 0 to the layout's highest; None for the generator's own.

        Raises:
            InvalidArgumentError: there is no such sharding id, or the epoch is in the future.
            SequenceExhaustedError: all sequences were used up throughout ``wait_timeout``.
            SequenceUnavailableError: the store cannot be reached, or lost its counters.
            ClockSkewError: the clocks of this host and of the store disagree.
            ClockTooManyBackwardsError: the clock is behind by more than the broken threshold.
            LayoutExpiredError: the layout has ended.
            ClosedError: the generator was closed, also while this call waited.
        """
        offset = self._offset if sharding_id is None else self._offset_of(sharding_id)
        opening = self._opening
        seconds = opening.hand
        if seconds.begin_ns <= opening.read_ns() < seconds.until_ns:
            for new_id in seconds.piece:
                return new_id + offset
        return await self._next_id_slow() + offset

    def next_id_nowait(self, sharding_id: int | None = None) -> int:
        """Return the next id if one is buffered; otherwise raise `WouldBlock`."""
        offset = self._offset if sharding_id is None else self._offset_of(sharding_id)
        opening = self._opening
        seconds = opening.hand
        if seconds.begin_ns <= opening.read_ns() < seconds.until_ns:
            for new_id in seconds.piece:
                return new_id + offset
        return self._next_id_nowait_slow() + offset

    async def next_ids(self, n: int, sharding_id: int | None = None) -> list[int]:
        """Return exactly ``n`` ids, 1 to 10 million; see `aiocosid.abc.IdGenerator.next_ids`.

        If a second has too few left, the ids come from several seconds.

        Args:
            n: the number of ids.
            sharding_id: as for `next_id`; the same for all of them.
        """
        process = fork.generation
        offset = self._offset if sharding_id is None else self._offset_of(sharding_id)
        pieces = await self._next_ranges(n)
        shifted = [range(each.start + offset, each.stop + offset) for each in pieces]
        ids = await expand_ranges(shifted)
        fork.ensure_own(process, self._home.label)
        return ids

    async def next_str(self, sharding_id: int | None = None, prefix: str = "") -> str:
        """Return the next id as a text; see `ShardedLayout.compose_text`.

        Args:
            sharding_id: as for `next_id`.
            prefix: a text before the digits.
        """
        parts = self.layout.parse(await self.next_id(sharding_id))
        return self.layout.compose_text(*parts, prefix=prefix)

    # The boundary.

    def _offset_of(self, sharding_id: int) -> int:
        check_integer("sharding_id", sharding_id, at_least=0, at_most=self.layout.max_sharding_id)
        return sharding_id << self.layout.bits.sequence_bits

    # Opening and closing.

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._options.close_timeout

    @property
    def name(self) -> str:
        """The name under which sequences are granted."""
        return self._distributor.name

    def _label(self) -> str:
        return f"{type(self).__name__} {self._distributor.namespaced_name}"

    def _reset(self) -> None:
        self._opening = Granting(
            self._home,
            self._opening,
            distributor=self._distributor,
            layout=self.layout,
            options=self._options,
            most=self._most,
            lane=self._lease,
        )

    async def _release(self) -> None:
        await self._distributor.aclose()

    # Statistics.

    def statistics(self) -> ShardedStatistics:
        """Return the generator's statistics; cheap, and never waits."""
        opening = self._opening
        seconds, pooled = opening.hand, opening.callers.pooled
        return ShardedStatistics(
            kind=type(self).__name__,
            namespace=self._distributor.namespace,
            name=self.name,
            layout=repr(self.layout),
            sharding_id=self.sharding_id,
            max_sequence=self._distributor.max_sequence,
            second=seconds.last,
            remaining=seconds.remaining,
            prefetched=seconds.ahead,
            rate=opening.batch.rate,
            batch=opening.size,
            ids_handed_out=opening.handed_out - pooled - opening.undelivered,
            ids_discarded=seconds.dropped + opening.discarded,
            ids_not_granted=seconds.fell_back,
            grants=opening.grants,
            ids_granted=opening.granted,
            failures=opening.failures,
            spent=opening.spent,
            fenced=opening.fenced,
            skewed=opening.skewed,
            waits=opening.callers.line.waits,
            waiting=len(opening.callers.line),
            on_unavailable=self._options.on_unavailable,
            is_away=opening.availability.is_away,
            last_error=opening.availability.last_error,
            last_instant=self.layout.bits.last_instant_text,
        )

    def __repr__(self) -> str:
        """Show the generator's state and how many callers wait."""
        shard, waiting = self.sharding_id, len(self._opening.callers.line)
        return f"<{self._label()} {self._condition} sharding_id={shard} waiting={waiting}>"
