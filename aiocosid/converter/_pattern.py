"""The texts that a converter writes, as a regular expression.  Pure."""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ("pattern_of",)

_DIGITS: Final[dict[int, str]] = {
    36: "[0-9A-Z]",
    62: "[0-9A-Za-z]",
}
"""The digits of a radix."""
_SYNTAX: Final = re.compile(r"[\^$\\.*+?()[\]{}|/]")  # of ECMA-262; re.escape knows Python's only


def pattern_of(tree: dict[str, Any]) -> str | None:
    """Return the pattern by what a converter says about itself; None if it says too little.

    Args:
        tree: what `IdConverter.as_tree` returns.
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
