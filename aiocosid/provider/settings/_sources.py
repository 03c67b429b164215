"""Reads settings from a file, the environment or a mapping, without checking them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from ...abc.variables import CONFIG, Variables
from ...errors import InvalidSettingsError
from ...errors.base import SettingsProblem
from ._environment import Environment, environment

__all__ = ("Given", "read")

SHORT: Final = {"name", "type", "make"}
"""Keys whose value may replace their whole table."""


@dataclass(frozen=True, slots=True)
class Given:
    """Settings as they were read, before any check.

    Attributes:
        data: tables and values.
        file: the file's name; empty without one.
        written: the file's own content, without the environment.
        environment: the settings that come from variables.
    """

    data: dict[str, Any]
    file: str = ""
    written: Mapping[str, Any] = field(default_factory=dict[str, Any])
    environment: Environment = field(default_factory=Environment)

    def problem(self, path: tuple[str, ...], reason: str) -> SettingsProblem:
        """Return a problem of a key, with its file or variable."""
        path = self._spelt(path)
        key = ".".join(map(_quoted, path))
        variable = self.environment.variable(path, is_elsewhere=self._writes(path))
        return SettingsProblem(key, reason, variable or self.file)

    def _writes(self, path: tuple[str, ...]) -> bool:
        table = self.written
        for part in path:
            if part not in table:
                return False
            found: object = table[part]
            table = cast("Mapping[str, Any]", found if isinstance(found, Mapping) else {})
        return True

    def _spelt(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the path with dashes or underscores as in this source."""
        spelt: list[str] = []
        found: object = self.data
        for part in path:
            if isinstance(found, str) and part in SHORT:
                break  # the value replaces the table
            table = cast("Mapping[str, Any]", found if isinstance(found, Mapping) else {})
            dashed = part.replace("_", "-")
            spelt.append(dashed if part not in table and dashed in table else part)
            found = table.get(spelt[-1])
        return tuple(spelt)


def read(source: object) -> Given:
    """Return the settings of a source; variables override a file.

    Raises:
        InvalidSettingsError: the file cannot be read, or a variable that must be a table is not
            one.
    """
    if isinstance(source, Mapping):
        return Given(dict(cast("Mapping[str, Any]", source)))
    if source is None:
        source = Variables.read().text(CONFIG)
    given = Given({}) if source is None else _file(Path(cast("str", source)))
    said = environment()
    return Given(_merged(given.data, said.data), given.file, given.written, said)


def _file(path: Path) -> Given:
    name = str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = tomllib.loads(text)
        return Given(found, name, found)
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise InvalidSettingsError([SettingsProblem("", reason, name)]) from error
    except UnicodeDecodeError:
        problem = SettingsProblem("", "is not text in UTF-8", name)
        # Its repr contains the file, including passwords.
        raise InvalidSettingsError([problem]) from None
    except tomllib.TOMLDecodeError as error:
        problem = SettingsProblem("", f"is not TOML: {error}", name)  # it names the line
        # Since Python 3.14 it also contains the file.
        raise InvalidSettingsError([problem]) from None
    except (ValueError, RecursionError) as error:  # Python's own limits
        reason = "holds a number of thousands of digits, or tables nested hundreds deep"
        raise InvalidSettingsError([SettingsProblem("", reason, name)]) from error


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old: object = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            tables = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", value)
            merged[key] = _merged(*tables)
        else:
            merged[key] = value
    return merged


def _quoted(part: str) -> str:
    return part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"'
