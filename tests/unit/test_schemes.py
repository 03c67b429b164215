"""The stores that URLs name."""

from __future__ import annotations

import pytest

from aiocosid.abc import Store
from aiocosid.provider.store_urls import STORES, SYSTEMS, _class_at, _place_of


@pytest.mark.parametrize("scheme", [*STORES, *(f"{system}+x" for system in SYSTEMS)])
def test_each_is_there(scheme: str) -> None:
    place = _place_of(scheme)
    assert place is not None
    assert issubclass(_class_at(*place), Store)
