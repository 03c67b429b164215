"""docs/reference/settings.md tells of every key and default, and of no other."""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic import BaseModel

from aiocosid.provider import settings
from aiocosid.provider.settings import LayoutSettings
from aiocosid.provider.settings._values import STRICT
from tests.docs._reference import PAGE, page

TEXT: Final = PAGE.read_text("utf-8")
KEYS: Final = re.sub(r"(?s)<!-- urls: .*?<!-- Until here", "", TEXT)  # not of URLs
ROW: Final = re.compile(r"^\| `([a-z_]+)` \| [^|]*\| (?:`([^`]*)`|(required))? *\|", re.MULTILINE)


def sections() -> list[type[BaseModel]]:
    """Return all tables of settings."""
    found = [getattr(settings, name) for name in settings.__all__]
    return [each for each in found if isinstance(each, type) and issubclass(each, BaseModel)]


def written(default: Any) -> str:
    """Return a default as the page has it; nothing for what depends on others."""
    if isinstance(default, LayoutSettings):
        default = default.name
    if default is None or isinstance(default, dict | BaseModel):
        return ""
    return str(default).lower() if isinstance(default, bool) else repr(default).replace("'", '"')


def test_the_tables_are_those_of_the_declarations() -> None:
    """`python -m tests.docs._reference` makes them anew."""
    assert page(TEXT) == TEXT


def test_the_page_has_every_key_with_its_default() -> None:
    """And none that has gone."""
    real: set[tuple[str, str]] = set()
    dashed: set[str] = set()
    for section in sections():
        for name, field in section.model_fields.items():
            if name in {"kind", "type"} and field.is_required():
                continue
            default = field.get_default(call_default_factory=True)
            if field.alias and "-" in field.alias:
                dashed.add(field.alias)
            else:
                real.add((name, "required" if field.is_required() else written(default)))
    told = {(name, default or required) for name, default, required in ROW.findall(KEYS)}
    assert told - real == set()
    assert real - told == set()
    assert {name for name in dashed if f"`{name}`" not in TEXT} == set()


def test_every_table_is_strict() -> None:
    """A slip in a key is refused in each, and nothing that is secret is in pydantic's own words."""
    lax = [each for each in sections() if not STRICT.items() <= each.model_config.items()]
    assert lax == []


def test_no_table_has_more_than_three_ancestors_of_ours() -> None:
    deep = [each for each in sections() if each.__mro__.index(BaseModel) > 4]
    assert deep == []
