"""The tables of docs/reference/settings.md that come from declarations, of keys and of URLs.

``python -m tests.docs._reference`` writes them into the marked blocks of the page.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from importlib import import_module
from math import inf
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from aiocosid.provider.settings import (
    ConverterSettings,
    DatePrefixSettings,
    DialectSettings,
    GroupPrefixSettings,
    LayoutSettings,
    LeafDialectSettings,
    LeafTagsSettings,
    LimitSettings,
    MachineSettings,
    OwnStoreSettings,
    RespSettings,
    SegmentSettings,
    ServerSettings,
    Settings,
    TieredSettings,
    TinyidDialectSettings,
    TokenSettings,
)
from aiocosid.provider.settings._build import NO_PLACE
from aiocosid.provider.settings._converters import TAKES as CONVERTER_TAKES
from aiocosid.provider.settings._generators import GeneratorSettings
from aiocosid.provider.settings._machines import TAKES as MACHINE_TAKES
from aiocosid.provider.settings._sharding import ShardingSettings
from aiocosid.stores import _url
from aiocosid.stores._url import Option, UrlSpec

from ._blocks import ROOT

__all__ = ("PAGE", "page")

PAGE: Final = ROOT / "docs" / "reference" / "settings.md"
BLOCK: Final = re.compile(
    r"(<!-- (\w+): made by `python -m tests\.docs\._reference`\. -->\n\n)"
    r".*?(\n<!-- Until here\. -->\n)",
    re.DOTALL,
)

ROOMS: Final = ("segment", "snowflake", "generators")
"""Where the classes of generators are: modules, and pages of docs/reference/api/."""

MORE: Final = {
    "converter": "#converters",
    "endurance": "../explanation/segment-chain.md#seconds-ahead",
    "fail_fast": "../howto/fastapi.md#while-the-store-is-down",
    "create": "cli.md#init",
    "create in ServerSettings": "",
    "generators": "#generators",
    "key in GroupedSettings": "api/segment.md#aiocosid.segment.GroupBy.key",
    "layout": "#a-layout-of-your-own",
    "leaf_tags": "#leafs-tags",
    "machine": "#machine-ids",
    "name in LayoutSettings": "snowflake.md#ready-made-layouts",
    "pattern": "#date-patterns",
    "rate": "#warnings",
    "root_name": "../howto/tiered-store.md#several-databases-on-one-redis",
    "server": "#the-id-service",
    "sharding": "#sharding",
    "state_dir": "../explanation/leases.md#a-restart-on-the-same-machine",
    "store": "#store-urls",
    "stores": "#tiered-stores",
    "strict": "generators.md#strict-order-across-processes",
}
"""Where a key is explained at length."""


def docs_of(section: type[BaseModel]) -> dict[str, str]:
    """Return what a class's own docstring says of its attributes."""
    listed = inspect.cleandoc(section.__doc__ or "").partition("Attributes:\n")[2]
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", listed, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def meaning(section: type[BaseModel], name: str, field: FieldInfo) -> str:
    """Return what a key means: as it is declared for the command line too, or by the docstring."""
    text = "; ".join(filter(None, (*descriptions(field), docs_of(section).get(name))))
    if not text:
        raise LookupError(f"{section.__name__}.{name} has no words")
    more = MORE.get(f"{name} in {section.__name__}", MORE.get(name))
    return linked(text.rstrip(".")) + (f"; [more]({more})" if more else "")


def descriptions(field: Any) -> Iterator[str]:
    """Yield the words that an annotation has, at whatever depth."""
    if isinstance(field, FieldInfo):
        if field.description:
            yield field.description
        field = field.annotation
    for each in get_args(field):
        if isinstance(each, FieldInfo) and each.description:
            yield each.description
        elif get_origin(each) is Annotated:
            yield from descriptions(each)


def linked(text: str) -> str:
    """Return a docstring's words for a cell of a page, with links to classes."""

    def link(match: re.Match[str]) -> str:
        name = match[1]
        [room] = [each for each in ROOMS if hasattr(import_module(f"aiocosid.{each}"), name)]
        return f"[`{name}`](api/{room}.md#aiocosid.{room}.{name})"

    return re.sub(r"(?<!`)`([A-Z]\w+)`(?!`)", link, text).replace("``", "`")


