"""What the PostgreSQL store knows of its server: URL, statements, and what its errors mean."""

# ruff: noqa: S608 - put together from pieces of this file alone

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ..errors import (
    InvalidArgumentError,
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from ._durability import DEMANDS
from ._executor import OutOfRangeError
from ._sql_dialect import GRANT_TABLE, NAME_WIDTH, TABLE, Dialect

if TYPE_CHECKING:
    from ._durability import Durability

__all__ = (
    "POSTGRES",
    "SETTINGS",
    "STANDBY",
    "checked_url",
    "durability_of",
    "each_host",
    "refusal",
    "refused_url",
    "translated",
    "weaknesses_of",
)

_ADVANCE: Final = """
INSERT INTO cosid AS c (name, last_max_id, last_fetch_time)
VALUES ($1, $2::bigint, extract(epoch from now())::bigint)
ON CONFLICT (name) DO UPDATE
SET last_max_id = c.last_max_id + $3::bigint, last_fetch_time = excluded.last_fetch_time
WHERE c.last_max_id % 1 = 0
RETURNING c.last_max_id::bigint"""

_RAISE: Final = """
INSERT INTO cosid AS c (name, last_max_id, last_fetch_time)
VALUES ($1, $2::bigint, extract(epoch from now())::bigint)
ON CONFLICT (name) DO UPDATE SET last_max_id = greatest(c.last_max_id, excluded.last_max_id)
WHERE c.last_max_id % 1 = 0
RETURNING c.last_max_id::bigint, c.last_fetch_time"""

# Which server, and since when it runs: one that was restored from a copy, or promoted, is another.
_SERVER: Final = "'@' || extract(epoch from pg_postmaster_start_time())::text"

# A column may be numeric, as one that was migrated from MySQL's unsigned integers is: what is no
# integer in it is refused, and int64 is the end all the same.
POSTGRES: Final = Dialect(
    # Bare CREATE TABLE IF NOT EXISTS fails for one of two that run it at once, and for a user who
    # may not create tables even if there is nothing to create.
    create_table=f"""
DO $$
BEGIN
    IF to_regclass('{TABLE}') IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('aiocosid'));
        CREATE TABLE IF NOT EXISTS {TABLE} (
            name varchar({NAME_WIDTH}) NOT NULL,
            last_max_id bigint NOT NULL DEFAULT 0,
            last_fetch_time bigint NOT NULL DEFAULT 0,
            CONSTRAINT cosid_pk PRIMARY KEY (name)
        );
    END IF;
END
$$
""",
    next_max_id=_ADVANCE,
    set_floor=_RAISE,
    counter="SELECT last_max_id FROM cosid WHERE name = $1",
    counters="""
SELECT name, last_max_id, last_fetch_time FROM cosid
WHERE substr(name, 1, length($1::text)) = $1::text
""",
    create_grants=f"""
DO $$
BEGIN
    IF to_regclass('{GRANT_TABLE}') IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('aiocosid'));
        CREATE TABLE IF NOT EXISTS {GRANT_TABLE} (
            name varchar({NAME_WIDTH}) NOT NULL,
            nonce varchar(64) NOT NULL DEFAULT '',
            top bigint NOT NULL DEFAULT 0,
            base bigint NOT NULL DEFAULT 0,
            CONSTRAINT aiocosid_grant_pk PRIMARY KEY (name)
        );
    END IF;
END
$$
""",
    is_created_on_use=False,
    # The counter's row is locked first by each of these.  ON CONFLICT then reads the newest note,
    # not the one that was there when the statement began and had to wait for the row; so does
    # UPDATE, of a note that was there by then.
    grant=f"""
WITH granted AS ({_ADVANCE} AS max_id), noted AS (
    INSERT INTO aiocosid_grant AS g (name, nonce, top, base)
    SELECT $1::varchar, $4::varchar || {_SERVER}, max_id, max_id - $3::bigint FROM granted
    ON CONFLICT (name) DO UPDATE SET nonce = excluded.nonce, top = excluded.top, base =
        CASE WHEN g.nonce = $5::varchar || {_SERVER} AND g.top = excluded.base
        THEN g.base ELSE excluded.base END
    RETURNING g.base
)
SELECT granted.max_id, noted.base FROM granted, noted
""",
    give_back=f"""
WITH counter AS (
    SELECT name FROM cosid WHERE name = $1::varchar AND last_max_id = $2::bigint FOR UPDATE
), taken AS (
    UPDATE aiocosid_grant AS g SET nonce = '' FROM counter
    WHERE g.name = counter.name AND g.nonce = $4::varchar || {_SERVER}
    AND g.top = $2::bigint AND g.base <= $3::bigint
    RETURNING g.name
)
UPDATE cosid AS c SET last_max_id = $3::bigint FROM taken
WHERE c.name = taken.name AND c.last_max_id = $2::bigint
RETURNING c.last_max_id
""",
    set_floor_noted=f"""
WITH raised AS ({_RAISE}), forgotten AS (
    INSERT INTO aiocosid_grant AS g (name) SELECT $1::varchar FROM raised
    ON CONFLICT (name) DO UPDATE SET nonce = ''
)
SELECT * FROM raised
""",
)

SETTINGS: Final = """
SELECT current_setting('synchronous_commit'), current_setting('fsync'),
    current_setting('full_page_writes')
"""

# A standby, since the primary moved: it is read-only, and does not tell its timeline.
STANDBY: Final = ("25006", "55000")

# By SQLSTATE; the longest prefix counts.
_MEANINGS: Final[dict[str, type[StoreError]]] = {
    "08": StoreUnavailableError,  # the connection was lost or refused; also all of PgBouncer's
    "0P": StoreAuthenticationError,  # no such role
    "22003": OutOfRangeError,
    **dict.fromkeys(STANDBY, StoreUnavailableError),
    "28": StoreAuthenticationError,
    "40": StoreUnavailableError,  # rolled back, nothing was written: conflict or deadlock
    "42501": StoreAuthenticationError,  # no privilege
    "53": StoreUnavailableError,  # out of connections, memory or disk
    "55P03": StoreUnavailableError,  # lock_timeout
    "57": StoreUnavailableError,  # starting, shutting down, cancelled by the administrator
    "57P04": StoreError,  # the database was dropped
    "58": StoreUnavailableError,  # the server's own input or output
}

_URL_FORM: Final = (
    "postgresql://user:password@host:port/database; "
    "in user and password everything but letters and digits percent-encoded"
)
_MISSING: Final = re.compile(rf"\b(?:aio)?{TABLE}(?:_grant|_machine(?:_bits|_marker)?)?\b")
_HOST: Final = re.compile(r"(\[[^\[\]]+\]|[^:\[\]]*)(:[0-9]{1,5})?")


def checked_url(url: str) -> str:
    """Return the URL if its form is right; it is read by asyncpg when it connects.

    Raises:
        InvalidArgumentError: it is malformed; the sentence holds no part that may be secret.
    """
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2].split(",")
    except (AttributeError, TypeError, ValueError):
        raise refused_url() from None
    if (
        parts.scheme not in {"postgres", "postgresql"}
        or not url.partition(":")[2].startswith("//")
        or parts.fragment
        or "@" in parts.path + parts.query
    ):
        raise refused_url()
    if not all(_HOST.fullmatch(host) for host in hosts):
        raise refused_url()
    if len(hosts) > 1 and any(host[:1] in {"", ":"} for host in hosts):  # each would be localhost
        raise refused_url()
    return url


