"""The root of all errors, and those of arguments, settings and an object's life."""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = (
    "MOST_SHOWN",
    "REOPEN",
    "SEE_CAUSE",
    "TRY_AGAIN",
    "BusyError",
    "ClosedError",
    "CosIdError",
    "ForkedError",
    "GeneratorMissingError",
    "IdOverflowError",
    "InvalidArgumentError",
    "InvalidIdError",
    "InvalidSettingsError",
    "MissingExtraError",
    "NameTooLongError",
    "NotOpenError",
    "SettingsProblem",
    "UnsupportedRuntimeError",
    "WouldBlock",
    "WrongLoopError",
    "did_you_mean",
    "one_of",
    "shortened",
    "with_remedy",
    "with_value",
    "with_wait",
)

PAGE: Final = "https://aiocosid.readthedocs.io/en/latest/reference/errors.html"

REOPEN: Final = "open it again in this process"
"""The remedy for most objects that belong to the parent process."""

INT64_MAX: Final = 2**63 - 1
MOST_NAMES: Final = 1000  # that an error remembers
MOST_LISTED: Final = 20  # of them, in its text
MOST_SHOWN: Final = 100  # characters of a wrong value: it may be a whole body of a request
HIDDEN: Final = {"", "'...'"}  # a value that may hold a secret

TRY_AGAIN: Final = "try again, and check the store if the error persists"
SEE_CAUSE: Final = "correct what its cause names"

_E = TypeVar("_E", bound="CosIdError")


class CosIdError(Exception):
    """The root of all errors of this library.

    Attributes:
        retryable: whether the same call may succeed later if nothing else changes.
        remedy: what to do, as the end of its text says it; empty in a class of your own that says
            nothing.
    """

    retryable: bool = False
    remedy: str = ""

    @property
    def url(self) -> str:
        """The place in the documentation that says when it comes, and what to do.

        A class of your own leads to the class of aiocosid that it is derived from.
        """
        (ours, *_) = (
            each for each in type(self).__mro__ if each.__module__.rpartition(".")[0] == __package__
        )
        return f"{PAGE}#{ours.__name__.lower()}"

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            type.__setattr__(cls, "__init__", _restorable(vars(cls)["__init__"]))

    def again(self) -> Self:
        """Return a copy to raise once more, with the cause but without the old traceback."""
        copy: Self = _rebuild(type(self), self.args, self.__dict__)
        copy.__cause__ = self.__cause__
        return copy

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by facts: the constructors take keywords, which Exception cannot replay."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[_E], args: tuple[Any, ...], facts: dict[str, Any]) -> _E:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


def _restorable(build: Callable[..., None]) -> Callable[..., None]:
    """Let an error also be built from its text alone, as Celery restores it from JSON.

    Its facts are None then, and it is not retryable if that is one of them.
    """

    @wraps(build)
    def init(self: CosIdError, *args: Any, **facts: Any) -> None:  # noqa: ANN401 - as `build` has
        text = args[0] if len(args) == 1 and not facts and isinstance(args[0], str) else ""
        try:
            build(self, *args, **facts)
            if not text or not _is_made_twice(str(self), text):
                return
        except TypeError:
            if len(text.split()) < 3:  # noqa: PLR2004 - the name of a thing, no sentence of ours
                raise
        code = build.__code__
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        self.__dict__.update(dict.fromkeys(names), remedy="")
        self.args = (text,)

    return init


