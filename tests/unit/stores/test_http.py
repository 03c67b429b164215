"""What goes to a CosId proxy, and what may be wrong with what one is given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from math import inf
from typing import Any

import anyio
import httpx
import pytest

from aiocosid.errors import InvalidArgumentError, StoreUnavailableError
from aiocosid.stores._url import HTTP, read_url
from aiocosid.stores.http import HttpStore
from aiocosid.stores.http._backend import base_of, iso_duration, path_of, session_on
from aiocosid.stores.http._session import CALLS_AT_ONCE
from aiocosid.testing import settle


def test_durations() -> None:
    """As Java's ``Duration`` writes them; CosId's own word for ever is 2^63-1 ms."""
    forever = "PT2562047788015H12M55.807S"
    due = {
        300: "PT5M",
        0: "PT0S",
        2: "PT2S",
        0.25: "PT0.25S",
        61.005: "PT1M1.005S",
        3600: "PT1H",
        3661: "PT1H1M1S",
        90_000: "PT25H",
        inf: forever,
        1e300: forever,
        (2**63 - 1) / 1000: forever,
    }
    assert {seconds: iso_duration(seconds) for seconds in due} == due


def test_paths() -> None:
    """Each part stays one part, whatever is in it."""
    assert path_of("cosid", "order") == "/cosid/order"
    assert path_of("a/b", "c d?e#f%g;h") == "/a%2Fb/c%20d%3Fe%23f%25g%3Bh"
    assert path_of("..", ".") == "/%2E%2E/%2E"
    assert path_of("ä€", "a.b") == "/%C3%A4%E2%82%AC/a.b"


class Reluctant(httpx.AsyncByteStream):
    """A body that does not come, on a connection that takes a moment to be closed."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield nothing."""
        await anyio.sleep_forever()
        yield b""

    async def aclose(self) -> None:
        """Take longer than what is cancelled at once."""
        await settle()


async def test_a_call_that_waits_for_its_turn_is_not_sent_once_its_session_is_closed() -> None:
    """Not either while others are being ended: it would be on what nobody closes."""
    sent: list[str] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.path)
        if len(sent) == 1:
            return httpx.Response(200, stream=Reluctant())
        await anyio.sleep_forever()
        raise AssertionError

    transport = httpx.MockTransport(answer)
    session = session_on(httpx.AsyncClient(base_url="http://host", transport=transport))
    errors: list[StoreUnavailableError] = []

    async def ask() -> None:
        with pytest.raises(StoreUnavailableError, match="closed while the call was") as error:
            await session.ask("GET", "/", {})
        errors.append(error.value)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for _ in range(CALLS_AT_ONCE + 5):
                group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            await session.aclose()
    assert len(sent) == CALLS_AT_ONCE
    assert len(errors) == CALLS_AT_ONCE + 5


def test_urls() -> None:
    """The scheme may name CosId; credentials are apart, and a slash at the end is none."""
    for url, due in {
        "http://host:8688": "http://host:8688",
        "cosid+http://host:8688/": "http://host:8688",
        "cosid+https://host/ids/": "https://host/ids",
        "http://[::1]:8688": "http://[::1]:8688",
        "http://me:s%40@host": "http://host",
    }.items():
        assert base_of(read_url(url, HTTP)) == due
    assert read_url("http://me:s%40@host", HTTP).login == ("me", "s@")
    assert read_url("http://host", HTTP).login is None
    assert repr(HttpStore.from_url("cosid+http://me:secret@host:1")) == "<HttpStore http://host:1>"
    assert "secret" not in repr(read_url("http://me:secret@host", HTTP))


def test_urls_that_name_nothing() -> None:
    """Each is refused at once, and not shown: there may be a password in it."""
    for url in (
        *("", "host", "ftp://host", "http://", "http:///path", "http://host:x", "http://[::1"),
        *("http://host?a=secret", "http://host#a", "redis://secret@host", "http://host:99999"),
    ):
        with pytest.raises(
            InvalidArgumentError,
            match=r"^url ('\w+:\.\.\.' )?(must (begin|look)|cannot have the option)",
        ) as caught:
            HttpStore.from_url(url)
        assert "secret" not in str(caught.value)


def test_clients_that_are_none() -> None:
    """A synchronous one would block the loop; one without an address leads nowhere."""
    with httpx.Client(base_url="http://host") as client:
        wrong: Any
        for wrong in (client, None, "http://host", httpx.AsyncClient()):
            with pytest.raises(InvalidArgumentError, match=r"^client must be "):
                HttpStore(wrong)
