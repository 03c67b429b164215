"""The dashboard in a real browser, in front of a real server."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, Response, ViewportSize, expect

import aiocosid
from aiocosid.provider import IdProvider
from aiocosid.server import App, Token, TokenScope, digest_of
from aiocosid.stores.memory import MemoryStore
from tests.servers import ValkeyServer

from ._browser import DESKTOP, PHONE, Visit, chromium, visit
from ._web import serve

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

PICTURES = os.environ.get("AIOCOSID_PICTURES")
"""A folder for the pictures of docs/howto/observe.md."""

SECRET = "aiocosid_the-operators"  # noqa: S105 - a test's
READER = "aiocosid_only-reads"
TOKENS = (
    Token(name="ops", digest=digest_of(SECRET), scopes=tuple(TokenScope)),
    Token(name="reader", digest=digest_of(READER), scopes=(TokenScope.READ,)),
)
HOSTILE = """"><script>alert(1)</script><img src=x onerror=alert(2)>'&\u202e"""


@dataclass(frozen=True)
class Site:
    """A server with a dashboard."""

    app: App
    client: httpx.Client

    @property
    def url(self) -> str:
        return f"{self.client.base_url}".rstrip("/")


@asynccontextmanager
async def shop(url: str = "") -> AsyncGenerator[IdProvider]:
    """The generators of a shop, some of whose ids were taken."""
    store = url or MemoryStore()
    async with aiocosid.connect(store, namespace="shop", instance_id="till-1:8688") as ids:
        await ids.store.initialize(confirm_no_holders=True)
        order = await ids.segment_chain("order", step=1000)
        event = await ids.snowflake("event")
        await ids.uuid7("request")
        await ids.segment("receipt")
        if not url:
            await ids.segment("fresh", step=10)
            await ids.segment(HOSTILE)
        await order.next_ids(1234)
        await event.next_ids(5000)
        yield ids


@pytest.fixture(scope="module")
def open_site() -> Iterator[Site]:
    app = App(shop, namespace="shop")
    with serve(app) as client:
        yield Site(app, client)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    app = App(shop, namespace="shop", tokens=TOKENS)
    with serve(app) as client:
        yield Site(app, client)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as found:
        yield found


async def log_in(page: Page, site: Site, secret: str = SECRET) -> None:
    await page.goto(f"{site.url}/dashboard")
    await page.get_by_label("Token").fill(secret)
    await page.get_by_role("button", name="Show the dashboard").click()


async def violations(page: Page, *rules: str) -> list[str]:
    found = await Axe().run(page, options={"runOnly": [*rules]} if rules else None)
    return [
        f"{each['id']}: {node['html']}"
        for each in found.response["violations"]
        for node in each["nodes"]
    ]


OVERFLOWING = """() => [...document.body.querySelectorAll("*")].filter((each) => {
  if (each.closest(".hidden, .skip, thead, [hidden]") || each.tagName === "OPTION") return false;
  const box = each.getBoundingClientRect();
  if (!box.width) return false;
  const isBlock = getComputedStyle(each).display !== "inline";
  const isCut = isBlock && each.scrollWidth > each.clientWidth + 1;
  return box.left < -1 || box.right > innerWidth + 1 || isCut;
}).map((each) => each.outerHTML.slice(0, 200))"""


CONTROLS = "a[href], button:not([hidden] button), input:not(.more), select"
FOCUSED = """(controls) => {
  const each = document.activeElement, box = each.getBoundingClientRect();
  const isSeen = getComputedStyle(each).outlineStyle !== "none" && box.width > 8;
  return isSeen ? [...document.querySelectorAll(controls)].indexOf(each) : -1;
}"""
"""The place of the control that has the focus, if one sees that."""


async def check_page(page: Page) -> None:
    """Check what holds for each page in each state."""
    assert await page.evaluate(OVERFLOWING) == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert await violations(page) == []


def check_quiet(seen: Visit, site: Site, *statuses: str) -> None:
    """Check that nothing was complained of but these statuses, and no other host was asked."""
    complaints = [
        each for each in seen.complaints if not any(f"status of {s}" in each for s in statuses)
    ]
    assert complaints == []
    assert [each for each in seen.requests if not each.startswith(site.url)] == []


