"""Checks whether a store's settings keep what it has granted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from weakref import WeakKeyDictionary, ref

from ..errors import InvalidArgumentError, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("DEMANDS", "Durability", "DurabilityCheck")

logger = logging.getLogger("aiocosid")

Durability: TypeAlias = Literal["warn", "refuse", "ignore"]
"""What to do about a store that may lose what it has granted: log a warning once, refuse to hand
out ids, or ignore it.
"""

DEMANDS: Final[tuple[Durability, ...]] = ("warn", "refuse", "ignore")


# Users' clients and pools whose settings were checked, to warn once for each.
_looked_at: WeakKeyDictionary[Any, None] = WeakKeyDictionary()


class DurabilityCheck:
    """Checks the settings once for each store object, at its first call.

    There is one warning for each user's client, however many distributors use it.

    Attributes:
        weaknesses: what it has found; None before.
    """

    __slots__ = ("__weakref__", "_client", "_demand", "_is_due", "weaknesses")

    def __init__(self, demand: Durability = "warn", client: object = None) -> None:
        """Set what to do.

        Args:
            demand: what to do.
            client: the user's client or pool, if it is one.

        Raises:
            InvalidArgumentError: ``demand`` is none of the words.
        """
        if demand not in DEMANDS:
            raise InvalidArgumentError("durability", demand, expected=f"one of {DEMANDS}")
        self._demand = demand
        self._client = None if client is None else ref(client)
        self._is_due = demand != "ignore"
        self.weaknesses: tuple[str, ...] | None = None

    @property
    def is_due(self) -> bool:
        """Whether the check is still to be done."""
        client = self._borrowed()
        return self._is_due and (self._demand != "warn" or client not in _looked_at)

    def _borrowed(self) -> object:
        client = None if self._client is None else self._client()
        return self if client is None else client

    def judge(self, label: str, weaknesses: Sequence[str]) -> None:
        """Warn of weaknesses, or raise because of them.

        Args:
            label: the store in messages.
            weaknesses: one text for each setting: its value, what may be lost, and what to set.

        Raises:
            StoreError: there are weaknesses, and the demand is "refuse".
        """
        self.weaknesses = tuple(weaknesses)
        if weaknesses and self._demand == "refuse":
            reason = f"durability='refuse' refuses it: {'; '.join(weaknesses)}"
            raise StoreError(
                label, reason, remedy="set what it names, or allow it with durability='warn'"
            )
        is_first, self._is_due = self.is_due, False  # else a concurrent call has logged it
        if self._demand == "warn":
            _looked_at[self._borrowed()] = None
        for weakness in weaknesses if is_first else ():
            logger.warning("%s: %s, or durability='ignore'", label, weakness)
