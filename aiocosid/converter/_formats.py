"""Ids in other systems' formats: ULID, UUID, TypeID and Sqids.  No I/O.

ULID, UUID and TypeID have 128 bits: 48 bits of time in milliseconds, and random bits.  Here an id
of 63 bits replaces the random bits.  The time is the id's own, according to the layout of a
Snowflake, or 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

from ..abc import MAX_ID, IdConverter
from ..abc.checks import check_integer
from ..errors import InvalidArgumentError, InvalidIdError, MissingExtraError
from ._checks import check_id, text_of
from ._typed import check_prefix

if TYPE_CHECKING:
    from ..snowflake import SnowflakeLayout

__all__ = ("SqidsConverter", "TypeIdConverter", "UlidConverter", "UuidConverter")

TIME_SHIFT: Final = 80  # bits below the time, in all three formats
LAST_MS: Final = 2**48 - 1
VARIANT: Final = 0b10 << 62  # RFC 9562, section 4.1
VERSIONS: Final = {7: 7 << 76, 8: 8 << 76}
LOW_BITS: Final = 62  # bits of a UUID after the variant
MOST_READ: Final = 255  # maximum characters of a text


@dataclass(frozen=True, slots=True)
class _Timed(IdConverter):
    """A format with a time; a subclass combines time and id.

    Attributes:
        layout: the layout of Snowflakes, to show their time; None for ids without a time.
    """

    layout: SnowflakeLayout | None = None

    def __post_init__(self) -> None:
        """Check the layout."""
        if self.layout is not None and not hasattr(self.layout, "ms_of"):
            rule = "must be a SnowflakeLayout, such as COSID_MS, or None for ids without a time"
            raise InvalidArgumentError("layout", self.layout, rule)

    def as_tree(self) -> dict[str, object]:
        """Return kind and layout."""
        layout = None if self.layout is None else repr(self.layout)
        return {"kind": type(self).__name__, "layout": layout}

    def _time_of(self, new_id: int) -> int:
        """Return the time of an id, in milliseconds since 1970; 0 without a layout.

        Raises:
            InvalidIdError: the number is not an id of the layout, or its time does not fit 48 bits.
        """
        layout = self.layout
        if layout is None:
            check_id(new_id)
            return 0
        check_id(new_id, at_most=layout.max_id, remedy="higher ids do not belong to this layout")
        time_ms = layout.ms_of(new_id >> (layout.machine_bits + layout.sequence_bits))
        if time_ms > LAST_MS:
            raise InvalidIdError("id", new_id, "must have a time before the year 10890")
        return time_ms

    def _refusal(self, text: object, kind: str) -> InvalidIdError:
        timed = "with the time of the id in it" if self.layout is not None else "without a time"
        rule = f"must be {kind} that this converter has written, {timed} and without random bits"
        return InvalidIdError("id", text, rule)


@dataclass(frozen=True, slots=True)
class UlidConverter(_Timed):
    """Writes ids as ULIDs: ``01KF3CHCA00000P8W9E1800401``.  Requires the ``formats`` extra.

    A ULID shows the time of a Snowflake if its layout is given, otherwise 1970.  Texts sort like
    ids, and lower-case letters can be read too.  A ULID from elsewhere is refused, because it holds
    80 random bits and no id.

    Attributes:
        layout: the layout of Snowflakes, to show their time; None for ids without a time.
    """

    is_timeless: ClassVar[bool] = True

    _ulid: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the layout and the library."""
        _Timed.__post_init__(self)
        object.__setattr__(self, "_ulid", _library("ulid", "python-ulid").ULID)

    def __reduce__(self) -> tuple[object, ...]:
        return _reduced(self)

    def as_str(self, new_id: int, /) -> str:
        """Return the ULID of an id from 0 to 2^63-1, or of the layout."""
        number = self._time_of(new_id) << TIME_SHIFT | new_id
        return str(self._ulid(number.to_bytes(16, "big")))

    def as_int(self, text: str, /) -> int:
        """Return the id of a ULID that `as_str` wrote."""
        read = text_of(text).upper()
        try:
            number = int.from_bytes(self._ulid.from_str(read).bytes, "big")
            new_id: int = number & ((1 << TIME_SHIFT) - 1)
            if self.as_str(new_id) == read:
                return new_id
        except (ValueError, IndexError):
            pass
        raise self._refusal(text, "a ULID")


