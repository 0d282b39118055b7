"""The page in a real Chromium, against a router double and, where it says so, the router's own app."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from keygrouping_router.naming import named
from playwright.sync_api import APIResponse, Browser, BrowserContext, Page, Route, expect, sync_playwright

from ..page_double import STRANGE, Double, keys_of
from ..page_site import RouterSite, Site

CHROMIUM = shutil.which("chromium")
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium to test the page")

FOCUS = """[
    document.activeElement.id || document.activeElement.closest("button, a, summary, input")?.textContent || "BODY",
    getComputedStyle(document.activeElement).outlineStyle,
]"""
WATCH = """() => {
    const added = (record) => [...record.addedNodes].filter((node) => node.nodeType === Node.ELEMENT_NODE).length;
    performance.clearMeasures();
    window.touched = { added: 0, changed: 0 };
    const watch = new MutationObserver((records) => records.forEach((record) => {
        touched.added += added(record);
        touched.changed += 1;
    }));
    watch.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
}"""

Opens = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Double], Site]]:
    sites: list[Site] = []

    def start(double: Double) -> Site:
        sites.append(Site(double))
        return sites[-1]

    yield start
    for site in sites:
        site.stop()


@pytest.fixture
def site(serve: Callable[[Double], Site]) -> Site:
    double = Double()
    double.fill(20)
    return serve(double)


@pytest.fixture
def opens(browser: Browser) -> Iterator[Opens]:
    """Opens a page; at the end it must have raised no error and broken no rule of its Content-Security-Policy."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def open_page(
        url: str, viewport: dict[str, int] = DESKTOP, scheme: Any = "light", live: bool = True, **options: Any
    ) -> Page:
        context = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce", **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if "Content Security" in message.text else None)
        page.goto(url)
        if live:
            expect(page.locator("#pill")).to_have_text("Live")
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            # A request that is held here as the page closes would raise its error in the next test.
            page.unroute_all(behavior="ignoreErrors")
        context.close()
    assert not faults


def call(page: Page, module: str, name: str, *arguments: Any) -> Any:
    """The result of a function of one of the page's modules."""
    code = "async ([module, name, given]) => (await import(`/assets/${module}.js`))[name](...given)"
    return page.evaluate(code, [module, name, list(arguments)])


def rows(page: Page) -> list[str]:
    return page.locator("#keys-rows button").all_inner_texts()


def drawn(page: Page, selector: str) -> str:
    """The path of a chart's part."""
    return page.locator(selector).get_attribute("d") or ""


# what is to be seen


