"""Parameters and paths of requests, as the standard library reads them."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.server._http import parts_of, query_of
from aiocosid.server._problems import Problem


@given(st.one_of(st.binary(max_size=30), st.text("a1=&;%+ é", max_size=30).map(str.encode)))
def test_a_query_is_read_as_by_the_standard_library(query: bytes) -> None:
    due = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    assert query_of({"query_string": query}) == due


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_each_part_of_a_path_may_hold_anything(parts: list[str]) -> None:
    raw = "/".join(quote(each, safe="") for each in parts)
    for prefix, root in (("", ""), ("/a", ""), ("/a", "/root"), ("/a/b", "")):
        path = f"{root}{prefix}/{raw}"
        scope: dict[str, Any] = {"raw_path": path.encode(), "path": "?", "root_path": root}
        assert parts_of(scope, prefix) == parts


def test_a_path_that_is_no_utf8() -> None:
    with pytest.raises(Problem, match="not UTF-8"):
        parts_of({"raw_path": b"/a%FF", "path": "/a\ufffd"}, "")
