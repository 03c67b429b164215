"""Each target of `targets` by hypothesis: texts like its seeds, and any texts at all."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .targets import TARGETS, Target

FEW, MANY = 20, 1000

LONG = st.sampled_from(["9" * 5000, "-" * 300, "a" * 10_000, "[" * 2000, "{" * 2000, "(" * 500])
ODD = st.sampled_from(
    [
        *"\0\n\t ./:@%?#&=+-_'\"\\{}[]|",
        "\ud800",
        "\u202e",
        "\uff11",
        "\u0661",
        "\u200b",
        "\U0001f600",
    ]
)


@st.composite
def texts_near(draw: st.DrawFn, seeds: tuple[str, ...]) -> str:
    """A seed with a piece cut out, doubled, or put in its place."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 3))):
        start, stop = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        piece = draw(st.one_of(st.just(""), ODD, LONG, st.just(text[start:stop] * 2), st.text()))
        text = text[:start] + piece + text[stop:]
    return text


def try_on(target: Target, examples: int, *, derandomize: bool) -> None:
    @settings(
        max_examples=examples,
        derandomize=derandomize,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.one_of(texts_near(target.seeds), texts_near(target.seeds), st.text(max_size=50)))
    def run(text: str) -> None:
        target.run(text)

    for seed in target.seeds:
        target.run(seed)
    run()


@pytest.mark.parametrize("name", TARGETS)
def test_only_documented_errors_escape(name: str) -> None:
    """The same texts each time."""
    try_on(TARGETS[name], FEW, derandomize=True)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TARGETS)
def test_only_documented_errors_escape_from_many(name: str) -> None:
    """Others each time."""
    try_on(TARGETS[name], MANY, derandomize=False)
