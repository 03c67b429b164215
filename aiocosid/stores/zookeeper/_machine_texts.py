"""What the nodes of machine ids hold: CosId's texts, and our own beside them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final, Self

from ...abc._machine import (
    DEFAULT_SAFE_GUARD,
    MAX_MACHINE_BITS,
    QUARANTINE_MARGIN,
    WIDTH_EXPECTED,
)
from ...errors import CorruptMachineStateError
from .._arguments import MAX_MS
from ._errors import STORE

if TYPE_CHECKING:
    from ._nodes import Node

__all__ = (
    "MAX_MACHINE_ID",
    "Claim",
    "Entry",
    "Marker",
    "Note",
    "count_data",
    "count_of",
    "guard_ms",
    "next_floor",
    "state_data",
    "state_of",
)

MAX_MACHINE_ID: Final = 2**31 - 1
COUNT_WIDTH: Final = 4  # bytes, of a Java ``int``, the highest first
ENDLESS: Final = -1  # as a safe guard in milliseconds

_STATE: Final = re.compile(rb"([0-9]{1,10})\|([0-9]{1,16})")


@dataclass(frozen=True, slots=True)
class Entry:
    """A machine id that an instance holds, or that was given back.

    Attributes:
        path: where it lies.
        node: as it was read.
        instance: who holds it; empty in the pool of those given back.
        machine_id: the number.
        stamp_ms: the last sign of life, in milliseconds since 1970.
    """

    path: str
    node: Node
    instance: str
    machine_id: int
    stamp_ms: int

    @classmethod
    def of(cls, path: str, node: Node, instance: str = "") -> Self:
        """Read a node.

        Raises:
            CorruptMachineStateError: it holds no state of a machine id.
        """
        return cls(path, node, instance, *state_of(path, node.data))


def state_of(path: str, data: bytes) -> tuple[int, int]:
    """Read CosId's ``machine_id|last_timestamp_ms``.

    Raises:
        CorruptMachineStateError: it is none.
    """
    match = _STATE.fullmatch(data)
    machine_id, stamp_ms = (int(match[1]), int(match[2])) if match else (-1, -1)
    if match is None or machine_id > MAX_MACHINE_ID or stamp_ms > MAX_MS:
        raise _damaged(path, data)
    return machine_id, stamp_ms


def state_data(machine_id: int, stamp_ms: int) -> bytes:
    """Write CosId's ``machine_id|last_timestamp_ms``."""
    return b"%d|%d" % (machine_id, stamp_ms)


def count_of(path: str, node: Node | None) -> int:
    """Return how many machine ids were new once.

    Raises:
        CorruptMachineStateError: the node holds no such number.
    """
    if node is None or not node.data:
        return 0
    count = int.from_bytes(node.data, "big", signed=True)
    if len(node.data) != COUNT_WIDTH or count < 0:
        raise _damaged(path, node.data, expected="a number of machine ids in 4 bytes")
    return count


def count_data(count: int) -> bytes:
    """Write how many were new."""
    # CosId's counts on when all are held, up to the end of an int.
    return min(count, MAX_MACHINE_ID).to_bytes(COUNT_WIDTH, "big", signed=True)


def next_floor(stamp_ms: int, mark_ms: int) -> int:
    """Return the stamp of an id that goes from an owner who may use it until its mark.

    The next owner may be CosId's: it knows no mark, and issues ids of the very millisecond of the
    stamp, or of its second.
    """
    return stamp_ms if mark_ms < 0 else max(stamp_ms, min(mark_ms + 1000, MAX_MS))


@dataclass(slots=True)
class Note:
    """What we note of one machine id, of which CosId knows nothing.

    Attributes:
        mark_ms: no id was issued with a later time.
        token: of the call that handed it out last; empty if that was none of ours.
        holder: the instance that was handed it, or asserted it.
        is_stable: whether that one is.
        seen_ms: its last sign of life by the server's clock; -1 for none.
    """

    mark_ms: int = -1
    token: str = ""
    holder: str = ""
    is_stable: bool = False
    seen_ms: int = -1

    @classmethod
    def of(cls, path: str, node: Node | None) -> Self:
        """Read a node; one that is not there says nothing.

        Raises:
            CorruptMachineStateError: it holds something else.
        """
        if node is None:
            return cls()
        told = _read(path, node.data)
        try:
            note = cls(
                _time(told["mark"]),
                _text(told["token"]),
                _text(told["holder"]),
                told["stable"] is True,
                _time(told["seen"]),
            )
        except (KeyError, ValueError):
            raise _damaged(path, node.data, expected="a note on a machine id") from None
        return note

    def data(self) -> bytes:
        """Write it."""
        return _written(
            mark=self.mark_ms,
            token=self.token,
            holder=self.holder,
            stable=self.is_stable,
            seen=self.seen_ms,
        )

    def is_latest(self, token: str) -> bool:
        """Tell whether the id was not handed out again since it was with that token.

        A token stays when the id is given back: whoever comes with an older one is late.
        """
        return not token or not self.token or self.token == token


@dataclass(frozen=True, slots=True)
class Claim:
    """What an instance has asserted in a quarantine.

    Attributes:
        born_ms: when it was handed the id, by its own clock.
        token: of that call.
        instance: who it is.
    """

    born_ms: int
    token: str
    instance: str

    @classmethod
    def of(cls, told: Any) -> Self:  # noqa: ANN401 - of JSON
        """Read what `Marker.data` wrote."""
        born_ms, token, instance = told
        return cls(_time(born_ms), _text(token), _text(instance))

    def stands_against(self, other: Claim) -> bool:
        """Tell whether it was first: of two instances the earlier, of two lives the later."""
        if self.instance == other.instance:
            return self.token != other.token and self.born_ms >= other.born_ms
        return (self.born_ms, self.instance) < (other.born_ms, other.instance)


