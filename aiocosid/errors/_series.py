"""The errors of gapless series."""

from __future__ import annotations

from shlex import quote

from .base import CosIdError, with_remedy

__all__ = (
    "SeriesEndedError",
    "SeriesNotOpenError",
    "TransactionConflictError",
    "UnsuitableTransactionError",
)


def _opening(name: str, tenant: str) -> str:
    """Return the command that opens a series."""
    if tenant:
        return f"'aiocosid series open {quote(name)} --tenant {quote(tenant)} --store URL'"
    return f"'aiocosid series open {quote(name)} --store URL'"


def _shown(name: str, tenant: str) -> str:
    return f"series {name!r}" + (f" of tenant {tenant!r}" if tenant else "")


class SeriesNotOpenError(CosIdError):
    """A series was never opened in this database, or it was closed.

    Attributes:
        name: the series.
        tenant: its tenant; empty without one.
        is_closed: whether ``aiocosid series close`` has ended it.
    """

    def __init__(self, name: str, tenant: str = "", *, is_closed: bool = False) -> None:
        self.remedy: str = (
            "open another series, under another name"
            if is_closed
            else f"correct the name, or open it with {_opening(name, tenant)}; if it was open "
            "before, its row was lost: give that command the last number with --after"
        )
        found = "is closed" if is_closed else "is not open in this database"
        super().__init__(with_remedy(f"{_shown(name, tenant)} {found}", self.remedy))
        self.name = name
        self.tenant = tenant
        self.is_closed = is_closed


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
        what = f"the range of {_shown(name, tenant)} has {left} numbers left, not {wanted}"
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
