"""What the simulated Redis needs."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True, scope="session")
def lua() -> None:
    """Skip them all where there is no Lua to run the scripts of Redis."""
    if sys.version_info >= (3, 15):
        pytest.importorskip("lupa", reason="lupa has no wheel for Python 3.15")
