"""Exit codes, and the one line on standard error."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

import pytest

from aiocosid import errors
from aiocosid.abc import Counter
from aiocosid.cli._exit import ExitCode, OutputError, code_of, one_line, redacted, report
from tests.command import Command

from ._doubles import ScriptedStore

# Every error that a call to a store can end with, and what a script is told.
STORE_ERRORS = {
    errors.InvalidArgumentError("name", "x", "must be y"): 2,
    errors.NameTooLongError("a.b", limit=100): 2,
    errors.MissingExtraError("redis", extra="redis"): 2,
    errors.StoreUnavailableError("redis", "gone"): 3,
    errors.SegmentUnavailableError("a.b", waited=5.0): 3,
    errors.StoreError("redis", "says no"): 4,
    errors.StoreAuthenticationError("redis", "wrong password"): 4,
    errors.StoreIdentityHiddenError("redis", "NOPERM"): 4,
    errors.UnsupportedByStoreError("leaf", "no machine ids"): 4,
    errors.CounterMissingError("a", table="t", key="k", counter="b", remedy="c"): 4,
    errors.LeafWorkerIdsUsedUpError("a", worker_id=9, bits=3): 4,
    errors.WorkerIdsUsedUpError("a", worker_id=9, bits=3): 4,
    errors.SchemaMissingError("postgres", table="cosid"): 4,
    errors.SchemaDroppedError("postgres", tables=("cosid",)): 4,
    errors.StoreNotEmptyError("redis"): 4,
    errors.StoreFormatError("redis", found=1, expected=2): 4,
    errors.CounterNotCreatedError("redis", counter="a.b"): 4,
    errors.CorruptCounterError("redis", counter="a.b", found="'x'"): 4,
    errors.IdOverflowError("a.b", limit=2**63 - 1): 5,
    errors.SeriesNotOpenError("a"): 4,
    errors.SeriesEndedError("a", left=0, wanted=1): 5,
    errors.StoreRolledBackError("redis", namespace="a", name="b", seen=1, expected=2): 5,
    errors.UnsupportedRuntimeError("a free-threaded build"): 1,
    errors.InvalidIdError("id", "x", "must be y"): 2,
    errors.MachineIdOverflowError("a", size=1, holders=("b",)): 3,
    errors.MachineIdUnavailableError("a", waited=5.0): 3,
    errors.MachineIdQuarantineError("redis", namespace="a", seconds_left=5.0): 3,
    errors.StoreNotInitializedError("redis", namespace="a", seconds_left=5.0): 4,
    errors.ClockTooManyBackwardsError(backwards=3.0, threshold=2.0): 3,
    errors.CorruptMachineStateError("redis", place="cosid:{a}:itc_idx", found="'x'"): 4,
    errors.MachineBitsMismatchError("a", bits=8, found=10): 4,
    errors.MachineIdInUseError("the width", holder="b"): 4,
    errors.LayoutExpiredError("a", last_instant="2024-11-20T13:24:15Z", remedy="take b"): 5,
}
# What only the misuse of an object in Python leads to.
MISUSE = {
    *("BusyError", "ClosedError", "CosIdError", "ForkedError", "NotOpenError", "WouldBlock"),
    *("GeneratorMissingError", "WrongLoopError"),
    *("TransactionConflictError", "UnsuitableTransactionError"),
}
# What only settings lead to that no command uses.
SETTINGS = {
    *("ClockSkewError", "ClockTooFarForwardError", "MachineIdLostError"),
    *("RingEmptyError", "SequenceExhaustedError", "SequenceUnavailableError"),
}
# What check-config ends with, a line for each problem; see test_check_config.
PROBLEMS = {"InvalidSettingsError"}


def test_every_error_has_been_thought_of() -> None:
    """A new error of the library needs a place in the table."""
    thought_of = {type(error).__name__ for error in STORE_ERRORS} | MISUSE | SETTINGS | PROBLEMS
    assert thought_of == set(errors.__all__)


@pytest.mark.parametrize(
    ("error", "code"), STORE_ERRORS.items(), ids=lambda value: type(value).__name__
)
def test_an_error_of_the_store(
    aiocosid: Command, scripted: ScriptedStore, error: errors.CosIdError, code: int
) -> None:
    """Its sentence goes to standard error in one line, without a traceback."""
    scripted.script = [error]
    ended = aiocosid("next", "order")
    assert (ended.code, ended.out) == (code, "")
    assert ended.err in {
        f"aiocosid: error: {error}\n",
        f"aiocosid: error: {error} (see {error.url})\n",
    }
    assert scripted.closed == ["store"]


@pytest.mark.parametrize(
    ("error", "has_page"),
    [
        (errors.StoreUnavailableError("redis", "gone"), False),
        (errors.StoreError("redis", "says no"), False),
        (errors.InvalidArgumentError("name", "x", "must be y"), False),
        (errors.StoreNotInitializedError("redis", namespace="a", seconds_left=5.0), True),
        (errors.IdOverflowError("a.b", limit=2**63 - 1), True),
    ],
)
def test_an_error_leads_to_its_page(
    aiocosid: Command, scripted: ScriptedStore, error: errors.CosIdError, has_page: bool
) -> None:
    """Where the page says more than to correct the command or to try again, in the same line."""
    scripted.script = [error]
    assert aiocosid("next", "order").err.endswith(f"(see {error.url})\n") is has_page


def test_retryable_and_3_are_the_same() -> None:
    """Code 3 tells a script exactly what `retryable` tells a program."""
    for error in STORE_ERRORS:
        assert (code_of(error) == ExitCode.UNAVAILABLE) is error.retryable


def test_an_error_shows_no_password(aiocosid: Command, scripted: ScriptedStore) -> None:
    """Whatever a driver wrote into its sentence."""
    scripted.script = [errors.StoreError("redis", "cannot use 'redis://me:s3cr3t@host/0'")]
    ended = aiocosid("next", "order")
    remedy = errors.StoreError.remedy
    assert ended.err == f"aiocosid: error: redis: cannot use 'redis://me:***@host/0'; {remedy}\n"


def test_an_error_is_one_harmless_line(aiocosid: Command, scripted: ScriptedStore) -> None:
    """A server's words neither break the line nor reach the terminal as a command."""
    scripted.script = [errors.StoreError("postgres", "first\nsecond\x1b]0;title\x07")]
    ended = aiocosid("next", "order")
    remedy = errors.StoreError.remedy
    assert ended.err == f"aiocosid: error: postgres: first second\\x1b]0;title\\x07; {remedy}\n"


