"""Reads settings from the environment's ``AIOCOSID_...`` variables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pydantic import create_model
from pydantic_settings import BaseSettings, EnvSettingsSource
from pydantic_settings.exceptions import SettingsError

from ...abc.variables import (
    DELIMITER,
    FILE,
    KEYS,
    PREFIX,
    TABLES,
    Variables,
    is_file,
    plain,
    value_of,
)
from ...errors import InvalidSettingsError
from ...errors.base import SettingsProblem
from ._values import EnvironmentText

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from ...abc.variables import Path

__all__ = ("Environment", "environment")


@dataclass(frozen=True, slots=True)
class Environment:
    """The settings that variables give.

    Attributes:
        data: tables and values.
        names: the variables by the path of their key.
        mistyped: the variables with an unknown key that can only be meant for aiocosid.
        unknown: the variables with an unknown key that may belong to another program.
    """

    data: dict[str, Any] = field(default_factory=dict)
    names: dict[Path, str] = field(default_factory=dict)
    mistyped: tuple[SettingsProblem, ...] = ()
    unknown: tuple[SettingsProblem, ...] = ()

    def variable(self, path: Path, *, is_elsewhere: bool) -> str:
        """Return the variable that sets a key; empty if there is none.

        Args:
            path: the key.
            is_elsewhere: whether a file also has the key; tables are merged.
        """
        found: object = self.data
        for part in path:
            if not isinstance(found, dict) or part not in found:
                return ""
            found = cast("dict[str, object]", found)[part]
        if isinstance(found, dict) and is_elsewhere:
            return ""
        names = (self.names.get(path[:length], "") for length in range(len(path), 0, -1))
        return next(filter(None, names), "")


def environment() -> Environment:
    """Return the settings of the environment.

    Raises:
        InvalidSettingsError: a variable that must be a JSON table is not one.
    """
    said = Variables.read()
    return Environment(_read(), *said)


class _Source(EnvSettingsSource):
    """Reads the environment as pydantic-settings does, but leaves single values as text."""

    def _load_env_vars(self) -> dict[str, str | None]:
        """Return the variables; those that end in ``_FILE`` have their files' content as values."""
        found = dict(super()._load_env_vars())
        for name in Variables.read().names.values():
            if is_file(name):
                del found[name.lower()]
                if text := value_of(name):  # otherwise `Variables` reports the problem
                    found[name.lower().removesuffix(FILE)] = text
        return found

    def decode_complex_value(
        self,
        field_name: str,
        field: FieldInfo,
        value: Any,  # noqa: ANN401 - pydantic's
    ) -> Any:  # noqa: ANN401 - pydantic's
        decoded: object = super().decode_complex_value(field_name, field, plain(value))
        return cast("object", decoded) if isinstance(decoded, dict | list) else value


def _read() -> dict[str, Any]:
    shape: dict[str, Any] = {name: (dict if name in TABLES else str, None) for name in KEYS}
    variables = create_model("Variables", __base__=BaseSettings, **shape)
    source = _Source(
        variables,
        case_sensitive=False,
        env_prefix=PREFIX,
        env_nested_delimiter=DELIMITER,
        env_ignore_empty=True,  # an empty variable is refused
    )
    try:
        found = source()
    except SettingsError as error:
        name = next((each for each in TABLES if f'"{each}"' in str(error)), "")
        variable = PREFIX + name.upper()
        problem = SettingsProblem(name, "must be a table, written in JSON", variable)
        raise InvalidSettingsError([problem]) from error
    except RecursionError as error:
        reason = f"holds JSON that is nested too deeply, in one of the {PREFIX}... variables"
        raise InvalidSettingsError([SettingsProblem("", reason, "environment")]) from error
    return cast("dict[str, Any]", _marked(found))


def _marked(value: object) -> object:
    if isinstance(value, dict):
        return {key: _marked(each) for key, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_marked(each) for each in cast("list[object]", value)]
    return EnvironmentText(plain(value)) if isinstance(value, str) else value