def test_it_shows_loads_keys_spaces_timeline_and_comparison(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    report = site.double.interval()
    expect(page.locator("#lambda")).to_have_text(f"{report.lambda_:.2f}")
    expect(page.locator("#before-value")).to_have_text(f"{report.lambda_before:.2f}")
    expect(page.locator("#least-value")).to_have_text(f"{report.least_share:.2f}")
    expect(page.locator("#rate")).to_have_text("4,000")
    expect(page.locator("#facts")).to_have_text("dkg · 8 workers · epoch 10 · 3 replicas")
    expect(page.locator("#load-chart svg")).to_have_attribute(
        "aria-label", re.compile(r"^Load of 8 workers\. Fullest: worker \d with")
    )
    assert drawn(page, "#load-chart path.within").count("M") == 8
    assert rows(page)[:3] == ["UA", "B6", "EV"]
    expect(page.locator("#keys-rows tr").first).to_contain_text("33.0 %")
    expect(page.locator("#spaces li")).to_have_count(3)
    expect(page.locator("#spaces li").first).to_contain_text("10 of 10")
    assert drawn(page, "#timeline-chart path.line.after").count("L") == 19
    assert drawn(page, "#timeline-chart path.plan").count("M") == len({plan.at for plan in site.double.plans})
    expect(page.locator("#timeline-readout")).to_contain_text("10 plans, 1 change")
    expect(page.locator("#changes")).to_contain_text("check_interval 60 → 30 (by api)")
    expect(page.locator("#shadow-rows tr")).to_have_count(4)
    expect(page.locator("#shadow-rows tr").first).to_contain_text("dkg in force")
    page.get_by_text("whole run").click()
    expect(page.locator("#shadow-rows tr").nth(1)).to_contain_text("512K")


def test_the_plan_says_why_the_loads_are_equal(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    expect(page.locator("#filling-words")).to_have_text(
        re.compile(
            r"^6 hot keys with \d\d\.\d % of the weight are poured over 8 workers .* up to 1\.00 of the fair share"
        )
    )
    assert drawn(page, "#filling-chart path.light").count("M") == 8
    assert drawn(page, "#filling-chart path.poured").count("M") == 8
    expect(page.locator("#filling-keys tr")).to_have_count(6)
    expect(page.locator("#filling-keys tr").first).to_contain_text(re.compile(r"UA\d.*%0: \d.*and 2 more"))
    page.locator("#filling-chart svg").hover(position={"x": 70, "y": 100})
    expect(page.locator("#filling-readout")).to_contain_text(
        re.compile(r"worker 0: .* light keys, .* \(UA .* and 3 more\)")
    )
    page.locator("#filling-details summary").press("Enter")
    expect(page.locator("#filling-rows tr")).to_have_count(8)
    expect(page.locator("#filling-rows tr").first).to_contain_text("12.5 %")
    page.locator("#filling-keys button").first.click()
    expect(page.locator("#explain-why")).to_contain_text("spread over")


def test_a_grouping_that_fills_nothing_has_no_plan_to_show(site: Site, opens: Opens) -> None:
    site.double.fills = False
    page = opens(site.url)
    expect(page.locator("#shadow-rows tr")).to_have_count(4)
    expect(page.locator("#filling")).to_be_hidden()
    expect(page.get_by_role("link", name="Plan", exact=True)).to_be_hidden()


def test_it_follows_each_interval(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    site.double.traffic = 80_000.0
    site.double.push()
    expect(page.locator("#rate")).to_have_text("8,000")
    site.double.plan()
    expect(page.locator("#changes li").first).to_contain_text(f"epoch {len(site.double.plans)}")


def test_the_pointer_reads_values_off_the_charts(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    page.locator("#load-chart svg").hover(position={"x": 60, "y": 100})
    expect(page.locator("#load-readout")).to_contain_text("worker 0 with")
    page.locator("#timeline-chart svg").hover(position={"x": 39, "y": 60})
    expect(page.locator("#timeline-readout")).to_contain_text(re.compile(r"λ \d.*key hashing 3.14.*plan of epoch 1"))


def test_all_workers_are_in_a_table(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    page.locator("#load-details summary").press("Enter")
    expect(page.locator("#load-rows tr")).to_have_count(9)
    expect(page.locator("#load-rows tr").last).to_have_text(re.compile("8.*412draining"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(
    site: Site, opens: Opens, viewport: dict[str, int], scheme: str
) -> None:
    site.double.degraded = True
    page = opens(site.url, viewport, scheme, live=False)
    expect(page.locator(".banner")).to_have_count(1)
    for summary in page.locator("summary").all():
        summary.click()
    page.locator("#thresholds").get_by_label("check_interval").fill("20")
    page.locator("#thresholds-try").click()
    expect(page.locator("#thresholds-result")).to_be_visible()
    assert not violations(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("#keys-rows button").first.click()
    expect(page.locator("#explain-facts div")).to_have_count(10)
    assert not violations(page, "#explain")


def violations(page: Page, part: str | None = None) -> list[str]:
    found = Axe().run(page, part, options={"resultTypes": ["violations"]}).response["violations"]
    return [f"{one['id']}: {node['html']}: {node['failureSummary']}" for one in found for node in one["nodes"]]


# keys


def test_strange_keys_are_shown_and_never_become_markup(serve: Callable[[Double], Site], opens: Opens) -> None:
    double = Double(keys=STRANGE)
    double.fill(2)
    page = opens(serve(double).url)
    expect(page.locator("#keys-rows button")).to_have_count(len(STRANGE))
    shown = rows(page)
    assert shown[0] == "<img src=x onerror=alert(1)>"
    assert shown[1] == r"tab\there\0and\x1b[31mthere"
    assert shown[2] == r"ab\u{202e}gnp.exe"
    assert shown[3] == "base64 __4A"
    assert shown[4] == "·spaces at both ends·"
    assert shown[5] == "empty"
    assert shown[7] == "x" * 200 + "… 2,800 more"
    assert page.locator("main img").count() == 0
    for button, name in zip(page.locator("#keys-rows button").all(), shown, strict=True):
        button.click()
        expect(page.locator("#explain-why")).to_contain_text("spread over")
        expect(page.locator("#explain-key")).to_have_text(
            "x" * 3000 if name.startswith("xxx") else name, use_inner_text=True
        )
        page.keyboard.press("Escape")


def test_no_character_that_can_not_be_seen_is_left(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    unseen = [
        chr(code)
        for code in [*range(0x20), *range(0x7F, 0xA1), 0xAD, 0x200B, 0x200F, 0x2028, 0x202E, 0x2066, 0xFEFF, 0xE0001]
    ]
    text = call(page, "format", "keyText", {"key": "a" + "b".join(unseen) + "z", "id": "1"}, 10_000)
    assert text.isprintable() and text.isascii()
    assert len(re.findall(r"\\", text)) == len(unseen)


def test_numbers_are_short_and_say_what_they_know(site: Site, opens: Opens) -> None:
    page = opens(site.url)

    def format_(name: str, value: Any) -> Any:
        return call(page, "format", name, value)

    assert [format_("percent", share) for share in (None, 0, 1e-6, 0.0042, 0.123, 1)] == [
        "–",
        "0 %",
        "< 0.01 %",
        "0.42 %",
        "12.3 %",
        "100 %",
    ]
    assert [format_("compact", value) for value in (None, 3, 2.5, 9876, 12_345, 1.5e9)] == [
        "–",
        "3",
        "2.5",
        "9,876",
        "12.3K",
        "1.5B",
    ]
    assert [format_("duration", value) for value in (0.5, 5.9, 60, 7500, 7200, 100_000)] == [
        "0.5 s",
        "5 s",
        "1 min",
        "2 h 5 min",
        "2 h",
        "1 d 3 h",
    ]
    assert [format_("ratio", value) for value in (0, 1.004, 12.34)] == ["–", "1.00", "12.3"]
    assert [
        format_("value", given) for given in (None, [], [1, 2], {"a": 1}, [{"name": "pkg", "settings": {"choices": 3}}])
    ] == ["none", "none", "1, 2", "a 1", "pkg (choices 3)"]
    assert format_("workers", list(range(200))) == "0, 1, 2, 3, … 200 in all"


def test_a_key_is_explained_by_the_keyboard_alone(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    button = page.locator("#keys-rows button", has_text="B6")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator("#explain-why")).to_have_text(
        "it is hot: spread over 4 workers, the least loaded of them gets the next event"
    )
    expect(page.locator("#explain-facts")).to_contain_text("at most 120 too high")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(button).to_be_focused()


def test_a_key_keeps_the_focus_when_the_order_changes(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    page.locator("#keys-rows button", has_text="EV").focus()
    for order in ([2, 0, 1], [1, 2, 0], [2, 1, 0]):
        first = site.double.keys[:3]
        site.double.keys[:3] = [first[place] for place in order]
        site.double.push()
        expected = [key.decode() for key in site.double.keys]
        expect(page.locator("#keys-rows button")).to_have_text(expected)
        expect(page.locator("#keys-rows button", has_text="EV")).to_be_focused()


def test_all_keys_can_be_paged_sorted_and_filtered(serve: Callable[[Double], Site], opens: Opens) -> None:
    double = Double(keys=keys_of(10_000))
    double.fill(2)
    page = opens(serve(double).url)
    expect(page.locator("#keys-range")).to_have_text("1 to 20 of 10,000")
    page.locator("#keys-next").click()
    expect(page.locator("#keys-range")).to_have_text("21 to 40 of 10,000")
    expect(page.locator("#keys-rows button").first).to_have_text("customer-00011")
    page.get_by_label("Begins with").fill("customer-099")
    expect(page.locator("#keys-range")).to_have_text("1 to 20 of 91")
    page.get_by_role("button", name="Key", exact=True).click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Key")
    page.get_by_label("Begins with").fill("nobody")
    expect(page.locator("#keys-empty")).to_have_text("No key fits.")
    page.get_by_label("Begins with").fill("")
    page.get_by_role("button", name="teenage").click()
    expect(page.locator("#keys-range")).to_have_text("1 to 20 of 40")
    expect(page.locator("#keys-space")).to_be_focused()


def test_the_keyboard_reaches_everything_and_shows_where_it_is(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the numbers")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    reached = set()
    for _ in range(65):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(FOCUS)
        reached.add(name)
        assert outline != "none" or name == "BODY", f"nothing shows that {name} has the focus"
    assert {
        "keys-prefix",
        "keys-space",
        "UA",
        "old",
        "setting-check_interval",
        "thresholds-try",
        "scale-try",
    } <= reached


# changes


def test_thresholds_are_tried_before_they_are_applied(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    expect(page.locator("#thresholds-apply")).to_be_disabled()
    page.get_by_label("check_interval").fill("20")
    page.get_by_label("half_life").fill("")
    page.locator("#thresholds-try").click()
    expect(page.locator("#thresholds-outcome")).to_have_text(
        "λ would fall from 1.31 to 1.06, and 16 keys would change fan-out. Nothing is changed yet."
    )
    assert site.double.values["check_interval"] == 60
    site.double.push()  # an interval leaves edits alone
    page.locator("#thresholds-apply").click()
    expect(page.locator("#thresholds-outcome")).to_have_text("In force now.")
    assert site.double.values["check_interval"] == 20 and site.double.values["half_life"] is None
    assert [asked for asked in site.double.asked if asked[0] == "PATCH"] == [
        ("PATCH", "/thresholds?dry_run", {"check_interval": 20, "half_life": None}),
        ("PATCH", "/thresholds", {"check_interval": 20, "half_life": None}),
    ]
    expect(page.locator("#changes li").first).to_contain_text("check_interval 60 → 20; half_life 30 → none")


def test_an_edit_after_the_trial_must_be_tried_again(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    page.get_by_label("check_interval").fill("20")
    page.locator("#thresholds-try").click()
    expect(page.locator("#thresholds-apply")).to_be_enabled()
    page.get_by_label("warm_up").fill("1")
    expect(page.locator("#thresholds-apply")).to_be_disabled()
    page.locator("#thresholds-reset").click()
    expect(page.get_by_label("check_interval")).to_have_value("60")


def test_thresholds_can_be_tried_once_they_are_read(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    held: list[Route] = []
    page.route("**/thresholds", lambda route: held.append(route))  # Playwright looks into the function
    page.reload()
    expect(page.locator("#pill")).to_have_text("Live")
    expect(page.locator("#thresholds-try")).to_be_hidden()
    for route in held:
        route.continue_()
    page.unroute("**/thresholds")
    expect(page.locator("#thresholds-try")).to_be_visible()


def test_faults_in_thresholds_are_said_at_the_form(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    outcome = page.locator("#thresholds-outcome")
    page.locator("#thresholds-try").click()
    expect(outcome).to_have_text("Nothing differs from the settings in force.")
    page.get_by_label("distinct_keys").fill("1.5")
    page.locator("#thresholds-try").click()
    expect(outcome).to_have_text("distinct_keys must be a whole number")
    expect(page.get_by_label("distinct_keys")).to_be_focused()
    page.locator("#thresholds-reset").click()
    expect(page.get_by_label("distinct_keys")).to_have_value("100")
    page.get_by_label("check_interval").fill("-1")
    page.locator("#thresholds-try").click()
    expect(outcome).to_have_text("thresholds: check_interval must be at least 0, not -1")


def test_a_change_by_somebody_else_is_not_overwritten(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    page.get_by_label("check_interval").fill("20")
    page.locator("#thresholds-try").click()
    expect(page.locator("#thresholds-apply")).to_be_enabled()
    site.double.values["warm_up"] = 3.0
    site.double.control("thresholds", {"warm_up": 15.0}, {"warm_up": 3.0})
    expect(page.locator("#changes li").first).to_contain_text("warm_up 15 → 3")
    page.locator("#thresholds-apply").click()
    expect(page.locator("#thresholds-outcome")).to_contain_text("Somebody else has changed it meanwhile")
    page.locator("#thresholds-reset").click()
    expect(page.get_by_label("warm_up")).to_have_value("3")


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1e3", "an integer", 1000),
        ("0.5", "a number or null", 0.5),
        ("", "a number or null", None),
        ("1, 2.5;3", "a list of numbers", [1, 2.5, 3]),
        ("true", "true or false", True),
        ("round-robin", "one of least-loaded, round-robin", "round-robin"),
        ("", "a text", ""),
    ],
)
def test_values_are_read_by_their_kind(value_page: Page, text: str, kind: str, value: Any) -> None:
    assert call(value_page, "thresholds", "parse", text, kind) == value


@pytest.fixture(scope="module")
def value_page(browser: Browser) -> Iterator[Page]:
    double = Double()
    double.fill(1)
    site = Site(double)
    page = browser.new_page()
    page.goto(site.url)
    yield page
    page.close()
    site.stop()


def test_the_number_of_workers_is_tried_and_applied(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    expect(page.locator("#scale-hint")).to_contain_text("at most 16")
    page.locator("#scale-count").fill("17")
    page.locator("#scale-try").click()
    expect(page.locator("#scale-outcome")).to_have_text("The number of workers must be from 1 to 16.")
    page.locator("#scale-count").fill("12")
    page.locator("#scale-try").click()
    expect(page.locator("#scale-result")).to_be_visible()
    assert site.double.workers == 8
    page.locator("#scale-apply").click()
    expect(page.locator("#facts")).to_contain_text("12 workers")
    page.get_by_label("Automatic").check()
    expect(page.locator("#scale-count")).to_be_disabled()
    page.locator("#scale-try").click()
    page.locator("#scale-apply").click()
    expect(page.locator("#scale-hint")).to_contain_text("automatic")
    assert site.double.mode == "auto"


def test_what_is_clicked_or_edited_while_a_change_is_answered_is_not_lost(site: Site, opens: Opens) -> None:
    held: list[Route] = []
    page = opens(site.url)
    expect(page.locator("#scale-hint")).to_contain_text("at most 16")
    page.route("**/workers*", lambda route: held.append(route) if route.request.method == "PUT" else route.continue_())
    page.locator("#scale-count").fill("12")
    page.locator("#scale-try").click()
    page.locator("#scale-count").fill("13")
    page.locator("#scale-try").click()
    release(page, held)
    release(page, held)
    expect(page.locator("#scale-result")).to_be_visible()
    page.locator("#scale-apply").click()
    expect(page.locator("#scale")).to_have_js_property("inert", True)
    release(page, held)
    expect(page.locator("#scale-outcome")).to_have_text("In force now.")
    expect(page.locator("#scale")).to_have_js_property("inert", False)
    asked = [(path, body["workers"]) for _, path, body in site.double.asked]
    assert asked == [("/workers?dry_run", 12), ("/workers?dry_run", 13), ("/workers", 13)]


def release(page: Page, held: list[Route]) -> None:
    """Lets the request go on that is held, or will be."""
    while not held:
        page.wait_for_timeout(10)
    held.pop().continue_()


def test_a_key_is_sent_where_people_say_and_left_to_the_grouping_again(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    expect(page.locator("#override-hint")).to_have_text("from 0 to 7")
    expect(page.locator("#override-empty")).to_be_visible()
    page.locator("#override-try").click()
    expect(page.locator("#override-outcome")).to_have_text("Name the key.")
    page.locator("#override-key").fill("a/b?")
    page.locator("#override-try").click()
    expect(page.locator("#override-outcome")).to_have_text("Say to which worker.")
    page.locator("#override-worker").fill("3")
    page.locator("#override-minutes").fill("1.5")
    page.locator("#override-try").click()
    expect(page.locator("#override-outcome")).to_contain_text("Nothing is changed yet.")
    page.locator("#override-apply").click()
    expect(page.locator("#override-outcome")).to_have_text("In force now.")
    body = {"action": "pin", "seconds": 90, "worker": 3}
    assert site.double.asked == [("PUT", "/overrides/a/b%3F?dry_run", body), ("PUT", "/overrides/a/b%3F", body)]
    expect(page.locator("#override-list li")).to_contain_text("a/b? pinned to one worker (3), until")
    expect(page.locator("#changes")).to_contain_text("Single keys")
    page.get_by_role("button", name="End the override of a/b?").click()
    expect(page.locator("#override-outcome")).to_have_text("Returned to the grouping.")
    expect(page.locator("#override-list li")).to_have_count(0)
    assert site.double.asked[-1] == ("DELETE", "/overrides/a/b%3F", None)


def test_any_key_of_the_table_can_be_sent_elsewhere(serve: Callable[[Double], Site], opens: Opens) -> None:
    double = Double(keys=STRANGE)
    double.fill(20)
    page = opens(serve(double).url)
    for rank in range(len(STRANGE)):
        page.locator("#keys-rows button").nth(rank).click()
        page.locator("#explain-override").click()
        expect(page.locator("#override-action")).to_be_focused()
        page.locator("#override-action").select_option("split")
        expect(page.locator("#override-worker")).to_be_hidden()
        page.locator("#override-try").click()
        page.locator("#override-apply").click()
        expect(page.locator("#override-list li")).to_have_count(rank + 1)
    assert set(double.overrides) == {named(key)["id"] for key in STRANGE}
    assert double.asked[-1][2] == {"action": "split", "seconds": 3600}


def test_what_is_compared_can_be_chosen(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    page.get_by_text("Choose what is compared").click()
    choices = page.get_by_role("group", name="Groupings")
    expect(choices.get_by_label("w-choices")).to_be_checked()
    choices.get_by_label("mixed").check()
    choices.get_by_label("key", exact=True).uncheck()
    page.get_by_role("button", name="Compare these").click()
    expect(page.locator("#shadow-outcome")).to_contain_text("Done")
    body = site.double.asked[-1][2]
    assert [one["name"] for one in body["groupings"]] == ["pkg", "w-choices", "mixed"] and body["sample"] == 0.1


def test_the_grouping_is_chosen_beside_the_comparison_that_recommends_one(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    form = page.locator("#shadow #grouping")
    names = form.get_by_label("Grouping", exact=True).locator("option")
    expect(names.first).to_have_text("dkg, in force")
    expect(names.nth(1)).to_have_text("w-choices, λ 1.01")
    form.get_by_role("button", name="Try").click()
    expect(page.locator("#grouping-outcome")).to_have_text("Nothing differs from the settings in force.")
    form.get_by_label("Grouping", exact=True).select_option(label="w-choices, λ 1.01")
    expect(page.locator("#grouping-hint")).to_have_text("the grouping w-choices")
    expect(form.get_by_role("button", name="Apply")).to_be_disabled()
    form.get_by_role("button", name="Try").click()
    expect(page.locator("#grouping-result")).to_contain_text("Hot keys")
    body = {"name": "w-choices", "settings": {}, "observe_only": False}
    assert site.double.asked[-1] == ("PUT", "/grouping?dry_run", body) and site.double.grouping_name == "dkg"
    form.get_by_role("button", name="Apply").click()
    expect(page.locator("#grouping-outcome")).to_have_text("In force now.")
    expect(names.first).to_have_text("w-choices, in force")
    assert site.double.asked[-1] == ("PUT", "/grouping", body)


def test_a_grouping_that_is_only_observed_can_be_put_in_force(site: Site, opens: Opens) -> None:
    site.double.observe_only = True
    page = opens(site.url)
    expect(page.get_by_label("Observe only")).to_be_checked()
    page.get_by_label("Observe only").press("Space")  # a click misses what moves while the page is filled
    expect(page.get_by_label("Observe only")).not_to_be_checked()
    page.locator("#grouping-try").click()
    page.locator("#grouping-apply").click()
    expect(page.locator("#grouping-observe-field")).to_be_hidden()
    assert site.double.observe_only is False


def test_live_is_no_green_light_while_one_worker_has_most(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    green = page.locator("#pill .dot").evaluate("dot => getComputedStyle(dot).backgroundColor")
    site.double.push(busiest=6.0)
    expect(page.locator("#pill")).to_have_text("Live, λ 6.00")
    expect(page.locator("#banners")).to_contain_text("The busiest worker has 6.00 times its due share")
    assert page.locator("#pill .dot").evaluate("dot => getComputedStyle(dot).backgroundColor") != green
    expect(page.locator("body")).not_to_have_attribute("data-stale", "true")
    site.double.push()
    expect(page.locator("#pill")).to_have_text("Live")
    expect(page.locator("#banners")).not_to_contain_text("busiest")


def test_plans_that_moved_nothing_are_not_among_the_last_changes(site: Site, opens: Opens) -> None:
    site.double.plan(moved=3)
    epoch = len(site.double.plans)
    page = opens(site.url)
    for _ in range(30):
        site.double.plan(moved=0)
    site.double.plan(moved=2)
    expect(page.locator("#changes")).to_contain_text(f"Plan of epoch {epoch + 31}")
    told = page.locator("#changes").inner_text()
    assert f"Plan of epoch {epoch}" in told and "0 moved" not in told
    assert "Thresholds" in told, "what somebody has set is not pushed out"


def test_a_history_that_comes_late_hides_nothing_that_came_before_it(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    expect(page.locator("#pill")).to_have_text("Live")
    held: list[tuple[Route, APIResponse]] = []
    page.route("**/plan/history*", lambda route: held.append((route, route.fetch())))
    site.double.control("thresholds", {"check_interval": 60}, {"check_interval": 30})
    expect(page.locator("#changes")).to_contain_text("check_interval 60 → 30")
    while not held:
        page.evaluate("() => new Promise(requestAnimationFrame)")
    site.double.plan(moved=4)
    newest = f"Plan of epoch {len(site.double.plans)}"
    expect(page.locator("#changes")).to_contain_text(newest)
    for route, answer in held:
        with page.expect_response("**/plan/history*"):
            route.fulfill(response=answer)
    site.double.control("workers", {"workers": 4}, {"workers": 5})
    expect(page.locator("#changes")).to_contain_text("workers 4 → 5")
    assert newest in page.locator("#changes").inner_text()


def test_the_axis_of_the_loads_has_a_unit(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    expect(page.locator("#load-chart")).to_contain_text("weight per 10 s")
    expect(page.locator("#load-readout")).to_contain_text("with a weight of")


def test_a_token_is_asked_for_when_it_is_wanted(site: Site, opens: Opens) -> None:
    site.double.token = "right"
    page = opens(site.url)
    page.get_by_label("check_interval").fill("20")
    page.locator("#thresholds-try").click()
    page.get_by_label("Bearer token").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#token-outcome")).to_have_text("The previous token was refused.")
    page.get_by_label("Bearer token").fill("right")
    page.keyboard.press("Enter")
    expect(page.locator("#thresholds-apply")).to_be_enabled()
    page.locator("#thresholds-apply").click()
    expect(page.locator("#thresholds-outcome")).to_have_text("In force now.")
    assert (
        page.evaluate("Object.keys(localStorage).length + Object.keys(sessionStorage).length + document.cookie.length")
        == 0
    )


def test_without_a_token_nothing_is_changed(site: Site, opens: Opens) -> None:
    site.double.token = "right"
    page = opens(site.url)
    page.locator("#scale-count").fill("3")
    page.locator("#scale-try").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#scale-outcome")).to_have_text("a bearer token is needed")
    expect(page.locator("#scale-apply")).to_be_disabled()


def test_closed_reads_are_opened_by_the_token(site: Site, opens: Opens) -> None:
    site.double.token, site.double.reads_closed = "right", True
    page = opens(site.url, live=False)
    expect(page.locator("#pill")).to_have_text("Token wanted")
    page.get_by_role("button", name="Enter token").click()
    page.get_by_label("Bearer token").fill("right")
    page.keyboard.press("Enter")
    expect(page.locator("#pill")).to_have_text("Live")


# states


def test_no_traffic_is_said(serve: Callable[[Double], Site], opens: Opens) -> None:
    double = Double(workers=4, keys=[])
    double.traffic, double.shadows = 0.0, []
    double.push()
    page = opens(serve(double).url)
    expect(page.locator("#lambda")).to_have_text("–")
    for text in (
        "No traffic yet: λ needs events.",
        "No events in the last interval.",
        "No keys yet: they come with the first events.",
    ):
        expect(page.get_by_text(text)).to_be_visible()
    expect(page.locator("#shadow-empty")).to_be_visible()
    expect(page.locator("#changes-empty")).to_be_visible()


def test_before_the_first_interval_it_is_measuring(serve: Callable[[Double], Site], opens: Opens) -> None:
    double = Double(workers=4)
    page = opens(serve(double).url, live=False)
    expect(page.locator("#lambda-words")).to_have_text("Measuring: λ is known when the first interval is over.")
    expect(page.locator("#lambda")).to_have_text("–")
    double.fill(3)
    expect(page.locator("#lambda")).to_have_text(f"{double.interval().lambda_:.2f}")
    expect(page.locator("#lambda-words")).not_to_contain_text("Measuring")


def test_one_worker_and_no_hot_key_is_said(serve: Callable[[Double], Site], opens: Opens) -> None:
    double = Double(workers=1)
    double.hot_width = 1
    double.fill(3)
    page = opens(serve(double).url)
    expect(page.locator("#lambda-words")).to_have_text("One worker: λ is always 1.")
    expect(page.locator("#load-readout")).to_contain_text("nothing to balance")
    expect(page.locator("#keys-title")).to_have_text("Largest keys")
    expect(page.locator("#keys-empty")).to_have_text("No key is hot now; these are the largest.")


def test_a_start_and_a_lost_store_are_said(site: Site, opens: Opens) -> None:
    site.double.status, site.double.degraded, site.double.observe_only = "starting", True, True
    page = opens(site.url, live=False)
    expect(page.locator(".banner")).to_have_count(3)
    expect(page.locator("#banners")).to_contain_text(
        "This replica is starting: it is catching up (120,000 events to go)."
    )
    expect(page.locator("#banners")).to_contain_text(
        re.compile(r"The shared store \(redis\) can't be reached since .*connection refused\.")
    )
    expect(page.locator("#banners")).to_contain_text("Observe only")
    expect(page.locator("#pill")).to_have_text("Live, store away")


def test_stale_numbers_are_said(site: Site, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.clock.install()
    page.goto(site.url)
    expect(page.locator("#pill")).to_have_text("Live")
    # The kept intervals come one by one: one that came after the jump would be a new number.
    all_kept = re.compile("(L[^L]*){19}")
    expect(page.locator("#timeline-chart path.line.after")).to_have_attribute("d", all_kept)
    page.clock.fast_forward("00:30")
    expect(page.locator("#pill")).to_have_text("Stale")
    expect(page.locator(".banner")).to_contain_text("No new numbers for")
    expect(page.locator("#announcer")).to_contain_text("No new numbers for")
    site.double.push()
    expect(page.locator("#pill")).to_have_text("Live")
    expect(page.locator("#announcer")).to_have_text("Live again.")
    context.close()


def test_it_comes_back_when_the_router_does(site: Site, opens: Opens) -> None:
    page = opens(site.url)
    site.stop()
    expect(page.locator("#pill")).to_have_text("No connection")
    expect(page.locator(".banner")).to_contain_text("trying again. What you see is from")
    site.double.push()
    site.start()
    expect(page.locator("#pill")).to_have_text("Live")
    expect(page.locator(".banner")).to_have_count(0)
    expect(page.locator("#timeline-chart path.line.after")).to_have_attribute("d", re.compile("(L[^L]*){20}"))


def test_the_stream_is_the_same_however_it_is_cut(value_page: Page) -> None:
    stream = 'retry: 50\n\n: beat\n\nid: 3\nevent: interval\ndata: {"a":\ndata: 1}\n\n'
    stream += "data: é\r\n\r\nevent:plan\rdata:x\r\rrest"
    code = """async (stream) => {
        const { parser } = await import("/assets/stream.js");
        const cut = (size) => {
            const found = [], take = parser((block) => found.push(block));
            for (let at = 0; at < stream.length; at += size) take(stream.slice(at, at + size));
            return JSON.stringify(found);
        };
        return [cut(stream.length), ...Array.from({ length: stream.length }, (_, size) => cut(size + 1))];
    }"""
    whole, *cuts = value_page.evaluate(code, stream)
    assert set(cuts) == {whole}
    events = [(block["event"], block["data"], block["id"], block["retry"]) for block in json.loads(whole)]
    assert events[0] == ("message", None, None, 50)
    assert events[2:] == [("interval", '{"a":\n1}', "3", None), ("message", "é", None, None), ("plan", "x", None, None)]


# the router's own app


@pytest.fixture
def router() -> Iterator[RouterSite]:
    site = RouterSite()
    yield site
    site.stop()


def test_it_works_with_the_router_itself(router: RouterSite, opens: Opens) -> None:
    page = opens(router.url, live=False)
    expect(page.locator("#pill")).to_have_text("Starting")
    expect(page.locator("#facts")).to_contain_text("level-fill · 4 workers")
    expect(page.locator("#filling-keys tr").first).to_contain_text("key-1000")
    expect(page.locator("#keys-rows button").first).to_have_text("key-1000")
    expect(page.locator("#keys-rows tr.hot").first).to_contain_text("4all 4")
    assert drawn(page, "#load-chart path.within").count("M") == 4
    page.locator("#keys-rows button").first.click()
    expect(page.locator("#explain-facts")).to_contain_text(re.compile(r"one of \d(, \d){3}"))
    page.keyboard.press("Escape")
    page.get_by_label("eps", exact=True).fill("0.03")
    page.locator("#thresholds-try").click()
    expect(page.locator("#thresholds-outcome")).to_contain_text("Nothing is changed yet.")
    page.locator("#thresholds-apply").click()
    expect(page.locator("#thresholds-outcome")).to_have_text("In force now.")
    expect(page.locator("#changes")).to_contain_text("eps")
    page.locator("#scale-count").fill("6")
    page.locator("#scale-try").click()
    page.locator("#scale-apply").click()
    expect(page.locator("#facts")).to_contain_text("6 workers")
    page.get_by_text("Choose what is compared").click()
    page.get_by_role("group", name="Groupings").get_by_label("pkg").check()
    page.get_by_role("button", name="Compare these").click()
    expect(page.locator("#shadow-rows tr")).to_have_count(2)
    expect(page.locator("#spaces-empty, #spaces li").first).to_be_visible()
    assert not violations(page)


# size


def test_ten_thousand_keys_and_two_hundred_workers_cost_little(
    serve: Callable[[Double], Site], opens: Opens, capsys: pytest.CaptureFixture[str]
) -> None:
    double = Double(workers=200, keys=keys_of(10_000))
    double.traffic = 2e6
    double.fill(200)
    page = opens(serve(double).url)
    page.locator("#load-details summary").click()
    expect(page.locator("#load-rows tr")).to_have_count(201)
    page.evaluate(WATCH)
    for _ in range(10):
        double.keys[9:20] = double.keys[10:20] + double.keys[9:10]
        double.push()
        expect(page.locator("#rate-words")).to_have_text(f"{double.interval().events / 1e6:.0f}M since the start")
    durations = sorted(page.evaluate("performance.getEntriesByName('update').map((one) => one.duration)"))
    touched, nodes = page.evaluate("[touched, document.querySelectorAll('*').length]")
    changed, added = touched["changed"] / 10, touched["added"] / 10
    with capsys.disabled():
        times = f"median {durations[len(durations) // 2]:.1f} ms, slowest {durations[-1]:.1f} ms"
        sys.stdout.write(f"\npage: {times}; {nodes} elements, per interval {changed:.0f} changed, {added:.0f} added\n")
    assert nodes < 4000
    assert changed < 2000 and added < 100
