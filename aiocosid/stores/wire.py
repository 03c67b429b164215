"""The values that an aiocosid server and its client exchange as JSON.  No I/O."""

from __future__ import annotations

from dataclasses import fields
from math import isnan
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from ..abc import MAX_ID, Machine, MachineMarker
from ..errors import (
    ClockSkewError,
    CorruptCounterError,
    CorruptMachineStateError,
    CosIdError,
    CounterMissingError,
    CounterNotCreatedError,
    IdOverflowError,
    InvalidArgumentError,
    MachineBitsMismatchError,
    MachineIdInUseError,
    MachineIdLostError,
    MachineIdOverflowError,
    MachineIdQuarantineError,
    NameTooLongError,
    SchemaDroppedError,
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreFormatError,
    StoreNotEmptyError,
    StoreNotInitializedError,
    StoreRolledBackError,
    StoreUnavailableError,
    UnsupportedByStoreError,
)
from ..machine.cells import MAX_MS
from ..machine.operations import ReleaseOperation, Renewed, RenewOperation, TakeOperation, Took
from ..segment.blocks import Block, ShardBits

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = (
    "as_block",
    "as_fault",
    "as_values",
    "block_json",
    "error_of",
    "values_json",
)

MOST_CHARACTERS: Final = 4096
"""The maximum number of characters in a text."""

Values: TypeAlias = (
    TakeOperation | Took | RenewOperation | Renewed | ReleaseOperation | Machine | MachineMarker
)
V = TypeVar("V", bound=Values)

_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "float | None": (int, float, type(None)),
}
"""The accepted types by the annotation of a field."""


# Convert to JSON.


def values_json(values: Values) -> dict[str, Any]:
    """Return the JSON of an operation, its answer, or the values that a store lists."""
    return {each.name: getattr(values, each.name) for each in fields(values)}


def block_json(block: Block) -> dict[str, Any]:
    """Return rising ids as JSON: each range's first id, its count, and its step."""
    tree = {"ranges": [[each.start, len(each), each.step] for each in block.ranges]}
    return tree if block.shards is None else {**tree, "shards": [*block.shards]}


# Convert from JSON.  Anything that does not fit raises ValueError, because any client may send it.


def as_values(kind: type[V], tree: object) -> V:
    """Return the value from which `values_json` made this JSON.

    Raises:
        ValueError: the JSON is not of that kind.
    """
    found = _object(tree)
    return kind(**{each.name: _value(each.type, found.get(each.name)) for each in fields(kind)})


def _value(kind: object, value: Any) -> Any:  # noqa: ANN401 - any JSON
    if type(value) not in _KINDS[str(kind)]:
        raise ValueError(value)
    if isinstance(value, str):
        return _text(value)
    if type(value) is int:
        return _range(value, -1, MAX_MS)
    if type(value) is float and not (value >= -1 and not isnan(value)):
        raise ValueError(value)
    return value


def as_block(tree: dict[str, Any], count: int) -> Block:
    """Return rising ids from their JSON.

    Args:
        tree: the result of `block_json`.
        count: how many ids there must be.

    Raises:
        ValueError: the JSON does not have that many rising ids.
    """
    found: list[range] = []
    last = 0
    for each in _list(tree.get("ranges")):
        first, size, step = _list(each, 3)
        _range(first, last + 1, MAX_ID)
        _range(size, 1, count)
        last = _range(first + (size - 1) * _range(step, 1, MAX_ID), first, MAX_ID)
        found.append(range(first, last + 1, step))
    _range(sum(map(len, found)), count, count)
    if "shards" not in tree:
        return Block(found)
    shift, most = _list(tree["shards"], 2)
    return Block(found, ShardBits(_range(shift, 1, 62), _range(most, 1, MAX_ID >> shift)))


def _object(tree: object) -> dict[str, Any]:
    if type(tree) is not dict:
        raise ValueError(tree)
    return cast("dict[str, Any]", tree)


def _list(tree: Any, size: int = -1) -> list[Any]:  # noqa: ANN401 - any JSON
    if type(tree) is not list:
        raise ValueError(tree)
    found: list[Any] = tree  # pyright: ignore[reportUnknownVariableType]
    if size not in {-1, len(found)}:
        raise ValueError(found)
    return found


