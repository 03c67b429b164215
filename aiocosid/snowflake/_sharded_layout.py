"""The bits and the text of ids that contain their shard: second, sharding id, sequence.  Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Final, NamedTuple

from ..abc.checks import check_integer, is_integer
from ..abc.dates import UNIX_EPOCH, moment_of, resolve_zone
from ..errors import InvalidArgumentError, InvalidIdError
from ._layout import COSID_EPOCH_MS, PLAINLY_SECONDS, SnowflakeLayout

__all__ = ("ShardedLayout", "ShardedParts")

MS: Final = 1000
DATE_DIGITS: Final = 14
SEQUENCE_DIGITS: Final = 6  # at least: 524,287
SHARDING_DIGITS: Final = 4  # at least: 4,095
MAX_SHARDING_BITS: Final = 31
DIGITS: Final = re.compile(r"[0-9]+")


class ShardedParts(NamedTuple):
    """The fields of an id.

    Attributes:
        second: unix time in seconds.
        sharding_id: the shard of its row.
        sequence: its number within the second, shared by all shards.
    """

    second: int
    sharding_id: int
    sequence: int

    @property
    def timestamp(self) -> datetime:
        """The second, as a datetime in UTC."""
        return moment_of(self.second * MS)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class ShardedLayout:
    """The layout of an id: 32 bits of seconds, 12 of the sharding id, 19 of the sequence.

    A text has the local time in 14 digits, the sequence in 6 and the sharding id in 4, or more
    digits where the bits need them.  Sequences begin at 1 and are shared by all shards, so second
    and sequence alone distinguish two ids.

    Attributes:
        bits: the fields' bits; the machine id is the sharding id.
        zone: the zone of the texts' local time.
        max_sharding_id: the highest sharding id.
        max_sequence: the highest sequence.
        digits: characters of a text without its prefix.
    """

    bits: SnowflakeLayout
    zone: timezone
    max_sharding_id: int = field(compare=False)
    max_sequence: int = field(compare=False)
    digits: int = field(compare=False)
    _sequence_digits: int = field(compare=False)
    _sharding_digits: int = field(compare=False)

    def __init__(
        self,
        epoch: datetime | int = COSID_EPOCH_MS,
        *,
        timestamp_bits: int = 32,
        sharding_bits: int = 12,
        sequence_bits: int = 19,
        zone: timezone | str = UTC,
    ) -> None:
        """Describe a layout of at most 63 bits.

        Args:
            epoch: second 0: an aware datetime, or an integer since 1970, in seconds, or from 10^11
                in milliseconds; by default CosId's, 2019-12-24T16:00Z.  Nodes of the published
                script have an epoch of their own.
            timestamp_bits: at least 1; 32 last 136 years.
            sharding_bits: 1 to 31.
            sequence_bits: at least 1.
            zone: the zone of the texts: a `datetime.timezone`, "UTC", or an offset such as
                "+08:00".  Zones with summer time are refused: two seconds would have the same text.

        Raises:
            InvalidArgumentError: there are too many bits, the epoch is not a whole second, or the
                zone is not a fixed offset of whole minutes.
        """
        if type(epoch) is int and 0 <= epoch < PLAINLY_SECONDS:
            epoch *= MS
        check_integer("sharding_bits", sharding_bits, at_least=1, at_most=MAX_SHARDING_BITS)
        widths = timestamp_bits, sharding_bits, sequence_bits
        bits = SnowflakeLayout(*widths, "s", epoch, name="sharded")
        highest = bits.machine_count - 1, bits.max_sequence
        sharding_digits = max(SHARDING_DIGITS, len(str(highest[0])))
        sequence_digits = max(SEQUENCE_DIGITS, len(str(highest[1])))
        for name, value in (
            ("bits", bits),
            ("zone", _fixed(zone)),
            ("max_sharding_id", highest[0]),
            ("max_sequence", highest[1]),
            ("digits", DATE_DIGITS + sequence_digits + sharding_digits),
            ("_sequence_digits", sequence_digits),
            ("_sharding_digits", sharding_digits),
        ):
            object.__setattr__(self, name, value)

    @property
    def epoch_second(self) -> int:
        """The first second, since 1970-01-01T00:00Z."""
        return self.bits.epoch_ms // MS

    @property
    def last_second(self) -> int:
        """The last second, since 1970-01-01T00:00Z."""
        return self.epoch_second + self.bits.last_tick

    def compose(self, second: int, sharding_id: int, sequence: int) -> int:
        """Return the id of these fields.

        Args:
            second: since 1970-01-01T00:00Z, `epoch_second` to `last_second`.
            sharding_id: 0 to `max_sharding_id`.
            sequence: 1 to `max_sequence`.

        Raises:
            InvalidArgumentError: a field is outside its range.
        """
        self._check(second, sharding_id, sequence)
        return self.bits.compose(second - self.epoch_second, sharding_id, sequence)

    def parse(self, sharded_id: int) -> ShardedParts:
        """Return the fields of an id of this layout: ``compose(*parse(id))`` is the id.

        Raises:
            InvalidIdError: it is not an integer, is negative or too high, or its sequence is 0.
        """
        bits = self.bits
        if not is_integer(sharded_id) or not 0 <= sharded_id <= bits.max_id:
            raise InvalidIdError("id", sharded_id, f"must be an integer from 1 to {bits.max_id}")
        sequence = sharded_id & self.max_sequence
        if not sequence:
            raise InvalidIdError("id", sharded_id, "must have a sequence above 0")
        rest = sharded_id >> bits.sequence_bits
        second = self.epoch_second + (rest >> bits.machine_bits)
        return ShardedParts(second, rest & self.max_sharding_id, sequence)

    def compose_text(self, second: int, sharding_id: int, sequence: int, prefix: str = "") -> str:
        """Return the text of these fields; the arguments are those of `compose`.

        Raises:
            InvalidArgumentError: a field is outside its range, or its time is past the year 9999.
        """
        self._check(second, sharding_id, sequence)
        try:
            moment = moment_of(second * MS, self.zone)
        except OverflowError:
            rule = "must be before the year 10000, which has no text of 14 digits"
            raise InvalidArgumentError("second", second, rule) from None
        return (
            f"{prefix}{moment:%Y%m%d%H%M%S}{sequence:0{self._sequence_digits}}"
            f"{sharding_id:0{self._sharding_digits}}"
        )

    def parse_text(self, text: str, prefix: str = "") -> ShardedParts:
        """Return the fields of a text, as `parse` does.

        Raises:
            InvalidIdError: it has a different prefix or length, or a field outside its range.
        """
        digits = text[len(prefix) :] if isinstance(text, str) else ""  # type: ignore[redundant-expr]  # a user's mistake
        if not (digits and text.startswith(prefix) and DIGITS.fullmatch(digits)):
            digits = ""
        if len(digits) != self.digits:
            begin = f"{prefix!r} and " if prefix else ""
            raise InvalidIdError("text", text, f"must be {begin}{self.digits} digits")
        middle = DATE_DIGITS + self._sequence_digits
        sequence, sharding_id = int(digits[DATE_DIGITS:middle]), int(digits[middle:])
        try:
            second = _second_of(digits[:DATE_DIGITS], self.zone)
            self._check(second, sharding_id, sequence)
        except ValueError as error:  # no such date, or an error of ours
            raise InvalidIdError("text", text, f"is the text of no id: {error}") from None
        return ShardedParts(second, sharding_id, sequence)

    def check_usable(self, now_ms: int) -> None:
        """Check that the layout can make ids now; see `SnowflakeLayout.check_usable`.

        Raises:
            LayoutExpiredError: its last second is over.
            InvalidArgumentError: its epoch is in the future.

        Warns:
            LayoutExpiryWarning: its last second ends within 365 days.
        """
        self.bits.check_usable(now_ms)

    def _check(self, second: int, sharding_id: int, sequence: int) -> None:
        check_integer("second", second, at_least=self.epoch_second, at_most=self.last_second)
        check_integer("sharding_id", sharding_id, at_least=0, at_most=self.max_sharding_id)
        check_integer("sequence", sequence, at_least=1, at_most=self.max_sequence)

    def __repr__(self) -> str:
        """Show the widths from the highest bit down, the epoch and the zone."""
        bits = self.bits
        widths = f"{bits.timestamp_bits}/{bits.machine_bits}/{bits.sequence_bits}"
        return f"<ShardedLayout {widths} from {bits.epoch:%Y-%m-%dT%H:%M:%SZ} {self.zone}>"


def _fixed(zone: object) -> timezone:
    """Return a zone if its offset is constant and in whole minutes."""
    found = resolve_zone(zone)
    if isinstance(found, timezone) and not found.utcoffset(None) % timedelta(minutes=1):
        return found
    rule = "must be a fixed offset of whole minutes, such as '+08:00' or datetime.timezone.utc"
    raise InvalidArgumentError("zone", zone, rule)


def _second_of(digits: str, zone: timezone) -> int:
    fields = (digits[:4], *(digits[at : at + 2] for at in range(4, DATE_DIGITS, 2)))
    year, month, day, hour, minute, second = map(int, fields)
    local = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    return (local - UNIX_EPOCH) // timedelta(seconds=1)
