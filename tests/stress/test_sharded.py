"""Many processes on one name: up to the cap of a second, and no further."""

from __future__ import annotations

import pytest

from bench.q27_sharded import CAP, crowd
from tests.servers import ValkeyServer

pytestmark = [pytest.mark.stress, pytest.mark.integration, pytest.mark.timeout(180)]


def test_a_second_has_so_many_sequences(valkey: ValkeyServer) -> None:
    """R24: who wants more waits; no error, no duplicate."""
    found = crowd(valkey.url, 3, seconds=2.5)
    assert (found["twice"], found["errors"]) == (0, 0)
    assert found["ids"] > 0
    assert found["highest"] <= CAP