def _is_made_twice(message: str, text: str) -> bool:
    """Return whether a message puts around a text what it has already."""
    before, _, after = message.partition(text)
    before, after = before.rstrip("'\""), after.lstrip("'\"").partition(";")[0]
    return bool(text.startswith(before) and (before or (after and after in text)))


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Return the end of a sentence: the known name that is most alike, if one is.

    A whole word counts more than letters: ``leaf`` of ``leaf_segment``, ``chain`` in ``my_chain``.
    """
    matches: Any = import_module("difflib").get_close_matches
    text, names = str(given)[:MOST_SHOWN], tuple(known)
    close = [n for n in names if n.startswith(f"{text}_") or text.endswith(f"_{n}")]
    close = close or matches(text, names, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def with_remedy(what: str, remedy: str) -> str:
    """Return the text that ends with what to do; a cause that was quoted may have said it."""
    return what if not remedy or what.endswith(remedy) else f"{what.rstrip(' .')}; {remedy}"


def with_wait(what: str, waited: float, reason: str) -> str:
    """Return the text with how long it took, if it did, and why."""
    within = f" within {waited:g} s" if waited else ""
    return f"{what}{within}: {reason}" if reason else f"{what}{within}"


def shortened(text: str, most: int) -> str:
    """Return the text, or its first characters and an ellipsis."""
    return text if len(text) <= most else f"{text[:most]}..."


def with_value(rule: str, shown: str) -> str:
    """Return the rule with the value that breaks it: ``must be 1, not 0``, or ``'x' requires y``.

    Args:
        rule: a predicate, perhaps with its reason after a colon, and what to do after a semicolon.
        shown: the value as text; empty, or ``'...'``, if it is not to be shown.
    """
    if rule.startswith("must be ") and shown not in HIDDEN:
        must = rule.partition("; ")[0].partition(": ")[0]
        return f"{must}, not {shown}{rule[len(must) :]}"
    return rule if shown in {*HIDDEN, "None"} else f"{shown} {rule}"


def one_of(words: Iterable[str], value: object) -> str:
    """Return the rule for a choice, with the word that the value resembles."""
    known = [*words]
    return f"must be one of {', '.join(map(repr, known))}{did_you_mean(value, known)}"


class InvalidArgumentError(CosIdError, ValueError):
    """An argument is outside its range; nothing was done.

    The text is one sentence: the argument, the rule and the value, ``step must be 1, not 0``.

    Attributes:
        argument: the argument's name, the subject of the sentence.
        value: what was given.
        shown: the value as the message shows it: its first 100 characters.
        rule: what the argument must be, or what it requires, as the predicate of the sentence.
    """

    def __init__(self, argument: str, value: object, rule: str) -> None:
        shown = repr(value)
        if len(shown) > MOST_SHOWN:
            shown = f"{shown[:MOST_SHOWN]}..."
        text = with_value(rule, shown)
        super().__init__(f"{argument} {text}")
        self.remedy: str = rule.partition("; ")[2] or (text if text.startswith("must") else rule)
        self.argument = argument
        self.value = value
        self.shown: str = shown
        self.rule = rule

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what can be; the text of a value that cannot, as a generator given by mistake."""
        facts = dict(self.__dict__)
        try:
            import_module("pickle").dumps(self.value)
        except Exception:  # noqa: BLE001 - whatever the value's class raises
            facts["value"] = repr(self.value)
        return _rebuild, (type(self), self.args, facts)


class NameTooLongError(InvalidArgumentError):
    """``{namespace}.{name}`` does not fit the store's column; nothing was written.

    Attributes:
        limit: the column's width in characters.
    """

    def __init__(self, namespaced_name: str, *, limit: int) -> None:
        super().__init__(
            "namespace.name",
            namespaced_name,
            f"has {len(namespaced_name)} characters (maximum {limit}, the width of the "
            "column); take a shorter name",
        )
        self.limit = limit


class InvalidIdError(InvalidArgumentError):
    """A number or text is not an id of the layout or converter that reads or writes it."""


class GeneratorMissingError(InvalidArgumentError, KeyError):
    """The provider has no generator of that name.

    Its text is built when it is read: a server that is asked for unknown names has no use for it.

    Attributes:
        name: the name that was asked for.
        known: names of generators that are there, at most 1,000.
    """

    remedy: str = "correct the name, or open a generator of that name first"

    def __init__(self, name: str, *, known: Iterable[str] = ()) -> None:
        CosIdError.__init__(self, name)
        self.name = name
        self.argument = "name"
        self.value = name
        self.rule = "must be the name of a generator"
        self.known: tuple[str, ...] = tuple(islice(known, MOST_NAMES))

    @property
    def similar(self) -> tuple[str, ...]:
        """Those of the known names that are alike."""
        matches: Any = import_module("difflib").get_close_matches
        return tuple(matches(self.name[:MOST_SHOWN], self.known))

    def __str__(self) -> str:
        """Return the text: the similar names, and those that there are."""
        parts = [f"there is no generator {shortened(repr(self.name), MOST_SHOWN)}"]
        if similar := self.similar:
            parts.append(f"similar are {', '.join(map(repr, similar))}")
        names = sorted(self.known)
        shown = ", ".join(map(repr, names[:MOST_LISTED]))
        more = f", and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
        parts.append(f"there are {shown}{more}" if names else "the provider has none yet")
        return "; ".join((*parts, self.remedy))


class IdOverflowError(CosIdError, OverflowError):
    """The next id would be above the highest one allowed; no such id is ever handed out.

    Attributes:
        counter: the generator, ``{namespace}.{name}``.
        limit: the highest id allowed, 2^63-1 or the generator's ``max_id``.
    """

    def __init__(self, namespaced_name: str, *, limit: int) -> None:
        higher = ", or a higher max_id" if limit < INT64_MAX else ""
        self.remedy: str = f"take another name{higher}"
        super().__init__(
            f"{namespaced_name} is used up: its next id is above the limit {limit}; {self.remedy}"
        )
        self.counter = namespaced_name
        self.limit = limit