def durability_of(url: str) -> tuple[str, Durability]:
    """Take our own option out of a checked URL, and return both.

    Raises:
        InvalidArgumentError: it is none of the words.
    """
    before, mark, query = url.partition("?")
    kept, demand = list[str](), "warn"
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if name == "durability":
            demand = value
        else:
            kept.append(pair)
    for each in DEMANDS:
        if each == demand:
            return before + (mark if any(kept) else "") + "&".join(kept), each
    expected = f"with {', '.join(DEMANDS[:-1])} or {DEMANDS[-1]} for durability"
    raise InvalidArgumentError("url", f"{url.partition(':')[0]}:...", expected=expected)


def weaknesses_of(synchronous_commit: str, fsync: str, full_page_writes: str) -> list[str]:
    """Say by which settings of a session grants may be lost."""
    found: list[str] = []
    if synchronous_commit == "off":
        found.append(
            "synchronous_commit is off: a crash takes back the grants of the last moments, and "
            "their ids come again; ALTER ROLE ... SET synchronous_commit = on"
        )
    for name, value in (("fsync", fsync), ("full_page_writes", full_page_writes)):
        if value == "off":
            found.append(
                f"{name} is off: a power cut may damage the database, and ids come again; set it "
                "to on in postgresql.conf"
            )
    return found


def each_host(url: str) -> list[str]:
    """Return the URL once for each of its hosts, in their order."""
    netloc = urlsplit(url).netloc
    login, at, hosts = netloc.rpartition("@")
    scheme, slashes, rest = url.partition("//")
    before, after = f"{scheme}{slashes}{login}{at}", rest.removeprefix(netloc)
    return [f"{before}{host}{after}" for host in hosts.split(",")]


def refused_url() -> InvalidArgumentError:
    """Return the error for a URL, not a word of which is shown."""
    return InvalidArgumentError("url", "postgresql:...", expected=_URL_FORM)


def translated(label: str, exc: Exception) -> StoreError:
    """Turn what asyncpg raises into our errors."""
    # Here: another driver may run the statements, without this one.
    from asyncpg.exceptions import (  # noqa: PLC0415
        InterfaceError,
        InternalClientError,
        PostgresError,
    )

    reason = f"{exc.args[0]}" if exc.args and isinstance(exc.args[0], str) else str(exc)
    reason = reason or ("no answer" if isinstance(exc, TimeoutError) else type(exc).__name__)
    if isinstance(exc, PostgresError):
        return refusal(label, getattr(exc, "sqlstate", None) or "", reason)
    if isinstance(exc, ssl.SSLCertVerificationError):
        return StoreError(label, f"the server's certificate is not trusted: {reason}")
    # OSError: refused, reset, unknown host, timed out.  InternalClientError: among others a session
    # that was ended while it was idle, as asyncpg sees it.  Those connections are gone by now.
    outages = OSError, InterfaceError, InternalClientError
    return (StoreUnavailableError if isinstance(exc, outages) else StoreError)(label, reason)


def refusal(label: str, state: str, reason: str) -> StoreError:
    """Return the error for what the server has answered.

    Args:
        label: names the server.
        state: its SQLSTATE, or an empty text.
        reason: its own sentence.
    """
    if state == "42P01":
        missing = _MISSING.search(reason)
        return SchemaMissingError(label, table=missing[0] if missing else TABLE)
    for length in (5, 2):
        if (meaning := _MEANINGS.get(state[:length])) is not None:
            return meaning(label, reason)
    return StoreError(label, reason)
