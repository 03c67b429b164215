"""What ends the calls of a store over stores."""

from __future__ import annotations

import pytest

from aiocosid.errors import StoreUnavailableError
from aiocosid.stores.over import Closings


def test_a_closing_ends_calls_that_began_before() -> None:
    """Of the whole as well as of the part."""
    whole = Closings()
    part = Closings(whole)
    assert (whole.count, part.count) == (0, 0)
    for closed, counts in ((whole, (1, 1)), (part, (1, 2))):
        go_on = part.watch("store")
        go_on()
        closed.record()
        assert (whole.count, part.count) == counts
        with pytest.raises(StoreUnavailableError):
            go_on()