def test_a_bug_keeps_its_traceback(scripted: ScriptedStore) -> None:
    """What is no error of ours is not made to look like one."""
    bug = TypeError("not expected")
    with pytest.raises(TypeError) as raised:
        report(bug)
    assert raised.value is bug


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:pw@h:1/0", "redis://:***@h:1/0"),
        ("postgresql://me:p@ss:w/ord@h/db", "postgresql://me:***@h/db"),
        ("redis+sentinel://u:two words'@a,b/s/0 failed", "redis+sentinel://u:***@a,b/s/0 failed"),
        ("redis://h/0?password=pw&db=1", "redis://h/0?password=***&db=1"),
        ("postgresql://h/db?user=me&PASSWORD=pw", "postgresql://h/db?user=me&PASSWORD=***"),
        ("postgresql://me@h:5432/db", "postgresql://me@h:5432/db"),
        ("sqlite:///a/b.db", "sqlite:///a/b.db"),
        ("redis://h:6379 is down", "redis://h:6379 is down"),
        ("aiocosid+http://aiocosid_abc@h:8688 is down", "aiocosid+http://***@h:8688 is down"),
        ("aiocosid+https://any@h", "aiocosid+https://***@h"),
        (f"take aiocosid_{'x' * 43}, please", "take aiocosid_***, please"),
        ("the table aiocosid_machines", "the table aiocosid_machines"),
    ],
)
def test_redacted(text: str, shown: str) -> None:
    """Passwords go, everything else stays."""
    assert redacted(text) == shown


def test_one_line() -> None:
    """White space is one blank; what cannot be seen is escaped; letters of all scripts stay."""
    assert one_line("a\r\n\t b \x00 \u202e é 番号") == "a b \\x00 \\u202e é 番号"


class BrokenOutput(StringIO):
    """A standard output that takes nothing."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


@pytest.mark.parametrize(
    "words",
    [("--version",), ("next", "a"), ("next", "a", "--format", "json"), ("inspect",), ("init",)],
    ids=" ".join,
)
@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(28, "No space left on device"), 1, "cannot write to standard output: No space"),
        (BrokenPipeError(32, "Broken pipe"), 141, ""),
    ],
    ids=["full", "closed"],
)
def test_output_that_cannot_be_written(
    aiocosid: Command,
    scripted: ScriptedStore,
    monkeypatch: pytest.MonkeyPatch,
    *,
    words: Sequence[str],
    error: OSError,
    code: int,
    said: str,
) -> None:
    """A full disk is an error; a reader that has gone is the usual end of a pipe, and silent."""
    scripted.held = [Counter(namespaced_name="a.b", last_max_id=1)]
    monkeypatch.setattr("sys.stdout", BrokenOutput(error))
    ended = aiocosid(*words)
    assert ended.code == code
    assert said in ended.err
    assert ended.err.count("\n") == (1 if said else 0)
    assert words[0] == "--version" or scripted.closed[-1] == "store"


def test_output_error_without_words() -> None:
    """An OSError may have no text of its own."""
    assert str(OutputError(OSError("odd"))) == "cannot write to standard output: odd"


def test_a_wait_that_no_retry_mends_ends_as_its_cause() -> None:
    """The generator's error wraps the store's; a script is told the store's code."""
    error = errors.SegmentUnavailableError("a.b", waited=0.0)
    error.__cause__ = errors.StoreAuthenticationError("redis", "wrong password")
    error.retryable = False
    assert code_of(error) == ExitCode.REFUSED
