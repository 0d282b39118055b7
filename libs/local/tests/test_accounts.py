"""Laws of the accounts of a run: what was read is sent or refused, what was sent is used, late or refused."""

import dataclasses
import io

import pytest
from keygrouping_local.accounts import Accounts, Refusal, add_lines
from keygrouping_local.comparison import Comparison, Row
from keygrouping_local.view import accounts_table
from rich.console import Console

GOOD = Accounts(
    read=10,
    sent=7,
    refused_by_producer=3,
    events=7,
    late=1,
    used=4,
    refusals=[
        Refusal("producer", "invalid-time", 3, "a.csv:2: field 'at' holds no time: '\x1b[31m[bold]\u202e'"),
        Refusal("router", "no-key", 2, "events-0 at offset 4: the record has no key"),
    ],
)


def test_sums_that_add_up_have_no_fault() -> None:
    assert GOOD.faults == []
    assert GOOD.advice is None


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"read": 11}, "lines read: 11, but sent or refused: 10"),
        ({"sent": 8, "read": 11}, "events sent: 8, but in the topic: 7"),
        ({"refused_by_producer": 4, "read": 11}, "lines refused: 4, but in dead-letters: 3"),
        ({"used": 5}, "events: 7, but used, late or refused: 8"),
    ],
)
def test_whatever_is_lost_or_there_twice_is_a_fault(change: dict[str, int], fault: str) -> None:
    assert dataclasses.replace(GOOD, **change).faults == [fault]  # type: ignore[arg-type]


def test_where_workers_read_the_events_their_refusals_count() -> None:
    refusals = [dataclasses.replace(each, stage=each.stage.replace("router", "worker")) for each in GOOD.refusals]
    combined = dataclasses.replace(GOOD, refusals=refusals, reader="worker")
    assert combined.faults == []
    assert dataclasses.replace(combined, reader="router").faults == ["events: 7, but used, late or refused: 5"]


def test_when_nothing_was_used_the_most_frequent_reason_says_what_to_do() -> None:
    refused = dataclasses.replace(GOOD, used=0)
    assert refused.advice is not None
    assert refused.advice.startswith("nothing was used: 3 of 10 are refused for invalid-time; name the format of the ")
    assert "--time-format" in refused.advice
    assert Accounts(0, 0, 0, 0, 0, 0).advice == "nothing was used, as the input holds no events: is it the right file?"
    assert "late" in (Accounts(2, 2, 0, 2, 2, 0).advice or "")


def test_dead_letters_of_the_producer_are_among_those_of_the_comparison() -> None:
    comparison = Comparison([Row("windows", 1, 1, 0), Row("dead-letters", 2, 2, 0)])
    add_lines(comparison, GOOD)
    assert comparison.rows == [Row("windows", 1, 1, 0), Row("dead-letters", 5, 5, 0)]
    assert comparison.equal
    add_lines(comparison, dataclasses.replace(GOOD, refused_by_producer=4))
    assert not comparison.equal


def test_the_table_has_every_reason_with_an_example_that_does_nothing_to_the_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=120)
    console.print(accounts_table(GOOD, "a.csv"))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for part in ("invalid-time", "no-key", r"\x1b[31m[bold]\u202e", "events-0 at offset 4", "used"):
        assert part in text
    assert not {"\x1b", "\u202e"} & set(text)
