"""The site as a browser shows it, on a desktop and on a phone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from fcntl import LOCK_EX, flock
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from tests.integration._browser import DESKTOP, PHONE, chromium, visit
from tests.servers import HOST

from ._blocks import ROOT

pytestmark = [
    pytest.mark.integration,
    pytest.mark.stress,
    pytest.mark.timeout(240),
]  # the first one builds the site
in_browser = pytest.mark.asyncio(loop_scope="module")

MOST_BYTES: Final = 300_000
SEARCH: Final = (Path(__file__).parent / "_search.js").read_text("utf-8")
WANTED: Final = {  # the pages of which one is the right first answer
    "alembic": {"howto/sqlalchemy.html"},
    "backup": {"howto/operate.html"},
    "cancel": {"explanation/cancellation.html"},
    "celery": {"howto/threads-and-celery.html"},
    "clock": {"explanation/clocks.html"},
    "django": {"howto/django.html"},
    "duplicate": {"explanation/guarantees.html"},
    "fork": {"explanation/runtimes.html", "howto/workers.html"},
    "gap": {"howto/gapless-numbers.html", "explanation/guarantees.html"},
    "gunicorn": {"howto/workers.html"},
    "invoice": {"howto/gapless-numbers.html"},
    "javascript": {"howto/id-types.html"},
    "kubernetes": {"howto/kubernetes.html"},
    "leaf": {"migrate/from-leaf.html"},
    "litestar": {"howto/fastapi.html"},
    "outage": {"howto/store-is-down.html"},
    "permissions": {"reference/rights.html"},
    "prometheus": {"howto/observe.html"},
    "pytest": {"howto/test-your-code.html"},
    "redis password": {"reference/stores.html", "howto/prepare-a-store.html"},
    "sentinel": {"reference/stores.html", "howto/prepare-a-store.html"},
    "toml": {"howto/configure.html", "reference/settings.html"},
    "uuid": {"migrate/from-uuid-or-auto-increment.html", "howto/do-i-need-this.html"},
}
OVERFLOWS: Final = (Path(__file__).parent / "_overflows.js").read_text("utf-8")
TEXT_OUTSIDE: Final = (Path(__file__).parent / "_text_outside.js").read_text("utf-8")
TEN: Final = (
    "index.html",
    "tutorial.html",
    "howto/which-generator.html",
    "howto/fastapi.html",
    "howto/operate.html",
    "migrate/from-cosid.html",
    "explanation/guarantees.html",
    "reference/settings.html",
    "reference/errors.html",
    "reference/api/segment.html",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once for all processes of a run; a broken link or anchor fails."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    with (folder.parent / "site.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not (folder / "llms.txt").exists():
            build(folder)
    return folder


def build(folder: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.fixture(scope="module")
def url(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base's
            pass

    with ThreadingHTTPServer((HOST, 0), partial(Quiet, directory=str(site))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{HOST}:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with chromium() as found:
        yield found


def pages_of(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


async def overflows(page: Page) -> list[str]:
    """Return what is clipped, or stands outside of the window, at two widths."""
    found: list[str] = []
    for size in (DESKTOP, PHONE):
        await page.set_viewport_size(size)
        elements: list[str] = await page.evaluate(OVERFLOWS)
        found += [f"{page.url} at {size['width']}: {each}" for each in elements]
    return found


@in_browser
@pytest.mark.stress
@pytest.mark.timeout(240)
async def test_nothing_is_clipped(browser: Browser, site: Path) -> None:
    """Tables too: on a phone their rows stand below each other."""
    found: list[str] = []
    async with visit(browser) as visitor:
        for page in pages_of(site):
            await visitor.page.goto(page.as_uri())
            found += await overflows(visitor.page)
    assert not found


@in_browser
async def test_what_is_clipped_is_found(browser: Browser) -> None:
    """A row that is too wide, a box that cuts its text, a table that has to be scrolled."""
    bad = (
        "<div style='width: 3000px'>wide</div>",
        "<p style='width: 40px; overflow: hidden; white-space: nowrap'>some text that is long</p>",
        "<div style='overflow: auto; width: 50px'><table><td>wideenough</table></div>",
    )
    async with visit(browser) as visitor:
        for html in bad:
            await visitor.page.set_content(f"<main class='md-content'>{html}</main>")
            assert len(await overflows(visitor.page)) >= 2, html


@in_browser
@pytest.mark.stress
@pytest.mark.timeout(240)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_has_nothing_to_say(browser: Browser, site: Path, scheme: str) -> None:
    """Contrast, headings, texts of pictures, names of what can be pressed."""
    found: list[str] = []
    async with visit(browser, color_scheme=scheme) as visitor:
        for name in TEN:
            await visitor.page.goto((site / name).as_uri())
            violations = (await Axe().run(visitor.page)).response["violations"]
            for each in violations:
                targets = [node["target"] for node in each["nodes"]]
                found.append(f"{name}: {each['id']}: {len(targets)}, as {targets[:4]}")
    assert not found, "\n".join(found)


@in_browser
async def test_a_copy_has_no_prompt(browser: Browser, url: str) -> None:
    """The button leaves out the output as well; a selection keeps it."""
    async with visit(browser, permissions=["clipboard-read", "clipboard-write"]) as visitor:
        page = visitor.page
        await page.goto(f"{url}/tutorial.html")
        block = page.locator(".highlight", has_text="curl -s -X POST").first
        await block.hover()
        await block.locator("button[data-clipboard-target]").click()
        command = "curl -s -X POST http://127.0.0.1:8000/orders"
        assert await copied(page) == f"{command}\n{command}"
        await block.locator("code").evaluate("code => getSelection().selectAllChildren(code)")
        await page.keyboard.press("Control+C")
        assert (await copied(page)).split("\n") == [command, '{"id":1}', command, '{"id":2}']


async def copied(page: Page) -> str:
    text: str = await page.evaluate("navigator.clipboard.readText()")
    return text


@in_browser
async def test_the_search_finds_the_guide_first(browser: Browser, url: str) -> None:
    """Before the reference, which has each word more often."""
    async with visit(browser) as visitor:
        await visitor.page.goto(f"{url}/index.html")
        await visitor.page.get_by_role("textbox", name="Search").fill("fastapi")
        first = visitor.page.locator(".md-search-result__link").first
        await expect(first).to_have_attribute("href", f"{url}/howto/fastapi.html")


@in_browser
async def test_the_search_finds_what_a_person_wants(browser: Browser, url: str) -> None:
    """The site's own index and ranking: of the first answers at most two are other pages."""
    async with visit(browser) as visitor:
        await visitor.page.goto(f"{url}/index.html")
        found = await visitor.page.evaluate(SEARCH, list(WANTED))
    wrong = {word: page for word, page in found.items() if page not in WANTED[word]}
    assert len(WANTED) >= 20
    assert len(wrong) <= 2, wrong


@in_browser
@pytest.mark.parametrize(
    "picture", sorted((ROOT / "docs" / "img").glob("*.svg")), ids=lambda p: p.name
)
async def test_text_stays_in_its_box(browser: Browser, picture: Path) -> None:
    async with visit(browser) as visitor:
        await visitor.page.goto(picture.as_uri())
        assert await visitor.page.evaluate(TEXT_OUTSIDE) == []


def test_no_api_page_is_large(site: Path) -> None:
    pages = {page.name: page.read_text("utf-8") for page in (site / "reference/api").glob("*.html")}
    assert len(pages) > 20
    assert not {name: len(text) for name, text in pages.items() if len(text.encode()) > MOST_BYTES}
    assert not [name for name, text in pages.items() if "__reduce" in text]


def test_programs_find_the_pages(site: Path) -> None:
    listed = (site / "llms.txt").read_text("utf-8")
    assert "](https://aiocosid.readthedocs.io/en/latest/howto/fastapi.html)" in listed
    assert listed.count("<loc>") == 0
    assert (site / "sitemap.xml").read_text("utf-8").count("<loc>") > 60
