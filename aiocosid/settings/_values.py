"""The types of single values: strict, but for the environment, which knows texts only."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ConfigDict, SecretStr, WrapValidator
from pydantic_core import PydanticCustomError

from ..abc import Store

__all__ = (
    "STRICT",
    "EnvironmentText",
    "Flag",
    "Function",
    "Moment",
    "Seconds",
    "StoreValue",
    "Threshold",
    "Whole",
    "shorthand",
    "shown_url",
)

INTEGER: Final = re.compile(r"[+-]?[0-9]{1,30}")

WORDS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class EnvironmentText(str):
    """A value that an environment variable gave."""

    __slots__ = ()


STRICT: Final = ConfigDict(
    extra="forbid",
    frozen=True,
    strict=True,
    hide_input_in_errors=True,  # it may hold a password
)
"""Of each table of settings: unknown keys are refused, and nothing can be changed afterwards."""


def _whole(value: object) -> object:
    if isinstance(value, EnvironmentText) and INTEGER.fullmatch(value):
        return int(value)
    return value


def _seconds(value: object) -> object:
    if isinstance(value, EnvironmentText):
        try:
            return float(value)
        except ValueError:
            pass  # the type's own error says what it has to be
    return value


def _threshold(value: object) -> object:
    if value is None or value == "none":
        return None
    value = _whole(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < -1:
        message = "Input should be an integer of -1 or more, or 'none'"
        raise PydanticCustomError("threshold", message)
    return value


def _imported(value: object) -> object:
    if not isinstance(value, str):
        return value  # of a mapping, it may be the object itself
    module, _, names = value.partition(":")
    try:
        found: object = import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except Exception as error:  # noqa: BLE001 - a module of the user's, which may raise anything
        message = "Input should be what can be imported, as 'package.module:name'; {reason}"
        reason = f"{type(error).__name__}: {error}"
        raise PydanticCustomError("import", message, {"reason": reason}) from None
    return found


def _flag(value: object) -> object:
    return WORDS.get(value.lower(), value) if isinstance(value, EnvironmentText) else value


def _moment(value: object) -> object:
    if isinstance(value, EnvironmentText) and not INTEGER.fullmatch(value):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    return _whole(value)


def shorthand(key: str, *, path: str = "") -> BeforeValidator:
    """Accept a text where a table is due, as the value of its one most important key.

    Args:
        key: the key.
        path: another one, whose value is the path of what is imported: a text with a colon.
    """

    def as_table(value: object) -> object:
        if not isinstance(value, str):
            return value
        return {path if path and ":" in value else key: value}

    return BeforeValidator(as_table)


def _store(value: object, secret: Callable[[object], object]) -> object:
    return value if isinstance(value, Store) else secret(value)


if TYPE_CHECKING:
    StoreValue: TypeAlias = SecretStr | Store
else:
    StoreValue = Annotated[SecretStr, WrapValidator(_store)]
"""A URL or a name, which may be secret; or, in a mapping, a store itself."""

Whole = Annotated[int, BeforeValidator(_whole)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Function = Annotated[Callable[..., Any], BeforeValidator(_imported)]
"""One of the user's, by module and name; it is imported when settings are read."""
Threshold = Annotated[int | None, BeforeValidator(_threshold)]
"""Where a sequence begins anew; None, written "none", for each tick."""
Moment = Annotated[Any, BeforeValidator(_moment)]
"""A time with its offset, or an integer of milliseconds; the layout looks closer."""


SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def shown_url(url: str) -> str:
    """Return scheme, host and path; options and whoever logs in are left out."""
    if SCHEME.match(url) is None:
        return "***"  # no URL: a driver's own text of settings, with a password perhaps
    scheme = url.partition(":")[0]
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{scheme}://***"
    if "@" in parts.path + parts.query + parts.fragment:
        return f"{scheme}://***"  # perhaps a password that nobody has escaped
    user, _, host = parts.netloc.rpartition("@")
    return f"{scheme}://{'***@' if user else ''}{host}{parts.path}"
