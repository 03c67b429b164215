"""Decides which sequences of a second a store grants that keeps each name in one value.  No I/O.

The rules are those of the Redis script (see `redis._sequence`) with one difference: fence and
counts are one value here, so neither is lost without the other.  No count needs to expire either:
the value has the counts of those seconds that may still be granted, and nothing is granted from
earlier seconds.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from ..abc import SecondFenced, SecondSpent, SequenceGrant
from ..abc.checks import check_integer
from ..errors import ClockSkewError

if TYPE_CHECKING:
    from ..abc import SequenceDistributor, SequenceReply

__all__ = (
    "DEFAULT_TTL",
    "SequenceAnswer",
    "SequenceRequest",
    "SequenceState",
    "check_reach",
    "grant",
)

DEFAULT_TTL: Final = 600  # seconds that a counter is kept, as in the published script
MAX_MARGIN: Final = 3600
MAX_TTL: Final = 86_400
SPARE_TTL: Final = 60  # seconds that a counter outlives its last possible use

GRANTED, SPENT, SKEWED, FENCED = 0, 1, 2, 3

NUMBERS: Final = ("opens", "kept", "seen", "reach")


@dataclass(frozen=True, slots=True)
class SequenceRequest:
    """The request of a distributor.

    Attributes:
        second: the second from which sequences are requested.
        size: how many sequences are requested.
        max_sequence: the highest sequence.
        tolerance: seconds by which the second may differ from the store's own.
        margin: seconds by which the clocks of two successive stores may differ.
    """

    second: int
    size: int
    max_sequence: int
    tolerance: int
    margin: int


class SequenceAnswer(NamedTuple):
    """The answer of a store, as from the Redis script.

    Attributes:
        status: granted, always from this second; spent; skewed; or fenced.
        first: the first granted sequence.
        last: the last granted sequence.
        now: the store's second.
        opens: the first second from which sequences are granted.
    """

    status: int
    first: int
    last: int
    now: int
    opens: int

    def reply_to(self, distributor: SequenceDistributor, second: int) -> SequenceReply:
        """Return the answer as `SequenceDistributor.grant` does.

        Raises:
            ClockSkewError: the store's clock and the second differ by more than the tolerance.
        """
        status, first, last, now, opens = self
        if status == SKEWED:
            tolerance = distributor.tolerance
            raise ClockSkewError(distributor.store, ahead=second - now, tolerance=tolerance)
        if status == FENCED:
            return SecondFenced(opens, now)
        return SecondSpent(second) if status == SPENT else SequenceGrant(second, first, last)


@dataclass(frozen=True, slots=True)
class SequenceState:
    """Everything that a store keeps for a name.

    Attributes:
        identity: the identity of the store in which this was written.
        opens: the fence: grants from earlier seconds may have been lost.
        kept: the first second whose count is kept; nothing is granted from earlier seconds.
        seen: the highest second that the store's clock has shown.
        reach: the largest tolerance + margin of any distributor.
        granted: the last sequence granted from each second.
    """

    identity: str
    opens: int = 0
    kept: int = 0
    seen: int = 0
    reach: int = 0
    granted: dict[int, int] = field(default_factory=dict[int, int])

    @classmethod
    def read(cls, text: str) -> tuple[Self, SequenceAnswer]:
        """Return the state and the last answer from a text.

        Raises:
            ValueError: the text has another form.
        """
        try:
            found = json.loads(text)
            answer = SequenceAnswer(*map(int, found["answer"]))
            granted = {int(second): int(last) for second, last in found["granted"].items()}
            opens, kept, seen, reach = (int(found[each]) for each in NUMBERS)
            return cls(found["identity"], opens, kept, seen, reach, granted), answer
        except (AttributeError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(text) from error

    def text(self, answer: SequenceAnswer) -> str:
        """Return the state as a text, together with an answer."""
        return json.dumps(asdict(self) | {"answer": answer})


def grant(
    state: SequenceState | None, request: SequenceRequest, identity: str, now: int
) -> tuple[SequenceState, SequenceAnswer]:
    """Decide what to grant.  No I/O.

    Args:
        state: the store's state for the name; None if it has none and may have lost it.
        request: the request.
        identity: the store's identity, which no other store has.
        now: the current second on the store's clock.

    Returns:
        The new state, and the answer.
    """
    second, tolerance = request.second, request.tolerance
    before = SequenceState("") if state is None else state
    reach, seen = max(before.reach, tolerance + request.margin), max(before.seen, now)
    if state is None or before.identity != identity:
        opens = seen + reach + 1
    else:
        opens = before.opens + reach - before.reach  # a larger reach would have set a higher fence
    kept = max(before.kept, seen - reach)
    first_open = max(opens, kept)
    granted = {each: last for each, last in before.granted.items() if each >= first_open}
    first = granted.get(second, 0) + 1
    status, last = GRANTED, min(first + request.size - 1, request.max_sequence)
    if abs(now - second) > tolerance:
        status = SKEWED
    elif second < first_open:
        status = FENCED
    elif first > request.max_sequence:
        status = SPENT
    else:
        granted[second] = last
    answer = SequenceAnswer(status, first, last, now, first_open)
    return SequenceState(identity, opens, kept, seen, reach, granted), answer


def check_reach(tolerance: int, margin: int, ttl: int) -> None:
    """Raise `InvalidArgumentError` unless counters of these options are kept long enough."""
    check_integer("margin", margin, at_least=0, at_most=MAX_MARGIN)
    check_integer("ttl", ttl, at_least=2 * tolerance + SPARE_TTL, at_most=MAX_TTL)
