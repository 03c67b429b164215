"""A machine id and the time of its owner's last renewal, as text in CosId's format.  Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ..abc import MAX_ID
from ..abc._machine import MAX_MACHINE_BITS
from ..errors import InvalidArgumentError

__all__ = ("NOT_FOUND", "MachineState")

MAX_MACHINE_ID: Final = 2**MAX_MACHINE_BITS - 1

TEXT: Final = re.compile(r"([+-]?[0-9]{1,20})\|([+-]?[0-9]{1,20})")
"""What Java's ``Integer.parseInt`` and ``Long.parseLong`` accept, without forms that no program
writes.
"""


@dataclass(frozen=True, slots=True)
class MachineState:
    """A machine id as it is stored.

    Unlike CosId's, two states are equal only if both numbers are.

    Attributes:
        machine_id: the number, or -1 where there is none.
        last_timestamp_ms: the owner's last renewal, unix time in milliseconds, or -1.
    """

    machine_id: int
    last_timestamp_ms: int

    def __str__(self) -> str:
        """Write it as CosId does: ``machine_id|last_timestamp_ms``."""
        return f"{self.machine_id}|{self.last_timestamp_ms}"

    @classmethod
    def parse(cls, text: str) -> MachineState:
        """Read ``machine_id|last_timestamp_ms``.

        Raises:
            InvalidArgumentError: the text is anything else; its ``value`` is what was found.
        """
        found = TEXT.fullmatch(text)
        numbers = (int(found[1]), int(found[2])) if found else (-2, -2)
        if not (-1 <= numbers[0] <= MAX_MACHINE_ID and -1 <= numbers[1] <= MAX_ID):
            raise InvalidArgumentError("machine state", text, expected="machine_id|timestamp_ms")
        return cls(*numbers)


NOT_FOUND: Final = MachineState(-1, -1)
"""No state is stored; CosId's ``MachineState.NOT_FOUND``."""
