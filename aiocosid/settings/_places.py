"""Finds the key that caused an error, and its line in a TOML file.  Pure.

No maintained parser of TOML reports lines.  A file that `tomllib` has read is well-formed, so
that a scan for headers, keys and the ends of values is enough.  A key within an inline table has
the line of its key, which is TOML's own rule for inline tables.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import BaseModel

    from ..errors import InvalidArgumentError

__all__ = ("lines_of", "nearest", "placed")

TOKEN: Final = re.compile(
    r"""
      (?P<text>  \"{3}(?:\\.|[^\\])*?\"{3,5} | '{3}.*?'{3,5}
               | "(?:\\.|[^"\\\n])*" | '[^'\n]*' )
    | (?P<comment> \#[^\n]* )
    | (?P<end> \n )
    | (?P<space> [^\S\n]+ )
    | (?P<sign> [\[\]{}=.,] )
    | (?P<bare> [^\s\[\]{}=.,"'\#]+ )
    """,
    re.VERBOSE | re.DOTALL,
)

Path = tuple[str, ...]


def lines_of(text: str) -> dict[Path, int]:
    """Return the line of each table and key of a well-formed file."""
    found: dict[Path, int] = {}
    table: Path = ()
    sizes: dict[Path, int] = {}  # of arrays of tables
    for line, tokens in _statements(text):
        if tokens[0] == ("sign", "["):
            *above, last = _key(tokens)
            table = (*_within(sizes, tuple(above)), last)
            if tokens[1] == ("sign", "["):
                sizes[table] = sizes.get(table, 0) + 1
                table = (*table, str(sizes[table] - 1))
            path = table
        else:
            path = table + _key(tokens)
        for depth in range(1, len(path)):
            found.setdefault(path[:depth], line)
        found[path] = line
    return found


def _within(sizes: dict[Path, int], path: Path) -> Path:
    """Return the path with the index of the last table, from 0, after each array of tables."""
    whole: Path = ()
    for part in path:
        whole = (*whole, part)
        if whole in sizes:
            whole = (*whole, str(sizes[whole] - 1))
    return whole


def nearest(lines: dict[Path, int], path: Path) -> int | None:
    """Return the line of a key, or of the closest table around it; None if there is none."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def placed(error: InvalidArgumentError, path: Path, section: BaseModel | None) -> tuple[Path, str]:
    """Return the path of the key that caused an error, or of its table, and the reason."""
    argument = error.argument.rpartition(".")[2].replace("-", "_")
    for key in () if section is None else type(section).model_fields:
        if key == argument or key.endswith(f"_{argument}"):
            reason = str(error).removeprefix(f"{error.argument} ")
            if error.value is None:
                reason = reason.replace("is None; ", "is missing; ", 1)
            return (*path, key), reason
    return path, str(error)


def _statements(text: str) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Yield each header and each key with its value, and the line where it begins."""
    line, depth, begun = 1, 0, 1
    tokens: list[tuple[str, str]] = []
    for match in TOKEN.finditer(text):
        kind, piece = str(match.lastgroup), match[0]
        if kind == "end" and depth == 0 and tokens:
            yield begun, tokens
            tokens = []
        elif kind in {"text", "sign", "bare"}:
            if not tokens:
                begun = line
            tokens.append((kind, piece))
            if kind == "sign":
                depth += (piece in "[{") - (piece in "]}")
        line += piece.count("\n")
    if tokens:
        yield begun, tokens


def _key(tokens: Sequence[tuple[str, str]]) -> Path:
    """Return the dotted key of a header or an assignment."""
    parts: list[str] = []
    for kind, piece in tokens:
        if (kind, piece) == ("sign", "="):
            break
        if kind == "bare":
            parts.append(piece)
        elif kind == "text":
            parts.append(tomllib.loads(f"key = {piece}")["key"])
    return tuple(parts)
