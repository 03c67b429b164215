"""Dataclasses that are made with their first use are the standard library's in all that shows."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aiocosid.abc.lazy import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Something happened.

    Attributes:
        where: the place.
        count: how often.
    """

    where: str
    count: int = 1

    def told(self) -> str:
        return f"{self.where} {self.count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Happened):
    """Something was measured."""

    took: float = 0.5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OfTheLibrary(Measured):
    """A subclass that the standard library has made."""

    unit: str = "s"


def fresh() -> Any:
    """Return a class that nobody has used yet."""

    @dataclass(frozen=True, slots=True)
    class Pair:
        left: int
        right: int = 2

    return Pair


def matched() -> object:
    pair: Any = fresh()
    match pair(1, 5):
        case pair(left, right):
            return left, right
        case _:
            return None


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda: repr(Measured(where="here")), "Measured(where='here', count=1, took=0.5)"),
        (lambda: Measured(where="a") == Measured(where="a", count=1), True),
        (lambda: Measured(where="a") == Measured(where="b"), False),
        (lambda: Happened(where="a") == Measured(where="a"), False),
        (lambda: len({Measured(where="a"), Measured(where="a"), Measured(where="b")}), 2),
        (lambda: Measured(where="a", count=3).told(), "a 3"),
        (lambda: dataclasses.replace(Measured(where="a"), count=4).count, 4),
        (
            lambda: dataclasses.asdict(Measured(where="a")),
            {"where": "a", "count": 1, "took": 0.5},
        ),
        (lambda: dataclasses.is_dataclass(fresh()), True),
        (lambda: [each.name for each in dataclasses.fields(fresh())], ["left", "right"]),
        (lambda: fresh().__match_args__, ("left", "right")),
        (matched, (1, 5)),
        (lambda: str(inspect.signature(fresh())), "(left: 'int', right: 'int' = 2) -> None"),
        (lambda: hasattr(Measured(where="a"), "__dict__"), False),
        (lambda: OfTheLibrary(where="a", unit="ms").told(), "a 1"),
        (lambda: OfTheLibrary(where="a").took, 0.5),
    ],
)
def test_it_behaves_as_a_dataclass(use: Callable[[], object], expected: object) -> None:
    """Whatever is asked first makes all of it."""
    assert use() == expected


def pickled(it: object) -> object:
    return pickle.loads(pickle.dumps(it))  # noqa: S301 - our own


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickled])
def test_it_can_be_copied(make: Callable[[object], object]) -> None:
    measured = Measured(where="a", count=2, took=1.5)
    assert make(measured) == measured


def test_a_copy_needs_no_instance_made_before() -> None:
    """A process that only reads pickles never calls a constructor."""
    pair = fresh()
    raw = object.__new__(pair)
    raw.__setstate__((None, {"left": 1, "right": 2}))
    assert raw == pair(1)
    assert repr(raw).endswith("Pair(left=1, right=2)")


def test_it_is_frozen() -> None:
    measured: Any = Measured(where="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        measured.count = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del measured.count
    assert measured.count == 1


def test_what_is_missing_is_named() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'left'"):
        fresh()()


def test_other_kinds_are_refused() -> None:
    """A class that can change is none of these."""
    with pytest.raises(NotImplementedError):
        dataclass(frozen=False, slots=True)


def test_threads_may_use_a_class_for_the_first_time_at_once() -> None:
    """None of them finds it half made."""
    for _ in range(20):
        pair, barrier, found = fresh(), threading.Barrier(4), list[object]()

        def use(pair: Any = pair, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            found.append(repr(pair(1)))  # noqa: B023 - joined below

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert len(set(found)) == 1
