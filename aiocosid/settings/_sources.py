"""Where settings come from: a file, the environment, a mapping."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import create_model
from pydantic_settings import BaseSettings, EnvSettingsSource
from pydantic_settings.exceptions import SettingsError

from ..errors import InvalidSettingsError
from ..errors._settings import SettingsProblem
from ._models import Settings
from ._places import lines_of, nearest
from ._values import EnvironmentText

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

__all__ = ("CONFIG_VARIABLE", "PREFIX", "Given", "read")

PREFIX: Final = "AIOCOSID_"
CONFIG_VARIABLE: Final = "AIOCOSID_CONFIG"
DELIMITER: Final = "__"

LINE: Final = re.compile(r"at line ([0-9]+)")

SHORT: Final = {"name", "type"}
"""Keys whose value may stand in place of their table."""

TABLES: Final = ("stores", "machine", "share", "generators", "sharding")


@dataclass(frozen=True, slots=True)
class Given:
    """What was given, not looked at yet.

    Attributes:
        data: tables and values.
        file: the file's name; empty without one.
        lines: where its keys are.
    """

    data: dict[str, Any]
    file: str = ""
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)

    def problem(self, path: tuple[str, ...], reason: str) -> SettingsProblem:
        """Return a problem with its place."""
        path, found = self._found(path)
        key = ".".join(map(_quoted, path))
        if isinstance(found, EnvironmentText):
            return SettingsProblem(key, reason, PREFIX + DELIMITER.join(path).upper())
        return SettingsProblem(key, reason, self.file, nearest(self.lines, path))

    def _found(self, path: tuple[str, ...]) -> tuple[tuple[str, ...], object]:
        """Return the path as it is spelt here, and the value there."""
        spelt: list[str] = []
        found: object = self.data
        for part in path:
            if isinstance(found, str) and part in SHORT:
                break  # it stands in place of the table
            table = cast("Mapping[str, Any]", found if isinstance(found, Mapping) else {})
            dashed = part.replace("_", "-")
            spelt.append(dashed if part not in table and dashed in table else part)
            found = table.get(spelt[-1])
        return tuple(spelt), found


def read(source: object) -> Given:
    """Return what a source says, with the environment's word before that of a file.

    Raises:
        InvalidSettingsError: the file cannot be read, or a variable is not what it has to be.
    """
    if isinstance(source, Mapping):
        return Given(dict(cast("Mapping[str, Any]", source)))
    if source is None:
        source = os.environ.get(CONFIG_VARIABLE)
    given = Given({}) if source is None else _file(Path(cast("str", source)))
    return Given(_merged(given.data, _environment()), given.file, given.lines)


def _file(path: Path) -> Given:
    name = str(path)
    try:
        text = path.read_text(encoding="utf-8")
        return Given(tomllib.loads(text), name, lines_of(text))
    except OSError as error:
        reason, line = f"cannot be read: {error.strerror or error}", None
        raise InvalidSettingsError([SettingsProblem("", reason, name, line)]) from error
    except UnicodeDecodeError as error:
        problem = SettingsProblem("", "is no text in UTF-8", name)
        raise InvalidSettingsError([problem]) from error
    except tomllib.TOMLDecodeError as error:
        found = LINE.search(str(error))
        line = int(found[1]) if found else None
        problem = SettingsProblem("", f"is no TOML: {error}", name, line)
        raise InvalidSettingsError([problem]) from error


class _Environment(EnvSettingsSource):
    """pydantic-settings' reading of the environment, which leaves single values as they are."""

    def decode_complex_value(
        self,
        field_name: str,
        field: FieldInfo,
        value: Any,  # noqa: ANN401 - theirs
    ) -> Any:  # noqa: ANN401 - theirs
        decoded: object = super().decode_complex_value(field_name, field, value)
        return cast("object", decoded) if isinstance(decoded, dict | list) else value


def _environment() -> dict[str, Any]:
    shape: dict[str, Any] = {
        name: (dict if name in TABLES else str, None) for name in Settings.model_fields
    }
    variables = create_model("Variables", __base__=BaseSettings, **shape)
    source = _Environment(
        variables, case_sensitive=False, env_prefix=PREFIX, env_nested_delimiter=DELIMITER
    )
    try:
        found = source()
    except SettingsError as error:
        name = next((each for each in TABLES if f'"{each}"' in str(error)), "")
        variable = PREFIX + name.upper()
        problem = SettingsProblem(name, "has to be a table, written in JSON", variable)
        raise InvalidSettingsError([problem]) from error
    return cast("dict[str, Any]", _marked(found))


def _marked(value: object) -> object:
    if isinstance(value, dict):
        return {key: _marked(each) for key, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_marked(each) for each in cast("list[object]", value)]
    return EnvironmentText(value) if isinstance(value, str) else value


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
