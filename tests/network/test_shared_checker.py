"""What the account of shared events finds: each that is missing, doubled or in the state of another key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from .entry import Entry
from .load import REJECTED
from .shared_checker import SharedChecker

COUNT = 2 * REJECTED
KEYS = (b"k0", b"k1", b"k2", None)


EVENTS = [Entry(0, n, n, KEYS[n % 4], json.dumps({"id": n}).encode()) for n in range(COUNT)]
ROUTED = [event for n, event in enumerate(EVENTS) if n % REJECTED]
DEAD = [event for n, event in enumerate(EVENTS) if n % REJECTED == 0]
GIVEN = EVENTS[:COUNT:5]
HELD: dict[str, list[int]] = {
    (key or b"").decode(): [n for n in range(number, COUNT, 4) if n % REJECTED] for number, key in enumerate(KEYS)
}
"""The events that count in the state of each key."""


def state(ids: Iterable[int]) -> bytes:
    """What an app keeps of them."""
    numbers = list(ids)
    return json.dumps({"events": len(numbers), "ids": sum(numbers), "squares": sum(n * n for n in numbers)}).encode()


def changelog(held: dict[str, list[int]]) -> list[Entry]:
    """Two states of each key, the last of which is the one that is held."""
    sets = [(key, part) for key, ids in held.items() for part in (ids[:1], ids)]
    return [Entry(0, n, 0, json.dumps(key).encode(), state(ids)) for n, (key, ids) in enumerate(sets)]


def results(held: dict[str, list[int]]) -> list[Entry]:
    """The same, published."""
    return [replace(entry, key=json.loads(entry.key or b"").encode()) for entry in changelog(held)]


def judged(
    held: dict[str, list[int]] = HELD,
    routed: list[Entry] = ROUTED,
    dead: list[Entry] = DEAD,
    given: list[Entry] = GIVEN,
    published: list[Entry] | None = None,
) -> list[str]:
    """What is told, each thing once."""
    checker = SharedChecker()
    checker.sent(range(COUNT))
    checker.take_events(EVENTS)
    checker.take_dead_letters(dead)
    checker.take_routed(routed)
    checker.take_overflow(given)
    checker.take_states(changelog(held))
    checker.take_published(results(held) if published is None else published)
    wrong, missing = checker.judge()
    checker.write_off(missing)
    # States are judged when nothing else is missing.
    more, late = checker.judge()
    checker.write_off(late)
    assert checker.judge() == ([], [])
    found = [*wrong, *missing, *more, *late]
    return [f"{each.topic}: {each.fault}: {list(each.ids) or each.detail.rpartition(': ')[2]}" for each in found]


def with_key(key: str, ids: list[int]) -> dict[str, list[int]]:
    """States, one of which has other events."""
    return HELD | {key: ids}


def test_nothing_is_found_where_nothing_is_wrong_in_whatever_order() -> None:
    assert judged() == []
    assert judged(routed=ROUTED[::-1], given=[]) == []


def test_an_event_that_is_missing_in_a_state_is_found() -> None:
    without = [n for n in HELD["k1"] if n != 41]
    told = "lost: event 41 is missing"
    assert judged(with_key("k1", without)) == [f"published: {told}", f"states: {told}"]
    assert judged(published=results(with_key("k1", without))) == [f"published: {told}"]
    kept = {key: ids for key, ids in HELD.items() if key}
    assert judged(kept) == [f"{topic}: lost: {len(HELD[''])} events are missing" for topic in ("published", "states")]


@pytest.mark.parametrize("again", [41, REJECTED], ids=["doubled", "rejected"])
def test_an_event_that_counts_once_too_often_is_found(again: int) -> None:
    told = f"wrong: event {again} is too many"
    assert judged(with_key("k1", [*HELD["k1"], again])) == [f"published: {told}", f"states: {told}"]


def test_an_event_in_the_state_of_another_key_is_found() -> None:
    elsewhere = with_key("k1", [n for n in HELD["k1"] if n != 41]) | {"k2": [*HELD["k2"], 41]}
    assert judged(elsewhere) == [
        "published: wrong: event 41 is too many",
        "states: wrong: event 41 is too many",
        "published: lost: event 41 is missing",
        "states: lost: event 41 is missing",
    ]
    assert judged(HELD | {"no key": [41, 45]})[0] == "published: wrong: 2 events are too many"


def test_one_event_in_place_of_another_is_found() -> None:
    instead = [n for n in HELD["k1"] if n != 41] + [45]
    assert [each.rpartition(": ")[0] for each in judged(with_key("k1", instead))] == ["published: lost", "states: lost"]


def test_a_state_that_is_published_again_is_found() -> None:
    once = results(HELD)
    assert [each.partition(": ")[2] for each in judged(published=[*once, once[-1]])] == [
        f"not more than before:  has {len(HELD[''])} events in published-0@7, and had {len(HELD[''])} before"
    ]


def test_events_are_lost_doubled_or_given_away_twice_as_elsewhere() -> None:
    assert judged(routed=ROUTED[:3] + ROUTED[4:]) == ["routed: lost: [4]"]
    assert judged(dead=DEAD[1:]) == ["routed: lost: [0]"]
    assert judged(routed=[*ROUTED, ROUTED[5]]) == ["routed: doubled: [6]"]
    assert judged(given=[*GIVEN, GIVEN[2]]) == ["overflow: doubled: [10]"]


def test_what_was_given_away_and_is_missing_is_to_come_from_there() -> None:
    checker = SharedChecker()
    checker.sent(range(COUNT))
    checker.take_events(EVENTS)
    checker.take_overflow([replace(EVENTS[5], partition=3, offset=7)])
    places = {finding.ids[0]: str(finding.place) for finding in checker.judge()[1]}
    assert (places[5], places[6]) == ("overflow-3@7", "events-0@6")
