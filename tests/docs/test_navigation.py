"""The site's navigation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]

ROOT: Final = Path(__file__).parents[2]
MOST: Final = 8
NAV: Final = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2].partition("\n\n")[0]


def groups(entries: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield each group's name and entries, and those of the groups in it."""
    for entry in entries:
        for name, content in entry.items():
            if not isinstance(content, str):
                yield name, content
                yield from groups(content)


@pytest.mark.parametrize(("name", "entries"), list(groups(yaml.safe_load(NAV))))
def test_a_group_can_be_read_at_a_look(name: str, entries: Sequence[object]) -> None:
    assert 2 <= len(entries) <= MOST, name
