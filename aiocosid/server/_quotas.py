"""How many ids a token may take at a time, and per second.

The ids that a token has taken of a name are a debt, which is paid off at the token's rate.  A
request is served while the debt is less than a second, whatever the request adds.  So the rate
holds, and a segment may have more ids than one second allows.
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
MOST: Final = 10_000  # maximum debts that are remembered


class Quotas:
    """The debts of the tokens in one process.

    Attributes:
        refused: how many requests of each token were refused, by its name.
    """

    __slots__ = ("_clock", "_paid_at", "refused")

    def __init__(self, clock: Clock) -> None:
        """Start without a debt.

        Args:
            clock: the clock by which debts are paid off.
        """
        self.refused: Counter[str] = Counter()
        self._clock = clock
        # The key is the names of token and counter; two tokens with one name share their quota.
        self._paid_at: OrderedDict[tuple[str, str], float] = OrderedDict()

    def charge(self, access: Access, name: str, count: int = 1) -> None:
        """Count ids that a caller is about to take, before they are taken.

        Args:
            access: what the caller may do.
            name: the name of a generator or a counter.
            count: how many ids.

        Raises:
            Problem: the caller has used up its quota for now.
            InvalidArgumentError: the count is more than the caller may take at a time.
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