@dataclass(frozen=True, slots=True)
class UuidConverter(_Timed):
    """Writes ids as UUIDs of RFC 9562: ``019bc6c8-b140-7000-8b23-897050001001``.

    With the layout of a Snowflake it is a UUID of version 7, which shows the id's time.  Without a
    layout it has version 8, which RFC 9562 reserves for custom formats, because version 7 would
    show 1970.  The UUIDs sort like ids.  A UUID from elsewhere is refused, because it holds random
    bits and no id.

    Attributes:
        layout: the layout of Snowflakes, to show their time; None for ids without a time.
    """

    is_timeless: ClassVar[bool] = True

    def as_uuid(self, new_id: int, /) -> UUID:
        """Return the UUID of an id from 0 to 2^63-1, or of the layout."""
        time_ms = self._time_of(new_id)
        version = VERSIONS[8 if self.layout is None else 7]
        high, low = new_id >> LOW_BITS, new_id & ((1 << LOW_BITS) - 1)
        return UUID(int=time_ms << TIME_SHIFT | version | high << 64 | VARIANT | low)

    def from_uuid(self, uuid: UUID, /) -> int:
        """Return the id of a UUID that `as_uuid` created.

        Raises:
            InvalidIdError: the UUID was created elsewhere.
        """
        if isinstance(uuid, UUID):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            try:
                if self.as_uuid(new_id := _id_in(uuid.int)) == uuid:
                    return new_id
            except InvalidIdError:
                pass
        raise self._refusal(uuid, "a UUID")

    def as_str(self, new_id: int, /) -> str:
        """Return the UUID of an id as 36 characters."""
        return str(self.as_uuid(new_id))

    def as_int(self, text: str, /) -> int:
        """Return the id of a UUID with its hyphens, in lower or upper case."""
        try:
            uuid = UUID(text_of(text))
            if str(uuid) == text.lower():
                return self.from_uuid(uuid)
        except ValueError:
            pass
        raise self._refusal(text, "a UUID")


