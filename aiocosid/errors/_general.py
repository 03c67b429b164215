"""The root of the errors; what every room raises, and what the stores and segments do."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, Self, TypeVar

__all__ = (
    "BusyError",
    "ClosedError",
    "CorruptCounterError",
    "CosIdError",
    "ForkedError",
    "IdOverflowError",
    "InvalidArgumentError",
    "MissingExtraError",
    "NameTooLongError",
    "NotOpenError",
    "SchemaMissingError",
    "SegmentUnavailableError",
    "StoreAuthenticationError",
    "StoreError",
    "StoreIdentityHiddenError",
    "StoreRolledBackError",
    "StoreUnavailableError",
    "UnsupportedByStoreError",
    "UnsupportedRuntimeError",
    "WouldBlock",
    "WrongLoopError",
)

REOPEN: Final = "open it anew in this process"
"""What to do about most of what is a parent process's."""

MOST_SHOWN: Final = 100  # characters of a wrong value: it may be a whole body of a request

_E = TypeVar("_E", bound="CosIdError")


class CosIdError(Exception):
    """The root of all errors of this library.

    Attributes:
        retryable: whether the same call may succeed later with nothing changed by anybody.
    """

    retryable: bool = False

    def again(self) -> Self:
        """Return a copy to raise once more, with the cause but without the old traceback."""
        copy: Self = _rebuild(type(self), self.args, self.__dict__)
        copy.__cause__ = self.__cause__
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by facts: the constructors take keywords, which Exception cannot replay."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[_E], args: tuple[Any, ...], facts: dict[str, Any]) -> _E:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class InvalidArgumentError(CosIdError, ValueError):
    """An argument is outside its range; nothing was done.

    Attributes:
        argument: the argument's name.
        value: what was given; the message shows its first 100 characters.
    """

    def __init__(self, argument: str, value: object, *, expected: str) -> None:
        shown = repr(value)
        if len(shown) > MOST_SHOWN:
            shown = f"{shown[:MOST_SHOWN]}..."
        super().__init__(f"{argument} is {shown}; it has to be {expected}")
        self.argument = argument
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what can be; the text of a value that cannot, as a generator given by mistake."""
        facts = dict(self.__dict__)
        try:
            import_module("pickle").dumps(self.value)
        except Exception:  # noqa: BLE001 - whatever a stranger's class raises
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
            expected=f"at most {limit} characters, the width of the column; "
            f"it has {len(namespaced_name)}",
        )
        self.limit = limit


class MissingExtraError(CosIdError, ImportError):
    """A library that an optional part needs is not installed.

    Attributes:
        package: the library that is missing.
        extra: the extra of aiocosid that brings it.
    """

    def __init__(self, package: str, *, extra: str) -> None:
        super().__init__(
            f"{package} is not installed; install it with: pip install 'aiocosid[{extra}]'"
        )
        self.package = package
        self.extra = extra


class UnsupportedRuntimeError(CosIdError, RuntimeError):
    """The interpreter cannot keep the promises; raised when a generator is opened.

    Attributes:
        reason: what the interpreter lacks.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"aiocosid cannot run here: {reason}")
        self.reason = reason


class WouldBlock(CosIdError):  # noqa: N818 - the name of the anyio pair X / X_nowait
    """No id is in hand; ``await next_id()`` would have to wait for the store."""

    retryable = True

    def __init__(self) -> None:
        super().__init__("no id is in hand; await next_id(), or call again a little later")


class NotOpenError(CosIdError):
    """A generator or provider is used before it is opened.

    Attributes:
        what: what was used.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not open; use 'async with' or 'await task_group.start(x.run)'")
        self.what = what


class BusyError(CosIdError):
    """A generator or provider is opened while it is open, or a name is asked for in two ways.

    Attributes:
        what: what is in use.
    """

    def __init__(self, what: str, *, reason: str) -> None:
        super().__init__(f"{what} {reason}")
        self.what = what


class ClosedError(CosIdError):
    """The generator, its provider or the task group around it has been closed.

    Attributes:
        what: what was closed.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed; open it anew to go on")
        self.what = what


