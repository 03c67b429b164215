"""Mistakes of the server, and of its store: an answer that tells nothing, one line for many."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import aiocosid
from aiocosid.errors import StoreAuthenticationError
from aiocosid.server import App
from aiocosid.server._resp import error_of
from aiocosid.server._service import Service

from ..integrations._kit import client


class BugError(Exception):
    """Of these tests' own, so no other one has had its line."""


class RespBugError(BugError):
    """As above: both protocols share the limit."""


def traces(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.exc_info and "Bug" in each.getMessage()]


async def test_http(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It goes no further either: the ASGI server would log it once more."""

    async def generator(_service: Service, _name: str) -> Any:
        raise BugError("secret")

    monkeypatch.setattr(Service, "generator", generator)
    app: Any = App(aiocosid.connect("memory://"))
    async with app.running(), client(app) as http:
        replies = [await http.post("/v1/ids/order") for _ in range(20)]
    assert {(reply.status_code, reply.json()["kind"]) for reply in replies} == {(500, "bug")}
    assert "secret" not in replies[0].text
    assert len(traces(caplog)) == 1
    assert traces(caplog)[0].name == "aiocosid.server"


def test_resp(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        assert str(error_of(RespBugError())) == "ERR internal error"
    assert len(traces(caplog)) == 1


async def test_a_store_that_refuses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client is told to look into the log, so the log has to have it."""

    async def generator(_service: Service, _name: str) -> Any:
        raise StoreAuthenticationError("postgres at db1", "no rights")

    monkeypatch.setattr(Service, "generator", generator)
    app: Any = App(aiocosid.connect("memory://"))
    async with app.running(), client(app) as http:
        replies = [await http.post("/v1/ids/order") for _ in range(20)]
    assert {(reply.status_code, reply.json()["kind"]) for reply in replies} == {(503, "refused")}
    assert "db1" not in replies[0].text
    (line,) = [each for each in caplog.records if "db1" in each.getMessage()]
    assert (line.name, line.exc_info) == ("aiocosid.server", None)
    assert "no rights" in line.getMessage()
