"""The page of a running app in a real Chromium."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from axe_playwright_python.sync_playwright import Axe
from keygrouping_app import App, Breaker, Event, Topic
from keygrouping_app.events import Outgoing, Record
from keygrouping_app.kafka.changelog import Restoring
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.lanes import LoopLanes
from keygrouping_app.moves import Done
from keygrouping_app.planning import Balance, Promise
from keygrouping_app.scheduler import Failure
from keygrouping_app.telling import told
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium")
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}
MOST_MS = 120_000
"""For what Chromium does: ends a test that hangs, and is no bound on how long it may take."""
NASTY = "<img src=x onerror=alert(1)>\u202e\x07"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium to test the page")
Opens = Callable[..., Page]


class Site:
    """A member whose handler waits for the key that it is told to, on an event loop of its own."""

    def __init__(self) -> None:
        self.port = 0
        self.loop = asyncio.new_event_loop()
        self.stop: asyncio.Event
        self.runner: Any = None
        self._up = threading.Event()
        self._thread = threading.Thread(target=self.loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        assert self._up.wait(300)

    async def _serve(self) -> None:
        self.stop, release = asyncio.Event(), asyncio.Event()
        app = App("billing")

        @app.on("orders", concurrency=8, breaker=Breaker())
        async def charge(event: Event) -> None:
            if event.key in ("alice", NASTY):
                await release.wait()

        (handler,) = app.handlers
        tp = TopicPartition("orders", 3)
        partition = Partition(tp, Topic("orders"), OffsetAndMetadata(0, ""), asyncio.Event())

        def on_end(ended: list[Event], outputs: list[Outgoing], failure: Failure | None) -> None:
            del outputs, failure
            partition.end(ended, [])

        lanes = LoopLanes(handler, handler.function, on_end)
        keys = ["alice"] * 1204 + [NASTY] * 30 + [f"customer-{number}" for number in range(20)]
        records = [Record("orders", 3, offset, 0, key.encode(), b"1") for offset, key in enumerate(keys)]
        lanes.offer(partition.take(records, len(keys)))
        self.runner = SimpleNamespace(
            lanes=[lanes],
            held=[partition],
            joined=True,
            name="billing",
            sharing=None,
            restoring={TopicPartition("orders", 4): Restoring("orders", 30, 70)},
            moving=SimpleNamespace(
                done={"orders": Done(3, 2_500_000, 0.3, 0.2)},
                groupings={"orders": "mintable"},
                balances={"orders": Balance(Promise(4, "m", time.time() - 150, 3, 1.942, 1.054), 1.0671)},
            ),
        )
        with told(self.port, self.runner) as self.port:
            self._up.set()
            await self.stop.wait()
        lanes.close()

    def end(self) -> None:
        """The member is gone."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.stop.set)
            self._thread.join()
            self.loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=MOST_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=MOST_MS)
        yield browser
        browser.close()


@contextmanager
def member() -> Iterator[Site]:
    site = Site()
    try:
        yield site
    finally:
        site.end()


@pytest.fixture
def site() -> Iterator[Site]:
    with member() as running:
        yield running


