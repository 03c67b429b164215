"""The curves of the dashboard: what they say, and what is drawn."""

from __future__ import annotations

from aiocosid.server._curves import HEIGHT, KEPT, WIDTH, History, curves_of, path_of


def noted(*ids: int, silent: int = 0) -> History:
    history = History()
    for at, count in enumerate(ids):
        history.note(
            at * 5.0, ids=count, failures=0, silent=silent, seconds_left=60.0, latency=0.002
        )
    return history


def said(history: History) -> dict[str, str]:
    return {each.key: each.text for each in curves_of(history.samples)}


def test_nothing_is_known_yet() -> None:
    assert set(said(History()).values()) == {"-"}
    assert said(noted(5))["rate"] == "-"  # a rate wants two


def test_what_is_said() -> None:
    assert said(noted(0, 50, 5050)) == {
        "rate": "1,000, at most 1,000",
        "left": "60 s, at least 60 s",
        "latency": "2 ms, at most 2 ms",
        "failures": "0, at most 0",
    }
    assert said(noted(0, 0, silent=1))["failures"] == "1, at most 1"


def test_a_generator_that_was_opened_again_takes_no_ids_back() -> None:
    assert said(noted(0, 500, 100))["rate"] == "0, at most 100"


def test_ten_minutes_are_kept() -> None:
    samples = noted(*range(500)).samples
    assert len(samples) == KEPT
    path = path_of([each.rate for each in samples])
    assert path.startswith("M0.0 1.0 ")
    assert path.endswith(f"L{WIDTH}.0 1.0")


def test_what_is_not_known_is_a_gap() -> None:
    """The latest is at the right, and the greatest at the top."""
    path = path_of([1.0, None, 0.0, 2.0])
    assert path.count("M") == 2
    assert path.endswith(f"L{WIDTH}.0 1.0")
    assert f" {HEIGHT - 1}.0" in path
    assert path_of([None, None]) == path_of([]) == ""
