"""The classes of all errors; `aiocosid.errors` names them for users."""

from __future__ import annotations

from importlib import import_module
from math import ceil, inf
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

from .._later import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = (
    "BusyError",
    "ClockSkewError",
    "ClockTooFarForwardError",
    "ClockTooManyBackwardsError",
    "ClosedError",
    "CorruptCounterError",
    "CorruptMachineStateError",
    "CosIdError",
    "CounterMissingError",
    "ForkedError",
    "IdOverflowError",
    "InvalidArgumentError",
    "InvalidIdError",
    "InvalidSettingsError",
    "LayoutExpiredError",
    "LeafWorkerIdsUsedUpError",
    "MachineBitsMismatchError",
    "MachineIdInUseError",
    "MachineIdLostError",
    "MachineIdOverflowError",
    "MachineIdQuarantineError",
    "MachineIdUnavailableError",
    "MissingExtraError",
    "NameTooLongError",
    "NotOpenError",
    "RingEmptyError",
    "SchemaMissingError",
    "SegmentUnavailableError",
    "SequenceExhaustedError",
    "SequenceUnavailableError",
    "SettingsProblem",
    "StoreAuthenticationError",
    "StoreError",
    "StoreIdentityHiddenError",
    "StoreNotInitializedError",
    "StoreRolledBackError",
    "StoreUnavailableError",
    "UnsupportedByStoreError",
    "UnsupportedRuntimeError",
    "WorkerIdsUsedUpError",
    "WouldBlock",
    "WrongLoopError",
)

PAGE: Final = "https://aiocosid.readthedocs.io/en/latest/reference/errors.html"

REOPEN: Final = "open it anew in this process"
"""The remedy for most objects that belong to the parent process."""

INT64_MAX: Final = 2**63 - 1
MOST_SHOWN: Final = 100  # characters of a wrong value: it may be a whole body of a request

_E = TypeVar("_E", bound="CosIdError")


class CosIdError(Exception):
    """The root of all errors of this library.

    Attributes:
        retryable: whether the same call may succeed later with nothing changed by anybody.
    """

    retryable: bool = False

    @property
    def url(self) -> str:
        """The place in the documentation that says when it comes, and what to do.

        A class of your own leads to the class of aiocosid that it is derived from.
        """
        (ours, *_) = (each for each in type(self).__mro__ if each.__module__ == __name__)
        return f"{PAGE}#{ours.__name__.lower()}"

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


class InvalidArgumentError(CosIdError, ValueError):
    """An argument is outside its range; nothing was done.

    Attributes:
        argument: the argument's name.
        value: what was given; the message shows its first 100 characters.
        expected: what it has to be.
    """

    def __init__(self, argument: str, value: object, *, expected: str) -> None:
        shown = repr(value)
        if len(shown) > MOST_SHOWN:
            shown = f"{shown[:MOST_SHOWN]}..."
        super().__init__(f"{argument} is {shown}; it has to be {expected}")
        self.argument = argument
        self.value = value
        self.expected = expected

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
        reason: in which way it is.
    """

    def __init__(self, what: str, *, reason: str) -> None:
        super().__init__(f"{what} {reason}")
        self.what = what
        self.reason = reason


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
        remedy: what to do.
    """

    def __init__(self, what: str, *, remedy: str = REOPEN) -> None:
        super().__init__(f"{what} belongs to the process that this one was forked from; {remedy}")
        self.what = what
        self.remedy = remedy


class WrongLoopError(CosIdError, RuntimeError):
    """A generator is used from another event loop or thread than the one it was opened on.

    Also: the code of a Temporal workflow asks for an id.

    Attributes:
        what: what was used.
        in_workflow: whether the code of a Temporal workflow did.
    """

    def __init__(self, what: str, *, in_workflow: bool = False) -> None:
        super().__init__(
            f"{what} gives no ids to the code of a Temporal workflow, because a replay would get "
            "others; take the id in an activity and return it, or use workflow.uuid4(), which a "
            "replay repeats"
            if in_workflow
            else f"{what} belongs to another event loop or thread; open one generator for each loop"
        )
        self.what = what
        self.in_workflow = in_workflow


class IdOverflowError(CosIdError, OverflowError):
    """The next id would be above the highest one allowed; no such id is ever handed out.

    Attributes:
        counter: the generator, ``{namespace}.{name}``.
        limit: the highest id allowed, 2^63-1 or the generator's ``max_id``.
    """

    def __init__(self, namespaced_name: str, *, limit: int) -> None:
        remedy = "take another name" + (", or a higher max_id" if limit < INT64_MAX else "")
        super().__init__(
            f"{namespaced_name} is used up: its next id is above the limit {limit}; {remedy}"
        )
        self.counter = namespaced_name
        self.limit = limit