def _text(value: object) -> str:
    if type(value) is not str or len(value) > MOST_CHARACTERS:
        raise ValueError(value)
    value.encode()  # a lone surrogate raises UnicodeEncodeError, a ValueError
    return value


def _range(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(value)
    return value


# Errors.  A message may name the hosts and users of the server's store, so only facts are sent.

LABEL: Final = "aiocosid server"

_FACTS: Final[dict[type[CosIdError], tuple[str, ...]]] = {
    NameTooLongError: ("value", "limit"),
    InvalidArgumentError: ("argument", "value", "rule"),
    IdOverflowError: ("counter", "limit"),
    CorruptCounterError: ("counter", "found"),
    CounterMissingError: ("counter",),
    CounterNotCreatedError: ("counter", "is_emptied"),
    CorruptMachineStateError: ("place", "found", "expected"),
    SchemaMissingError: ("table", "kind"),
    SchemaDroppedError: ("tables",),
    StoreNotEmptyError: (),
    StoreFormatError: ("found", "expected"),
    StoreRolledBackError: ("namespace", "name", "seen", "expected"),
    UnsupportedByStoreError: ("reason", "remedy"),
    ClockSkewError: ("ahead", "tolerance"),
    MachineBitsMismatchError: ("namespace", "bits", "found", "region_code", "found_region"),
    MachineIdInUseError: ("what", "holder", "remedy"),
    MachineIdLostError: ("namespace", "machine_id", "reason"),
    MachineIdOverflowError: ("namespace", "size", "holders"),
    MachineIdQuarantineError: ("namespace", "seconds_left"),
    StoreNotInitializedError: ("namespace", "seconds_left"),
}
_FIRST: Final[dict[type[CosIdError], tuple[str, ...]]] = {
    NameTooLongError: ("value",),
    IdOverflowError: ("counter",),
    MachineBitsMismatchError: ("namespace",),
    MachineIdInUseError: ("what",),
    MachineIdLostError: ("namespace", "machine_id"),
    MachineIdOverflowError: ("namespace",),
    InvalidArgumentError: (),
}
"""The facts that come first, if the store does not."""
_REASONS: Final[dict[type[CosIdError], str]] = {
    StoreAuthenticationError: "its store rejects the login or the rights of the server",
    StoreUnavailableError: "its store does not answer",
    StoreError: "its store refuses",
}


_LISTS: Final = {"tables", "holders"}


def as_fault(error: CosIdError) -> dict[str, Any]:
    """Return an error's class and facts, none of which names a host."""
    for kind, names in _FACTS.items():
        if type(error) is kind:
            facts = {name: _shown(getattr(error, name)) for name in names}
            return {"kind": kind.__name__, "facts": facts}
    kind = StoreUnavailableError if error.retryable else StoreError
    if isinstance(error, StoreAuthenticationError):
        kind = StoreAuthenticationError
    reason = f"{_REASONS[kind]} ({type(error).__name__})"
    return {"kind": kind.__name__, "facts": {"reason": reason}}


def _shown(fact: object) -> object:
    if isinstance(fact, tuple):
        return [str(each) for each in cast("tuple[object, ...]", fact)]
    return fact if isinstance(fact, int | float) else str(fact)


def error_of(fault: object) -> CosIdError:
    """Return the error that a server reports.

    Raises:
        ValueError: the JSON is not an error.
    """
    found = _object(fault)
    facts, kind = dict(_object(found.get("facts"))), found.get("kind")
    for name, each in facts.items():
        if name in _LISTS:
            facts[name] = tuple(_text(one) for one in _list(each))
        elif type(each) not in {bool, int, float, str}:
            raise ValueError(each)
    try:
        for known in (*_FACTS, *_REASONS):
            if kind == known.__name__:
                first = [facts.pop(name) for name in _FIRST[known]] if known in _FIRST else [LABEL]
                return cast("Callable[..., CosIdError]", known)(*first, **facts)
    except (KeyError, TypeError):
        raise ValueError(found) from None
    raise ValueError(found)
