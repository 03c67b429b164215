"""How many ids a token may take at a time, and a second.

What a token has taken of a name is a debt, which its rate pays off.  A request is served while less
than a second of debt is left, whatever it adds; so the rate holds, and a segment may be longer than
a second's ids.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from ..errors import InvalidArgumentError
from ._problems import Problem

if TYPE_CHECKING:
    from ..abc import Clock
    from ._tokens import Access

__all__ = ("Quotas",)

BURST: Final = 1.0  # seconds of debt
MOST: Final = 10_000  # debts that are remembered


class Quotas:
    """What the tokens of one process have taken.

    Attributes:
        refused: how many requests of each token were refused, by its name.
    """

    __slots__ = ("_clock", "_paid_at", "refused")

    def __init__(self, clock: Clock) -> None:
        """Begin without a debt.

        Args:
            clock: pays debts off.
        """
        self.refused: Counter[str] = Counter()
        self._clock = clock
        # By the names of token and counter; two tokens of one name share their quota.
        self._paid_at: OrderedDict[tuple[str, str], float] = OrderedDict()

    def charge(self, access: Access, name: str, count: int = 1) -> None:
        """Count ids that a caller is about to take, before they are taken.

        Args:
            access: what the caller may do.
            name: of a generator or a counter.
            count: how many ids.

        Raises:
            Problem: it has taken as many as it may for now.
            InvalidArgumentError: these are more than it may take at a time.
        """
        token = access.token
        if token is None:
            return
        most, rate = token.ids_per_request, token.ids_per_second
        if most is not None and count > most:
            self.refused[token.name] += 1
            rule = f"must be at most {most}, the quota of this token"
            raise InvalidArgumentError("count", count, rule)
        if rate is None:
            return
        key, now = (token.name, name), self._clock.monotonic()
        paid_at = max(self._paid_at.get(key, now), now)
        if paid_at - now >= BURST:
            self.refused[token.name] += 1
            detail = f"this token may take {rate} ids a second of a name"
            after = paid_at - now - BURST
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, "over-quota", detail, retry_after=after)
        self._paid_at[key] = paid_at + count / rate
        self._paid_at.move_to_end(key)
        if len(self._paid_at) > MOST:
            self._paid_at.popitem(last=False)
