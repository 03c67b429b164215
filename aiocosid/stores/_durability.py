"""Whether a store keeps what it has granted, as far as its settings tell."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ..errors import InvalidArgumentError, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("DEMANDS", "Durability", "DurabilityCheck")

logger = logging.getLogger("aiocosid")

Durability: TypeAlias = Literal["warn", "refuse", "ignore"]
"""What to do about a store that may lose what it has granted: log it once, hand out no id, or
nothing."""

DEMANDS: Final[tuple[Durability, ...]] = ("warn", "refuse", "ignore")


class DurabilityCheck:
    """One look at the settings for each store object, with its first call.

    Attributes:
        is_due: whether that is still to be done.
    """

    __slots__ = ("_demand", "is_due")

    def __init__(self, demand: Durability = "warn") -> None:
        """Demand something.

        Raises:
            InvalidArgumentError: it is none of the words.
        """
        if demand not in DEMANDS:
            raise InvalidArgumentError("durability", demand, expected=f"one of {DEMANDS}")
        self._demand = demand
        self.is_due = demand != "ignore"

    def judge(self, label: str, weaknesses: Sequence[str]) -> None:
        """Warn of weaknesses, or refuse to go on with them.

        Args:
            label: names the store.
            weaknesses: each says which setting, what may be lost, and what to set.

        Raises:
            StoreError: there are some, and that was not to be.
        """
        if weaknesses and self._demand == "refuse":
            raise StoreError(label, f"{'; '.join(weaknesses)}. Refused, as durability='refuse'")
        self.is_due = False
        for weakness in weaknesses:
            logger.warning("%s: %s", label, weakness)
