"""The hand-over of keys with state keeps every event, once and in order, whoever dies when; and each rule is needed."""

from __future__ import annotations

import pytest

from .hand_over import HOME, Protocol, World, verify

ON = World(inputs=((0, 0),), paths=(((HOME, 0, 1),),))
"""A key that goes to a slot, and to another one."""
BACK = World(inputs=((0, 0),), paths=(((HOME, 0, HOME),),), slots=1)
"""A key that goes to a slot and home again."""


@pytest.mark.parametrize(
    "world",
    [
        ON,
        BACK,
        World(inputs=((0,), (0,)), paths=(((HOME, 0),), ((HOME, 0),)), slots=1),
        World(inputs=((0, 1),), paths=(((HOME, 0), (HOME, 0)),), slots=1),
    ],
    ids=["to a slot and on", "there and back", "two inputs, one slot", "two keys of one input"],
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
        World(inputs=((0, 0), (0,)), paths=(((HOME, 0, 1),), ((HOME, 1),))),
        World(inputs=((0, 1),), paths=(((HOME, 0, HOME), (HOME, 1, 0)),)),
    ],
    ids=["two inputs, two slots", "two keys that cross"],
)
def test_the_same_in_larger_worlds(world: World) -> None:
    found = verify(world)
    print(found)  # noqa: T201
    assert not found.broken, str(found)


@pytest.mark.parametrize(
    ("rule", "world", "law"),
    [
        ("fences_first", ON, "is in 2 places"),
        ("waits_until_stable", ON, "meets a state of 0 events"),
        ("place_with_state", ON, "is in 2 places"),
        ("holds", ON, "meets a state of None events"),
        ("in_turn", BACK, "is in 2 places"),
        ("answers_with_state", ON, "no end can be reached"),
        ("answers_with_state", BACK, "is in 0 places"),
        ("reads_committed", ON, "meets a state of None events"),
        ("reads_committed", BACK, "is in 2 places"),
        ("tombstone", BACK, "is in 2 places"),
    ],
)
def test_a_protocol_without_one_rule_is_broken_and_the_trace_tells_how(rule: str, world: World, law: str) -> None:
    found = verify(World(world.inputs, world.paths, world.slots, protocol=Protocol(**{rule: False})))
    print(found)  # noqa: T201
    assert law in found.broken, str(found)
    assert found.trace