@pytest.mark.stress
@pytest.mark.parametrize(
    ("size", "scheme", "other"),
    [
        pytest.param(DESKTOP, "light", "dark", id="desktop"),
        pytest.param(PHONE, "dark", "light", id="phone"),
    ],
)
async def test_each_state_is_accessible_and_fits(
    browser: Browser, site: Site, size: ViewportSize, scheme: Any, other: Any
) -> None:
    async with visit(browser, viewport=size, color_scheme=scheme) as seen:
        page = seen.page
        await log_in(page, site, "wrong")
        await expect(page.get_by_text("the token is wrong")).to_be_visible()
        await check_page(page)
        await log_in(page, site)
        await expect(page.get_by_role("table", name="Generators")).to_be_visible()
        await check_page(page)
        await page.locator("#parse-id").fill("no id")
        await page.get_by_role("button", name="Parse it").click()
        await expect(page.locator("#answer.bad")).to_contain_text("decimal digits")
        await check_page(page)
        await page.emulate_media(color_scheme=other)
        assert await violations(page, "color-contrast") == []
        await page.locator("#try-generator").select_option("order")
        await page.get_by_label("Use one id up").check()
        await page.get_by_role("button", name="Take one id").click()
        await expect(page.locator("#answer.good")).to_contain_text("no other client gets it")
        assert await violations(page, "color-contrast") == []
        await page.emulate_media(color_scheme=scheme)
        await check_page(page)
        check_quiet(seen, site, "400")


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
async def test_the_api_is_described_for_people(
    browser: Browser, site: Site, size: ViewportSize, scheme: Any
) -> None:
    """Without a token, as the OpenAPI document; by the same style sheet, without a script."""
    async with visit(browser, viewport=size, color_scheme=scheme) as seen:
        page = seen.page
        await log_in(page, site)
        await page.get_by_role("link", name="API").click()
        await page.wait_for_url(f"{site.url}/docs")
        await check_page(page)
        seen.requests.clear()
        other = await page.context.new_page()
        answer = await other.goto(f"{site.url}/docs", wait_until="networkidle")
        assert answer is not None
        assert "script-src" not in (policy := answer.headers["content-security-policy"])
        assert policy == (await page.request.get(f"{site.url}/")).headers["content-security-policy"]
        assert await other.locator("script, style, [style]").count() == 0
        document = site.client.get("/v1/openapi.json").json()
        for path, found in document["paths"].items():
            for method in found.keys() - {"parameters"}:
                name = f"{method.upper()} {path}"
                await expect(other.get_by_role("region", name=name, exact=True)).to_be_visible()
        body = other.get_by_role("region", name="PATCH").get_by_role("link", name="Renew")
        await body.click()
        row = other.get_by_role("region", name="Renew", exact=True).get_by_role("row")
        await expect(row.filter(has_text="fence_ms")).to_contain_text("before the next renewal")
        broken = await other.evaluate(
            """() => [...document.querySelectorAll('a[href^="#"]')]
              .map((each) => each.hash.slice(1)).filter((each) => !document.getElementById(each))"""
        )
        assert broken == []
        check_quiet(seen, site)


async def test_the_keyboard_reaches_everything(browser: Browser, open_site: Site) -> None:
    async with visit(browser) as seen:
        page = seen.page
        await page.goto(f"{open_site.url}/")
        wanted = await page.locator(CONTROLS).count()
        reached: list[int] = []
        for _ in range(wanted):
            await page.keyboard.press("Tab")
            reached.append(await page.evaluate(FOCUSED, CONTROLS))
        assert reached == list(range(wanted))
        # Back to the field of the id, and send it as one who has no mouse.
        await page.locator("#parse-generator").focus()
        await page.keyboard.type("event")
        await page.keyboard.press("Tab")
        await page.keyboard.type("99999999999")
        await page.keyboard.press("Enter")
        await expect(page.locator("#answer.good")).to_contain_text("machine_id")
        check_quiet(seen, open_site)


async def test_the_page_is_light(browser: Browser, open_site: Site) -> None:
    async with visit(browser) as seen:
        sizes: list[int] = []

        async def weigh(response: Response) -> None:
            sizes.append(len(await response.body()))

        seen.page.on("response", weigh)
        await seen.page.goto(f"{open_site.url}/", wait_until="networkidle")
        assert len(sizes) >= 3
        assert sum(sizes) <= 100_000


async def test_values_are_live_until_they_are_stopped(browser: Browser, open_site: Site) -> None:
    def take(count: int) -> None:
        response = open_site.client.post(f"/v1/ids/fresh?count={count}")
        response.raise_for_status()

    async with visit(browser) as seen:
        page = seen.page
        await page.clock.install()
        await page.goto(f"{open_site.url}/dashboard")
        cell = page.get_by_role("row").filter(has_text="fresh").get_by_role("cell").nth(4)
        await expect(cell).to_have_text("10")
        await asyncio.to_thread(take, 3)
        await page.clock.run_for(2_100)
        await expect(cell).to_have_text("7")
        await page.get_by_label("Update every 2 s").uncheck()
        await asyncio.to_thread(take, 1)
        before = len(seen.requests)
        await page.clock.run_for(10_000)
        assert len(seen.requests) == before
        await page.get_by_label("Update every 2 s").check()
        await page.clock.run_for(2_100)
        await expect(cell).to_have_text("6")
        check_quiet(seen, open_site)


