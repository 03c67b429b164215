"""Checks before anything is done: the ranges of arguments, and whether the caller may call."""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from math import inf, isfinite
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeGuard

from ..errors import InvalidArgumentError, StoreRolledBackError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = (
    "DISPOSABLE",
    "MAX_MACHINE_BITS",
    "MAX_MS",
    "Create",
    "check_above",
    "check_boolean",
    "check_create",
    "check_integer",
    "check_loop",
    "check_machine_bits",
    "check_max_id",
    "check_seconds",
    "check_step",
    "check_text",
    "is_integer",
    "refuse_loops",
)

MAX_INT64: Final = 2**63 - 1

MAX_MACHINE_BITS: Final = 31
"""CosId counts machine ids in a Java ``int``."""

MAX_MS: Final = 2**53 - 1
"""The latest time that is stored for a machine id, in milliseconds since 1970: the largest exact
number in Lua."""

Create: TypeAlias = bool | str
"""False, True, ``"disposable"``, or the last day on which something is created, ``YYYY-MM-DD``."""

DISPOSABLE: Final = "disposable"


def check_text(argument: str, value: object, *, at_most: int | None = None) -> None:
    """Raise unless it is a text that every store can hold."""
    # NUL cannot be stored by PostgreSQL and ends a C string in SQLite.
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidArgumentError(argument, value, "must be a non-empty string without NUL")
    if at_most is not None and len(value) > at_most:
        rule = f"has {len(value)} characters (maximum {at_most})"
        raise InvalidArgumentError(argument, value, rule)
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        rule = "must be a string that UTF-8 can encode"
        raise InvalidArgumentError(argument, value, rule) from None


def check_integer(argument: str, value: object, *, at_least: int, at_most: int = MAX_INT64) -> None:
    """Raise unless it is an integer in the range."""
    # bool is an int to isinstance, but step=True is a mistake.
    if type(value) is not int or not at_least <= value <= at_most:
        rule = f"must be an integer from {at_least} to {at_most}"
        raise InvalidArgumentError(argument, value, rule)


def check_boolean(argument: str, value: object) -> None:
    """Raise `InvalidArgumentError` unless ``value`` is True or False."""
    if type(value) is not bool:
        raise InvalidArgumentError(argument, value, "must be True or False")


def is_integer(value: object) -> bool:
    """Tell whether it is an integer; a `GroupedId` is one, True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_seconds(
    argument: str, value: object, *, or_zero: bool = False, at_most: float = inf
) -> None:
    """Raise `InvalidArgumentError` unless it is a finite time above 0, or 0 if that is allowed."""
    if not _is_finite(value) or not 0 <= value <= at_most or (value == 0 and not or_zero):
        rule = "must be a finite number of seconds " + ("of at least 0" if or_zero else "above 0")
        if isfinite(at_most):
            rule += f", at most {at_most:.0f}"
        raise InvalidArgumentError(argument, value, rule)


def _is_finite(value: object) -> TypeGuard[float]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return isfinite(value)
    except OverflowError:  # an integer above every float
        return False


def check_machine_bits(bits: int) -> int:
    """Return how many machine ids there are of that width.

    Raises:
        InvalidArgumentError: the width is not 1 to 31.
    """
    check_integer("bits", bits, at_least=1, at_most=MAX_MACHINE_BITS)
    return 1 << bits


def check_step(step: object) -> None:
    """Raise `InvalidArgumentError` unless it is an integer of at least 1.

    A step above 2^63-1 is accepted here, since every counter then reports an overflow.
    """
    # bool is an int to isinstance, but a step of True is a mistake.
    if type(step) is not int or step < 1:
        raise InvalidArgumentError("step", step, "must be an integer of at least 1")


def check_above(above: object) -> None:
    """Raise `InvalidArgumentError` unless it is an integer that a counter may hold."""
    check_integer("above", above, at_least=0)


_refusals: Final[list[Callable[[str], None]]] = []


def refuse_loops(refuse: Callable[[str], None]) -> None:
    """Let an integration refuse event loops that must get no ids, such as those of workflows.

    Args:
        refuse: called with the name of a component when it is opened, looked up by its name or used
            on another loop, but not while buffered ids are taken.  If the loop that runs in this
            thread must get no ids, it raises, for example `WrongLoopError`.
    """
    _refusals.append(refuse)


def check_loop(what: str) -> None:
    """Raise if an integration refuses the loop that runs in this thread."""
    for refuse in _refusals:
        refuse(what)


def check_create(create: object) -> Create:
    """Return what opening a provider may create.

    Raises:
        InvalidArgumentError: it is not one of the accepted values.
    """
    if isinstance(create, bool):
        return create
    if isinstance(create, str):
        if create == DISPOSABLE:
            return create
        with suppress(ValueError):
            date.fromisoformat(create)
            return create
    rule = (
        "must be False, True, 'disposable' or the last day on which opening may create tables and "
        "the marker, such as '2026-12-31'"
    )
    raise InvalidArgumentError("create", create, rule)


class _Counter(Protocol):
    store: str
    namespace: str
    name: str


def check_max_id(counter: _Counter, max_id: int, *, baseline: int | None, step: int) -> None:
    """Raise unless a sound store could have answered a call with this max id.

    A store that only adds answers at least ``baseline + step``.

    Args:
        counter: the distributor that was called.
        max_id: the answer.
        baseline: the highest answer before the call was sent; None if there was none.
        step: how many ids were asked for.

    Raises:
        StoreRolledBackError: the counter went backwards since the call was sent.
    """
    if baseline is not None and max_id < baseline + step:
        raise StoreRolledBackError(
            counter.store,
            namespace=counter.namespace,
            name=counter.name,
            seen=max_id,
            expected=baseline + step,
        )