def numbers(metadata: Iterable[Any]) -> str:
    """Return the range in the metadata of an annotation."""
    ends: dict[str, Any] = {}
    for each in metadata:
        for end in ("ge", "gt", "le", "lt"):
            if getattr(each, end, None) is not None:
                ends[end] = getattr(each, end)
        if isinstance(each, FieldInfo):
            return numbers(each.metadata)
    low = f"{ends['ge']}" if "ge" in ends else f"above {ends['gt']}" if "gt" in ends else ""
    if ends.get("le", inf) != inf:
        return f", {low} to {power(ends['le'])}"
    if "lt" in ends:
        return f", {low} to below {power(ends['lt'])}"
    return f", {low}{' or more' if 'ge' in ends else ''}" if low else ""


def power(number: float) -> str:
    """Return a large number as the power of two that it is, or is one below."""
    for less, suffix in ((0, ""), (1, "-1")):
        whole = int(number) + less
        if whole >= 1 << 20 and whole & (whole - 1) == 0:
            return f"2^{whole.bit_length() - 1}{suffix}"
    return f"{number}"


MARKED: Final = {
    "_imported": '`"package.module:name"`',
    "_threshold": 'an integer, -1 or more, or `"none"`',
    "_creation": '`true`, `false`, a day, or `"disposable"`',
    "_store": "a text",
}
"""What a key takes that a function of these names reads."""
SIMPLE: Final[dict[Any, str]] = {
    Any: "a time, or an integer",
    bool: "`true` or `false`",
    datetime: "a time",
    dict: "a table",
    float: "a number",
    int: "an integer",
    list: "a list",
    SecretStr: "a text",
    str: "a text",
}


