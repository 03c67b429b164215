"""Real processes that take ids from real servers while these are being broken.

``python -m tests.chaos SCENARIO --seconds N --processes N``; docs/explanation/chaos.md says what is
tried and what came of it.
"""

from __future__ import annotations

from typing import Final

from . import _workers
from ._arena import Bar, Options, Result, Scenario, run

__all__ = ("SCENARIOS", "Bar", "Options", "Result", "Scenario", "run")

SOUND: Final = {"valkey": Bar(), "postgres": Bar(), "sqlite": Bar()}

SCENARIOS: Final = {
    "workers": Scenario("processes killed, stopped and forked", _workers.workers, SOUND),
    "leases": Scenario("owners of machine ids killed and stopped", _workers.leases, SOUND),
    "cancellation": Scenario("calls cancelled at random", _workers.cancellation, SOUND),
    "limits": Scenario(
        "no descriptors, no memory", _workers.limits, {"valkey": Bar(), "postgres": Bar()}
    ),
    "connections": Scenario(
        "reset, black-holed, replies lost",
        _workers.connections,
        {"valkey": Bar(), "postgres": Bar()},
    ),
}
