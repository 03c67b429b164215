"""No public name or argument changes unnoticed."""

from __future__ import annotations

from difflib import unified_diff

from ._api import RECORD, lines


def test_the_api_is_the_recorded_one() -> None:
    """Wanted?  ``python -m tests.docs._api`` records it; users need a fragment in docs/changes/.

    What goes, or stops taking an argument, has been deprecated for a minor version before.
    """
    recorded = RECORD.read_text("utf-8").splitlines()
    assert not list(unified_diff(recorded, lines(), "recorded", "now", lineterm="", n=0))
