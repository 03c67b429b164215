"""Reads a source, and builds its generators without opening them, or collects all its problems."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from ...errors import InvalidSettingsError
from ._build import Builder
from ._models import Settings
from ._problems import explained
from ._sharding import in_our_words
from ._sources import Given, read
from ._stores import single_store, store_factories

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from os import PathLike

    from ...abc import Store
    from ...errors.base import SettingsProblem
    from ._build import Built
    from ._problems import Path

__all__ = (
    "Source",
    "built",
    "configured_store",
    "configured_stores",
    "load_settings",
    "make_stores",
)

if TYPE_CHECKING:
    Source = Settings | Mapping[str, object] | str | PathLike[str] | None


def load_settings(source: Source = None) -> Settings:
    """Return the settings of a file, a mapping or the environment, after checking all of them.

    Args:
        source: the path of a TOML file, a mapping of the same shape, or None for the file that
            ``AIOCOSID_CONFIG`` names, if any.  ``AIOCOSID_...`` variables override a file.

    Raises:
        InvalidSettingsError: a setting is wrong; the error lists every problem with its place.
        MissingExtraError: the extra ``settings`` is not installed.
    """
    return built(source)[0]


def configured_stores(source: Source = None) -> list[tuple[str, Callable[[], Store], str]]:
    """Return each store in the settings: URL, function that creates it, and namespace.

    The URLs have no credentials.  Your own store has its name instead of a URL; stores that were
    passed as objects are left out.

    Args:
        source: as for `load_settings`.

    Raises:
        InvalidSettingsError: as for `load_settings`.
    """
    settings = load_settings(source)
    return [(*each, settings.namespace) for each in store_factories(settings)]


def configured_store(source: Source = None) -> tuple[str, Callable[[], Store], str]:
    """Return the top or only store in the settings: URL, function that creates it, and namespace.

    The URL has no credentials; your own store has its name instead.

    Args:
        source: as for `load_settings`.

    Raises:
        InvalidArgumentError: the settings name no store, or several stores with none at the top.
        InvalidSettingsError: as for `load_settings`.
    """
    settings = load_settings(source)
    return *single_store(settings), settings.namespace


def make_stores(source: Source = None) -> list[Store]:
    """Return the stores in the settings, with a tiered store in place of its parts.

    Nothing is sent; the caller must close the stores.

    Args:
        source: as for `aiocosid.configure`.

    Raises:
        InvalidSettingsError: as for `aiocosid.configure`.
    """
    _, _, parts = built(source, rehearsal=True)
    return parts.whole


def built(source: Source, **options: Any) -> tuple[Settings, Given, Built]:  # noqa: ANN401 - Builder's
    """Return settings, their source, and what they describe, built but not opened.

    Raises:
        InvalidSettingsError: as for `load_settings`.
    """
    if isinstance(source, Settings):
        return source, Given({}), _built(source, Given({}), options)
    given = read(source)
    given = replace(given, data=in_our_words(given.data))
    try:
        settings = Settings.model_validate(given.data)
    except ValidationError as error:
        found = explained(error, given)
        others = _others(given, found, options)
        cause = None if _may_tell(error) else error
        problems = [*given.environment.mistyped, *found.values(), *others]
        raise InvalidSettingsError(problems) from cause
    return settings, given, _built(settings, given, options)


def _built(settings: Settings, given: Given, options: Mapping[str, Any]) -> Built:
    builder = Builder(settings, given, **options)
    parts = builder.build()
    problems = [*given.environment.mistyped, *builder.problems]
    if problems:
        raise InvalidSettingsError(problems)
    return parts


def _others(
    given: Given, found: Collection[Path], options: Mapping[str, Any]
) -> list[SettingsProblem]:
    """Return the problems of the tables that pydantic has not refused.

    If pydantic has refused a table on which all generators depend, there are none, because they
    would only follow from that table, and many would be wrong.
    """
    rest = {
        key: dict(cast("dict[str, Any]", value)) if isinstance(value, dict) else value
        for key, value in given.data.items()
    }
    broken: set[str] = set()
    for path in found:
        match path:
            case ("generators" | "sharding" as table, name, *_):
                rest[table] = _without(rest[table], name)
                broken.add(name)
            case (key, *_) if (
                key in {"share", "leaf_tags", "server"} or key not in Settings.model_fields
            ):
                rest = _without(rest, key)
            case _:
                return []
    try:
        sound = Settings.model_validate(rest)
    except ValidationError:  # pydantic shows a name that is not valid UTF-8 differently
        return []
    builder = Builder(sound, replace(given, data=rest), broken=broken, **options)
    builder.build()
    return builder.problems


def _without(table: Mapping[Any, Any], name: str) -> dict[str, Any]:
    """Return the table without a key, which may have been refused because it is not a text."""
    return {key: value for key, value in table.items() if str(key) != name}


def _may_tell(error: ValidationError) -> bool:
    """Return whether pydantic's message may contain a URL, since it quotes an unknown kind."""
    return "://" in str(error).replace("https://errors.pydantic.dev", "")
