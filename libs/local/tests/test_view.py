"""Laws of what a run shows."""

import dataclasses
import io

from keygrouping.measure import Distribution
from keygrouping.partial import Result
from keygrouping_local.comparison import Comparison, Row
from keygrouping_local.observer import HotKey, Snapshot
from keygrouping_local.view import (
    About,
    LiveView,
    PlainView,
    comparison_table,
    line_of,
    moment,
    number,
    page,
    view_for,
)
from keygrouping_service.kafka.progress import END, MIN_TIME
from rich.console import Console

ABOUT = About("flights dkg", "127.0.0.1:9092", ".data/logs")


def snapshot() -> Snapshot:
    distribution = Distribution(3)
    distribution.add(0, b"AA", 30.0, 30)
    distribution.add(1, b"AA", 60.0, 60)
    return Snapshot(
        events=90,
        events_per_second=1234.5,
        router_lag=7,
        worker_lag=8,
        late=1,
        dead_letters=2,
        final_until=1_357_084_800_000,
        results=5,
        run=distribution.run(),
        hot=(HotKey("AA", 2, 0.5),),
        latest=(Result(b"\xffAA", 0, 1, 90, 90, True, {"mean": 1234.5678, "sum": None}),),
    )


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=140, height=40)


def output(of: Console) -> str:
    assert isinstance(of.file, io.StringIO)
    return of.file.getvalue()


def test_the_page_has_all_that_matters() -> None:
    target = console(terminal=True)
    with LiveView(target) as view:
        view.show(ABOUT, snapshot(), "http://127.0.0.1:8080")
        view.say("a line")
    text = output(target)
    for part in ("flights dkg", "1,234", "7 + 8", "2.000", "33.3%", "66.7%", "0.0%", "50.0%", "1,234.57", "8080"):
        assert part in text
    assert "2013-01-02" in text


def test_only_workers_in_use_count_and_by_what_they_can_do() -> None:
    shown = dataclasses.replace(snapshot(), capacities=(1.0, 2.0))
    assert shown.loads == (30.0, 60.0) and shown.lambda_ == 1.0
    assert "λ 1.000" in line_of(shown)
    target = console(terminal=False)
    target.print(page(ABOUT, shown, None))
    assert "66.7%" in output(target) and " 0.0%" not in output(target)


def test_keys_do_nothing_to_the_terminal() -> None:
    nasty = "[red]\x1b]0;x\x07\u202e\x00"
    result = Result(nasty.encode(), 0, 1, 90, 90, True, {"[b]": [nasty], "text": nasty})
    shown = dataclasses.replace(snapshot(), hot=(HotKey(nasty, 2, 0.5),), latest=(result,))
    target = Console(file=io.StringIO(), force_terminal=False, width=200)
    target.print(page(ABOUT, shown, None))
    assert not {"\x1b", "\x07", "\u202e", "\x00"} & set(output(target))
    assert output(target).count(r"[red]\x1b]0;x\x07\u202e\x00") == 3


def test_the_page_of_a_run_that_has_seen_nothing_is_calm() -> None:
    nothing = Distribution(2)
    empty = Snapshot(0, 0.0, 0, 0, 0, 0, MIN_TIME, 0, nothing.run())
    target = console(terminal=True)
    with LiveView(target) as view:
        view.show(ABOUT, empty, None)
    assert "starting" in output(target)


def test_without_a_terminal_lines_come_at_intervals_and_without_codes() -> None:
    target = console(terminal=False)
    with PlainView(target) as view:
        view.show(ABOUT, snapshot(), None)
        view.show(ABOUT, snapshot(), None)
    assert output(target) == line_of(snapshot()) + "\n"


def test_without_a_terminal_the_addresses_are_told_once_they_are_known() -> None:
    target = console(terminal=False)
    with PlainView(target) as view:
        for url in (None, "http://127.0.0.1:8080", "http://127.0.0.1:8080"):
            view.show(ABOUT, snapshot(), url)
    (told,) = [line for line in output(target).splitlines() if "API" in line]
    assert "http://127.0.0.1:8080" in told and ABOUT.broker in told and ABOUT.logs in told


def test_what_has_no_api_is_not_called_one() -> None:
    target = console(terminal=False)
    with PlainView(target) as view:
        view.show(dataclasses.replace(ABOUT, serves="Metrics"), snapshot(), "http://127.0.0.1:8080")
    assert "Metrics http://127.0.0.1:8080" in output(target)
    assert "API" not in output(target)


def test_the_console_decides_on_the_view() -> None:
    assert isinstance(view_for(console(terminal=True)), LiveView)
    assert isinstance(view_for(console(terminal=False)), PlainView)


def test_moments_and_numbers_are_for_people() -> None:
    assert [moment(time) for time in (MIN_TIME, END, 0)] == ["-", "the end", "1970-01-01 00:00:00"]
    assert [number(value) for value in (None, 1234567, 0.125, "Infinity")] == ["-", "1,234,567", "0.12", "Infinity"]
    assert number([{"value": "AA"}]) == '[{"value":"AA"}]'
    assert len(number({"bins": [[0.5, 1]] * 64})) == 41


def test_a_difference_stands_out_in_the_comparison() -> None:
    target = console(terminal=True)
    target.print(comparison_table(Comparison([Row("windows", 10, 9, 1), Row("mean", 9, 9, 0, 2.5e-12)])))
    assert "\x1b[31m" in output(target)
    assert "2.5e-12" in output(target)
