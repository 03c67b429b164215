"""CosId's vectors (tests/vectors): what its Java classes answered."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

FOLDER: Final = Path(__file__).parents[1] / "vectors"
COMMIT: Final = "fc29da0a2f11063f3b10c36b4cb9f7b22bae76fc"


@cache
def document(file: str) -> list[Any]:
    """All vectors of a file, which is whole."""
    (path,) = FOLDER.glob(f"{file}.json*")
    read = json.loads(
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    )
    assert (read["source"]["commit"], read["source"]["count"]) == (COMMIT, len(read["vectors"]))
    return list(read["vectors"])


def load(file: str, *ops: str) -> list[Any]:
    """The vectors of some operations."""
    chosen = [vector for vector in document(file) if vector["op"] in ops]
    assert {vector["op"] for vector in chosen} == set(ops)
    return chosen


def params(file: str, *ops: str) -> list[Any]:
    """The same, for a test each."""
    return [pytest.param(each, id=f"{each['op']}-{n}") for n, each in enumerate(load(file, *ops))]


def unread(module: str, *files: str) -> list[str]:
    """The operations that a module does not name: a vector that nobody looks at proves nothing."""
    source = Path(module).read_text(encoding="utf-8")
    ops = {vector["op"] for file in files for vector in document(file)}
    return sorted(op for op in ops if f'"{op}"' not in source)
