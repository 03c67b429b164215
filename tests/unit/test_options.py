"""Options are declared once: what is made of a declaration, and what it refuses."""

from __future__ import annotations

import inspect
import pydoc
from itertools import count
from typing import Any

import pytest

import aiocosid.abc
from aiocosid import IdProvider, connect
from aiocosid.abc.options import Bounds, Options, declared, documented, takes
from aiocosid.errors import InvalidArgumentError
from aiocosid.provider import kinds
from aiocosid.provider.specs import Kind
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.segment.options import SegmentChainOptions
from aiocosid.snowflake import CachedSnowflakeId, CosIdGenerator, ShardedId, SnowflakeId
from aiocosid.stores.memory import MemoryStore
from aiocosid.sync import SyncIdProvider

from ._interrupted import interrupted

TAKERS: list[Any] = [
    *(SegmentChainId, SegmentId, SnowflakeId, CachedSnowflakeId, CosIdGenerator, ShardedId),
    *(IdProvider, connect),
]
METHODS = [name for name, each in vars(kinds).items() if isinstance(each, Kind)]


class Base(Options):
    """Some options.

    Attributes:
        first: seconds; a text
            of two lines.
        second: whether.
    """

    first: float = 1.0
    second: bool | None = None


class More(Base):
    """More options.

    Attributes:
        second: whether, in other words.
        third: required.
    """

    third: int


@takes(More)
def taker(what: str, options: More, /) -> tuple[str, More]:
    """Take them.

    Args:
        what: anything.
        options: the keyword arguments: see `More`.

    Raises:
        TypeError: never.
    """
    return what, options


def test_it_takes_what_is_declared() -> None:
    what, options = taker("a", third=3, first=2.5)
    assert (what, options.first, options.second, options.third) == ("a", 2.5, None, 3)
    assert vars(options) == {"third": 3, "first": 2.5}  # what was given
    with pytest.raises(AttributeError, match="'first'"):
        options.first = 3.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "More: missing keyword argument 'third'"),
        ({"third": 3, "fourth": 4}, "More: unexpected keyword argument 'fourth'"),
    ],
)
def test_a_missing_or_unknown_one_is_a_type_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        taker("a", **given)


def test_help_shows_all_of_them() -> None:
    """Names, types, defaults, and the words of the nearest class."""
    assert str(inspect.signature(taker)).startswith("(what: 'str', /, *, first: 'float' = 1.0")
    told = pydoc.plain(pydoc.render_doc(taker))
    wanted = """\
        what: anything.
        first: seconds; a text
            of two lines.
        second: whether, in other words.
        third: required.

    Raises:"""
    assert wanted in told.replace("    \n", "\n")
    assert "see `More`" not in told


@pytest.mark.parametrize("made", TAKERS)
def test_every_option_of_ours_has_words(made: Any) -> None:
    target: Any = made.__init__ if isinstance(made, type) else made  # type: ignore[misc]  # no subclass
    parameters = inspect.signature(made).parameters.values()
    for each in parameters:
        assert f"\n    {each.name}: " in target.__doc__, each.name


@pytest.mark.parametrize("owner", [IdProvider, SyncIdProvider])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_words(owner: Any, name: str) -> None:
    method = getattr(owner, name)
    first, *others = inspect.signature(method).parameters.values()
    assert first.name == "self"
    for each in others:
        assert each.name == "batch" or f"\n    {each.name}: " in method.__doc__, each.name
    assert method.__name__ == name


@pytest.mark.parametrize(
    ("option", "bad"),
    [
        ("safe_distance", [0, True, 1.5, 2**63]),
        ("wait_timeout", [0, -1.0, float("inf"), "5"]),
        ("endurance", [-0.1, float("nan")]),
        ("fail_fast", [1, "yes"]),
        ("ttl", [0]),
    ],
)
def test_a_value_outside_its_bounds_is_named(option: str, bad: list[object]) -> None:
    distributor = MemoryStore().segment_distributor(name="order")
    for value in bad:
        with pytest.raises(InvalidArgumentError) as caught:
            SegmentChainId(distributor, **{option: value})  # type: ignore[arg-type]
        assert (caught.value.argument, caught.value.value) == (option, value)


def test_bounds_are_short_in_help() -> None:
    shown = [Bounds(1, 2**63 - 1), Bounds(above=True), Bounds(0, 1, below=True), Bounds(1, 16)]
    assert [*map(repr, shown)] == ["1 or more", "above 0", "0 to below 1", "1 to 16"]
    assert "safe_distance: Annotated[int, 1 or more] = 2" in str(
        inspect.signature(SegmentChainId)
    ).replace("typing.", "")


def test_what_is_declared() -> None:
    found = declared(SegmentChainOptions)["ttl"]
    assert (found.type, found.optional, found.default) == (float, True, None)
    assert "wait_timeout: maximum seconds" in documented(None, SegmentChainOptions, "")


def test_two_threads_make_the_first_options_of_a_class() -> None:
    """Each finds the declaration whole, or reads it itself."""
    for line in range(1000):

        class Own(Base):
            third: int

        made, lines = list[Own](), count()

        def handler() -> None:
            if next(lines) == line:  # noqa: B023 - called in this round
                made.append(Own(third=1))  # noqa: B023

        with interrupted(aiocosid.abc, "line", handler):
            made.append(Own(third=2))
        if next(lines) <= line:
            return
        assert [each.third for each in made] == [1, 2]
    pytest.fail("there are more lines")
