"""Times as Java's ``Duration`` writes them."""

from __future__ import annotations

from math import isinf
from typing import Final

__all__ = ("FOREVER", "iso_duration")

FOREVER: Final = "PT2562047788015H12M55.807S"
"""CosId's ``FOREVER_SAFE_GUARD_DURATION``: 2^63-1 milliseconds."""

MOST_MS: Final = 2**63 - 1


def iso_duration(seconds: float) -> str:
    """Return a time of at least 0 s as ISO 8601, to the millisecond, as ``PT5M`` for 300 s."""
    if isinf(seconds) or (ms := round(seconds * 1000)) >= MOST_MS:
        return FOREVER
    hours, left = divmod(ms, 3_600_000)
    minutes, left = divmod(left, 60_000)
    text = f"{hours}H" if hours else ""
    text += f"{minutes}M" if minutes else ""
    if left or not text:
        whole, part = divmod(left, 1000)
        text += f"{whole}.{part:03}".rstrip("0") if part else f"{whole}"
        text += "S"
    return f"PT{text}"