@dataclass(slots=True)
class Marker:
    """What is known of the namespace as a whole.

    Attributes:
        identity: of the tree for which nothing was forgotten; empty if there is no marker.
        guard_ms: the longest safe guard that was ever named; 0 if none was, `ENDLESS` for ever.
        since_ms: when the quarantine that runs began, by the server's clock, or None.
        bits: the width of the machine ids, or None.
        gaps: numbers below CosId's count that nobody was ever handed; first and last of each run.
        claims: what was asserted in this quarantine, by machine id.
    """

    identity: str = ""
    guard_ms: int = 0
    since_ms: int | None = None
    bits: int | None = None
    gaps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    claims: dict[int, Claim] = field(default_factory=dict[int, Claim])

    @classmethod
    def of(cls, path: str, node: Node | None) -> Self:
        """Read a node; one that is not there says nothing.

        Raises:
            CorruptMachineStateError: it holds something else.
        """
        if node is None:
            return cls()
        told = _read(path, node.data)
        try:
            marker = cls(
                _text(told["identity"]),
                _time(told["guard"]),
                None if told["since"] is None else _time(told["since"]),
                told["bits"],
                [(_time(first), _time(last)) for first, last in told["gaps"]],
                {int(each): Claim.of(claim) for each, claim in told["claims"].items()},
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise _damaged(path, node.data, expected="a marker of machine ids") from None
        if marker.bits is not None and marker.bits not in range(1, MAX_MACHINE_BITS + 1):
            raise _damaged(path, node.data, expected=WIDTH_EXPECTED)
        return marker

    def data(self) -> bytes:
        """Write it."""
        return _written(
            identity=self.identity,
            guard=self.guard_ms,
            since=self.since_ms,
            bits=self.bits,
            gaps=self.gaps,
            claims={
                each: (claim.born_ms, claim.token, claim.instance)
                for each, claim in self.claims.items()
            },
        )

    # The quarantine.

    def look(self, identity: str, clock_ms: int, guard_ms: int) -> float:
        """Begin a quarantine if the marker is not of this tree, or end one that is over.

        One that began when the clock was ahead begins now; a smaller step back is no reason, for
        the clock may be right again soon.

        Args:
            identity: of the tree as it is now.
            clock_ms: the server's clock.
            guard_ms: of who asks; 0 for who holds no id.

        Returns:
            The seconds that are left of it; 0.0 if there is none.
        """
        if self.identity != identity:
            self.identity, self.since_ms = identity, clock_ms
            self.claims.clear()
        elif self.since_ms is None:
            return 0.0
        elif self.since_ms - clock_ms > self._lasts_ms():
            self.since_ms = clock_ms
        self.remember(guard_ms)
        if left := self.left(clock_ms):
            return left
        self.sound(identity)
        return 0.0

    def left(self, clock_ms: int) -> float:
        """Return the seconds that are left of a quarantine; 0.0 if none runs."""
        if self.since_ms is None:
            return 0.0
        return max(0.0, (self.since_ms + self._lasts_ms() - clock_ms) / 1000)

    def sound(self, identity: str) -> None:
        """Mark the tree as one that has forgotten nothing."""
        self.identity, self.since_ms = identity, None
        self.claims.clear()

    def remember(self, guard_ms: int) -> None:
        """Have the quarantines last as long, if they would not anyway."""
        if guard_ms == ENDLESS or (self.guard_ms != ENDLESS and guard_ms > self.guard_ms):
            self.guard_ms = guard_ms

    def _lasts_ms(self) -> float:
        if self.guard_ms == ENDLESS:
            return inf
        return (self.guard_ms or DEFAULT_SAFE_GUARD * 1000) + QUARANTINE_MARGIN * 1000

    # The numbers that were left out.

    def leave_out(self, first: int, last: int) -> None:
        """Note that nobody was handed these numbers."""
        if first <= last:
            self.gaps.append((first, last))

    def fill(self, machine_id: int) -> None:
        """Note that somebody is handed a number."""
        left: list[tuple[int, int]] = []
        for first, last in self.gaps:
            if first <= machine_id <= last:
                left += [(first, machine_id - 1), (machine_id + 1, last)]
            else:
                left.append((first, last))
        self.gaps = [(first, last) for first, last in left if first <= last]


def guard_ms(safe_guard: float) -> int:
    """Return a safe guard in milliseconds; `ENDLESS` for ever."""
    if safe_guard * 1000 >= MAX_MS:
        return ENDLESS
    return ceil(safe_guard * 1000)


def _read(path: str, data: bytes) -> dict[str, Any]:
    told: Any
    try:
        told = json.loads(data)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise _damaged(path, data, expected="what this library writes there")
    return {**told}


def _written(**facts: object) -> bytes:
    return json.dumps(facts, separators=(",", ":"), sort_keys=True).encode()


def _time(value: object) -> int:
    if type(value) is not int or not -1 <= value <= MAX_MS:
        raise ValueError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004 - one error for all that is damaged
    return value


def _damaged(path: str, data: bytes, expected: str | None = None) -> CorruptMachineStateError:
    found = repr(data)
    if expected is None:
        return CorruptMachineStateError(STORE, place=path, found=found)
    return CorruptMachineStateError(STORE, place=path, found=found, expected=expected)
