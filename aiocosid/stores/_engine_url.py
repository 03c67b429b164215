"""What a URL of SQLAlchemy's tells, and the engine that is made of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..errors import (
    InvalidArgumentError,
    MissingExtraError,
    UnsupportedRuntimeError,
)
from ._executor import CALL_TIMEOUT, CONNECT_TIMEOUT, MAX_CONNECTIONS
from ._mysql import SESSION
from ._sqlite import BUSY_TIMEOUT

try:
    from sqlalchemy import make_url
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.ext.asyncio import create_async_engine
except ImportError as _exc:  # which is all that SQLAlchemy says of greenlet
    raise MissingExtraError(_exc.name or "greenlet", extra="sqlalchemy") from _exc

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ._engine import DialectName

__all__ = ("dialect_of", "engine_of", "label_of", "text_of")

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
# Where a driver comes from that is not the one of a store of its own.
_EXTRAS: Final = {"asyncmy": "mysql", "asyncpg": "postgres"}

# By driver.  Timeouts are in seconds, below the 2 s of a generator's call: of connecting, and on
# SQLite of a lock.
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "aiomysql": {"connect_timeout": CONNECT_TIMEOUT, "init_command": SESSION},
    "aiosqlite": {"timeout": BUSY_TIMEOUT},
    "asyncmy": {"connect_timeout": CONNECT_TIMEOUT, "init_command": SESSION},
    "asyncpg": {"timeout": CONNECT_TIMEOUT},
    "psycopg": {"connect_timeout": 2},  # the least it takes
}

_FORM: Final = (
    "postgresql+asyncpg://user:password@host/database, with postgresql+psycopg, "
    "mysql+asyncmy, mysql+aiomysql, or sqlite+aiosqlite:///ids.db"
)
_NO_COMMAND: Final = (
    "a URL without init_command, by which our own sessions are made strict; "
    "an engine of yours may have one"
)


def dialect_of(url: URL) -> DialectName:
    """Tell which SQL an engine speaks.

    Raises:
        InvalidArgumentError: none that there are statements for.
    """
    name = url.get_backend_name()
    if name not in _DIALECTS:
        expected = f"an engine on one of {', '.join(_DIALECTS)}"
        raise InvalidArgumentError("engine", name, expected=expected)
    return _DIALECTS[name]


def label_of(url: URL) -> str:
    """Name the database, without credentials."""
    name = dialect_of(url)
    return f"{name} {url.database}" if name == "sqlite" else name


def text_of(url: object) -> str:
    """Return a URL that is a text; an object of SQLAlchemy's hides its password when it is one."""
    if not isinstance(url, str):
        raise _refused(type(url).__name__)
    return url


def engine_of(url: str) -> AsyncEngine:
    """Make an engine in autocommit; nothing is opened yet.

    Raises:
        InvalidArgumentError: the URL is malformed, or names no database or driver that will do; the
            sentence holds no part that may be secret.
        MissingExtraError: the driver is not installed.
        UnsupportedRuntimeError: so it is, and no extra of ours brings it.
    """
    try:
        parsed = make_url(text_of(url))
        parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
        options = _OPTIONS.get(parsed.get_driver_name())
        if options is None or _is_in_memory(parsed):
            raise _refused(url)
        if "init_command" in parsed.query:
            raise _refused(url, _NO_COMMAND)
        return create_async_engine(
            parsed,
            isolation_level="AUTOCOMMIT",
            skip_autocommit_rollback=True,
            pool_size=MAX_CONNECTIONS,
            max_overflow=0,
            pool_timeout=CALL_TIMEOUT,
            connect_args={name: options[name] for name in options.keys() - parsed.query.keys()},
        )
    except ModuleNotFoundError as exc:
        package = exc.name or "the driver"
        if package in _EXTRAS:
            raise MissingExtraError(package, extra=_EXTRAS[package]) from exc
        what = f"{package} is not installed, which the URL names"
        raise UnsupportedRuntimeError(what) from exc
    except InvalidArgumentError:
        raise
    except (SQLAlchemyError, AttributeError, TypeError, ValueError):
        # Their sentences may hold a piece of the password.
        raise _refused(url) from None


def _is_in_memory(url: URL) -> bool:
    file = url.database or ":memory:"
    return url.get_backend_name() == "sqlite" and file.startswith((":memory:", "file:"))


def _refused(url: object, expected: str = _FORM) -> InvalidArgumentError:
    scheme = f"{url}".partition(":")[0]
    # The rest may hold a password.
    return InvalidArgumentError("url", f"{scheme}:...", expected=expected)
