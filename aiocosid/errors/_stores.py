"""The errors of stores, of gapless series in them, and of what a generator waits for."""

from __future__ import annotations

from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING

from .base import SEE_CAUSE, TRY_AGAIN, CosIdError, with_remedy, with_wait

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = (
    "ClockSkewError",
    "CorruptCounterError",
    "CounterMissingError",
    "CounterNotCreatedError",
    "SchemaDroppedError",
    "SchemaMissingError",
    "SegmentUnavailableError",
    "SequenceExhaustedError",
    "SequenceUnavailableError",
    "SeriesEndedError",
    "SeriesNotOpenError",
    "StoreAuthenticationError",
    "StoreError",
    "StoreFormatError",
    "StoreIdentityHiddenError",
    "StoreNotEmptyError",
    "StoreRolledBackError",
    "StoreUnavailableError",
    "TransactionConflictError",
    "UnsuitableTransactionError",
    "UnsupportedByStoreError",
)


class StoreError(CosIdError):
    """The store refused a call.

    Attributes:
        store: which store, without credentials.
        reason: what it said.
    """

    remedy: str = "change what the server rejected; its log may say why"

    def __init__(self, store: str, reason: str, *, remedy: str = "") -> None:
        self.remedy = remedy or self.remedy
        super().__init__(with_remedy(f"{store}: {reason}", self.remedy))
        self.store = store
        self.reason = reason


class StoreUnavailableError(StoreError):
    """The store cannot be reached, is starting, failing over or too slow.

    The call may have taken effect: a range may be lost, never given twice.
    """

    retryable = True
    remedy = "try again, and if the error persists, check that the server runs and can be reached"


class StoreAuthenticationError(StoreError):
    """The store rejected the user, the password or the user's rights."""

    remedy = "correct the URL, or the user's rights"


class StoreIdentityHiddenError(StoreError):
    """Redis hides its identity, so a server that replaced it would go unnoticed."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(
            store,
            f"the server hides its identity ({reason})",
            remedy="allow it with 'ACL SETUSER <user> +info', or connect past the proxy that "
            "hides it",
        )
        self.reason = reason


class UnsupportedByStoreError(StoreError):
    """The store does not support what was asked for, such as machine ids in a table of counters."""

    remedy = "use a store that supports it"


class SchemaMissingError(StoreError):
    """A table, or a stream, that this store needs does not exist.

    Attributes:
        table: its name.
        kind: ``"table"`` or ``"stream"``.
    """

    remedy = "create it with 'aiocosid init --store URL' or 'await store.create_schema()'"

    def __init__(self, store: str, *, table: str, kind: str = "table", remedy: str = "") -> None:
        super().__init__(store, f"{kind} {table!r} does not exist", remedy=remedy)
        self.table = table
        self.kind = kind


class SchemaDroppedError(StoreError):
    """Tables of a store were dropped after they were made; making them again would repeat ids.

    Attributes:
        tables: the names of those that are missing.
    """

    def __init__(self, store: str, *, tables: tuple[str, ...]) -> None:
        names = ", ".join(map(repr, tables))
        super().__init__(
            store,
            f"{names} existed and {'was' if len(tables) == 1 else 'were'} dropped, with what "
            "they recorded about the ids that were handed out",
            remedy="restore a backup, or stop every process that uses the store and run "
            "'aiocosid init --store URL --after-loss', which asks for the highest id of each "
            "counter",
        )
        self.tables = tables


class StoreNotEmptyError(StoreError):
    """A store without a marker was in use before: a living process may hold its machine ids."""

    def __init__(self, store: str) -> None:
        super().__init__(
            store,
            "it has no marker, but tables, counters or machine ids from before: it was restored or "
            "emptied, or a process that was started before still uses it",
            remedy="stop every process that holds a machine id in it, then run 'aiocosid init "
            "--store URL --confirm-no-holders'",
        )


class StoreFormatError(StoreError):
    """Another version of aiocosid keeps its machine ids in the store, in a different format.

    Attributes:
        found: the format of the store's marker.
        expected: the format that this version reads and writes.
    """

    def __init__(self, store: str, *, found: int, expected: int) -> None:
        super().__init__(
            store,
            f"its marker has format {found}, and this version of aiocosid uses format {expected}",
            remedy="use the version of aiocosid that wrote it, or give this one a store of its own",
        )
        self.found = found
        self.expected = expected


class CorruptCounterError(StoreError):
    """The store holds something under the counter's name that is not a positive integer.

    Attributes:
        counter: the key or row that is damaged.
        found: what it holds.
    """

    def __init__(self, store: str, *, counter: str, found: str) -> None:
        super().__init__(
            store,
            f"{counter!r} holds {found}, not a counter",
            remedy="repair it, or use another name",
        )
        self.counter = counter
        self.found = found


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
    """

    remedy = "correct the name, or open a generator of that name, which creates it"

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
        super().__init__(store, what, remedy=remedy)
        self.table = table
        self.counter = counter
        self.key = key
        self.similar = similar


