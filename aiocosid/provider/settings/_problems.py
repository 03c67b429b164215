"""Puts the errors that pydantic found into plain words, each with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, get_args

from ...errors.base import did_you_mean, one_of, with_value
from ._generators import GeneratorSettings
from ._models import (
    LeafTagsSettings,
    MachineSettings,
    OwnStoreSettings,
    Settings,
    TieredSettings,
)
from ._server import (
    DialectSettings,
    LeafDialectSettings,
    LimitSettings,
    RespSettings,
    ServerSettings,
    TinyidDialectSettings,
    TokenSettings,
)
from ._sharding import ShardingSettings
from ._texts import ConverterSettings, DatePrefixSettings, GroupPrefixSettings, LayoutSettings

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from ...errors.base import SettingsProblem
    from ._sources import Given

__all__ = ("Path", "explained")


def _tagged(union: object, key: str) -> dict[str, type[BaseModel]]:
    """Return the classes of a union by the value of the key that distinguishes them."""
    classes: tuple[type[BaseModel], ...] = get_args(get_args(union)[0])
    return {tag: each for each in classes for tag in get_args(each.model_fields[key].annotation)}


KINDS: Final = _tagged(GeneratorSettings, "kind")
TYPES: Final = _tagged(ShardingSettings, "type")
TABLES: Final[dict[str, type[BaseModel]]] = {
    "machine": MachineSettings,
    "leaf_tags": LeafTagsSettings,
    "converter": ConverterSettings,
    "layout": LayoutSettings,
    "group_prefix": GroupPrefixSettings,
    "date_prefix": DatePrefixSettings,
}
OF_SERVER: Final[dict[str, type[BaseModel]]] = {
    "server": ServerSettings,
    "limits": LimitSettings,
    "tokens": TokenSettings,
    "cosid": DialectSettings,
    "leaf": LeafDialectSettings,
    "tinyid": TinyidDialectSettings,
    "resp": RespSettings,
}
FORMER: Final = {"mode": "group_kind"}
"""Keys that earlier versions had, by the present one."""

ENTRIES: Final = ("generators", "sharding", "stores")
"""The tables whose keys are the user's names."""

STORE_KINDS: Final = ("url", "tiered", "own")

Path: TypeAlias = tuple[str, ...]

SECRET: Final = {"store", "stores", "lane_store", "key", "tokens"}
SHOWN: Final = 60  # maximum characters of a value


def explained(error: ValidationError, given: Given) -> dict[Path, SettingsProblem]:
    """Return the problems by the path of their key, in pydantic's order."""
    found = error.errors(include_url=False, include_input=False)
    return dict(_problem(dict(each), given) for each in found)


def _problem(found: Mapping[str, Any], given: Given) -> tuple[Path, SettingsProblem]:
    path, context = _path(found["loc"], given.data), found.get("ctx", {})
    match found["type"]:
        case "string_type" if path[-1] == "[key]":
            path, reason = path[:-1], "its name must be a string"
        case "invalid_key":
            reason = "its name must be a string"
        case "extra_forbidden":
            reason = _unknown(path, given.data)
        case "missing":
            reason = "is missing"
        case "union_tag_not_found":
            path = (*path, str(context["discriminator"]).strip("'"))
            reason = f"is required; give one of {_known_kinds(path)}"
        case "union_tag_invalid":
            path = (*path, str(context["discriminator"]).strip("'"))
            tags = context["expected_tags"].strip("'").split("', '")
            reason = with_value(one_of(tags, context["tag"]), _shown(path, given.data))
        case "model_type" | "dict_type" | "model_attributes_type":
            reason = "must be a table"
        case _:
            rule, shown = _in_words(str(found["msg"])), _shown(path, given.data)
            near = did_you_mean(shown.strip("'"), re.findall("'([^']+)'", rule)) if shown else ""
            reason = with_value(rule + near, shown)
    return path, given.problem(path, reason)


def _path(location: tuple[int | str, ...], data: object) -> Path:
    """Return the path of a key, without the kinds that pydantic adds in between."""
    path: list[str] = []
    may_be_kind = False
    for part in map(str, location):
        table = cast("Mapping[str, Any]", data if isinstance(data, Mapping) else {})
        if may_be_kind and part in (
            table.get("kind"),
            table.get("type"),
        ):  # one of them may be a list, which cannot be hashed
            may_be_kind = False
            continue
        if may_be_kind and path[0] == "stores" and part in STORE_KINDS:
            may_be_kind = False
            continue
        path.append(part)
        data = table.get(part)
        may_be_kind = path[0] == "share" or (path[0] in ENTRIES and len(path) > 1)
    return tuple(path)


def _known_kinds(path: Path) -> str:
    return ", ".join(f"'{name}'" for name in (TYPES if path[0] == "sharding" else KINDS))


def _unknown(path: Path, data: object) -> str:
    section = _section(path[:-1], data)
    own = section.model_fields
    known = [(each.alias or name) if "-" in path[-1] else name for name, each in own.items()]
    close = [FORMER.get(path[-1], "")]
    if close[0] not in own:
        close = get_close_matches(path[-1].replace("-", "_"), list(own), 1)
    if close:
        alias = own[close[0]].alias
        return f"is not a key here; did you mean {alias or close[0]}?"
    return f"is not a key here; known are {', '.join(sorted(known))}"


def _section(path: Path, data: object) -> type[BaseModel]:
    section: type[BaseModel] = TieredSettings if path[:1] == ("stores",) else Settings
    tables = OF_SERVER if path[:1] == ("server",) else TABLES
    for part in path:
        data = cast("Mapping[str, Any]", data).get(part) if isinstance(data, Mapping) else None
        table = cast("Mapping[str, Any]", data if isinstance(data, Mapping) else {})
        kind = table.get("kind", table.get("type"))
        if "make" in table and path[0] == "stores":
            section = OwnStoreSettings
        section = (
            tables.get(part)
            or (KINDS.get(kind, TYPES.get(kind)) if isinstance(kind, str) else None)
            or section
        )
    return section


def _shown(path: Path, data: object) -> str:
    """Return the value as a message shows it; empty if it may be secret."""
    for part in path:
        if not (isinstance(data, str) and part == "type"):  # a text is short for such a table
            data = cast("Mapping[str, Any]", data).get(part) if isinstance(data, Mapping) else None
    is_secret = not SECRET.isdisjoint(path) or (isinstance(data, str) and "://" in data)
    if is_secret or data is None or isinstance(data, Mapping | list):
        return ""
    text = repr(str(data) if isinstance(data, str) else data)
    return text if len(text) <= SHOWN else ""


def _in_words(message: str) -> str:
    for theirs in ("Input should ", "String should ", "Dictionary should "):
        if message.startswith(theirs):
            return f"must {message.removeprefix(theirs).partition(', unable to ')[0]}"
    return message[:1].lower() + message[1:]
