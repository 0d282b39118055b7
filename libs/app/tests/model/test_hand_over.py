"""The hand-over of keys with state keeps every event, once and in order, whoever dies when; and each rule is needed."""

from __future__ import annotations

from typing import Any

import pytest

from .hand_over import Grain, Protocol, World, verify

BACK = ((0, 1, 0),)
"""One key that moves to the other slot and back."""
CROSSING = ((0, 1), (1, 0))
"""Two keys that change places."""


@pytest.mark.parametrize(
    "world",
    [
        World(inputs=((0,), (0,)), paths=((0, 1),), grain=Grain.REQUESTS),
        World(inputs=((0, 0), (0,)), paths=BACK),
        World(inputs=((0,), (1,)), paths=CROSSING),
        World(inputs=((0, 1), (0,)), paths=CROSSING, grain=Grain.SHARED),
    ],
    ids=["each request", "there and back", "two keys", "two keys and a third event"],
)
def test_every_event_is_in_state_and_output_once_and_no_key_is_held_for_ever(world: World) -> None:
    found = verify(world)
    print(found)  # noqa: T201
    assert not found.broken, str(found)
    assert found.ends


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "world",
    [
        World(inputs=((0, 0), (0,)), paths=((0, 1),), grain=Grain.REQUESTS),
        World(inputs=((0, 1), ()), paths=CROSSING),
    ],
    ids=["each request", "two keys in one input"],
)
def test_the_same_in_larger_worlds(world: World) -> None:
    found = verify(world)
    print(found)  # noqa: T201
    assert not found.broken, str(found)


REQUESTS: dict[str, Any] = {"inputs": ((0,), (0,)), "paths": ((0, 1),), "grain": Grain.REQUESTS}
UNITS: dict[str, Any] = {"inputs": ((0, 0), (0,)), "paths": BACK}
ORDERS: dict[str, Any] = {"inputs": ((0, 0, 1), (0,)), "paths": ((0, 1), (1,)), "room": 3}


@pytest.mark.parametrize(
    ("rule", "world", "law"),
    [
        ("fences_first", UNITS, "committed twice"),
        ("waits_until_stable", REQUESTS, "committed twice"),
        ("id_per_partition", UNITS, "two owners that can commit"),
        ("ends_epoch", UNITS, "committed twice"),
        ("outputs_in_transaction", REQUESTS, "written twice"),
        ("state_in_transaction", UNITS, "is nowhere"),
        ("tombstone", UNITS, "in the changelog of slot 0 and on its way to slot 1"),
        ("all_releases", UNITS, "without the key's state"),
        ("keeps_releases", UNITS, "no end can be reached"),
        ("commits_plan", UNITS, "without the key's state"),
        ("one_move_at_a_time", UNITS, "without the key's state"),
        ("inputs_hold", UNITS, "no end can be reached"),
        ("gaps", ORDERS, "is lost"),
    ],
)
def test_a_protocol_without_one_rule_is_broken_and_the_trace_tells_how(
    rule: str, world: dict[str, Any], law: str
) -> None:
    found = verify(World(**world, protocol=Protocol(**{rule: False})))
    print(found)  # noqa: T201
    assert law in found.broken, str(found)
    assert found.trace


def test_a_slot_that_holds_events_must_know_why() -> None:
    found = verify(World(**UNITS, protocol=Protocol(inputs_hold=False, moves_in_events=False)))
    print(found)  # noqa: T201
    assert "without the key's state" in found.broken, str(found)