class CounterNotCreatedError(StoreError):
    """There is no such counter, and none is created in a store that may have lost it.

    The store has no marker, as it is new or was emptied; or all of its counters are gone although
    its marker says that there were some.

    Attributes:
        counter: ``{namespace}.{name}``.
        is_emptied: whether there is a marker, and the counters are gone.
    """

    def __init__(self, store: str, *, counter: str, is_emptied: bool = False) -> None:
        why = "it has no marker, so it is new or was emptied"
        remedy = "if it is new, run 'aiocosid init --store URL' once; if it was emptied, "
        if is_emptied:
            why, remedy = "its marker says that it had counters, and all of them are gone", ""
        super().__init__(
            store,
            f"there is no counter {counter!r}, and the store creates none: {why}",
            remedy=f"{remedy}restore its counters, or run 'aiocosid init --store URL --after-loss'",
        )
        self.counter = counter
        self.is_emptied = is_emptied


class StoreRolledBackError(StoreError):
    """A counter went backwards: the store lost writes, so ids would repeat.

    It ends the generator that sees it; no further id is handed out, not even a buffered one,
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
            f"counter '{namespace}.{name}' went backwards: the store returned {seen}, expected at "
            f"least {expected}",
            remedy=f"raise it with 'aiocosid set-floor {quote(name)} --namespace "
            f"{quote(namespace)} --above N --store URL' to a number above every id ever handed "
            "out, then open the generator again",
        )
        self.counter: str = f"{namespace}.{name}"
        self.namespace = namespace
        self.name = name
        self.seen = seen
        self.expected = expected


class SegmentUnavailableError(CosIdError):
    """No segment came; the store's own error, if it gave one, is the ``__cause__``.

    It is retryable if its cause is: a wrong password fails all waiting callers at once.

    Attributes:
        counter: the generator, ``{namespace}.{name}``.
        waited: seconds that the caller waited at most; 0 if an error that no retry mends came.
        reason: what kept it; empty if the store did not answer.
        retry_after: seconds after which the store is called again; None if that is unknown.
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
        remedy: str = "",
    ) -> None:
        self.remedy: str = remedy or (TRY_AGAIN if retryable else SEE_CAUSE)
        super().__init__(
            with_remedy(
                with_wait(f"no segment of {namespaced_name} came", waited, reason), self.remedy
            )
        )
        self.counter = namespaced_name
        self.reason = reason
        self.waited = waited
        self.retryable = retryable
        self.retry_after: float | None = retry_after


class SequenceUnavailableError(CosIdError):
    """The store granted no sequence of a second in time; its error is the ``__cause__``.

    Attributes:
        counter: the generator, ``{namespace}.{name}``.
        waited: seconds that the caller waited; 0 if it did not.
        reason: what kept it; empty if the store did not answer.
    """

    retryable: bool = True

    def __init__(
        self,
        namespaced_name: str,
        *,
        waited: float,
        reason: str = "",
        retryable: bool = True,
        remedy: str = "",
    ) -> None:
        self.remedy: str = remedy or self.remedy or (TRY_AGAIN if retryable else SEE_CAUSE)
        super().__init__(
            with_remedy(
                with_wait(f"no sequence of {namespaced_name} came", waited, reason), self.remedy
            )
        )
        self.counter = namespaced_name
        self.reason = reason
        self.waited = waited
        self.retryable = retryable


class SequenceExhaustedError(SequenceUnavailableError):
    """The seconds that a caller waited for are used up, by all nodes together."""

    remedy = "try again, and if the error persists, use more sequence bits or another namespace"


