"""The environment variables ``AIOCOSID_...``: their names, their texts, and their mistakes."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from typing import Final, NamedTuple

from ..errors import InvalidSettingsError
from ..errors.base import MOST_SHOWN, SettingsProblem

__all__ = (
    "CONFIG",
    "DEBUG",
    "DELIMITER",
    "DISPOSABLE",
    "FILE",
    "KEYS",
    "NO",
    "PREFIX",
    "TABLES",
    "TRUTH_WORDS",
    "YES",
    "Path",
    "Variables",
    "is_file",
    "plain",
    "truth",
    "value_of",
)

PREFIX: Final = "AIOCOSID_"
DELIMITER: Final = "__"
"""Separates a table from a key in it."""

FILE: Final = "_file"
"""Suffix of a variable whose value is the path of a file that contains the setting."""

CONFIG: Final = "config"
"""The variable, in lower case and without the prefix, that names a file of settings."""

DISPOSABLE: Final = "disposable"
"""The variable that says that stores are for tests; it is not a key of the settings."""

DEBUG: Final = "debug"
"""The variable that makes each id check its loop and thread; it is not a key of the settings."""

_FLAGS: Final = ((DISPOSABLE,), (DEBUG,))

TABLES: Final = ("stores", "machine", "share", "generators", "leaf_tags", "sharding", "server")
KEYS: Final = ("close_timeout", "create", "namespace", "store", *TABLES)
"""The keys at the top of the settings; those that are not a table have one value."""

YES: Final = ("true", "1", "yes", "on")
NO: Final = ("false", "0", "no", "off")
TRUTH_WORDS: Final = f"{', '.join((*YES, *NO[:-1]))} or {NO[-1]}"
"""The accepted words, as errors list them."""

_NEAR: Final = 0.8
"""How similar a word must be to count as a typing error: ``stroe`` is, ``service`` is not."""

_KUBERNETES: Final = re.compile(r"(.+_)?(SERVICE_(HOST|PORT)(_.+)?|PORT(_[0-9]+_.+)?)", re.ASCII)
"""The variables that Kubernetes sets in pods for a Service whose name begins with ``aiocosid``:
https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables"""

Path = tuple[str, ...]
"""A key with its tables, in lower case."""


class Variables(NamedTuple):
    """The environment variables that are set.

    Attributes:
        names: the variables by the path of their key.
        mistyped: the problems of variables that can only be meant for aiocosid.
        unknown: the problems of variables that may belong to another program.
    """

    names: dict[Path, str]
    mistyped: tuple[SettingsProblem, ...]
    unknown: tuple[SettingsProblem, ...]

    @classmethod
    def read(cls) -> Variables:
        """Return the variables of this process."""
        set_ = sorted(name for name in os.environ if name.upper().startswith(PREFIX))
        names = {_path_of(name): name for name in set_}
        found = [
            problem for each in sorted(names.items()) if (problem := _problem(*each)) is not None
        ]
        for name in set(set_) - set(names.values()):  # _FILE sorts later, so it is in `names`
            reason = f"is set, and {names[_path_of(name)]} too: unset one of them"
            key = ".".join(_path_of(name))
            found.append((SettingsProblem(key, reason, name), True))
        return cls(
            names,
            tuple(problem for problem, is_ours in found if is_ours),
            tuple(problem for problem, is_ours in found if not is_ours),
        )

    def text(self, *path: str) -> str | None:
        """Return the text of a key; None if its variable is not set, or is empty."""
        name = self.names.get(path)
        return None if name is None else value_of(name) or None

    def flag(self, *path: str) -> bool:
        """Return the truth value of a key; False if its variable is not set.

        Raises:
            InvalidSettingsError: it is empty, or not one of the accepted words.
        """
        name = self.names.get(path)
        found = False if name is None else truth(value_of(name))
        if found is None:
            key = ".".join(path)
            raise InvalidSettingsError(each for each in self.mistyped if each.key == key)
        return found

    def check(self) -> None:
        """Raise `InvalidSettingsError` if a variable is empty or misspelt."""
        if self.mistyped:
            raise InvalidSettingsError(self.mistyped)


def is_file(name: str) -> bool:
    """Return whether a variable names a file with its text; ``AIOCOSID_CONFIG_FILE`` does not."""
    return name.lower().endswith(FILE) and name.lower() != f"{PREFIX}{CONFIG}{FILE}".lower()


def _path_of(name: str) -> Path:
    key = name.lower().removeprefix(PREFIX.lower())
    return tuple((key.removesuffix(FILE) if is_file(name) else key).split(DELIMITER))


def value_of(name: str) -> str:
    """Return a variable's value, or the content of its file if its name ends in ``_FILE``.

    Containers mount secrets as files.  The text of a file that cannot be read is empty; `Variables`
    tells why.
    """
    value = os.environ[name]
    if is_file(name):
        if not os.path.isfile(value):  # noqa: PTH113 - as below; a pipe could block, and ends
            return ""
        try:
            with open(value, encoding="utf-8") as file:  # noqa: PTH123 - as the user writes it
                value = file.read()
        except (OSError, ValueError):
            return ""
    return plain(value)


def plain(text: str) -> str:
    """Return the text without the byte order mark and line ends that editors add around it."""
    return text.strip("\ufeff\r\n")


def truth(text: str) -> bool | None:
    """Return the truth value of a text, in any case; None if it is not an accepted word."""
    word = plain(text).lower()
    return word in YES if word in YES + NO else None


def _problem(path: Path, name: str) -> tuple[SettingsProblem, bool] | None:
    """Return what is wrong with a variable, and whether only aiocosid can be meant."""
    first, *rest = path
    if _KUBERNETES.fullmatch(name[len(PREFIX) :].upper()):
        return None
    if first in TABLES or path in {(CONFIG,), *_FLAGS} or (first in KEYS and not rest):
        text, reason, is_ours = value_of(name), "", True
        if not text and is_file(name):
            # The value is not shown, because it may be the secret itself.
            reason = "must name a regular file with readable text: correct the path"
        elif not text:
            reason = "is empty: give it a value, or unset it"
        elif path in _FLAGS and truth(text) is None:
            reason = f"must be {TRUTH_WORDS}, not {text[:MOST_SHOWN]!r}"
        if not reason:
            return None
    else:
        meant = _meant(first, rest)
        known = "known are " + ", ".join(sorted(KEYS))
        remedy = f"did you mean {PREFIX}{meant.upper()}?" if meant else known
        reason, is_ours = f"is not a key here; {remedy}", bool(meant or rest)
    return SettingsProblem(".".join(path), reason, name), is_ours


def _meant(first: str, rest: list[str]) -> str:
    """Return the name that was probably meant; empty if none is similar."""
    if first.removesuffix(FILE) in {*KEYS, CONFIG}:  # a key that is not a table
        return first.removesuffix(FILE)
    for table in TABLES:
        if first.startswith(f"{table}_"):  # one underscore was written in place of two
            return DELIMITER.join((table, first.removeprefix(f"{table}_"), *rest))
    near = get_close_matches(first, [*KEYS, CONFIG], 1, _NEAR)
    return DELIMITER.join((*near, *(rest if near and near[0] in TABLES else ()))) if near else ""
