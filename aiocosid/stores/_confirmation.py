"""Finds the commits of PostgreSQL that a synchronous standby has not confirmed.

If the wait for the standby is cancelled (``pg_cancel_backend``, ``statement_timeout``, a shutdown),
the server has committed already, and answers with success and a warning.  A fail-over takes such a
commit back.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ..errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ("confirmed",)

# The SQLSTATE of the warning, 01000, is also that of any warning of a trigger; its text is
# translated.
_SOURCE: Final = "syncrep.c"


@contextmanager
def confirmed(label: str, driver: Any) -> Generator[None]:  # noqa: ANN401 - of any driver
    """Raise if a standby has not confirmed what is written within, and no error is raised there.

    Both drivers call the listener before they return the reply.  It is taken off in any case, so
    that the pool gets the connection as it was.

    Args:
        label: the store in messages.
        driver: a connection of asyncpg or psycopg; any other has no such warning.

    Raises:
        StoreUnavailableError: the write may be lost in a fail-over; its grant must not be used.
    """
    # asyncpg's, psycopg's
    kinds = ("log_listener", "server_source_filename"), ("notice_handler", "source_file")
    kind, source = next((each for each in kinds if hasattr(driver, f"add_{each[0]}")), ("", ""))
    if not kind:
        yield
        return
    found: list[object] = []

    def listen(*message: object) -> None:
        found.append(getattr(message[-1], source, None))

    add, remove = getattr(driver, f"add_{kind}"), getattr(driver, f"remove_{kind}")
    add(listen)
    try:
        yield
    finally:
        remove(listen)
    if _SOURCE in found:
        raise StoreUnavailableError(
            label,
            "the server has committed a write that its synchronous standby has not confirmed, "
            "because the wait for it was cancelled; a fail-over may take it back, so it counts as "
            "failed",
            remedy="try again, and do not cancel commits that wait for the standby",
        )