class ClockSkewError(CosIdError):
    """The clocks of this host and of the store disagree by more than is tolerated.

    Nothing was written: under a wrong second a sequence might be granted twice.

    Attributes:
        store: which store, without credentials.
        ahead: seconds that this host is ahead of the store; negative if it is behind.
        tolerance: seconds that are tolerated.
    """

    retryable = True
    remedy = "set the clocks right"

    def __init__(self, store: str, *, ahead: int, tolerance: int) -> None:
        how = f"{ahead} s ahead of" if ahead > 0 else f"{-ahead} s behind"
        super().__init__(
            f"the clock of this host is {how} that of {store}, more than the {tolerance} s that "
            f"are tolerated; {self.remedy}"
        )
        self.store = store
        self.ahead = ahead
        self.tolerance = tolerance


def _opening(name: str, tenant: str, options: str = "") -> str:
    """Return the command that opens a series."""
    words = ["aiocosid series open", quote(name), tenant and f"--tenant {quote(tenant)}", options]
    return f"'{' '.join(filter(None, words))} --store URL'"


def _shown(name: str, tenant: str) -> str:
    return f"series {name!r}" + (f" of tenant {tenant!r}" if tenant else "")


class SeriesNotOpenError(CosIdError):
    """A series was never opened in this database, or it was closed.

    Attributes:
        name: the series.
        tenant: its tenant; empty without one.
        is_closed: whether ``aiocosid series close`` has ended it.
        tenants: tenants that have a series of this name, at most five.
        options: further options of the command that opens it, such as ``--group-by month``.
    """

    def __init__(
        self,
        name: str,
        tenant: str = "",
        *,
        is_closed: bool = False,
        tenants: Iterable[str] = (),
        options: str = "",
    ) -> None:
        """Say what to do.

        Args:
            name: the series.
            tenant: its tenant; empty without one.
            is_closed: whether it was closed.
            tenants: the tenants that have a series of this name.
            options: further options of the command that opens it, such as ``--group-by month``.
        """
        self.tenants: tuple[str, ...] = (*islice(tenants, 5),)
        command = _opening(name, tenant, options)
        self.remedy: str = (
            "open another series, under another name"
            if is_closed
            else f"name its tenant, for example {', '.join(map(repr, self.tenants))}"
            if self.tenants
            else f"correct the name, or open it with {command}; if it was open before, its row was "
            f"lost: give that command {'--after-column TABLE.COLUMN' if options else '--after N'}, "
            "so that it continues above your last numbers"
        )
        found = "is closed" if is_closed else "is not open in this database"
        super().__init__(with_remedy(f"{_shown(name, tenant)} {found}", self.remedy))
        self.name = name
        self.tenant = tenant
        self.is_closed = is_closed
        self.options = options


class SeriesEndedError(CosIdError):
    """The approved range has fewer numbers left than were asked for; no number was taken.

    Attributes:
        name: the series.
        tenant: its tenant; empty without one.
        left: how many numbers the present range still has.
        wanted: how many the call asked for.
    """

    def __init__(self, name: str, tenant: str = "", *, left: int, wanted: int) -> None:
        self.remedy: str = (
            f"take {left} first: numbers that are taken at once are consecutive"
            if left
            else f"add an approved range, --range FIRST-LAST, with {_opening(name, tenant)}"
        )
        what = f"the range of {_shown(name, tenant)} has {left} of {wanted} numbers left"
        super().__init__(with_remedy(what, self.remedy))
        self.name = name
        self.tenant = tenant
        self.left = left
        self.wanted = wanted


class UnsuitableTransactionError(CosIdError):
    """The connection is in no transaction that could take a number back; no number was taken.

    Attributes:
        reason: what is wrong with it.
    """

    def __init__(self, reason: str, *, remedy: str) -> None:
        self.remedy: str = remedy
        super().__init__(with_remedy(reason, remedy))
        self.reason = reason


class TransactionConflictError(CosIdError):
    """Another transaction was in the way: a deadlock, a lock that was not free, or a conflict.

    No number was taken.  After a deadlock the database has rolled the whole transaction back.

    Attributes:
        reason: what the database said.
    """

    retryable = True
    remedy = "run the whole transaction again, after its rollback"

    def __init__(self, reason: str) -> None:
        super().__init__(with_remedy(reason, self.remedy))
        self.reason = reason
