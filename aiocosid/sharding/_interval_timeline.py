"""Sharding by time, like CosId's ``IntervalTimeline``.  No I/O.

Months are counted as ``year * 12 + month``; shorter units have a fixed length.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from ..abc.checks import check_integer
from ..abc.dates import DatePattern
from ..errors import InvalidArgumentError
from ..errors.base import one_of
from ._keys import StandardTimeKey, TimeKey
from ._range import Ordered, ShardRange
from ._sharding import MAX_NODES, Sharding, check_kind, check_prefix, check_range

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("IntervalTimeline", "Months", "ShardUnit", "Spans", "check_unit", "steps")

ShardUnit: TypeAlias = Literal["years", "months", "days", "hours", "minutes", "seconds"]
"""The units of an interval."""

LENGTHS: Final = {
    "days": timedelta(days=1),
    "hours": timedelta(hours=1),
    "minutes": timedelta(minutes=1),
    "seconds": timedelta(seconds=1),
}

MIDNIGHT: Final = {"hour": 0, "minute": 0, "second": 0, "microsecond": 0}

FLOORS: Final[dict[ShardUnit, dict[str, int]]] = {
    "years": {"month": 1, "day": 1, **MIDNIGHT},
    "months": {"day": 1, **MIDNIGHT},
    "days": MIDNIGHT,
    "hours": {"minute": 0, "second": 0, "microsecond": 0},
    "minutes": {"second": 0, "microsecond": 0},
    "seconds": {"microsecond": 0},
}
"""The fields that have their lowest value at the beginning of a unit."""


@dataclass(frozen=True, slots=True)
class Months:
    """Pieces of whole months: the first month as ``year * 12 + month - 1``, and months in each."""

    first: int
    amount: int

    def offset(self, at: datetime) -> int:
        """Return the number of the piece that holds a time; negative before the first."""
        return (at.year * 12 + at.month - 1 - self.first) // self.amount

    def begin(self, offset: int) -> datetime:
        """Return the beginning of a piece."""
        year, month = divmod(self.first + offset * self.amount, 12)
        return datetime(year, month + 1, 1)  # noqa: DTZ001 - all times are local


@dataclass(frozen=True, slots=True)
class Spans:
    """Pieces of one length: the beginning of the first, and the length."""

    first: datetime
    length: timedelta

    def offset(self, at: datetime) -> int:
        """Return the number of the piece that holds a time; negative before the first."""
        return (at - self.first) // self.length

    def begin(self, offset: int) -> datetime:
        """Return the beginning of a piece."""
        return self.first + offset * self.length


def steps(lower: datetime, unit: ShardUnit, amount: int) -> Months | Spans:
    """Return the pieces, the first of which begins with the unit that contains a time."""
    first = lower.replace(**FLOORS[unit])  # type: ignore[arg-type]  # all are integers
    if unit in LENGTHS:
        return Spans(first, LENGTHS[unit] * amount)
    months = amount * 12 if unit == "years" else amount
    return Months(first.year * 12 + first.month - 1, months)


def check_unit(argument: str, value: object) -> ShardUnit:
    """Return a unit; raise `InvalidArgumentError` if the value is not one."""
    if not isinstance(value, str) or value not in FLOORS:
        raise InvalidArgumentError(argument, value, one_of(FLOORS, value))
    return value


K = TypeVar("K", bound=Ordered)

MAX_AMOUNT: Final = 1_000_000


@dataclass(frozen=True, repr=False)  # no slots: see `ShardRange`
class IntervalTimeline(Sharding[K]):
    """An interval of local time, cut into equal pieces with a node for each.

    The first piece begins with the unit that contains the interval's lower end, and each further
    piece begins `amount` units later.  A piece's name consists of the prefix and the piece's
    beginning, formatted with the pattern.

    Attributes:
        effective: the local times that have nodes: two ends, datetimes without a zone.
        unit: "years", "months", "days", "hours", "minutes" or "seconds".
        amount: the length of a piece in units, at least 1; there may be at most 1,000,000 pieces.
        logic_name_prefix: the prefix of the nodes' names.
        suffix_pattern: the format of a piece's beginning, in Java's pattern letters; no two names
            may be equal.
        key: converts a key to a local time; by default keys are local times.
    """

    effective: ShardRange[datetime]
    unit: ShardUnit
    amount: int = 1
    _: KW_ONLY
    logic_name_prefix: str
    suffix_pattern: str
    key: TimeKey[K] = field(default_factory=StandardTimeKey)
    _nodes: tuple[str, ...] = field(init=False, compare=False)
    _steps: Months | Spans = field(init=False, compare=False)
    _first: datetime = field(init=False, compare=False)
    _last: datetime = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Name the nodes; raise `InvalidArgumentError` if an argument is not valid."""
        check_prefix(self.logic_name_prefix)
        check_unit("unit", self.unit)
        check_integer("amount", self.amount, at_least=1, at_most=MAX_AMOUNT)
        check_kind("key", self.key, TimeKey, "a TimeKey")
        pattern = DatePattern(self.suffix_pattern, argument="suffix_pattern")
        first, last = _closed(self.effective)
        cut = steps(first, self.unit, self.amount)
        count = cut.offset(last) + 1
        if count > MAX_NODES:
            rule = (
                f"must be at most {MAX_NODES} pieces long: {self.amount} {self.unit} make {count}"
            )
            raise InvalidArgumentError("effective", str(self.effective), rule)
        begins = [cut.begin(offset) for offset in range(count)]
        nodes = tuple(self.logic_name_prefix + pattern.format(begin) for begin in begins)
        self._check_names(nodes, begins)
        self._put(_nodes=nodes, _steps=cut, _first=first, _last=last)
        if type(self) is IntervalTimeline and type(self.key) is StandardTimeKey:
            # This replaces the method for most keys, because a closure needs no attribute access.
            general = partial(IntervalTimeline[Any].exact, self)
            if isinstance(cut, Months):
                self._put(exact=_by_month(cut, nodes, general))
            else:
                self._put(exact=_by_length(cut, nodes, general))

    def _put(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def effective_nodes(self) -> tuple[str, ...]:
        """The names of all nodes, the earliest first."""
        return self._nodes

    def exact(self, value: K, /) -> str:
        """Return the name of the node that holds a key.

        Raises:
            InvalidArgumentError: the key's local time is outside the interval, or the value is not
                a key.
            InvalidIdError: the value is not an id of a `SnowflakeTimeKey`'s layout.
        """
        at = self.key.local_time(value)
        if self._first <= at <= self._last:
            return self._nodes[self._steps.offset(at)]
        rule = f"must have a time in {self.effective}"
        if at is not value:
            rule += f": its time is {at.isoformat()}"
        raise InvalidArgumentError("value", value, rule)

    def range(self, values: ShardRange[K], /) -> tuple[str, ...]:
        """Return the names of the nodes that may hold a key of a range, the earliest first.

        Times outside the interval have no node.  If the range ends in an hour that occurs twice,
        when clocks go back, the adjacent node may be included too.

        Raises:
            InvalidArgumentError: an end is not a key, or the value is not a range.
            InvalidIdError: an end is not a text of a `SnowflakeTimeKey`'s converter.
        """
        check_range(values)
        span = self.key.local_span(values)
        if span is None:
            return ()
        first = self._first if span[0] is None else max(span[0], self._first)
        last = self._last if span[1] is None else min(span[1], self._last)
        if first > last:
            return ()
        return self._nodes[self._steps.offset(first) : self._steps.offset(last) + 1]

    def _check_names(self, nodes: tuple[str, ...], begins: Sequence[datetime]) -> None:
        """Raise `InvalidArgumentError` if two nodes have the same name."""
        seen = dict[str, datetime]()
        for node, begin in zip(nodes, begins, strict=True):
            if (earlier := seen.setdefault(node, begin)) is not begin:
                times = f"{earlier.isoformat()} and {begin.isoformat()}"
                rule = f"must give each piece another name: {times} are both {node!r}"
                raise InvalidArgumentError("suffix_pattern", self.suffix_pattern, rule)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the arguments, because objects derived from them contain functions."""
        options = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        return partial(type(self), **options), ()

    def __repr__(self) -> str:
        """Show the form of the names, the pieces, and the interval."""
        names = f"{self.logic_name_prefix}{self.suffix_pattern}"
        pieces = f"{len(self._nodes)} x {self.amount} {self.unit}"
        return f"<IntervalTimeline {names} {pieces} in {self.effective} by {self.key!r}>"


# Both handle datetimes without a zone that are neither in the first nor in the last piece, because
# parts of these pieces may be outside the interval.  The general method handles the rest.


def _by_month(
    cut: Months, nodes: Sequence[str], general: Callable[[Any], str]
) -> Callable[[Any], str]:
    month, size, last = cut.first + 1, cut.amount, len(nodes) - 1

    def exact(value: Any, /) -> str:  # noqa: ANN401 - any key
        try:
            if value.tzinfo is None:
                index: int = (value.year * 12 + value.month - month) // size
                if 0 < index < last:
                    return nodes[index]
        except AttributeError:
            pass
        return general(value)

    return exact


def _by_length(
    cut: Spans, nodes: Sequence[str], general: Callable[[Any], str]
) -> Callable[[Any], str]:
    first, last = cut.first, len(nodes) - 1
    size = cut.length // timedelta(seconds=1)

    def exact(value: Any, /) -> str:  # noqa: ANN401 - any key
        try:
            gap: timedelta = value - first
            index = (gap.days * 86_400 + gap.seconds) // size
            if 0 < index < last:
                return nodes[index]
        except (AttributeError, TypeError):
            pass
        return general(value)

    return exact


def _closed(effective: ShardRange[datetime]) -> tuple[datetime, datetime]:
    """Return the first and the last time of an interval, to the microsecond."""
    check_kind(
        "effective",
        effective,
        ShardRange,
        "a ShardRange, such as ShardRange.closed_open(begin, end)",
    )
    ends: tuple[object, object] = (effective.lower, effective.upper)
    if not all(isinstance(end, datetime) and end.tzinfo is None for end in ends):
        rule = "must be two datetimes without a zone: they are local time"
        raise InvalidArgumentError("effective", str(effective), rule)
    span = StandardTimeKey().local_span(effective)
    if span is None or span[0] is None or span[1] is None or span[0] > span[1]:
        rule = "must be an interval that is not empty"
        raise InvalidArgumentError("effective", str(effective), rule)
    return span[0], span[1]