class SegmentUnavailableError(CosIdError):
    """No segment came; the store's own error, if it gave one, is the ``__cause__``.

    It is retryable if its cause is: a wrong password fails all waiting callers at once.

    Attributes:
        counter: the generator, ``{namespace}.{name}``.
        waited: seconds that the caller waited at most; 0 if an error that no retry mends came.
        reason: what kept it; empty if the store did not answer.
        retry_after: seconds after which the store is asked again; None if nobody knows.
    """

    retryable: bool = True

    def __init__(
        self,
        namespaced_name: str,
        *,
        waited: float,
        reason: str = "",
        retryable: bool = True,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(
            f"no segment of {namespaced_name} came"
            + (f" within {waited:g} s" if waited else "")
            + (f": {reason}" if reason else "")
        )
        self.counter = namespaced_name
        self.reason = reason
        self.waited = waited
        self.retryable = retryable
        self.retry_after: float | None = retry_after


class StoreError(CosIdError):
    """The store refused a call.

    Attributes:
        store: which store, without credentials.
        reason: what it said.
    """

    _remedy: ClassVar[str] = ""

    def __init__(self, store: str, reason: str) -> None:
        remedy = "" if self._remedy in reason else f"; {self._remedy}"
        super().__init__(f"{store}: {reason}{remedy}")
        self.store = store
        self.reason = reason


class StoreUnavailableError(StoreError):
    """The store cannot be reached, is starting, failing over or too slow.

    The call may have taken effect: a range may be lost, never given twice.
    """

    retryable = True


class StoreAuthenticationError(StoreError):
    """The store rejected the user, the password or the user's rights."""

    _remedy = "correct the URL, or the user's rights"


class StoreIdentityHiddenError(StoreError):
    """A tiered store's cache hides which server it is: a span could outlive that server."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(
            store,
            f"the server does not tell who it is ({reason}); allow it with "
            "'ACL SETUSER <user> +info', or connect past the proxy that hides it",
        )


class UnsupportedByStoreError(StoreError):
    """The store does not support what was asked for, such as machine ids in a table of counters."""


class SchemaMissingError(StoreError):
    """A table, or a stream, that this store needs does not exist.

    Attributes:
        table: its name.
        kind: ``"table"`` or ``"stream"``.
    """

    def __init__(self, store: str, *, table: str, kind: str = "table") -> None:
        super().__init__(
            store,
            f"{kind} {table!r} does not exist; create it with 'aiocosid init --store URL' "
            "or 'await store.create_schema()'",
        )
        self.table = table
        self.kind = kind


class CorruptCounterError(StoreError):
    """The store holds something under the counter's name that is not a positive integer.

    Attributes:
        counter: the key or row that is damaged.
        found: what it holds.
    """

    def __init__(self, store: str, *, counter: str, found: str) -> None:
        super().__init__(
            store, f"{counter!r} holds {found}, not a counter; repair it, or use another name"
        )
        self.counter = counter
        self.found = found


class StoreRolledBackError(StoreError):
    """A counter went backwards: the store lost writes, so ids would repeat.

    It ends the generator that sees it; no further id is handed out, not even one in hand,
    because another process may be given the same.

    Attributes:
        counter: ``{namespace}.{name}``.
        namespace: the first part of it.
        name: the second part.
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
        self.namespace = namespace
        self.name = name
        self.seen = seen
        self.expected = expected


class ClockSkewError(CosIdError):
    """The clocks of this host and of the store disagree by more than is tolerated.

    Nothing was written: under a wrong second a sequence might be granted twice.

    Attributes:
        store: which store, without credentials.
        ahead: seconds that this host is ahead of the store; negative if it is behind.
        tolerance: seconds that are tolerated.
    """

    retryable = True

    def __init__(self, store: str, *, ahead: int, tolerance: int) -> None:
        how = f"{ahead} s ahead of" if ahead > 0 else f"{-ahead} s behind"
        super().__init__(
            f"the clock of this host is {how} that of {store}, more than the {tolerance} s that "
            "are tolerated; set the clocks right"
        )
        self.store = store
        self.ahead = ahead
        self.tolerance = tolerance


class SequenceUnavailableError(CosIdError):
    """The store granted no sequence of a second in time; its error is the ``__cause__``.

    Attributes:
        counter: the generator, ``{namespace}.{name}``.
        waited: seconds that the caller waited; 0 if it did not.
        reason: what kept it; empty if the store did not answer.
    """

    retryable: bool = True

    def __init__(
        self, namespaced_name: str, *, waited: float, reason: str = "", retryable: bool = True
    ) -> None:
        super().__init__(
            f"no sequence of {namespaced_name} came"
            + (f" within {waited:g} s" if waited else "")
            + (f": {reason}" if reason else "")
        )
        self.counter = namespaced_name
        self.reason = reason
        self.waited = waited
        self.retryable = retryable


class SequenceExhaustedError(SequenceUnavailableError):
    """The seconds that a caller waited for are used up, by all nodes together."""


class RingEmptyError(CosIdError):
    """The ring of a `CachedSnowflakeId` holds too few ids, and ``on_empty`` is ``"raise"``.

    Its ids are ahead of the clock by all that may be borrowed, or the lease allows no later ones
    yet; then the lease's last error, if there is one, is the ``__cause__``.

    Attributes:
        counter: the generator, ``{namespace}.{name}``.
        borrowed: seconds that its last id is ahead of the clock.
    """

    retryable = True

    def __init__(self, namespaced_name: str, *, borrowed: float) -> None:
        super().__init__(
            f"the ring of {namespaced_name} is empty, and its ids are {borrowed:g} s ahead of the "
            "clock; try again soon, or let callers wait with on_empty='wait'"
        )
        self.counter = namespaced_name
        self.borrowed = borrowed


@dataclass(frozen=True, slots=True)
class SettingsProblem:
    """One thing that is wrong with settings.  It never shows a password or a key.

    Attributes:
        key: its place, dotted: ``generators.order.step``; empty for the whole.
        reason: what is wrong, and what to do.
        source: the file or the environment variable that says so; empty if it was a mapping.
        line: its line in the file, from 1; None if it is not in a file, or was not found there.
    """

    key: str
    reason: str
    source: str = ""
    line: int | None = None

    def __str__(self) -> str:
        """Return one line: ``ids.toml:7: generators.order.step: ...``."""
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return ": ".join(part for part in (place, self.key, self.reason) if part)


class InvalidSettingsError(CosIdError, ValueError):
    """The settings have errors; nothing was opened.

    Attributes:
        problems: everything that is wrong with them, in the order of the settings.
    """

    def __init__(self, problems: Iterable[SettingsProblem]) -> None:
        self.problems: tuple[SettingsProblem, ...] = tuple(problems)
        found = "\n".join(f"  {problem}" for problem in self.problems)
        count = len(self.problems)
        super().__init__(f"{count} problem{'s' * (count != 1)} in the settings:\n{found}")


MOST_OF_A_PLACE: Final = 400  # characters: a path has many


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


class InvalidIdError(InvalidArgumentError):
    """A number or text is no id of the layout or converter it is read or written with."""


class LayoutExpiredError(CosIdError, OverflowError):
    """The layout's time field has no room for the current time: no id can be made any more.

    Attributes:
        layout: the layout's name.
        last_instant: the last moment of which there can be ids, ISO 8601 in UTC.
        remedy: what to do.
    """

    def __init__(self, layout: str, *, last_instant: str, remedy: str) -> None:
        super().__init__(f"{layout} ended at {last_instant}; {remedy}")
        self.layout = layout
        self.last_instant = last_instant
        self.remedy = remedy


class ClockTooManyBackwardsError(CosIdError):
    """The wall clock is too far behind the last id's time, or behind a stored one, to wait.

    Attributes:
        backwards: seconds that the clock is behind.
        threshold: seconds that a call waits for it at most (`broken_threshold`).
    """

    retryable = True

    def __init__(self, *, backwards: float, threshold: float) -> None:
        super().__init__(
            f"the wall clock is {backwards:g} s behind the last id's time, more than the "
            f"{threshold:g} s that are waited for (broken_threshold); set the clock right"
        )
        self.backwards = backwards
        self.threshold = threshold


class ClockTooFarForwardError(CosIdError):
    """The wall clock jumped further ahead than `max_forward_jump` allows.

    Attributes:
        forward: seconds that it jumped.
        limit: seconds that are allowed.
    """

    retryable = True

    def __init__(self, *, forward: float, limit: float) -> None:
        super().__init__(
            f"the wall clock jumped {forward:g} s ahead, more than the {limit:g} s allowed "
            "(max_forward_jump); set the clock right, or open the generator anew if it is right now"
        )
        self.forward = forward
        self.limit = limit


class MachineBitsMismatchError(CosIdError):
    """The machine ids of the namespace have another width; nothing was taken or written.

    Ids of two layouts under one namespace may be equal.

    Attributes:
        namespace: the namespace.
        bits: the width that was asked for.
        found: the width that the namespace has.
        remedy: how to change it for good, once all instances are closed.
    """

    def __init__(self, namespace: str, *, bits: int, found: int, remedy: str = "") -> None:
        remedy = remedy or (
            f"run 'aiocosid machines bits --namespace {quote(namespace)} --set {bits}'"
        )
        super().__init__(
            f"namespace {namespace!r} has machine ids of {found} bits, and {bits} were asked for; "
            f"take a layout with {found} machine bits, or another namespace; if the width has "
            f"changed for good, close all instances and {remedy}"
        )
        self.namespace = namespace
        self.bits = bits
        self.found = found
        self.remedy: str = remedy


class MachineIdOverflowError(CosIdError):
    """All machine ids of the namespace are held; an id is never given to a second holder.

    Attributes:
        namespace: the namespace.
        size: how many machine ids there are.
        holders: some of those who hold them.
    """

    retryable = True

    def __init__(self, namespace: str, *, size: int, holders: tuple[str, ...] = ()) -> None:
        held = f", by {', '.join(holders)}" if holders else ""
        held += ", ..." if 0 < len(holders) < size else ""
        super().__init__(
            f"all {size} machine ids of namespace {namespace!r} are held{held}; "
            "close an instance, use more machine bits, or wait for the safe guard duration of "
            "those that died ('aiocosid machines list' shows them)"
        )
        self.namespace = namespace
        self.size = size
        self.holders = holders


class MachineIdLostError(CosIdError):
    """The machine id is not ours any more: somebody else holds it, or its lease ran out.

    Attributes:
        namespace: the namespace.
        machine_id: the machine id.
        reason: how it was lost.
    """

    def __init__(self, namespace: str, machine_id: int, *, reason: str) -> None:
        super().__init__(
            f"machine id {machine_id} of namespace {namespace!r} is lost: {reason}; open the "
            "generator anew, which leases another one"
        )
        self.namespace = namespace
        self.machine_id = machine_id
        self.reason = reason


class MachineIdInUseError(CosIdError):
    """A machine id, or an instance id, is in use by another process or object.

    There are three cases.  Another process on this host holds an id that was chosen by hand.  A
    lease's id is taken over repeatedly while the lease is valid, because another process runs under
    the same instance id.  Or the width of a namespace is to be changed while somebody holds a
    machine id in it.

    Attributes:
        what: what is held.
        holder: who holds it.
    """

    def __init__(self, what: str, *, holder: str) -> None:
        super().__init__(f"{what} is in use by {holder}; close that one, or choose another")
        self.what = what
        self.holder = holder


class MachineIdQuarantineError(StoreError):
    """The store may have forgotten who holds which machine id, and hands out none for a while.

    It was never initialised for the namespace, or was emptied, restored or failed over.  Running
    holders write their ids again when they renew; a new instance waits until every holder that did
    not has stopped issuing ids.

    Attributes:
        namespace: the namespace.
        seconds_left: how long it takes from now, by the store's clock; ``inf`` if it does not end
            by itself.
    """

    retryable = True

    def __init__(self, store: str, *, namespace: str, seconds_left: float) -> None:
        wait = "it does not end by itself (safe_guard=inf)"
        if seconds_left < inf:
            wait = f"wait for {ceil(seconds_left)} s"
        super().__init__(
            store,
            f"it may have forgotten who holds the machine ids of namespace {namespace!r} (emptied, "
            f"restored or failed over); nobody is handed one for now: {wait}, or run "
            f"'aiocosid init --store URL --namespace {quote(namespace)} --yes' if no process "
            "that was started before holds one",
        )
        self.namespace = namespace
        self.seconds_left = seconds_left


class StoreNotInitializedError(MachineIdQuarantineError):
    """The store was never initialised for machine ids, or was emptied: the two look alike.

    It hands out no machine id.  Run ``aiocosid init`` once; otherwise the store can be used after
    the longest safe guard.
    """

    retryable = False

    def __init__(self, store: str, *, namespace: str, seconds_left: float) -> None:
        super().__init__(store, namespace=namespace, seconds_left=seconds_left)
        what = "it was not initialised for machine ids, or has been emptied since"
        remedy = "run 'aiocosid init --store URL' once"
        self.reason: str = f"{what}: {remedy}"
        self.args: tuple[object, ...] = (f"{store}: {self.reason}",)


class MachineIdUnavailableError(CosIdError):
    """No machine id could be got or kept in time; the store's own error is the ``__cause__``.

    Attributes:
        namespace: the namespace.
        waited: seconds that the caller waited.
        reason: what kept it; empty if the store did not answer.
    """

    retryable = True

    def __init__(self, namespace: str, *, waited: float, reason: str = "") -> None:
        super().__init__(
            f"no machine id of namespace {namespace!r} could be had within {waited:g} s"
            + (f": {reason}" if reason else "")
        )
        self.namespace = namespace
        self.waited = waited
        self.reason = reason


class CorruptMachineStateError(StoreError):
    """A stored machine state is damaged; no id is handed out on a guess.

    Attributes:
        place: the file, key or row that is damaged.
        found: what it holds, in short.
        expected: what it has to hold.
    """

    def __init__(
        self, store: str, *, place: str, found: str, expected: str = "'machine_id|timestamp_ms'"
    ) -> None:
        # Anybody may have put it there: it is shown in short, and without control characters.
        shown = _cut(place if place.isprintable() else repr(place)[1:-1], MOST_OF_A_PLACE)
        found = _cut(found, MOST_SHOWN)
        super().__init__(store, f"{shown} holds {found}, not {expected}; repair or remove it")
        self.place = place
        self.found: str = found
        self.expected = expected


# What only tables of other systems have to say.


class CounterMissingError(StoreError):
    """There is no such counter, and none was created; nothing was written.

    Other systems never create counters implicitly, and their nodes would begin to use a new one, so
    a misspelt name is an error in their tables.  Commands that change an existing counter create
    none either, and a counter that disappears under an open generator is not created again.

    Attributes:
        table: the other system's table; empty for a counter of CosId's.
        counter: the name that was looked for.
        key: the column of the table that was searched; empty for a counter of CosId's.
        similar: counters of the store whose names are alike.
        remedy: what to do; empty if there is no more to say.
    """

    def __init__(
        self,
        store: str,
        *,
        counter: str,
        table: str = "",
        key: str = "",
        remedy: str = "",
        similar: tuple[str, ...] = (),
    ) -> None:
        what = f"there is no counter {counter!r}"
        if table:
            what = f"table {table!r} has no row whose {key} is {counter!r}"
        if similar:
            what += f"; similar are {', '.join(map(repr, similar))}"
        super().__init__(store, f"{what}; {remedy}" if remedy else what)
        self.table = table
        self.counter = counter
        self.key = key
        self.similar = similar
        self.remedy = remedy


class WorkerIdsUsedUpError(MachineIdOverflowError):
    """A start was given a number that does not fit the layout's machine bits.

    uid-generator counts starts and uses no number twice.  Forks of it that take the number modulo a
    limit hand out worker ids that are still in use.

    Attributes:
        worker_id: the number.
        bits: the layout's machine bits.
    """

    retryable = False

    def __init__(self, namespace: str, *, worker_id: int, bits: int) -> None:
        CosIdError.__init__(
            self,
            f"WORKER_NODE gave worker id {worker_id}, which {bits} machine bits do not hold; no id "
            "is taken twice, so take a layout with more machine bits whose ids cannot equal the "
            "old ones (aiocosid.snowflake.clearance() tells), or lease machine ids from a store, "
            "which reuses them safely",
        )
        self.namespace = namespace
        self.size: int = 1 << bits
        self.holders: tuple[()] = ()
        self.worker_id = worker_id
        self.bits = bits


class LeafWorkerIdsUsedUpError(MachineIdOverflowError):
    """The registry's next number does not fit the layout's machine bits.

    Leaf counts addresses and uses no number twice: each new address of a container takes one.

    Attributes:
        worker_id: the number; -1 if none was made.
        bits: the layout's machine bits.
    """

    retryable = False

    def __init__(
        self, namespace: str, *, worker_id: int, bits: int, holders: tuple[str, ...] = ()
    ) -> None:
        silent = f" (silent for longest: {', '.join(holders)})" if holders else ""
        number = f"worker id {worker_id}" if worker_id >= 0 else "the next worker id"
        CosIdError.__init__(
            self,
            f"{number} of {namespace} does not fit {bits} machine bits, which hold {1 << bits}; "
            f"pass the ip and port of a host that is gone for good{silent} to take its number, "
            "give hosts names that survive a restart, or move to a registry that reuses numbers "
            "(zk_recycle, or a lease from any store of aiocosid)",
        )
        self.namespace = namespace
        self.size: int = 1 << bits
        self.holders = holders
        self.worker_id = worker_id
        self.bits = bits
