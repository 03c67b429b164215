"""The stores that URLs name."""

from __future__ import annotations

import pytest

from aiocosid.abc import Store
from aiocosid.errors import InvalidArgumentError
from aiocosid.provider.store_urls import STORES, SYSTEMS, _class_at, _place_of, store_from_url


@pytest.mark.parametrize("scheme", [*STORES, *(f"{system}+x" for system in SYSTEMS)])
def test_each_is_there(scheme: str) -> None:
    place = _place_of(scheme)
    assert place is not None
    assert issubclass(_class_at(*place), Store)


@pytest.mark.parametrize("scheme", ["striped:", "tiered:", "tinyid-group+", "tddl-group+"])
def test_a_url_of_several_that_names_one_shows_no_password(scheme: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        store_from_url(f"{scheme}mysql://user:s3cret@host/db")
    assert "s3cret" not in str(caught.value)
