"""What is wrong with settings: everything at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._general import CosIdError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("InvalidSettingsError", "SettingsProblem")


@dataclass(frozen=True, slots=True)
class SettingsProblem:
    """One thing that is wrong with settings.  It never shows a password or a key.

    Attributes:
        key: its place, dotted: ``generators.order.step``; empty for the whole.
        reason: what is wrong, and what to do.
        source: the file or the environment variable that says so; empty if it was a mapping.
        line: its line in the file, from 1; None if it is not in a file, or was not found there.
    """

    key: str
    reason: str
    source: str = ""
    line: int | None = None

    def __str__(self) -> str:
        """Return one line: ``ids.toml:7: generators.order.step: ...``."""
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return ": ".join(part for part in (place, self.key, self.reason) if part)


class InvalidSettingsError(CosIdError, ValueError):
    """Settings that nothing can be built from; nothing was opened.

    Attributes:
        problems: everything that is wrong with them, in the order of the settings.
    """

    def __init__(self, problems: Iterable[SettingsProblem]) -> None:
        self.problems: tuple[SettingsProblem, ...] = tuple(problems)
        found = "\n".join(f"  {problem}" for problem in self.problems)
        count = len(self.problems)
        super().__init__(f"{count} problem{'s' * (count != 1)} in the settings:\n{found}")