@dataclass(frozen=True, slots=True)
class SettingsProblem:
    """One thing that is wrong with settings.  It never shows a password or a key.

    Attributes:
        key: its place, dotted: ``generators.order.step``; empty for the whole.
        reason: what is wrong, and what to do.
        source: the file or the environment variable that says so; empty if it was a mapping.
    """

    key: str
    reason: str
    source: str = ""

    def __str__(self) -> str:
        """Return one line: ``ids.toml: generators.order.step: ...``."""
        return ": ".join(part for part in (self.source, self.key, self.reason) if part)


class InvalidSettingsError(CosIdError, ValueError):
    """The settings have errors; nothing was opened.

    Attributes:
        problems: everything that is wrong with them.
    """

    remedy = "correct them, and check them with 'aiocosid check-config FILE'"

    def __init__(self, problems: Iterable[SettingsProblem]) -> None:
        given: object = problems
        if isinstance(given, str):
            raise TypeError("its text is not its problems")
        self.problems: tuple[SettingsProblem, ...] = tuple(problems)
        found = "\n".join(f"  {problem}" for problem in self.problems)
        count = len(self.problems)
        super().__init__(
            f"{count} problem{'s' * (count != 1)} in the settings:\n{found}\n{self.remedy}"
        )


class MissingExtraError(CosIdError, ImportError):
    """A library that an optional part needs is not installed.

    Attributes:
        package: the library that is missing.
        extra: the extra of aiocosid that brings it.
    """

    def __init__(self, package: str, *, extra: str) -> None:
        self.remedy: str = f"install it with: pip install 'aiocosid[{extra}]'"
        super().__init__(f"{package} is not installed; {self.remedy}")
        self.package = package
        self.extra = extra


class UnsupportedRuntimeError(CosIdError, RuntimeError):
    """The interpreter cannot keep the promises; raised when a generator is opened.

    Attributes:
        reason: what the interpreter lacks.
    """

    def __init__(self, reason: str, *, remedy: str = "take another interpreter") -> None:
        super().__init__(with_remedy(f"aiocosid cannot run here: {reason}", remedy))
        self.reason = reason
        self.remedy: str = remedy


class WouldBlock(CosIdError):  # noqa: N818 - the name of the anyio pair X / X_nowait
    """No id is buffered; ``await next_id()`` would have to wait for the store."""

    retryable = True
    remedy = "await next_id(), or call again a little later"

    def __init__(self) -> None:
        super().__init__(f"no id is buffered; {self.remedy}")


class NotOpenError(CosIdError):
    """A generator or provider is used before it is opened.

    Attributes:
        what: what was used.
        reason: that it is not open.
    """

    remedy: str = "use 'async with' or 'await task_group.start(x.run)'"

    def __init__(self, what: str, *, reason: str = "is not open", remedy: str = "") -> None:
        self.remedy = remedy or self.remedy
        super().__init__(f"{what} {reason}; {self.remedy}")
        self.what = what
        self.reason = reason


class BusyError(CosIdError):
    """A generator or provider is opened while it is open, or a name is asked for in two ways.

    Attributes:
        what: what is in use.
        reason: in which way it is.
    """

    def __init__(
        self, what: str, *, reason: str, remedy: str = "close it first, or use another one"
    ) -> None:
        super().__init__(with_remedy(f"{what} {reason}", remedy))
        self.what = what
        self.reason = reason
        self.remedy: str = remedy


class ClosedError(CosIdError):
    """The generator, its provider or the task group around it has been closed.

    Attributes:
        what: what was closed.
    """

    remedy = "open it again to continue"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed; {self.remedy}")
        self.what = what


class ForkedError(CosIdError):
    """The process was forked, and this object belongs to the parent.

    Attributes:
        what: what belongs to the parent.
    """

    def __init__(self, what: str, *, remedy: str = REOPEN) -> None:
        super().__init__(f"{what} belongs to the process that this one was forked from; {remedy}")
        self.what = what
        self.remedy: str = remedy


class WrongLoopError(CosIdError, RuntimeError):
    """A generator is used from another event loop or thread than the one it was opened on.

    Also: an integration refuses the loop, as `aiocosid.integrations.temporal` those of workflows.

    Attributes:
        what: what was used.
        reason: why it cannot be used there.
    """

    def __init__(
        self,
        what: str,
        *,
        reason: str = "belongs to another event loop or thread",
        remedy: str = "open one generator for each loop",
    ) -> None:
        super().__init__(f"{what} {reason}; {remedy}")
        self.what = what
        self.reason = reason
        self.remedy: str = remedy
