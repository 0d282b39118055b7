"""What the account of states that move finds: a state that an event should not have met."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from .entry import Entry
from .load import REJECTED
from .moved_checker import MovedChecker

COUNT = 2 * REJECTED
KEYS = (b"k0", b"k1", b"k2")
EVENTS = [Entry(0, n, n, KEYS[n % 3], json.dumps({"id": n}).encode()) for n in range(COUNT)]
ROUTED = [event for n, event in enumerate(EVENTS) if n % REJECTED]
DEAD = [event for n, event in enumerate(EVENTS) if n % REJECTED == 0]


def counted() -> list[Entry]:
    """The number of each event in its key's state."""
    found, told = Counter[bytes | None](), []
    for n, event in enumerate(ROUTED):
        found[event.key] += 1
        value = {"id": json.loads(event.value or b"")["id"], "partition": 0, "events": found[event.key]}
        told.append(Entry(0, n, 0, event.key, json.dumps(value).encode()))
    return told


def judged(states: list[Entry], routed: list[Entry] = ROUTED) -> list[str]:
    """What is told, each thing once."""
    checker = MovedChecker()
    checker.sent(range(COUNT))
    checker.take_events(EVENTS)
    checker.take_dead_letters(DEAD)
    checker.take_routed(routed)
    checker.take_counted(states)
    wrong, missing = checker.judge()
    checker.write_off(missing)
    assert checker.judge() == ([], [])
    return [f"{each.topic}: {each.fault}: {list(each.ids) or each.detail}" for each in [*wrong, *missing]]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert judged(counted()) == []


def test_an_event_that_meets_an_older_state_a_new_one_or_that_of_another_key_is_found() -> None:
    right = counted()
    told = json.loads(right[30].value or b"")
    older, new = (
        replace(right[30], value=json.dumps(told | {"events": number}).encode()) for number in (told["events"] - 1, 1)
    )
    elsewhere = replace(right[30], value=json.dumps(told | {"partition": 1}).encode())
    for wrong in (older, new, elsewhere, replace(right[30], key=b"k9")):
        assert "another state" in judged([*right[:30], wrong, *right[31:]])[0]


@pytest.mark.parametrize("place", [5, -1])
def test_an_event_that_is_in_no_state_or_in_two_is_found(place: int) -> None:
    right = counted()
    lost = [each for each in right if each is not right[place]]
    assert judged(lost)[-1] == "counted: lost: 1 events that were passed on are in no state"
    assert "another state" in judged([*right, right[place]])[0]


def test_events_are_lost_as_elsewhere() -> None:
    assert judged(counted(), ROUTED[:3] + ROUTED[4:]) == ["routed: lost: [4]"]
