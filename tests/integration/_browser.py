"""Debian's Chromium, driven by Playwright: one browser for the tests of a module."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from playwright.async_api import Browser, Page, ViewportSize, async_playwright

from tests.servers import find_program

__all__ = ("DESKTOP", "PHONE", "Visit", "chromium", "visit")

DESKTOP: Final[ViewportSize] = {"width": 1366, "height": 768}
PHONE: Final[ViewportSize] = {"width": 390, "height": 844}


@asynccontextmanager
async def chromium() -> AsyncGenerator[Browser]:
    """Start a browser; ServerMissingError where there is none."""
    path = find_program("chromium", remedy="apt-get install chromium")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


class Visit:
    """One page in a context of its own, and what went wrong on it.

    Attributes:
        page: the page.
        complaints: errors of scripts, and what the browser has written to its console.
        requests: the addresses that it has asked for.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.on("request", lambda request: self.requests.append(request.url))


@asynccontextmanager
async def visit(browser: Browser, **options: Any) -> AsyncGenerator[Visit]:
    """Open a page; ``options`` are those of a browser's context."""
    options = {"viewport": DESKTOP, **options}
    context = await browser.new_context(**options)
    context.set_default_timeout(10_000)
    try:
        yield Visit(await context.new_page())
    finally:
        await context.close()
