"""The databases and drivers that a SQLAlchemy engine may be on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

SERVERS: Final = {
    "asyncpg": "postgres",
    "psycopg": "postgres",
    "asyncmy": "mariadb",
    "aiomysql": "mariadb",
}

DRIVERS: Final = ("aiosqlite", *SERVERS)

# Each database by one driver; the others' turn is in `make stress`.
OFTEN: Final = ("asyncpg", "asyncmy")
EACH_SERVER: Final = tuple(
    pytest.param(driver, marks=[] if driver in OFTEN else pytest.mark.stress) for driver in SERVERS
)
EACH_DRIVER: Final = (pytest.param("aiosqlite", marks=pytest.mark.stress), *EACH_SERVER)


def url_of(request: pytest.FixtureRequest, driver: str) -> str:
    """Return the URL of a database: a file of the test's own, or the session's server."""
    if driver == "aiosqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        (folder / "ids.db").touch()
        return f"sqlite+aiosqlite:///{folder / 'ids.db'}"
    plain: str = request.getfixturevalue(SERVERS[driver]).url
    return plain.replace(":", f"+{driver}:", 1)
