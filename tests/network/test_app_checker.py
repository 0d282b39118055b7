"""What the account of an app's events finds: each that is lost, doubled, changed, out of order or in a wrong place."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from .app_checker import AppChecker
from .entry import Entry
from .load import REJECTED

COUNT = 2 * REJECTED


EVENTS = [Entry(0, n, n, b"k%d" % (n % 3) if n % 10 else None, json.dumps({"id": n}).encode()) for n in range(COUNT)]
ROUTED = [event for n, event in enumerate(EVENTS) if n % REJECTED]
DEAD = [event for n, event in enumerate(EVENTS) if n % REJECTED == 0]


def judged(
    events: list[Entry] = EVENTS, routed: list[Entry] = ROUTED, dead: list[Entry] = DEAD, exactly_once: bool = True
) -> list[str]:
    """What is told, each thing once."""
    checker = AppChecker(exactly_once)
    checker.sent(range(COUNT))
    checker.take_events(events)
    checker.take_routed(routed)
    checker.take_dead_letters(dead)
    wrong, missing = checker.judge()
    checker.write_off(missing)
    assert checker.judge() == ([], [])
    return [f"{each.topic}: {each.fault}: {each.ids}" for each in (*wrong, *missing)]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_nothing_is_found_where_nothing_is_wrong(exactly_once: bool) -> None:
    assert judged(exactly_once=exactly_once) == []


def test_what_is_lost_is_found() -> None:
    assert judged(EVENTS[:4] + EVENTS[5:], ROUTED[:3] + ROUTED[4:]) == ["events: lost: (4,)"]
    assert judged(routed=ROUTED[:3] + ROUTED[4:]) == ["routed: lost: (4,)"]
    assert judged(dead=DEAD[1:]) == ["routed: lost: (0,)"]


def test_what_is_there_twice_is_found_unless_it_may_be() -> None:
    assert judged(routed=[*ROUTED, ROUTED[5]]) == ["routed: doubled: (6,)"]
    assert judged(dead=[*DEAD, DEAD[1]]) == [f"dead-letters: doubled: ({REJECTED},)"]
    assert judged(routed=[*ROUTED, ROUTED[5]], dead=[*DEAD, DEAD[1]], exactly_once=False) == []
    assert judged(events=[*EVENTS, EVENTS[5]], exactly_once=False) == ["events: doubled: (5,)"]


def test_what_is_changed_or_elsewhere_is_found() -> None:
    assert judged(routed=[replace(ROUTED[0], timestamp=9), *ROUTED[1:]]) == ["routed: changed: (1,)"]
    assert judged(routed=ROUTED[1:], dead=[*DEAD, ROUTED[0]]) == ["dead-letters: belongs in routed: (1,)"]
    late = [*ROUTED, replace(ROUTED[0], key=b"other")]
    assert judged(routed=late, exactly_once=False) == ["routed: changed: (1,)"]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_key_out_of_order_is_found(exactly_once: bool) -> None:
    """1 and 4 have the same key; 2 has another one."""
    one, two, three, four, *others = ROUTED
    assert judged(routed=[two, one, three, four, *others], exactly_once=exactly_once) == []
    assert judged(routed=[four, two, three, one, *others], exactly_once=exactly_once) == ["routed: out of order: (1,)"]
    if not exactly_once:
        assert judged(routed=[one, two, three, four, one, four, *others], exactly_once=False) == []