@pytest.fixture
def opens(browser: Browser) -> Iterator[Opens]:
    """Opens the page; at the end it must have raised no error and broken no rule of its Content-Security-Policy."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def open_page(url: str, viewport: dict[str, int] = DESKTOP, scheme: Any = "light") -> Page:
        context = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(MOST_MS)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if "Content Security" in message.text else None)
        page.goto(url)
        expect(page.locator("#pill-text")).to_have_text("Live")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults


def tile(page: Page, name: str) -> str:
    return page.locator("dl div", has=page.get_by_text(name, exact=True)).locator("dd").inner_text()


def test_it_shows_which_keys_block_and_what_a_split_would_give(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    expect(page).to_have_title("billing – keygrouping")
    expect(page.locator("h2")).to_contain_text("orders · ")
    shown = {name: tile(page, name) for name in ("Lanes busy", "In memory", "Largest gap", "Breaker")}
    assert shown == {"Lanes busy": "2 of 8", "In memory": "1,234", "Largest gap": "1,254", "Breaker": "closed"}
    names = ("Planned by", "Keys handed over", "States sent", "Held on average", "Events held", "Restoring")
    assert {name: tile(page, name) for name in names} == {
        "Planned by": "mintable",
        "Keys handed over": "3",
        "States sent": "2.5 MB",
        "Held on average": "100 ms",
        "Events held": "0",
        "Restoring": "1 partition, 30 %",
    }
    assert tile(page, "Last plan").startswith("3 keys, 2.")
    assert [tile(page, name) for name in ("λ before it", "λ as planned", "λ now")] == ["1.94", "1.05", "1.07"]
    alice = page.get_by_role("row", name="alice")
    expect(alice).to_contain_text("1,203")
    expect(alice).to_contain_text("its call")
    expect(page.locator(".words")).to_contain_text("times as fast")


def test_what_is_restored_is_shown_no_more(site: Site, opens: Opens) -> None:
    site.runner.restoring = {}
    page = opens(site.url)
    expect(page.locator("h2")).to_contain_text("orders")
    expect(page.get_by_text("Restoring")).to_have_count(0)


def test_a_partition_of_which_nothing_is_committed_is_shown_with_why(site: Site, opens: Opens) -> None:
    (held,) = site.runner.held
    page = opens(site.url)
    expect(page.locator("h2")).to_contain_text("orders")
    expect(page.get_by_text("Not committed")).to_have_count(0)
    held._refusal = f"records are refused {NASTY}"
    expect(page.get_by_text("Not committed")).to_have_count(1)
    assert tile(page, "Not committed") == "3: records are refused <img src=x onerror=alert(1)>\\u{202e}\\u{7}"


def test_where_nothing_is_planned_it_says_so(site: Site, opens: Opens) -> None:
    site.runner.moving.groupings, site.runner.moving.balances = {"orders": "ordered"}, {}
    page = opens(site.url)
    assert tile(page, "Planned by") == "–"
    expect(page.get_by_text("λ")).to_have_count(0)


def test_what_is_not_known_of_the_work_of_members_is_no_number(site: Site, opens: Opens) -> None:
    site.runner.moving.balances = {"orders": Balance(Promise(1, "m", time.time(), 1, 2.0, 1.0))}
    page = opens(site.url)
    expect(page.get_by_text("1 key, ")).to_have_count(1)
    assert [tile(page, name) for name in ("λ as planned", "λ now")] == ["1.00", "–"]
    site.runner.moving.balances = {"orders": Balance(now=1.5)}
    expect(page.get_by_text("1.50", exact=True)).to_have_count(1)
    assert [tile(page, name) for name in ("Last plan", "λ before it", "λ as planned")] == ["–", "–", "–"]


def test_it_goes_on_by_itself_and_says_when_it_can_not(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    site.runner.joined = False
    expect(page.locator("#pill-text")).to_have_text("Starting")
    expect(page.locator("#banner")).to_contain_text("has not given this member its partitions")
    site.runner.joined = True
    expect(page.locator("#pill-text")).to_have_text("Live")
    expect(page.locator("#banner")).to_be_hidden()
    site.end()
    expect(page.locator("#pill-text")).to_have_text("No connection")
    expect(page.locator("#banner")).to_contain_text("The figures are those of")


def test_keys_of_others_are_text(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    expect(page.locator("tbody")).to_contain_text("<img src=x onerror=alert(1)>\\u{202e}\\u{7}")
    assert page.locator("tbody img").count() == 0


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_everybody_can_read_it(site: Site, opens: Opens, viewport: dict[str, int], scheme: str, tmp_path: Path) -> None:
    page = opens(site.url, viewport, scheme)
    expect(page.get_by_text("alice")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    found = Axe().run(page)
    assert not found.violations_count, found.generate_report()
    page.screenshot(path=tmp_path / "page.png", full_page=True)


def test_it_loads_nothing_from_elsewhere(site: Site, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto(site.url)
    expect(page.locator("#pill-text")).to_have_text("Live")
    context.close()
    assert {url.removeprefix(site.url) for url in asked} <= {"", "page.css", "page.js", "keys", "data:,"}
    assert answer is not None
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
