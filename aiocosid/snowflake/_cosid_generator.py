"""CosId's own generator: Snowflake ids with fields that do not fit int64, as text."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from .._life.clock import SYSTEM_CLOCK
from ..abc import TextIdGenerator
from ..abc.dates import moment_of
from ..abc.options import common, takes
from ..errors import InvalidArgumentError
from ..generators.wrapped import DelegatingGenerator
from ._cosid_state import RADIX62, CosIdFriendlyText, CosIdState
from ._snowflake_id import SnowflakeId
from .options import CosIdGeneratorOptions, SnowflakeIdOptions

if TYPE_CHECKING:
    from datetime import tzinfo

    from ..abc import MachineIdDistributor
    from ..machine import MachineIdLease
    from ._cosid_state import CosIdText
    from ._statistics import SnowflakeStatistics

__all__ = ("CosIdGenerator",)

ZONE_YEARS: Final = (
    100  # a rule for summer time applies every year; the last dates set in advance are of 2087
)
ZONE_STEP_DAYS: Final = 20  # shorter than every period of summer time, Morocco's break included


class CosIdGenerator(DelegatingGenerator[SnowflakeId, str], TextIdGenerator):
    """Text ids like CosIdGenerator's: 44 bits of time, 20 of machine id and 16 of sequence.

    It fulfils the contract of every generator, for text.  Texts of radix 62 and 36 sort by time.

    Attributes:
        text: writes the ids, and reads them with ``text.as_state(id)``.
    """

    __slots__ = ("text",)

    _stretch = 200

    @takes(CosIdGeneratorOptions)
    def __init__(
        self, machine: MachineIdDistributor | MachineIdLease, options: CosIdGeneratorOptions, /
    ) -> None:
        """Describe a generator; the arguments are `SnowflakeId`'s, with ``text`` for ``layout``.

        Args:
            machine: the source of the machine id, of 20 bits by default.
            options: the keyword arguments: see `CosIdGeneratorOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the zone has summer time.
        """
        text = RADIX62 if options.text is None else options.text
        if isinstance(text, CosIdFriendlyText):
            _check_zone(text, (options.clock or SYSTEM_CLOCK).now_ms())
        self.text: CosIdFriendlyText | CosIdText = text
        both = common(options, SnowflakeIdOptions)
        super().__init__(SnowflakeId(machine, layout=text.layout, **both))

    async def next_state(self) -> CosIdState:
        """Return the next id as its three fields."""
        return self._state(await self._inner.next_id())

    def statistics(self) -> SnowflakeStatistics:
        """Return a frozen snapshot of the generator; cheap, and never waits."""
        kind, converter = type(self).__name__, self.text.as_tree()
        return replace(self._inner.statistics(), kind=kind, converter=converter)

    def __repr__(self) -> str:
        """Show the text and the generator."""
        return f"<{type(self).__name__} {self.text!r} on {self._inner!r}>"

    def _state(self, packed: int) -> CosIdState:
        layout = self.text.layout
        sequence = packed & layout.max_sequence
        machine_id = packed >> layout.sequence_bits & layout.machine_count - 1
        timestamp = packed >> layout.sequence_bits + layout.machine_bits
        return CosIdState(timestamp, machine_id, sequence)

    def _one(self, packed: int) -> str:
        return self.text.as_text(self._state(packed))


def _check_zone(text: CosIdFriendlyText, now_ms: int) -> None:
    """Raise if a future local time occurs twice, since its ids could not be written."""
    if len(_offsets(text.zone, now_ms)) > 1:
        rule = (
            "must be a zone with a constant offset, such as 'UTC' or '+01:00': when clocks go "
            "back, local times occur twice, and no id of those times could be written"
        )
        raise InvalidArgumentError("text.zone", text.zone, rule)


def _offsets(zone: tzinfo, now_ms: int) -> set[timedelta | None]:
    """Return the offsets of a zone from now on, as far as its rules are known."""
    offsets: set[timedelta | None] = set()
    try:
        now = moment_of(now_ms)
        for days in range(0, ZONE_YEARS * 366, ZONE_STEP_DAYS):
            offsets.add((now + timedelta(days)).astimezone(zone).utcoffset())
            if len(offsets) > 1:
                break
    except OverflowError:
        pass  # the dates reach beyond the year 9999
    return offsets