@dataclass(frozen=True, slots=True)
class TypeIdConverter(IdConverter):
    """Writes ids as TypeIDs: ``order_01kf3chca0e008p8w9e1800401``.  Requires the ``formats`` extra.

    A TypeID is a prefix and a UUID, here from a `UuidConverter`, so the same rules apply.  Texts
    with one prefix sort like ids.

    Attributes:
        prefix: 1 to 63 letters from a to z, with underscores between them; or empty.
        layout: the layout of Snowflakes, to show their time; None for ids without a time.
    """

    is_timeless: ClassVar[bool] = True

    prefix: str = ""
    layout: SnowflakeLayout | None = None
    _uuids: UuidConverter = field(init=False, repr=False, compare=False)
    _typeid: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check settings and library."""
        if self.prefix != "":
            check_prefix(self.prefix)
        object.__setattr__(self, "_uuids", UuidConverter(self.layout))
        object.__setattr__(self, "_typeid", _library("typeid", "typeid-python").TypeID)

    def __reduce__(self) -> tuple[object, ...]:
        return _reduced(self)

    def as_str(self, new_id: int, /) -> str:
        """Return the TypeID of an id from 0 to 2^63-1, or of the layout."""
        return str(self._typeid.from_uuid(self._uuids.as_uuid(new_id), self.prefix or None))

    def as_int(self, text: str, /) -> int:
        """Return the id of a TypeID with the prefix that `as_str` wrote."""
        head = f"{self.prefix}_" if self.prefix else ""
        if not text_of(text).startswith(head):
            raise InvalidIdError("id", text, f"must be a string that starts with {head!r}")
        try:
            # Without a suffix it would create a new one.
            typeid = self._typeid(suffix=text[len(head) :])
            if self.as_str(new_id := _id_in(int(typeid.uuid.int))) == text:
                return new_id
        except Exception:  # noqa: BLE001, S110 - the library's errors have no common base
            pass
        raise self._uuids._refusal(text, "a TypeID")

    def as_tree(self) -> dict[str, object]:
        """Return kind, prefix and layout."""
        return self._uuids.as_tree() | {"kind": type(self).__name__, "prefix": self.prefix}


@dataclass(frozen=True, slots=True)
class SqidsConverter(IdConverter):
    """Writes ids as Sqids: ``k7Yesb27QQb``.  Requires the ``formats`` extra.

    The texts are the same as from any https://sqids.org library with the same settings.  They do
    not sort like ids, and they hide nothing, because anyone can find out the alphabet.
    `OpaqueIdConverter` hides ids.

    Attributes:
        alphabet: 3 or more different ASCII characters; empty for Sqids's own alphabet.
        min_length: the minimum characters of a text, 0 to 255.
        blocklist: words of 3 or more characters that no text may contain; None for Sqids's own
            list.
    """

    is_timeless: ClassVar[bool] = True

    alphabet: str = ""
    min_length: int = 0
    blocklist: tuple[str, ...] | None = None
    _sqids: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check settings and library."""
        check_integer("min_length", self.min_length, at_least=0, at_most=MOST_READ)
        options: dict[str, Any] = {"min_length": self.min_length}
        if self.alphabet != "":
            options["alphabet"] = self.alphabet
        if self.blocklist is not None:
            options["blocklist"] = list(self.blocklist)
        try:
            sqids = _library("sqids", "sqids").Sqids(**options)
        except (ValueError, TypeError, AttributeError) as error:
            rule = f"must be three or more different ASCII characters, and words: {error}"
            given = (self.alphabet, self.blocklist)
            raise InvalidArgumentError("alphabet, blocklist", given, rule) from error
        object.__setattr__(self, "_sqids", sqids)

    def __reduce__(self) -> tuple[object, ...]:
        return _reduced(self)

    def as_str(self, new_id: int, /) -> str:
        """Return the Sqid of an id from 0 to 2^63-1."""
        check_id(new_id)
        try:
            text: str = self._sqids.encode([new_id])
        except ValueError as error:  # all attempts are on the blocklist
            raise InvalidIdError("id", new_id, f"has no text: {error}") from error
        return text

    def as_int(self, text: str, /) -> int:
        """Return the id of a Sqid that `as_str` wrote."""
        if len(text_of(text)) <= MOST_READ:
            numbers: list[int] = self._sqids.decode(text)
            if len(numbers) == 1 and numbers[0] <= MAX_ID and self.as_str(numbers[0]) == text:
                return numbers[0]
        raise InvalidIdError("id", text, "must be the Sqid of one id, by the same settings")

    def as_tree(self) -> dict[str, object]:
        """Return kind and settings."""
        return {
            "kind": type(self).__name__,
            "alphabet": self.alphabet,
            "minLength": self.min_length,
        }


def _id_in(uuid: int) -> int:
    """Return the bits in which a `UuidConverter` stores the id."""
    return (uuid >> 64 & 0xFFF) << LOW_BITS | uuid & ((1 << LOW_BITS) - 1)


def _reduced(converter: UlidConverter | TypeIdConverter | SqidsConverter) -> tuple[object, ...]:
    """Leave objects derived from the settings out of a pickle."""
    settings = (each.name for each in fields(converter) if each.init)
    return type(converter), tuple(getattr(converter, each) for each in settings)


def _library(module: str, package: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(package, extra="formats") from error
