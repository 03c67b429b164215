"""A regular expression for the texts that a converter writes.  No I/O."""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ("pattern_of",)

_DIGITS: Final[dict[int, str]] = {
    36: "[0-9A-Z]",
    62: "[0-9A-Za-z]",
}
"""The digits of each radix."""
_SYNTAX: Final = re.compile(r"[\^$\\.*+?()[\]{}|/]")  # ECMA-262's; re.escape knows only Python's


def pattern_of(tree: dict[str, Any]) -> str | None:
    """Return the pattern from a converter's own description; None if that is not enough.

    Args:
        tree: the result of `IdConverter.as_tree`.
    """
    match tree:
        case {"radix": radix, "charSize": size, "padStart": pad} if digits := _DIGITS.get(radix):
            return f"{digits}{{{'' if pad else '1,'}{size}}}"
        case {"kind": "ToStringIdConverter", "padStart": pad, "charSize": size}:
            return f"[0-9]{{{size},}}" if pad else "[0-9]{1,19}"
        case {"prefix": str(affix), "actual": inner}:
            rest = pattern_of(inner)
            return rest and _SYNTAX.sub(r"\\\g<0>", affix) + rest
        case {"suffix": str(affix), "actual": inner}:
            rest = pattern_of(inner)
            return rest and rest + _SYNTAX.sub(r"\\\g<0>", affix)
        case _:
            return None