def value(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Return which values a key takes."""
    for mark, words in MARKED.items():
        if mark in repr(metadata):
            return words
    arguments, origin = get_args(annotation), get_origin(annotation)
    if origin is Annotated:
        return value(arguments[0], arguments[1:])
    if origin is Literal:
        return one_of([f'`"{each}"`' for each in arguments])
    if origin in {Union, UnionType}:
        given = [each for each in arguments if each is not type(None)]
        return " or ".join(dict.fromkeys(value(each, metadata) for each in given))
    return SIMPLE.get(origin or annotation, "a table") + numbers(metadata)


def one_of(words: list[str], last: str = "or") -> str:
    """Join words as a sentence does."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def default(field: FieldInfo) -> str:
    """Return a key's default as a file has it; nothing for what depends on others."""
    if field.is_required():
        return "required"
    found = field.get_default(call_default_factory=True)
    found = found.name if isinstance(found, LayoutSettings) else found
    if found is None or isinstance(found, dict | BaseModel):
        return ""
    shown = str(found).lower() if isinstance(found, bool) else repr(found).replace("'", '"')
    return f"`{shown}`"


def table(section: type[BaseModel], takes: dict[str, set[str]] | None = None) -> list[str]:
    """Return the rows of a class's own keys.

    Args:
        section: the class.
        takes: the keys that go only with some choices, by choice.
    """
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for name in section.__annotations__:
        field = section.model_fields.get(name)
        if field is None or (name in {"kind", "type"} and field.is_required()):
            continue
        words = meaning(section, name, field)
        fitting = [each for each, keys in (takes or {}).items() if name in keys]
        if fitting:
            words += f" ({', '.join(fitting)})"
        shown = field.alias or name
        kinds = value(field.annotation, field.metadata)
        lines.append(f"| `{shown}` | {kinds} | {default(field)} | {words} |")
    return lines


def members(union: Any, key: str) -> dict[type[BaseModel], list[str]]:
    """Return the classes of a union with the words that select each."""
    classes: tuple[type[BaseModel], ...] = get_args(get_args(union)[0])
    return {each: [*get_args(each.model_fields[key].annotation)] for each in classes}


def inherited(union: Any, key: str) -> Iterator[str]:
    """Yield a table for each class of a union, and for each that several of them extend."""
    classes = members(union, key)
    order = [each for found in classes for each in reversed(found.__mro__)]
    for section in dict.fromkeys(order):
        if not (issubclass(section, BaseModel) and len(table(section)) > 2):
            continue
        words = [
            f"`{word}`"
            for found, all_ in classes.items()
            if issubclass(found, section)
            for word in all_
        ]
        has = "has" if len(words) == 1 else "have"
        everyone = len(words) == sum(map(len, classes.values()))
        yield "All have:\n" if everyone else f"{one_of(words, 'and')} {has}:\n"
        yield from (*table(section), "")
        if section is SegmentSettings.__mro__[2]:
            yield from ("| kind | has none of | because |", "|---|---|---|")
            for kind, (names, reason) in NO_PLACE.items():
                yield f"| `{kind}` | {', '.join(f'`{name}`' for name in names)} | {reason} |"
            yield ""


def kinds() -> Iterator[str]:
    """Yield the table of kinds: each with its class."""
    yield from ("| `kind` | what it is |", "|---|---|")
    for section, words in members(GeneratorSettings, "kind").items():
        shown = ", ".join(f'`"{word}"`' for word in words)
        first = inspect.cleandoc(section.__doc__ or "").partition("\n\n")[0]
        yield f"| {shown} | {linked(' '.join(first.split())).rstrip('.')} |"


def shardings() -> Iterator[str]:
    """Yield the table of types, and those of their keys."""
    yield from ("| `type` | what it is |", "|---|---|")
    for section, words in members(ShardingSettings, "type").items():
        shown = ", ".join(f'`"{word}"`' for word in words)
        first = inspect.cleandoc(section.__doc__ or "").partition("\n\n")[0]
        yield f"| {shown} | {first.rstrip('.')} |"
    yield ""
    yield from inherited(ShardingSettings, "type")


def urls() -> Iterator[str]:
    """Yield for each kind of server its URLs, and the table of their options."""
    for name in filter(str.isupper, _url.__all__):
        found = getattr(_url, name)
        specs: tuple[UrlSpec, ...] = found if isinstance(found, tuple) else (found,)
        for spec in specs:
            schemes = one_of([f"`{each}://`" for each in spec.schemes], "and")
            port = f"; port {spec.port} if none is given" if spec.port else ""
            yield f"* {schemes}: as {form(spec.form)}{port}."
        yield ""
        if options := options_of(specs):
            yield from ("| option | value | default | meaning |", "|---|---|---|---|")
            everywhere = {scheme for spec in specs for scheme in spec.schemes}
            secure = {scheme for spec in specs for scheme, is_tls in spec.schemes.items() if is_tls}
            for option, (each, schemes_of) in options.items():
                some = ", ".join(f"`{scheme}://`" for scheme in schemes_of)
                some = "with TLS" if {*schemes_of} == secure else some
                where = "" if {*schemes_of} == everywhere else f" ({some})"
                default = "" if each.default is None else f"`{each.default}`"
                yield f"| `{option[0]}` | {each.expected} | {default} | {each.doc}{where} |"
            yield ""


def options_of(specs: Iterable[UrlSpec]) -> dict[tuple[str, str], tuple[Option, list[str]]]:
    """Return the options by name and meaning, each with the schemes that have it."""
    found: dict[tuple[str, str], tuple[Option, list[str]]] = {}
    for spec in specs:
        for scheme, is_tls in spec.schemes.items():
            for name, each in {**spec.options, **(spec.tls_options if is_tls else {})}.items():
                found.setdefault((name, each.doc), (each, []))[1].append(scheme)
    return found


def form(text: str) -> str:
    """Return the form of a URL with its examples as code."""
    return re.sub(r"([a-z+]+://\S*?)(?=[,;]? |$|,$)", r"<code>\1</code>", text)


BLOCKS: Final[dict[str, Callable[[], Iterable[str]]]] = {
    "top": lambda: table(Settings),
    "kinds": kinds,
    "generators": lambda: inherited(GeneratorSettings, "kind"),
    "layout": lambda: table(LayoutSettings),
    "converter": lambda: table(ConverterSettings, CONVERTER_TAKES),
    "group_prefix": lambda: table(GroupPrefixSettings),
    "date_prefix": lambda: table(DatePrefixSettings),
    "tiered": lambda: table(TieredSettings),
    "own": lambda: table(OwnStoreSettings),
    "machine": lambda: table(MachineSettings, MACHINE_TAKES),
    "server": lambda: table(ServerSettings),
    "limits": lambda: table(LimitSettings),
    "tokens": lambda: table(TokenSettings),
    "dialects": lambda: table(DialectSettings),
    "leaf": lambda: table(LeafDialectSettings),
    "leaf_tags": lambda: table(LeafTagsSettings),
    "tinyid": lambda: table(TinyidDialectSettings),
    "resp": lambda: table(RespSettings),
    "sharding": shardings,
    "urls": urls,
}


def page(text: str) -> str:
    """Return the page with the tables of today."""

    def made(match: re.Match[str]) -> str:
        lines = "\n".join(BLOCKS[match[2]]()).rstrip()
        return f"{match[1]}{lines}\n{match[3]}"

    return BLOCK.sub(made, text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
