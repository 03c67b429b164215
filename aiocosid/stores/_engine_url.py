"""Reads SQLAlchemy URLs, and creates an engine from one of aiocosid's URLs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ..errors import InvalidArgumentError, MissingExtraError, UnsupportedRuntimeError
from ._connection import CALL_TIMEOUT
from ._executor import CONNECT_TIMEOUT, MAX_CONNECTIONS
from ._mysql import SESSION
from ._sqlite import BUSY_TIMEOUT, uri_of
from ._url import IN_PASSWORDS

try:
    from sqlalchemy import URL, event, make_url
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.ext.asyncio import create_async_engine
except ImportError as _exc:  # SQLAlchemy gives no details if greenlet is missing
    raise MissingExtraError(_exc.name or "greenlet", extra="sqlalchemy") from _exc

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ("DialectName", "dialect_of", "engine_of", "label_of", "text_of")

DialectName: TypeAlias = Literal["mysql", "postgresql", "sqlite"]

_DRIVERS: Final = {
    "mysql": "mysql+asyncmy",
    "mariadb": "mysql+asyncmy",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "sqlite": "sqlite+aiosqlite",
}
_DIALECTS: Final[dict[str, DialectName]] = {
    "mysql": "mysql",
    "mariadb": "mysql",
    "postgresql": "postgresql",
    "sqlite": "sqlite",
}
# The extras that install the drivers.
_EXTRAS: Final = {"asyncmy": "mysql", "asyncpg": "postgres"}

# Options by driver.  Timeouts are in seconds and below the 2 s timeout of a generator's call; they
# are for connecting or, on SQLite, for waiting for a lock.
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "aiomysql": {"connect_timeout": CONNECT_TIMEOUT, "init_command": SESSION},
    "aiosqlite": {"timeout": BUSY_TIMEOUT},
    "asyncmy": {"connect_timeout": CONNECT_TIMEOUT, "init_command": SESSION},
    "asyncpg": {"timeout": CONNECT_TIMEOUT},
    "psycopg": {"connect_timeout": 2},  # the lowest value that it accepts
}

_FORM: Final = (
    "must look like postgresql+asyncpg://user:password@host/database, with postgresql+psycopg, "
    "mysql+asyncmy, mysql+aiomysql, or sqlite+aiosqlite:///ids.db"
)
_NO_COMMAND: Final = (
    "cannot have init_command, which aiocosid sets to make its own sessions strict; "
    "give your own engine, which may have one"
)


def dialect_of(url: URL) -> DialectName:
    """Return an engine's SQL dialect.

    Raises:
        InvalidArgumentError: the dialect is not supported.
    """
    name = url.get_backend_name()
    if name not in _DIALECTS:
        raise InvalidArgumentError("engine", name, f"must be on {' or '.join(_DIALECTS)}")
    return _DIALECTS[name]


def label_of(url: URL) -> str:
    """Return the database's name for messages, without credentials."""
    name = dialect_of(url)
    place = URL.create(name, host=url.host, port=url.port, database=url.database)
    return f"{name} {url.database if name == 'sqlite' else str(place).partition('://')[2]}"


def text_of(url: object) -> str:
    """Return a URL as text, with its password, which ``str`` of SQLAlchemy's object would hide."""
    if not isinstance(url, str):
        raise _refused(type(url).__name__)
    return url


def engine_of(url: str) -> AsyncEngine:
    """Create an engine in autocommit mode; nothing is opened yet.

    Raises:
        InvalidArgumentError: the URL is malformed, or names an unsupported database or driver; the
            message shows no part that may be secret.
        MissingExtraError: the driver is not installed.
        UnsupportedRuntimeError: the driver is not installed, and no aiocosid extra installs it.
    """
    try:
        parsed = make_url(text_of(url))
        parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
        options = _OPTIONS.get(parsed.get_driver_name())
        if options is None or _is_in_memory(parsed):
            raise _refused(url)
        if "@" in (parsed.host or ""):
            raise _refused(url, IN_PASSWORDS)
        if "init_command" in parsed.query:
            raise _refused(url, _NO_COMMAND)
        engine = create_async_engine(
            parsed,
            isolation_level="AUTOCOMMIT",
            skip_autocommit_rollback=True,
            pool_size=MAX_CONNECTIONS,
            max_overflow=0,
            pool_timeout=CALL_TIMEOUT,
            connect_args={name: options[name] for name in options.keys() - parsed.query.keys()},
        )
        if dialect_of(parsed) == "sqlite":
            event.listen(engine.sync_engine, "do_connect", _open_only)
        return engine
    except ModuleNotFoundError as exc:
        package = exc.name or "the driver"
        if package in _EXTRAS:
            raise MissingExtraError(package, extra=_EXTRAS[package]) from exc
        what = f"{package} is not installed, which the URL names"
        raise UnsupportedRuntimeError(what, remedy=f"install it: pip install {package}") from exc
    except InvalidArgumentError:
        raise
    except (SQLAlchemyError, AttributeError, TypeError, ValueError):
        # Their messages may contain a part of the password.
        raise _refused(url) from None


def _open_only(_dialect: object, _record: object, args: list[Any], more: dict[str, Any]) -> None:
    """Keep SQLite from creating a missing file; SQLAlchemy passes the changed arguments on."""
    if not more.get("uri"):
        args[0], more["uri"] = uri_of(os.path.abspath(args[0])), True  # noqa: PTH100


def _is_in_memory(url: URL) -> bool:
    file = url.database or ":memory:"
    return url.get_backend_name() == "sqlite" and file.startswith((":memory:", "file:"))


def _refused(url: object, rule: str = _FORM) -> InvalidArgumentError:
    scheme = f"{url}".partition(":")[0]
    # The rest may contain a password.
    return InvalidArgumentError("url", f"{scheme}:...", rule)