async def test_a_server_that_is_away_is_told_once(browser: Browser, open_site: Site) -> None:
    async with visit(browser) as seen:
        page = seen.page
        await page.clock.install()
        await page.goto(f"{open_site.url}/dashboard")
        await page.route("**/overview.json", lambda route: route.abort())
        await page.clock.run_for(2_100)
        await expect(page.locator("#trouble")).to_contain_text("does not answer")
        await page.unroute("**/overview.json")
        await page.clock.run_for(2_100)
        await expect(page.locator("#trouble")).to_have_text("")


async def test_hostile_names_are_text(browser: Browser, open_site: Site) -> None:
    async with visit(browser) as seen:
        page = seen.page
        await page.clock.install()
        await page.goto(f"{open_site.url}/dashboard")
        shown = HOSTILE.replace("\u202e", "\\u202e")
        for _ in range(2):  # as the server has written it, and as the script has
            await expect(page.get_by_role("cell", name=shown, exact=True)).to_be_visible()
            await page.clock.run_for(2_100)
        await page.locator("#try-generator").select_option(value=HOSTILE)
        await page.get_by_label("Use one id up").check()
        await page.get_by_role("button", name="Take one id").click()
        await expect(page.locator("#answer.good")).to_contain_text(shown)
        assert await page.locator("img").count() == 0
        check_quiet(seen, open_site)


async def test_without_script(browser: Browser, site: Site) -> None:
    async with visit(browser, java_script_enabled=False) as seen:
        page = seen.page
        await log_in(page, site)
        drain = page.get_by_role("form", name="Drain")
        await drain.get_by_label("Token").fill(SECRET)
        await drain.get_by_label("This process").check()
        await drain.get_by_role("button", name="Drain", exact=True).click()
        await expect(page.locator("#answer.good")).to_contain_text("draining")
        assert site.app.service.is_draining
        assert SECRET not in await page.content()
        await drain.get_by_label("Token").fill(READER)
        await drain.get_by_label("This process").check()
        await drain.get_by_role("button", name="Serve again").click()
        await expect(page.locator("#answer.bad")).to_contain_text("lacks the scope 'admin'")
        assert site.app.service.is_draining
        site.app.service.is_draining = False
        check_quiet(seen, site, "403")


async def test_a_token_stays_in_its_tab(browser: Browser, site: Site) -> None:
    async with visit(browser) as seen:
        page = seen.page
        await log_in(page, site)
        await expect(page.get_by_role("table", name="Generators")).to_be_visible()
        await page.reload()
        await expect(page.get_by_role("table", name="Generators")).to_be_visible()
        assert await page.context.cookies() == []
        assert not [each for each in seen.requests if SECRET in each]
        other = await page.context.new_page()
        await other.goto(f"{site.url}/dashboard")
        await expect(other.get_by_label("Token")).to_be_visible()
        await page.get_by_role("button", name="Forget the token").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        assert await page.evaluate("sessionStorage.length") == 0
        check_quiet(seen, site)


