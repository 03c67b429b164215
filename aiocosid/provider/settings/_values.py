"""The types of single values: strict, except that text from environment variables is converted."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ConfigDict, Field, SecretStr, WrapValidator
from pydantic_core import PydanticCustomError

from ...abc import Store
from ...abc.checks import check_create
from ...abc.variables import NO, TRUTH_WORDS, YES, truth
from ...errors import InvalidArgumentError
from ..options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

__all__ = (
    "STRICT",
    "Creation",
    "EnvironmentText",
    "Flag",
    "Function",
    "Moment",
    "Seconds",
    "StoreValue",
    "Threshold",
    "Whole",
    "declared",
    "from_text",
    "misplaced",
    "shorthand",
    "shown_url",
)

INTEGER: Final = re.compile(r"[+-]?[0-9]{1,30}")


class EnvironmentText(str):
    """A value that comes from an environment variable."""

    __slots__ = ()


STRICT: Final = ConfigDict(
    extra="forbid",
    frozen=True,
    strict=True,
    hide_input_in_errors=True,  # the input may contain a password
)
"""The configuration of each table: it refuses unknown keys, and its values cannot be changed."""


def declared(key: str) -> Any:  # noqa: ANN401 - as pydantic's Field
    """Return the range and the description of an option that the command line has too."""
    spec = OPTIONS[key]
    return Field(ge=spec.at_least, le=spec.at_most, description=spec.doc)


def from_text(read: Callable[[str], object]) -> BeforeValidator:
    """Convert the text of an environment variable; an error shows the text's type."""

    def convert(value: object) -> object:
        if isinstance(value, EnvironmentText):
            with suppress(ValueError, KeyError):
                return read(value)
        return value

    return BeforeValidator(convert)


def _flag(value: object) -> object:
    if not isinstance(value, EnvironmentText):
        return value
    found = truth(value)
    if found is None:
        raise PydanticCustomError("flag", f"must be {TRUTH_WORDS}")
    return found


def _whole(text: str) -> int:
    if INTEGER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def _moment(text: str) -> object:
    return int(text) if INTEGER.fullmatch(text) else datetime.fromisoformat(text)


def _threshold(value: object) -> object:
    if value is None or value == "none":
        return None
    if isinstance(value, EnvironmentText) and INTEGER.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < -1:
        message = "must be an integer of -1 or more, or 'none'"
        raise PydanticCustomError("threshold", message)
    return value


def _imported(value: object) -> object:
    if not isinstance(value, str):
        return value  # in a mapping, it may be the object itself
    module, _, names = value.partition(":")
    try:
        found: object = import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything
        message = "must be importable, such as 'package.module:name': {reason}"
        reason = f"{type(error).__name__}: {error}"
        raise PydanticCustomError("import", message, {"reason": reason}) from None
    return found


def misplaced(
    given: Collection[str], choice: str, takes: Mapping[str, Collection[str]], key: str
) -> Iterator[tuple[str, str]]:
    """Yield each key that can be used only with other choices, and the reason.

    Args:
        given: the keys in the table.
        choice: the value of the deciding key.
        takes: the keys that can be used with each choice.
        key: the deciding key.
    """
    for each in sorted({*given}.intersection(chain(*takes.values())) - {*takes[choice]}):
        choices = " or ".join(f"'{name}'" for name, keys in takes.items() if each in keys)
        yield each, f"requires {key} = {choices}"


def shorthand(key: str, *, path: str = "") -> BeforeValidator:
    """Accept a text instead of a table, as the value of the table's main key.

    Args:
        key: the key.
        path: the key for a text with a colon, which is an import path.
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

Whole = Annotated[int, from_text(_whole)]
Seconds = Annotated[float, from_text(float)]


def _creation(value: object) -> object:
    words = ""
    if isinstance(value, EnvironmentText):
        words = f"must be {', '.join(YES + NO)}, disposable or a last day such as 2026-12-31"
        found = truth(value)
        value = str(value) if found is None else found
    if isinstance(value, date) and not isinstance(value, datetime):  # TOML has a type for it
        value = value.isoformat()
    try:
        return check_create(value)
    except InvalidArgumentError as error:
        raise PydanticCustomError("create", "{rule}", {"rule": words or error.rule}) from None


Flag = Annotated[bool, BeforeValidator(_flag)]

Creation = Annotated[bool | str, BeforeValidator(_creation)]
Function = Annotated[Callable[..., Any], BeforeValidator(_imported)]
"""A user's function, by module and name; reading the settings imports it."""
Threshold = Annotated[int | None, BeforeValidator(_threshold)]
"""The point at which a sequence is reset; None, written "none", means each tick."""
Moment = Annotated[Any, from_text(_moment)]
"""A time with its offset, or an integer of milliseconds; the layout checks it."""


SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def shown_url(url: str) -> str:
    """Return scheme, host and path, without user, password and options."""
    if SCHEME.match(url) is None:
        return "***"  # not a URL but a driver's connection string, perhaps with a password
    scheme = url.partition(":")[0]
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{scheme}://***"
    if "@" in parts.path + parts.query + parts.fragment:
        return f"{scheme}://***"  # perhaps an unescaped password
    user, _, host = parts.netloc.rpartition("@")
    return f"{scheme}://{'***@' if user else ''}{host}{parts.path}"
