"""The scenarios that come with the package; each is run by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import (
    _loss_scenarios,
    _other_scenarios,
    _restart_scenarios,
    _scenarios,
    _sequence_scenarios,
    _store_scenarios,
)

if TYPE_CHECKING:
    from ._world import Scenario

__all__ = ("SCENARIOS",)

SCENARIOS: Final[dict[str, Scenario]] = {
    name: getattr(module, name)
    for module in (
        _scenarios,
        _store_scenarios,
        _loss_scenarios,
        _sequence_scenarios,
        _other_scenarios,
        _restart_scenarios,
    )
    for name in module.__all__
}
"""By the name that the command line knows."""