async def test_actions_are_noted_and_tokens_are_not(
    browser: Browser, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with visit(browser) as seen:
        page = seen.page
        await log_in(page, site)
        form = page.get_by_role("form", name="Raise a floor")
        await form.get_by_label("Name", exact=True).fill("fresh")
        await form.get_by_label("Above").fill("5000")
        await form.get_by_label("Confirm").fill("shop.other")
        await form.get_by_role("button").click()
        await expect(page.locator("#answer.bad")).to_contain_text("nothing was done")
        assert caplog.messages.count("ops: raised") == 0
        await form.get_by_label("Confirm").fill("shop.fresh")
        await form.get_by_role("button").click()
        await expect(page.locator("#answer.good")).to_contain_text("5000")
        row = page.get_by_role("row").filter(has_text="shop.fresh")
        await expect(row.get_by_role("cell").nth(2)).to_have_text("5000")
        assert "ops: raised the floor of 'shop.fresh' above 5000, create=False" in caplog.messages
        for secret in (SECRET, READER, digest_of(SECRET)):
            assert secret not in caplog.text
        check_quiet(seen, site, "400")


BROKEN = """() => {
  const lines = (node, from, to) => {
    const range = document.createRange();
    range.setStart(node, from);
    range.setEnd(node, to);
    return new Set([...range.getClientRects()].map((each) => Math.round(each.top))).size;
  };
  const found = [];
  for (const cell of document.querySelectorAll("td:not(.w) > span, th")) {
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      for (const word of node.data.matchAll(/\\S+/g)) {
        if (lines(node, word.index, word.index + word[0].length) > 1) found.push(word[0]);
      }
    }
  }
  return found;
}"""
"""Words that stand on two lines, of cells whose words we have chosen."""


@pytest.mark.parametrize("width", [1300, 1440, 1920])
async def test_no_word_is_broken_inside_a_cell(
    browser: Browser, open_site: Site, width: int
) -> None:
    """Nobody reads "answer s" as a word."""
    async with visit(browser, viewport={"width": width, "height": 900}) as seen:
        await seen.page.goto(f"{open_site.url}/")
        assert await seen.page.evaluate(BROKEN) == []
        await check_page(seen.page)


async def test_the_last_minutes_are_drawn(browser: Browser, open_site: Site) -> None:
    async with visit(browser) as seen:
        page = seen.page
        await page.goto(f"{open_site.url}/")
        rate = page.locator('[data-curve="rate"]')
        await expect(rate.locator("span")).to_contain_text("at most", timeout=20_000)
        await expect(rate.locator("path")).to_have_attribute("d", re.compile("^M.*L240.0"))
        await expect(page.locator("figure")).to_have_count(4)
        await check_page(page)
        check_quiet(seen, open_site)


@asynccontextmanager
async def crowd() -> AsyncGenerator[IdProvider]:
    """A thousand counters, of which one is used."""
    async with aiocosid.connect(MemoryStore(), namespace="shop") as ids:
        await ids.store.initialize(confirm_no_holders=True)
        for at in range(1000):
            await ids.store.set_floor(namespace="shop", name=f"c{at:03}", above=at, create=True)
        for at in range(20):
            await ids.segment(f"s{at:02}", step=10)
        yield ids


async def test_a_thousand_counters(browser: Browser) -> None:
    """Those that are used come first; the others are found, and put in order."""
    with serve(App(crowd, namespace="shop")) as client:
        url = f"{client.base_url}".rstrip("/")
        async with visit(browser, viewport=PHONE) as seen:
            await seen.page.goto(f"{url}/")
            assert await seen.page.evaluate("document.documentElement.scrollHeight") < 10_000
            rows = seen.page.locator("#counters tbody tr:visible")
            await expect(rows).to_have_count(10)
            await seen.page.locator("#counters label.more").click()
            await expect(rows).to_have_count(200)
            await check_page(seen.page)
        async with visit(browser) as seen:
            page = seen.page
            await page.goto(f"{url}/")
            names = page.locator('table[data-key="generators"] tbody td:first-child')
            client.post("/v1/ids/s17").raise_for_status()
            await expect(names.first).to_have_text("s17", timeout=20_000)
            await page.get_by_label("Search all tables").fill("C999")
            counters = page.locator('table[data-key="counters"] tbody tr')
            await expect(counters).to_have_count(1)
            await expect(counters.locator("td").first).to_have_text("shop.c999")
            await page.get_by_label("Search all tables").fill("c99")
            await expect(counters).to_have_count(10)
            heading = page.locator('table[data-key="counters"]').get_by_role(
                "button", name="Last max id"
            )
            await heading.click()
            await heading.click()
            await expect(counters.first.locator("td").nth(2)).to_have_text("999")
            await expect(page.locator('th[aria-sort="descending"]')).to_have_count(1)
            await check_page(page)


@pytest.mark.skipif(PICTURES is None, reason="AIOCOSID_PICTURES names no folder")
async def test_pictures(browser: Browser, valkey: ValkeyServer) -> None:
    """Take the pictures of docs/howto/observe.md."""
    app = App(partial(shop, valkey.url), namespace="shop")
    views: list[tuple[str, ViewportSize, Any]] = [
        ("light", DESKTOP, "light"),
        ("dark", DESKTOP, "dark"),
        ("phone", PHONE, "light"),
    ]
    with serve(app) as client:
        for name, size, scheme in views:
            async with visit(browser, viewport=size, color_scheme=scheme) as seen:
                await seen.page.goto(f"{client.base_url}/dashboard")
                client.post("/v1/ids/order?count=5000")
                rate = seen.page.get_by_role("row").filter(has_text="order").first
                await expect(rate).not_to_contain_text("measuring")
                path = Path(f"{PICTURES}") / f"dashboard-{name}.png"
                await seen.page.screenshot(path=path)
                assert path.stat().st_size < 150_000
