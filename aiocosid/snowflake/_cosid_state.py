"""The texts of CosIdGenerator: time, machine id and sequence, one after the other.  Pure.

Together they have 44 + 20 + 16 = 80 bits, too many for int64, so these ids exist as text only.
"""

from __future__ import annotations

import string
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..abc.dates import moment_of, resolve_zone
from ..errors import InvalidArgumentError, InvalidIdError
from ._friendly import read_friendly, write_friendly
from ._layout import SnowflakeLayout

if TYPE_CHECKING:
    from datetime import tzinfo

__all__ = (
    "COSID_MACHINE_BITS",
    "COSID_SEQUENCE_BITS",
    "COSID_TIMESTAMP_BITS",
    "RADIX36",
    "RADIX62",
    "CosIdFriendlyText",
    "CosIdRadixText",
    "CosIdState",
    "CosIdText",
)

COSID_TIMESTAMP_BITS: Final = 44
"""Milliseconds since 1970, until 2527-06-23; RadixCosIdGenerator.DEFAULT_TIMESTAMP_BIT."""
COSID_MACHINE_BITS: Final = 20
"""1,048,576 machines; RadixCosIdGenerator.DEFAULT_MACHINE_BIT."""
COSID_SEQUENCE_BITS: Final = 16
"""65,536 ids per millisecond; RadixCosIdGenerator.DEFAULT_SEQUENCE_BIT."""

ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
VALUE_OF: Final = {digit: value for value, digit in enumerate(ALPHABET)}


@dataclass(frozen=True, slots=True, order=True)
class CosIdState:
    """The fields of an id of CosIdGenerator; states sort by time, machine id and sequence.

    Attributes:
        timestamp_ms: unix time in milliseconds.
        machine_id: the machine that made it.
        sequence: its number within millisecond and machine.
    """

    timestamp_ms: int
    machine_id: int
    sequence: int


class CosIdText(ABC):
    """One way to write the states of CosIdGenerator.

    Attributes:
        layout: the widths of the three fields.  It packs them into one number of more than 64 bits,
            which never leaves the process.
    """

    __slots__ = ("layout",)

    def __init__(self, *, timestamp_bits: int, machine_bits: int, sequence_bits: int) -> None:
        """Set the widths.

        Raises:
            InvalidArgumentError: a width is out of range.
        """
        self.layout: SnowflakeLayout = SnowflakeLayout._unpacked(
            timestamp_bits, machine_bits, sequence_bits
        )

    @abstractmethod
    def as_text(self, state: CosIdState) -> str:
        """Return the text of a state.

        Raises:
            InvalidIdError: a field is not within its bits.
        """

    @abstractmethod
    def as_state(self, text: str) -> CosIdState:
        """Return the state of a text.

        Raises:
            InvalidIdError: it is not such a text, or a field is not within its bits.
        """

    def as_tree(self) -> dict[str, str | int | bool]:
        """Return ``kind`` and settings, ready for JSON."""
        return {"kind": type(self).__name__}

    def __repr__(self) -> str:
        """Name the form and its settings."""
        kind, *settings = self.as_tree().items()
        return f"<{' '.join((str(kind[1]), *(f'{name}={value}' for name, value in settings)))}>"

    def _checked(self, state: CosIdState, source: object = None) -> CosIdState:
        """Return the state if its fields are within their bits."""
        try:
            self.layout.compose(state.timestamp_ms, state.machine_id, state.sequence)
        except InvalidArgumentError as error:
            widths = self.layout
            rule = (
                f"must have {widths.timestamp_bits} bits of time, {widths.machine_bits} of machine "
                f"id and {widths.sequence_bits} of sequence: {error}"
            )
            raise InvalidIdError("id", source or state, rule) from None
        return state


