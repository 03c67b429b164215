"""Reads settings from the environment's ``AIOCOSID_...`` variables."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import create_model
from pydantic_settings import BaseSettings, EnvSettingsSource
from pydantic_settings.exceptions import SettingsError

from ..errors import InvalidSettingsError
from ..errors._base import SettingsProblem
from ._models import Settings
from ._values import EnvironmentText

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

__all__ = ("CONFIG_VARIABLE", "Environment", "environment")

PREFIX: Final = "AIOCOSID_"
CONFIG: Final = "config"
CONFIG_VARIABLE: Final = "AIOCOSID_CONFIG"
DELIMITER: Final = "__"

TABLES: Final = ("stores", "machine", "share", "generators", "sharding", "server")

NEAR: Final = 0.8
"""How similar a word has to be to count as a typing error: ``stroe`` is, ``service`` is not."""

KUBERNETES: Final = re.compile(r"(.+_)?(SERVICE_(HOST|PORT)(_.+)?|PORT(_[0-9]+_.+)?)", re.ASCII)
"""The variables that Kubernetes sets in pods, for a Service whose name begins with ``aiocosid``:
https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables"""

Path = tuple[str, ...]


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
        """Return the variable that gives the value of a key; empty if none does.

        Args:
            path: the key.
            is_elsewhere: whether a file has the key, too; tables are merged.
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
        InvalidSettingsError: a variable that has to be a table in JSON is not.
    """
    names = {
        tuple(name.lower().removeprefix(PREFIX.lower()).split(DELIMITER)): name
        for name in os.environ
        if name.upper().startswith(PREFIX)
    }
    strays = [
        stray for path, name in sorted(names.items()) if (stray := _stray(path, name)) is not None
    ]
    return Environment(
        _read(),
        names,
        tuple(problem for problem, is_ours in strays if is_ours),
        tuple(problem for problem, is_ours in strays if not is_ours),
    )


def _stray(path: Path, name: str) -> tuple[SettingsProblem, bool] | None:
    """Return the problem of a variable's name, and whether only aiocosid can be meant."""
    first, *rest = path
    bare = name[len(PREFIX) :].upper()
    if first in Settings.model_fields or KUBERNETES.fullmatch(bare) or path == (CONFIG,):
        return None
    meant = _meant(first)
    if meant:
        remedy = f"did you mean {PREFIX}{DELIMITER.join((meant, *rest)).upper()}?"
    else:
        remedy = f"known are {', '.join(sorted(Settings.model_fields))}"
    problem = SettingsProblem(".".join(path), f"is no key here; {remedy}", name)
    return problem, bool(meant or rest)


def _meant(first: str) -> str:
    """Return the key that the first part of a name is similar to; empty if there is none."""
    for table in TABLES:
        if first.startswith(f"{table}_"):  # one underscore instead of two
            return table + DELIMITER + first.removeprefix(f"{table}_")
    near = get_close_matches(first, [*Settings.model_fields, CONFIG], 1, NEAR)
    return near[0] if near else ""


class _Source(EnvSettingsSource):
    """Reads the environment as pydantic-settings does, but leaves single values as text."""

    def decode_complex_value(
        self,
        field_name: str,
        field: FieldInfo,
        value: Any,  # noqa: ANN401 - theirs
    ) -> Any:  # noqa: ANN401 - theirs
        decoded: object = super().decode_complex_value(field_name, field, value)
        return cast("object", decoded) if isinstance(decoded, dict | list) else value


def _read() -> dict[str, Any]:
    shape: dict[str, Any] = {
        name: (dict if name in TABLES else str, None) for name in Settings.model_fields
    }
    variables = create_model("Variables", __base__=BaseSettings, **shape)
    source = _Source(
        variables, case_sensitive=False, env_prefix=PREFIX, env_nested_delimiter=DELIMITER
    )
    try:
        found = source()
    except SettingsError as error:
        name = next((each for each in TABLES if f'"{each}"' in str(error)), "")
        variable = PREFIX + name.upper()
        problem = SettingsProblem(name, "has to be a table, written in JSON", variable)
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
    return EnvironmentText(value) if isinstance(value, str) else value
