"""The middleware for errors in a Django project: views of both kinds, behind uvicorn and WSGI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from aiocosid.errors import MachineIdLostError, WouldBlock
from tests.servers import wait_until

from ._web import Process

pytestmark = [pytest.mark.integration]

PROJECT = """
import logging
import sys

import django
from aiocosid.errors import MachineIdLostError, WouldBlock
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpResponse
from django.test import Client
from django.urls import path

logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
settings.configure(
    ALLOWED_HOSTS=["*"],
    DEBUG="debug" in sys.argv,
    ROOT_URLCONF=__name__,
    LOGGING_CONFIG=None,
    SECRET_KEY="of a test",
    MIDDLEWARE=[
        "django.middleware.common.CommonMiddleware",
        "aiocosid.integrations.django_errors.CosIdErrorsMiddleware",
    ],
)


def error_of(kind):
    if kind == "bug":
        return ZeroDivisionError()
    if kind == "lost":
        return MachineIdLostError("shop", 7, reason="secret")
    return WouldBlock()


def sync_view(request, kind):
    raise error_of(kind)


async def async_view(request, kind):
    raise error_of(kind)


urlpatterns = [
    path("health", lambda request: HttpResponse("up")),
    path("sync/<kind>", sync_view),
    path("async/<kind>", async_view),
]
app = get_asgi_application()

if __name__ == "__main__":
    client = Client(raise_request_exception=False)
    for _ in range(20):
        for each in ("sync/busy", "sync/lost", "async/busy"):
            print(client.get(f"/{each}").status_code)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project.py").write_text(PROJECT)
    return tmp_path


def check(reply: httpx.Response, status: int, kind: str) -> None:
    assert reply.status_code == status
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["type"] == kind
    assert "secret" not in reply.text


def test_views_of_both_kinds_are_answered_in_few_lines(folder: Path) -> None:
    """Of 80 requests each cause has a line and, with a request after it, a summary."""
    lost = MachineIdLostError("shop", 7, reason="")
    with Process(folder, "project:app", "--no-access-log") as served:
        for _ in range(20):
            for view in ("sync", "async"):
                busy = served.client.get(f"/{view}/busy")
                check(busy, 503, WouldBlock().url)
                assert busy.headers["retry-after"] == "1"
                check(served.client.get(f"/{view}/lost"), 500, lost.url)
        wait_until(
            lambda: served.client.get("/health").is_success and left_out(served.log), "the summary"
        )
        assert "Traceback" not in served.log
        assert "django.request" not in served.log
        assert len([each for each in served.log.splitlines() if "aiocosid.requests" in each]) < 10
        assert served.client.get("/sync/bug").status_code == 500
        assert "ZeroDivisionError" in served.stop()  # it is nobody's but the project's


def left_out(log: str) -> bool:
    return all(
        any(name in line and "more like it were left out" in line for line in log.splitlines())
        for name in ("WouldBlock", "MachineIdLostError")
    )


@pytest.mark.parametrize(("mode", "tracebacks"), [("", 0), ("debug", 20)])
def test_over_wsgi(folder: Path, mode: str, tracebacks: int) -> None:
    """With DEBUG a mistake has Django's own page and its traceback."""
    done = subprocess.run(
        [sys.executable, "project.py", mode],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["503", "500", "503"] * 20
    assert done.stderr.count("Traceback") == tracebacks
