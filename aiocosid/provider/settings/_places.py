"""Finds the key that caused an error.  No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors.base import with_value

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ...errors import InvalidArgumentError

__all__ = ("placed",)

Path = tuple[str, ...]


def placed(error: InvalidArgumentError, path: Path, section: BaseModel | None) -> tuple[Path, str]:
    """Return the path of the key that caused an error, or of its table, and the reason."""
    argument = error.argument.rpartition(".")[2].replace("-", "_")
    for key in () if section is None else type(section).model_fields:
        if key == argument or key.endswith(f"_{argument}"):
            shown = "" if error.value is None else error.shown
            return (*path, key), with_value(error.rule, shown)
    return path, str(error)
