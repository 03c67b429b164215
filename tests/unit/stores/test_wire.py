"""What a server and its client exchange: it arrives as it was, and what does not fit is refused."""

from __future__ import annotations

import json
from dataclasses import fields
from math import inf
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.abc import Machine, MachineMarker
from aiocosid.errors import (
    BusyError,
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
from aiocosid.machine.cells import MAX_MS
from aiocosid.machine.operations import (
    ReleaseOperation,
    Renewed,
    RenewOperation,
    TakeOperation,
    Took,
)
from aiocosid.segment.blocks import Block, ShardBits
from aiocosid.stores.wire import (
    LABEL,
    Values,
    as_block,
    as_fault,
    as_values,
    block_json,
    error_of,
    values_json,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
TIMES = st.integers(-1, MAX_MS)
KINDS = {str: TEXTS, bool: st.booleans(), int: TIMES}
LISTED = (Machine, MachineMarker)
OPERATIONS = (TakeOperation, Took, RenewOperation, Renewed, ReleaseOperation)


def values(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Anything of one kind."""
    hints = get_type_hints(kind)
    if kind is MachineMarker:
        lasts = st.floats(0, allow_nan=False)
        return st.builds(kind, namespace=TEXTS, seconds_left=lasts, safe_guard=st.none() | lasts)
    return st.builds(kind, **{each.name: KINDS[hints[each.name]] for each in fields(kind)})


def sent(tree: object) -> Any:
    """What the other side gets."""
    return json.loads(json.dumps(tree))


@given(st.one_of(*map(values, (*OPERATIONS, *LISTED))))
def test_values_arrive_as_they_were(found: Values) -> None:
    assert as_values(type(found), sent(values_json(found))) == found


def trees(tree: Any) -> list[Any]:
    """The same with one value that is wrong, in each place."""
    found: list[Any] = []
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        value = tree[key]
        others: list[Any] = [object, 1.5, {}, [[]], "\ud800", 2**64]
        if isinstance(value, dict | list):
            others += trees(value)
        for other in others:
            copy = tree.copy()
            copy[key] = other if other is not object else [1]
            found.append(copy)
    return found


TAKE = TakeOperation(instance="a", bits=3, now_ms=1, latest_ms=2, token="t")  # noqa: S106 - of a call
MARKER = MachineMarker(namespace="n", seconds_left=inf)


@pytest.mark.parametrize("found", [TAKE, Took(), MARKER])
def test_whatever_does_not_fit_is_refused(found: Values) -> None:
    """By one kind of error, whatever it is."""
    tree = sent(values_json(found))
    for wrong in (None, 1, [], {}, *trees(tree)):
        if wrong not in ({**tree, "seconds_left": 1.5}, {**tree, "safe_guard": 1.5}):
            with pytest.raises(ValueError):  # noqa: PT011 - of any text
                as_values(type(found), wrong)


# Errors.


@pytest.mark.parametrize(
    "error",
    [
        NameTooLongError("ns.name", limit=3),
        InvalidArgumentError("step", "0", "must be at least 1"),
        IdOverflowError("ns.name", limit=3),
        CorruptCounterError(LABEL, counter="c", found="x"),
        CounterMissingError(LABEL, counter="c"),
        CorruptMachineStateError(LABEL, place="p", found="f", expected="e"),
        SchemaMissingError(LABEL, table="t", kind="stream"),
        SchemaDroppedError(LABEL, tables=("cosid", "a,b")),
        StoreNotEmptyError(LABEL),
        StoreFormatError(LABEL, found=1, expected=2),
        CounterNotCreatedError(LABEL, counter="c"),
        CounterNotCreatedError(LABEL, counter="c", is_emptied=True),
        StoreRolledBackError(LABEL, namespace="ns", name="n", seen=1, expected=2),
        UnsupportedByStoreError(LABEL, "it cannot"),
        UnsupportedByStoreError(LABEL, "it cannot", remedy="take the other"),
        ClockSkewError(LABEL, ahead=3, tolerance=1),
        MachineBitsMismatchError("ns", bits=3, found=4),
        MachineIdInUseError("id 3", holder="a, b", remedy="close it"),
        MachineIdLostError("ns", 3, reason="b holds it"),
        MachineIdOverflowError("ns", size=4, holders=("a", "b")),
        MachineIdQuarantineError(LABEL, namespace="ns", seconds_left=inf),
        StoreNotInitializedError(LABEL, namespace="ns", seconds_left=3.5),
    ],
)
def test_an_error_arrives_with_its_facts(error: CosIdError) -> None:
    found = error_of(sent(as_fault(error)))
    assert (type(found), str(found)) == (type(error), str(error))
    assert (found.remedy, vars(found)) == (error.remedy, vars(error))
    assert found.retryable == error.retryable


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StoreUnavailableError("redis", "db7.intra:6379 refused"), StoreUnavailableError),
        (StoreAuthenticationError("redis", "user ann on db7.intra"), StoreAuthenticationError),
        (StoreError("sqlite /srv/db7.intra", "disk full"), StoreError),
        (BusyError("db7.intra", reason="is used"), StoreError),
        (CorruptCounterError("/srv/db7.intra", counter="c", found="x"), CorruptCounterError),
    ],
)
def test_an_error_names_no_host(error: CosIdError, kind: type[CosIdError]) -> None:
    text = json.dumps(as_fault(error))
    assert "db7.intra" not in text
    assert "ann" not in text
    assert type(error_of(sent(as_fault(error)))) is kind


@pytest.mark.parametrize(
    "fault",
    [
        *(None, [], {}, {"kind": "StoreError"}, {"kind": "KeyError", "facts": {"reason": "r"}}),
        *({"kind": "StoreError", "facts": each} for each in ({}, {"reason": None}, {"x": "y"}, 1)),
        {"kind": "IdOverflowError", "facts": {"reason": "r"}},
        *({"kind": "SchemaDroppedError", "facts": {"tables": each}} for each in ("a", [1], None)),
        {"kind": "StoreError", "facts": {"reason": ["r"]}},
        {"kind": ["StoreError"], "facts": {}},
    ],
)
def test_what_is_no_error_is_refused(fault: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of any text
        error_of(fault)


@pytest.mark.parametrize("shards", [None, ShardBits(19, 4095), ShardBits(62, 1)])
def test_a_block_arrives_as_it_was(shards: ShardBits | None) -> None:
    block = Block([range(1, 4), range(10, 19, 3)], shards)
    assert as_block(sent(block_json(block)), 6) == block


@pytest.mark.parametrize(
    "shards",
    [None, 1, [], [19], [19, 4095, 1], [0, 1], [63, 1], [19, 0], [19, 2**44], [True, 1], ["19", 1]],
)
def test_bits_of_shards_that_no_id_has(shards: object) -> None:
    tree = {**block_json(Block([range(1, 4)])), "shards": shards}
    with pytest.raises(ValueError):  # noqa: PT011 - of any text
        as_block(sent(tree), 3)
