"""Errors carry facts, can be sent to another process, and can be raised again."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import pickle
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import pytest

import aiocosid
from aiocosid import GroupBy, errors
from aiocosid.errors import (
    BusyError,
    ClockSkewError,
    ClockTooFarForwardError,
    ClockTooManyBackwardsError,
    ClosedError,
    CorruptCounterError,
    CorruptMachineStateError,
    CosIdError,
    CounterMissingError,
    CounterNotCreatedError,
    ForkedError,
    GeneratorMissingError,
    IdOverflowError,
    InvalidArgumentError,
    InvalidIdError,
    InvalidSettingsError,
    LayoutExpiredError,
    LeafWorkerIdsUsedUpError,
    MachineBitsMismatchError,
    MachineIdInUseError,
    MachineIdLostError,
    MachineIdOverflowError,
    MachineIdQuarantineError,
    MachineIdUnavailableError,
    MissingExtraError,
    NameTooLongError,
    NotOpenError,
    RingEmptyError,
    SchemaDroppedError,
    SchemaMissingError,
    SegmentUnavailableError,
    SequenceExhaustedError,
    SequenceUnavailableError,
    SeriesEndedError,
    SeriesNotOpenError,
    StoreAuthenticationError,
    StoreError,
    StoreFormatError,
    StoreIdentityHiddenError,
    StoreNotEmptyError,
    StoreNotInitializedError,
    StoreRolledBackError,
    StoreUnavailableError,
    TransactionConflictError,
    UnsuitableTransactionError,
    UnsupportedByStoreError,
    UnsupportedRuntimeError,
    WorkerIdsUsedUpError,
    WouldBlock,
    WrongLoopError,
)
from aiocosid.errors.base import SettingsProblem
from aiocosid.provider.default import generator_named
from aiocosid.segment import SegmentChainId
from aiocosid.testing import FailingDistributor

from ._source import load
from .segment._kit import counter

EVERY = [
    ClockSkewError("redis", ahead=-5, tolerance=2),
    CounterMissingError("mysql", table="leaf_alloc", key="biz_tag", counter="x", remedy="add it"),
    RingEmptyError("cosid.order", borrowed=60.0),
    SequenceExhaustedError("cosid.order", waited=5.0),
    SequenceUnavailableError("cosid.order", waited=5.0, reason="gone"),
    LeafWorkerIdsUsedUpError("shop", worker_id=1024, bits=10),
    WorkerIdsUsedUpError("cosid", worker_id=1024, bits=10),
    BusyError("chain", reason="is open already"),
    ClockTooFarForwardError(forward=12.5, limit=10),
    ClockTooManyBackwardsError(backwards=3.5, threshold=2),
    ClosedError("chain"),
    CorruptCounterError("redis", counter="cosid.order", found="'x'"),
    CorruptMachineStateError("file", place="state", found="'x'"),
    CosIdError("anything"),
    ForkedError("chain"),
    GeneratorMissingError("ordr", known=["order", "payment"]),
    IdOverflowError("cosid.order", limit=2**63 - 1),
    InvalidArgumentError("step", 0, "must be at least 1"),
    InvalidIdError("id", -1, "must be an integer from 0"),
    InvalidSettingsError([SettingsProblem("generators.order.step", "is 0", "ids.toml")]),
    LayoutExpiredError("uid-generator", last_instant="2024-11-20T13:24:15Z", remedy="take another"),
    MachineBitsMismatchError("cosid", bits=8, found=10),
    MachineIdInUseError("machine id 7", holder="process 12"),
    MachineIdLostError("cosid", 7, reason="somebody else holds it"),
    MachineIdQuarantineError("redis", namespace="cosid", seconds_left=305.0),
    MachineIdOverflowError("cosid", size=2, holders=("a", "b")),
    MachineIdUnavailableError("cosid", waited=5.0, reason="it is unplugged"),
    MissingExtraError("redis", extra="redis"),
    NameTooLongError("cosid.order", limit=100),
    NotOpenError("chain"),
    SchemaMissingError("postgres", table="cosid"),
    SchemaDroppedError("postgres", tables=("cosid", "cosid_machine")),
    StoreNotEmptyError("redis"),
    StoreFormatError("redis", found=1, expected=2),
    CounterNotCreatedError("redis", counter="a.b"),
    CounterNotCreatedError("postgres", counter="a.b", is_emptied=True),
    SegmentUnavailableError("cosid.order", waited=5.0, reason="it is unplugged"),
    StoreAuthenticationError("redis", "wrong password"),
    StoreError("redis", "it refuses"),
    StoreIdentityHiddenError("redis", "NOPERM"),
    StoreNotInitializedError("redis", namespace="shop", seconds_left=305.0),
    StoreRolledBackError("redis", namespace="cosid", name="order", seen=5, expected=10),
    StoreUnavailableError("redis", "it is unplugged"),
    SeriesNotOpenError("invoice", "acme"),
    SeriesNotOpenError("invoice", is_closed=True),
    SeriesEndedError("invoice", left=3, wanted=5),
    TransactionConflictError("deadlock detected"),
    UnsuitableTransactionError("it is in autocommit", remedy="leave it out"),
    UnsupportedByStoreError("leaf", "this store hands out no machine ids"),
    UnsupportedRuntimeError("a free-threaded build"),
    WouldBlock(),
    WrongLoopError("chain"),
]

every_error = pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)


def test_every_error_is_here() -> None:
    """A new one has to take its place in these tests."""
    assert {type(error).__name__ for error in EVERY} == set(errors.__all__)


@every_error
def test_it_can_be_pickled_and_copied(error: CosIdError) -> None:
    """Type, sentence, facts and bases come through; as concurrent.futures needs it."""
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301
        assert twin is not error
        assert type(twin) is type(error)
        assert (str(twin), twin.args) == (str(error), error.args)
        assert vars(twin) == vars(error)
        assert repr(twin) == repr(error)


@every_error
def test_it_carries_what_its_sentence_says(error: CosIdError) -> None:
    """Each fact that it is made of is an attribute, so that nobody has to parse the sentence."""
    given = inspect.signature(type(error).__init__).parameters
    facts = {"counter" if name == "namespaced_name" else name for name in given} - {
        "self",
        "args",
        "kwargs",
    }
    if isinstance(error, NameTooLongError):
        facts.remove("counter")  # it is the value
    documented = "".join(inspect.getdoc(each) or "" for each in type(error).__mro__)
    assert facts <= {*vars(error), "retryable"}
    assert [name for name in facts if f"    {name}: " not in documented] == []


@every_error
def test_again_is_a_fresh_copy_with_the_cause(error: CosIdError) -> None:
    """Raised in several tasks, each has a traceback of its own, and all the same cause."""
    try:
        raise error from OSError("gone")
    except CosIdError as caught:
        raised = caught
    again = raised.again()
    assert again is not raised
    assert type(again) is type(raised)
    assert (str(again), vars(again)) == (str(raised), vars(raised))
    assert again.__cause__ is raised.__cause__
    assert again.__traceback__ is None
    assert "OSError: gone" in "".join(traceback.format_exception(again))


@every_error
def test_its_sentence_says_what_happened(error: CosIdError) -> None:
    """No error is empty, and none shows its own field names instead of a sentence."""
    assert len(str(error)) > 5
    assert not str(error).startswith("(")
    assert type(error.retryable) is bool


def test_what_may_be_tried_again() -> None:
    """Only what passes by itself is retryable."""
    names = (
        "ClockSkew ClockTooFarForward ClockTooManyBackwards MachineIdOverflow MachineIdQuarantine "
        "MachineIdUnavailable RingEmpty SegmentUnavailable SequenceExhausted SequenceUnavailable "
        "StoreUnavailable TransactionConflict"
    )
    retryable = {type(error).__name__ for error in EVERY if error.retryable}
    assert retryable == {*(f"{name}Error" for name in names.split()), "WouldBlock"}


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (InvalidArgumentError, ValueError),
        (NameTooLongError, ValueError),
        (MissingExtraError, ImportError),
        (UnsupportedRuntimeError, RuntimeError),
        (WrongLoopError, RuntimeError),
        (IdOverflowError, OverflowError),
        (InvalidIdError, ValueError),
        (LayoutExpiredError, OverflowError),
        (StoreUnavailableError, StoreError),
        (StoreRolledBackError, StoreError),
    ],
)
def test_it_is_also_what_python_calls_it(error: type[Exception], base: type[Exception]) -> None:
    """Code that knows nothing of us catches the fitting built-in."""
    assert issubclass(error, base)
    assert issubclass(error, CosIdError)


def test_the_way_out_is_in_the_sentence() -> None:
    """An operator can copy the remedy from the log."""
    text = {type(error).__name__: str(error) for error in EVERY}
    assert "pip install 'aiocosid[redis]'" in text["MissingExtraError"]
    assert "aiocosid init" in text["SchemaMissingError"]
    assert "aiocosid set-floor order --namespace cosid" in text["StoreRolledBackError"]
    assert "open it again" in text["ForkedError"]
    assert "open it again" in text["ClosedError"]
    assert "one generator for each loop" in text["WrongLoopError"]
    assert "async with" in text["NotOpenError"]


# What an operator or a programmer can do begins with a verb; a new one is added here by hand.
VERB = re.compile(
    r"(add|advance|allow|ask|await|build|change|check|choose|close|connect|correct|create|define|delete|"
    r"fork|free|give|install|leave|let|look|make|mark|mend|mount|move|name|open|pass|put|raise|read|remove|"
    r"repair|restart|restore|return|run|set|share|spawn|start|stop|switch|take|trust|try|update|use|"
    r"wait|write)\b|did you mean '|if "  # "if that was this process's former session, wait ..."
)

# The rule for an argument is the predicate of a sentence; a new one is added here by hand.
RULE = re.compile(
    r"(must (be|have|make|give|group|grant|begin|look|fit|hand|name|outlive|tell|yield|all be)|"
    r"cannot (be|have)|requires|needs|lacks|has|shows|still has|"
    r"is (an|given|not|of|on|open|required|the|written)|was taken)\b"
)


def begins_with_a_verb(remedy: str) -> bool:
    return VERB.match(remedy) is not None or RULE.match(remedy) is not None


@every_error
def test_its_sentence_ends_with_what_to_do(error: CosIdError) -> None:
    """In the words of its `remedy`, once, and in the imperative."""
    if type(error) is CosIdError:
        assert error.remedy == ""  # says nothing of what has happened either
        return
    assert begins_with_a_verb(error.remedy)
    assert str(error).endswith(error.remedy)
    assert str(error).count(error.remedy) == 1


def remedies(tree: ast.AST) -> Iterator[str]:
    """The beginnings of the texts that a module passes on, or keeps, as a remedy."""
    for node in ast.walk(tree):
        values: list[ast.expr | None] = []
        if isinstance(node, ast.keyword) and node.arg == "remedy":
            values = [node.value]
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                found = [node.value] * len(names)
                if isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(names):
                    found = node.value.elts
                values += [
                    value for name, value in zip(names, found, strict=True) if is_remedy(name)
                ]
        elif isinstance(node, ast.AnnAssign) and is_remedy(node.target):
            values = [node.value]
        for value in values:
            first = value.values[0] if isinstance(value, ast.JoinedStr) else value
            if isinstance(first, ast.Constant) and first.value:
                yield str(first.value)


def is_remedy(name: ast.expr) -> bool:
    found = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
    return found in {"remedy", "fork_remedy"}


def test_wherever_a_remedy_is_written_it_says_what_to_do() -> None:
    """Not only in the samples above: wherever the package raises an error with its own remedy."""
    others = ("provider/settings/", "converter/", "cli/")
    of_errors = [m for m in load().values() if not m.path.startswith(others)]
    found = [text for module in of_errors for text in remedies(module.tree)]
    assert len(found) > 90, "the test sees them"
    assert [text for text in found if not VERB.match(text)] == []


def rules(tree: ast.AST) -> Iterator[str]:
    """The rules with which a module raises errors of arguments; ``{}`` where a value comes in."""
    for node in ast.walk(tree):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in RAISED:
            values = node.args[2:]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "rule":
            values = [node.value]
        for value in values:
            parts = value.values if isinstance(value, ast.JoinedStr) else [value]
            text = "".join(
                str(each.value) if type(each) is ast.Constant else "{}" for each in parts
            )
            if text.strip("{}"):
                yield text


RAISED = {"InvalidArgumentError", "InvalidIdError", "self.refused", "spec.refused", "SPEC.refused"}


def test_wherever_an_argument_is_refused_its_rule_is_a_predicate() -> None:
    """What it must be, or what is wrong, perhaps why, and behind a semicolon what to do."""
    found = [text for module in load().values() for text in rules(module.tree)]
    assert len(found) > 300, "the test sees them"
    assert [text for text in found if not RULE.match(text)] == []
    advice = [text.partition("; ")[2] for text in found if "; " in text]
    assert len(advice) > 40, "the test sees it"
    assert [
        text for text in advice if not (VERB.match(text) or text.startswith("it must be"))
    ] == []
    assert [text for text in found if re.search(r"; .*; |[.:;] *$|ha(s|ve) to ", text)] == []


@pytest.mark.parametrize(
    ("value", "rule", "said"),
    [
        (0, "must be at least 1", "x must be at least 1, not 0"),
        (0, "must be 1: there is one", "x must be 1, not 0: there is one"),
        (0, "must be 1; take y", "x must be 1, not 0; take y"),
        (0, "must be 1: there is one; take y", "x must be 1, not 0: there is one; take y"),
        (None, "must be a string", "x must be a string, not None"),
        ("...", "must be a string", "x must be a string"),
        ("a", "requires y", "x 'a' requires y"),
        ("a", "has one character; take y", "x 'a' has one character; take y"),
        (None, "is required", "x is required"),
        ("...", "requires y", "x requires y"),
    ],
)
def test_the_sentence_of_an_argument(value: object, rule: str, said: str) -> None:
    """It has the value where there is one to show, and ends with what to do, or with the rule."""
    error = InvalidArgumentError("x", value, rule)
    assert (str(error), error.rule) == (said, rule)
    assert error.remedy == (rule.partition("; ")[2] or error.remedy)
    assert said.endswith(error.remedy)
    assert error.remedy


def test_a_quoted_cause_keeps_its_remedy_at_the_end() -> None:
    """Of the cause where it has one; nothing is said twice."""
    cause = StoreAuthenticationError("redis", "WRONGPASS")
    error = SegmentUnavailableError(
        "a.b", waited=0, reason=str(cause), retryable=False, remedy=cause.remedy
    )
    assert str(error) == (
        "no segment of a.b came: redis: WRONGPASS; correct the URL, or the user's rights"
    )


async def test_what_goes_wrong_in_the_first_hour_says_what_to_do() -> None:
    """As it is raised, not as it is built."""
    ids = aiocosid.connect("memory://", namespace="shop")

    async def provoked(call: Callable[[], Any]) -> CosIdError:
        with pytest.raises(CosIdError) as caught:
            await call()
        return caught.value

    async def unknown() -> None:
        aiocosid.store_from_url("oracle://db.example")

    async def misspelt() -> None:
        aiocosid.configure({"store": "memory://", "generators": {"order": {"stp": 5}}})

    async def unopened() -> None:
        await SegmentChainId(counter()).next_id()

    async def opened_again() -> None:
        async with ids:
            await ids.__aenter__()

    async def otherwise() -> None:
        async with aiocosid.connect("memory://") as other:
            await other.segment("order", step=10)
            await other.segment("order", step=20)

    async def failing() -> None:
        distributor = FailingDistributor(counter())
        distributor.fail()
        async with SegmentChainId(distributor, wait_timeout=0.01):
            pass

    for call in (unknown, misspelt, unopened, opened_again, otherwise, failing):
        error = await provoked(call)
        assert begins_with_a_verb(error.remedy), error
        assert str(error).endswith(error.remedy)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: aiocosid.store_from_url("reddis://h"), "did you mean 'redis:'?"),
        (lambda: aiocosid.store_from_url("leaff+mysql://h/x"), "did you mean 'leaf+mysql:'?"),
        (lambda: aiocosid.store_from_url("redis+sentnel://h"), "did you mean 'redis+sentinel:'?"),
        (
            lambda: aiocosid.store_from_url("oracle://h"),
            "must begin with a known scheme, such as sqlite:///ids.db",
        ),
        (
            lambda: aiocosid.store_from_url("ids.db"),
            "begin with a known scheme, such as sqlite:///ids.db",
        ),
        (lambda: aiocosid.connect(cast("Any", object())), r"SqlAlchemyStore\(engine\)"),
        (lambda: GroupBy.day(zone="Europe/Berln"), "did you mean 'Europe/Berlin'?"),
        (generator_named, "not set, even where a provider is open; .*'with aiocosid.use_provider"),
        (
            lambda: aiocosid.store_from_url("postgresql://u:p/w@h/d"),
            "in a password '@' is %40, '/'",
        ),
        (lambda: aiocosid.store_from_url("mysql+asyncmy://u:p@w@h/d"), "in a password '@' is %40"),
    ],
)
def test_a_mistake_is_named_where_it_was_made(call: Callable[[], object], said: str) -> None:
    """A name that is nearly right leads to the right one, and not to a list of all."""
    with pytest.raises(CosIdError, match=said.replace("?", r"\?").replace("+", r"\+")) as caught:
        call()
    assert str(caught.value).endswith(caught.value.remedy)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("kind", "chian", "must .*, not 'chian'; did you mean 'chain'?"),
        ("kind", "cached", "must .*, not 'cached'; did you mean 'cached_snowflake'?"),
        ("kind", "leaf", "must .*, not 'leaf'; did you mean 'leaf_segment'?"),
        ("kind", "segment_chain", "must .*, not 'segment_chain'; did you mean 'chain'?"),
        ("converter", "radix26", "must .*, not 'radix26'; did you mean 'radix62'?"),
    ],
)
def test_a_setting_that_is_nearly_right(key: str, value: str, said: str) -> None:
    generator = {"kind": "chain", key: value}
    with pytest.raises(InvalidSettingsError, match=said.replace("?", r"\?")):
        aiocosid.configure({"store": "memory://", "generators": {"order": generator}})


def test_a_call_that_is_not_awaited_has_its_public_name() -> None:
    asked: Any = aiocosid.connect("memory://").segment("order")
    assert asked.__qualname__ == "IdProvider.segment"
    asked.close()


@every_error
def test_celery_restores_it_from_json(error: CosIdError) -> None:
    """It calls the class with ``args``; facts are None then, and no error becomes retryable."""
    twin = type(error)(*json.loads(json.dumps(error.args)))
    assert type(twin) is type(error)
    if not isinstance(error, GeneratorMissingError):  # it forgets which others there are
        assert (str(twin), twin.args) == (str(error), error.args)
    assert error.retryable or not twin.retryable
    if type(error) is CosIdError:
        return  # it adds nothing
    with suppress(TypeError):  # the name of a thing is no text of ours
        assert str(type(error)("shop.order")) != "shop.order"


@pytest.mark.parametrize("text", ["deadlock detected\nby 4711", "order\n1"])
def test_a_text_of_two_lines_is_a_fact(text: str) -> None:
    """Only the text that the class itself has made restores an error without its facts."""

    class OwnError(CosIdError):
        def __init__(self, what: str) -> None:
            super().__init__(what)
            self.what = what

    assert OwnError(text).what == text
    assert TransactionConflictError(text).reason == text
    assert TransactionConflictError(text).remedy == TransactionConflictError.remedy
    assert GeneratorMissingError(text).name == text
    assert "there is no generator" in str(GeneratorMissingError(text))


def test_a_quoted_sentence_has_one_end() -> None:
    error = StoreUnavailableError("redis", "Error -2. Name or service not known.")
    assert "known; try again" in str(error)


def test_a_class_of_your_own_leads_to_ours() -> None:
    class OwnError(StoreUnavailableError):
        pass

    assert OwnError("redis", "down").url == StoreUnavailableError("redis", "down").url


def test_a_missing_generator_is_told_with_those_that_are_there() -> None:
    error = GeneratorMissingError("ordr", known=["payment", "order"])
    assert str(error) == (
        "there is no generator 'ordr'; similar are 'order'; there are 'order', 'payment'; "
        "correct the name, or open a generator of that name first"
    )
    assert (error.similar, error.known) == (("order",), ("payment", "order"))
    many = GeneratorMissingError("x" * 5000, known=(f"n{each}" for each in range(10**9)))
    assert len(str(many)) < 500
    assert "and 980 more" in str(many)


def test_facts_are_attributes() -> None:
    """A program decides by them, not by the text."""
    rolled_back = StoreRolledBackError("redis", namespace="a.b", name="c", seen=5, expected=10)
    assert (rolled_back.counter, rolled_back.seen, rolled_back.expected) == ("a.b.c", 5, 10)
    too_long = NameTooLongError("cosid.order", limit=100)
    assert (too_long.limit, too_long.value) == (100, "cosid.order")
    assert SegmentUnavailableError("x.y", waited=2.5).waited == 2.5
    assert IdOverflowError("x.y", limit=7).limit == 7


def test_a_long_value_is_cut_in_the_sentence() -> None:
    """It may be what a client sent; the facts have it whole."""
    for value, shown in (("x" * 98, f"'{'x' * 98}'"), ("x" * 5000, f"'{'x' * 99}...")):
        error = InvalidArgumentError("id", value, "must be short")
        assert str(error) == f"id must be short, not {shown}"
        assert error.value is value
