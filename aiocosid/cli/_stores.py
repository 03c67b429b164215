"""Choose the store that a command works on, by one rule for all commands."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ..abc import DEFAULT_NAMESPACE
from ..abc.variables import CONFIG, Variables
from ..errors import InvalidArgumentError
from ..provider import store_from_url
from ._exit import printable, redacted

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..abc import Store

__all__ = ("ChosenStore", "chosen_store", "chosen_stores", "named_url")

FILE: Final = re.compile(r"(?<=sqlite:///)[^?#&]+|(?<=sqlite\+aiosqlite:///)[^?#&]+")


class ChosenStore(NamedTuple):
    """A store that the command line, the environment or a file of settings names.

    Attributes:
        where: its URL without credentials, a file's with its whole path; or its name.
        make: creates it; nothing is sent yet.
        namespace: the default of ``--namespace``.
        has_namespace: whether a variable or the settings say so.
    """

    where: str
    make: Callable[[], Store]
    namespace: str = DEFAULT_NAMESPACE
    has_namespace: bool = True


def chosen_store(store: str | None, config: str | None) -> ChosenStore:
    """Return the one store of a command.

    Args:
        store: the value of ``--store``.
        config: the value of ``--config``.

    Raises:
        InvalidArgumentError: no store is named, or two are.
        InvalidSettingsError: a variable is empty or misspelt, or the settings are invalid.
    """
    url = named_url(store, config)
    if url is not None:
        given = Variables.read().text("namespace")
        made, namespace = partial(store_from_url, url), given or DEFAULT_NAMESPACE
        return ChosenStore(_shown(redacted(url)), made, namespace, has_namespace=bool(given))
    from ..provider.settings import configured_store

    where, make, namespace = configured_store(config)
    return ChosenStore(_shown(where), make, namespace)


def chosen_stores(store: str | None, config: str | None) -> list[ChosenStore]:
    """Return the store that is named, or all stores of the settings; raise as `chosen_store`."""
    if named_url(store, config) is not None:
        return [chosen_store(store, config)]
    from ..provider.settings import configured_stores

    return [
        ChosenStore(_shown(where), make, namespace)
        for where, make, namespace in configured_stores(config)
    ]


def named_url(store: str | None, config: str | None) -> str | None:
    """Return the URL that is named; None if settings name the store.

    ``--store`` comes first.  Otherwise the application's settings apply: the file of ``--config``
    or ``AIOCOSID_CONFIG``, and above it ``AIOCOSID_STORE``.

    Raises:
        InvalidArgumentError: no store is named, or two.
        InvalidSettingsError: a variable is empty or misspelt.
    """
    variables = Variables.read()
    variables.check()
    if store is not None and config is not None:
        rule = "cannot be combined with --config, whose file names the stores"
        raise InvalidArgumentError("--store", printable(redacted(store)), rule)
    if store is not None:
        return store
    url = variables.text("store")
    if config is not None or variables.text(CONFIG) is not None:
        return None
    if url is None:
        rule = (
            "is required, for example sqlite:///ids.db, unless AIOCOSID_STORE, --config FILE or "
            "AIOCOSID_CONFIG names the store"
        )
        raise InvalidArgumentError("--store", None, rule)
    return url if ":" in url else None  # a name of AIOCOSID_STORES__...


def _shown(where: str) -> str:
    """Return the URL with its file's path made absolute."""
    return printable(FILE.sub(lambda found: os.path.abspath(found[0]), where))  # noqa: PTH100