class CosIdRadixText(CosIdText):
    """Fixed widths in radix 62 (15 characters) or 36 (17); texts sort like states.

    The digits are ``0-9A-Za-z`` and ``0-9A-Z``, in ASCII order; other letter cases are refused.

    Attributes:
        radix: 62 or 36.
        width: characters of a text.
    """

    __slots__ = ("_widths", "radix", "width")

    def __init__(
        self,
        radix: int = 62,
        *,
        timestamp_bits: int = COSID_TIMESTAMP_BITS,
        machine_bits: int = COSID_MACHINE_BITS,
        sequence_bits: int = COSID_SEQUENCE_BITS,
    ) -> None:
        """Set the radix and the widths.

        Raises:
            InvalidArgumentError: the radix is neither 62 nor 36, or a width is out of range.
        """
        super().__init__(
            timestamp_bits=timestamp_bits, machine_bits=machine_bits, sequence_bits=sequence_bits
        )
        if type(radix) is not int or radix not in {36, 62}:
            raise InvalidArgumentError("radix", radix, "must be 36 or 62")
        self.radix: int = radix
        bits = (timestamp_bits, machine_bits, sequence_bits)
        self._widths = tuple(_digits_of(each, radix) for each in bits)
        self.width: int = sum(self._widths)

    def as_text(self, state: CosIdState) -> str:
        """Return the text of a state; unlike CosId, it refuses a machine id that is too high."""
        self._checked(state)
        fields = (state.timestamp_ms, state.machine_id, state.sequence)
        return "".join(map(self._encode, fields, self._widths))

    def as_state(self, text: str) -> CosIdState:
        """Return the state of a text; unlike CosId, it refuses fields that are too high."""
        if not _has_width(text, self.width):
            raise InvalidIdError("id", text, f"must be a string of {self.width} characters")
        fields: list[int] = []
        at = 0
        for width in self._widths:
            fields.append(self._decode(text, at, at + width))
            at += width
        return self._checked(CosIdState(*fields), text)

    def as_tree(self) -> dict[str, str | int | bool]:
        """Return ``kind``, ``radix`` and ``charSize``."""
        return {**super().as_tree(), "radix": self.radix, "charSize": self.width}

    def _encode(self, number: int, width: int) -> str:
        digits: list[str] = []
        while number:
            number, digit = divmod(number, self.radix)
            digits.append(ALPHABET[digit])
        return "".join(reversed(digits)).rjust(width, "0")

    def _decode(self, text: str, start: int, stop: int) -> int:
        number = 0
        for digit in text[start:stop]:
            value = VALUE_OF.get(digit, self.radix)
            if value >= self.radix:
                rule = f"must have only the digits {ALPHABET[: self.radix]}, not {digit!r}"
                raise InvalidIdError("id", text, rule)
            number = number * self.radix + value
        return number


class CosIdFriendlyText(CosIdText):
    """``yyyyMMddHHmmssSSS-machine-sequence`` in local time; the rules are those of `FriendlyText`.

    Attributes:
        zone: the zone of the local time.
        pad: whether machine id and sequence have a fixed width; texts then have 31 characters.
    """

    __slots__ = ("pad", "zone")

    def __init__(
        self,
        *,
        zone: tzinfo | str,
        pad: bool = True,
        timestamp_bits: int = COSID_TIMESTAMP_BITS,
        machine_bits: int = COSID_MACHINE_BITS,
        sequence_bits: int = COSID_SEQUENCE_BITS,
    ) -> None:
        """Set the zone, the form and the widths.

        Args:
            zone: a tzinfo, or a name such as "Asia/Shanghai", "UTC" or "+08:00".
            pad: see the attribute; both forms are read.
            timestamp_bits: at least 1.
            machine_bits: 1 to 31.
            sequence_bits: at least 1.

        Raises:
            InvalidArgumentError: the zone is unknown, or a width is out of range.
        """
        super().__init__(
            timestamp_bits=timestamp_bits, machine_bits=machine_bits, sequence_bits=sequence_bits
        )
        self.zone: tzinfo = resolve_zone(zone)
        self.pad: bool = pad

    def as_text(self, state: CosIdState) -> str:
        """Return the text of a state; refused if its local time occurs twice."""
        self._checked(state)
        try:
            local = moment_of(state.timestamp_ms, self.zone)
        except OverflowError:
            rule = f"must have a time before the year 10000 in {self.zone}"
            raise InvalidIdError("id", state, rule) from None
        fields = (state.machine_id, state.sequence)
        return write_friendly(local, *fields, self.layout, pad=self.pad, of=state)

    def as_state(self, text: str, *, fold: int | None = None) -> CosIdState:
        """Return the state of a text, padded or not; it refuses fields that are too high.

        Args:
            text: as `as_text` writes it.
            fold: which one of a local time that occurs twice: 0 for the earlier one, which CosId
                takes, or 1 for the later one; None refuses such a time.
        """
        return self._checked(CosIdState(*read_friendly(text, self.layout, self.zone, fold)), text)

    def as_tree(self) -> dict[str, str | int | bool]:
        """Return ``kind``, ``zone`` and ``padStart``."""
        return {**super().as_tree(), "zone": str(self.zone), "padStart": self.pad}


def _digits_of(bits: int, radix: int) -> int:
    """Return the number of digits of the highest number with that many bits."""
    highest, digits = (1 << bits) - 1, 1
    while highest >= radix:
        highest //= radix
        digits += 1
    return digits


def _has_width(text: object, width: int) -> bool:
    return isinstance(text, str) and len(text) == width


RADIX62: Final = CosIdRadixText(62)
"""CosId's Radix62CosIdGenerator: 15 characters."""
RADIX36: Final = CosIdRadixText(36)
"""CosId's Radix36CosIdGenerator: 17 characters, no lower case."""
