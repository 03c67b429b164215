"""UUIDs with the generators' contract."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from .._life import fork
from ..abc import DEFAULT_NAMESPACE, SHARE, TextIdGenerator
from ..errors import WouldBlock
from ._local import LocalGenerator

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..abc import Clock

__all__ = ("Uuid4Id", "Uuid7Id")

NS_PER_MS: Final = 1_000_000

VARIANT: Final = 0b10 << 62  # RFC 9562, section 4.1
VERSION_4: Final = 4 << 76
VERSION_7: Final = 7 << 76

COUNTER_BITS: Final = 42  # as in Python 3.14; RFC 9562, section 6.2, method 1
LOW_BITS: Final = 30  # bits of the counter after the variant
TAIL_BITS: Final = 32


class UuidGenerator(LocalGenerator[str], TextIdGenerator):
    """Issues UUIDs as text of 36 characters."""

    __slots__ = ()

    _stretch = 500

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str = SHARE,
        clock: Clock | None = None,
    ) -> None:
        """Describe a generator.

        Args:
            namespace: the namespace in statistics and messages.
            name: the name in statistics and messages.
            clock: the time source; the system's clock by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__(namespace=namespace, name=name, clock=clock)


class Uuid4Id(UuidGenerator):
    """Random UUIDs, version 4, which do not sort by age.  CosId's UuidGenerator."""

    __slots__ = ()

    def _one(self) -> str:
        random = secrets.randbits(122)
        high, low = random >> 62, random & (1 << 62) - 1
        return _text((high >> 12) << 80 | VERSION_4 | (high & 0xFFF) << 64 | VARIANT | low)


class Uuid7Id(UuidGenerator):
    """UUIDs of version 7, which sort by time: RFC 9562, in the same form as Python 3.14's.

    A UUID has 48 bits of milliseconds since 1970, a 42-bit counter that starts at random in each
    millisecond, and 32 random bits.  Within one generator each UUID is above the previous one, even
    after the clock stepped back: the generator then stays in the last millisecond and continues to
    count.
    """

    __slots__ = ("_busy", "_last", "_made_in", "_read_ns")

    def _reset(self) -> None:
        super()._reset()
        self._read_ns: Callable[[], int] = self._clock.wall_reader()
        self._busy = False
        process = getattr(self, "_made_in", None)
        if process != fork.generation:
            # Otherwise parent and forked child would continue from the same value.
            self._last: int = 0
            self._made_in = fork.generation

    def _one(self) -> str:
        if self._busy:
            raise WouldBlock
        try:  # a step as in `_life.atomic_step`, without the cost of a call
            self._busy = True
            now_ms = self._read_ns() // NS_PER_MS
            if now_ms > self._last >> COUNTER_BITS:
                # The highest bit starts at 0, so that the counter has space to grow.
                self._last = now_ms << COUNTER_BITS | secrets.randbits(COUNTER_BITS - 1)
            else:
                self._last += 1  # a full counter overflows into the milliseconds
            stamp = self._last
        finally:
            self._busy = False
        high, low = stamp >> LOW_BITS, stamp & (1 << LOW_BITS) - 1
        head = (high >> 12) << 80 | VERSION_7 | (high & 0xFFF) << 64
        return _text(head | VARIANT | low << TAIL_BITS | secrets.randbits(TAIL_BITS))


def _text(number: int) -> str:
    digits = f"{number:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
