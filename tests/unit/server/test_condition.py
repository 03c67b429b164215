"""What a server says that it can do: up, in part, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from aiocosid.integrations.asgi import Health
from aiocosid.server._condition import condition_of

SILENT = {"redis": "no answer in 1.5 s"}
WAITS = {"status": "down", "error": "MachineIdQuarantineError", "quarantineLeft": 30.0}
REASON = "the store does not answer (no answer in 1.5 s)"


def health(*states: dict[str, Any]) -> Health:
    usual = {"status": "up", "error": None}
    return Health(generators={str(at): {**usual, **each} for at, each in enumerate(states)})


def judged(found: Health | None, failing: dict[str, str], stores: int = 1) -> tuple[Any, ...]:
    condition = condition_of(found, failing, stores, is_draining=False)
    return condition.status, condition.is_ready, condition.reasons


@pytest.mark.parametrize(
    ("found", "failing", "expected"),
    [
        (None, {}, ("down", False, ("not open",))),
        (health({"remaining": 5}), {}, ("up", True, ())),
        (health(), {}, ("up", True, ())),
        (health(), SILENT, ("down", False, (REASON,))),  # segments alone
        (health({}), SILENT, ("degraded", True, (REASON,))),  # a UUID has no store
        (
            health({"remaining": 5}),
            SILENT,
            ("degraded", True, (REASON, "1 of 1 generators degraded")),
        ),
        (
            health({"machineId": 5}, {"remaining": 0}),
            SILENT,
            ("down", False, (REASON, "1 of 2 generators down", "1 of 2 generators degraded")),
        ),
        (
            health({"status": "down", "error": "ClosedError"}, {}),
            {},
            ("down", False, ("1 of 2 generators down (ClosedError)",)),
        ),
        (
            health(WAITS, {}),
            {},
            (
                "degraded",
                True,
                (
                    "1 of 2 generators wait in a quarantine for 30 s",
                    "1 of 2 generators down (MachineIdQuarantineError)",
                ),
            ),
        ),
        (
            health({**WAITS, "quarantineLeft": None}),
            {},
            (
                "down",
                False,
                (
                    "1 of 1 generators wait in a quarantine",
                    "1 of 1 generators down (MachineIdQuarantineError)",
                ),
            ),
        ),
    ],
)
def test_what_is_said(
    found: Health | None, failing: dict[str, str], expected: tuple[Any, ...]
) -> None:
    assert judged(found, failing) == expected


def test_one_of_two_stores() -> None:
    """Nobody knows whose it is: what has ids stays up."""
    status, is_ready, reasons = judged(health({"remaining": 0}), SILENT, 2)
    assert (status, is_ready) == ("degraded", True)
    assert reasons == ("1 of 2 stores do not answer (no answer in 1.5 s)",)


def test_draining_is_not_ready() -> None:
    condition = condition_of(health(), {}, 1, is_draining=True)
    assert (condition.is_ready, condition.reasons) == (False, ("draining",))