class ForkedError(CosIdError):
    """The process was forked, and this object belongs to the parent.

    Attributes:
        what: what belongs to the parent.
    """

    def __init__(self, what: str, *, remedy: str = REOPEN) -> None:
        super().__init__(f"{what} belongs to the process that this one was forked from; {remedy}")
        self.what = what


class WrongLoopError(CosIdError, RuntimeError):
    """A generator is used from another event loop or thread than the one it was opened on.

    Attributes:
        what: what was used.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} belongs to another event loop or thread; open one generator for each loop"
        )
        self.what = what


class IdOverflowError(CosIdError, OverflowError):
    """The next id would be above the highest one allowed; no such id is ever handed out.

    Attributes:
        limit: the highest id allowed, 2^63-1 or the generator's ``max_id``.
    """

    def __init__(self, namespaced_name: str, *, limit: int) -> None:
        super().__init__(f"{namespaced_name} is used up: its next id is above the limit {limit}")
        self.limit = limit


class SegmentUnavailableError(CosIdError):
    """No segment came; the store's own error, if it gave one, is the ``__cause__``.

    It is as retryable as its cause: a wrong password fails whoever waits at once.

    Attributes:
        waited: seconds that the caller waited at most; 0 if an error that no retry mends came.
    """

    retryable: bool = True

    def __init__(
        self, namespaced_name: str, *, waited: float, reason: str = "", retryable: bool = True
    ) -> None:
        super().__init__(
            f"no segment of {namespaced_name} came"
            + (f" within {waited:g} s" if waited else "")
            + (f": {reason}" if reason else "")
        )
        self.waited = waited
        self.retryable = retryable


class StoreError(CosIdError):
    """The store refused a call.

    Attributes:
        store: which store, without credentials.
        reason: what it said.
    """

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"{store}: {reason}")
        self.store = store
        self.reason = reason


class StoreUnavailableError(StoreError):
    """The store cannot be reached, is starting, failing over or too slow.

    The call may have taken effect: a range may be lost, never given twice.
    """

    retryable = True


class StoreAuthenticationError(StoreError):
    """The store rejected the user, the password or the user's rights."""


class StoreIdentityHiddenError(StoreError):
    """A server does not tell who it is, so that a span would outlive the server that opened it."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(
            store,
            f"the server does not tell who it is ({reason}); allow it with "
            "'ACL SETUSER <user> +info', or connect past the proxy that hides it",
        )


class UnsupportedByStoreError(StoreError):
    """The store has no such thing: machine ids, for one, in a table of counters."""


class SchemaMissingError(StoreError):
    """A table, or a stream, that this store needs does not exist.

    Attributes:
        table: its name.
    """

    def __init__(self, store: str, *, table: str, kind: str = "table") -> None:
        super().__init__(
            store,
            f"{kind} {table!r} does not exist; create it with 'aiocosid init --store URL' "
            "or 'await store.create_schema()'",
        )
        self.table = table


class CorruptCounterError(StoreError):
    """The store holds something under the counter's name that is not a positive integer.

    Attributes:
        counter: the key or row that is damaged.
    """

    def __init__(self, store: str, *, counter: str, found: str) -> None:
        super().__init__(
            store, f"{counter!r} holds {found}, not a counter; repair it, or use another name"
        )
        self.counter = counter


class StoreRolledBackError(StoreError):
    """A counter went backwards: the store lost writes, so ids would repeat.

    It ends the generator that sees it; no further id is handed out, not even one in hand,
    because another process may be given the same.

    Attributes:
        counter: ``{namespace}.{name}``.
        seen: the max id that the store answered.
        expected: the lowest max id that a sound store could have answered.
    """

    def __init__(self, store: str, *, namespace: str, name: str, seen: int, expected: int) -> None:
        super().__init__(
            store,
            f"counter '{namespace}.{name}' went backwards: {seen} came, at least {expected} was "
            f"due; raise it with 'aiocosid set-floor {name} --namespace {namespace} --above N' to "
            "a number above every id ever handed out, then open the generator anew",
        )
        self.counter: str = f"{namespace}.{name}"
        self.seen = seen
        self.expected = expected
