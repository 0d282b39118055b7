"""Laws of plans and statistics that come from elsewhere: whatever is in them, they are taken or refused, no more."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from keygrouping.grouping import Grouping, Planned, create, shared_settings
from keygrouping.hashing import hash_keys

WORKERS = 6
POISON: list[Any] = [
    None,
    True,
    -1,
    WORKERS,
    2**31,
    2**62,
    -(2**63),
    2**64,
    1e308,
    -0.5,
    "x",
    "7",
    [],
    {},
    [[1, 2]],
    [None],
    [2**62] * 4,
    [1e308] * WORKERS,
    [-1] * WORKERS,
    ["a"],
]
"""In place of any member, or of an item of a list."""

SHARED = ["level-fill", "dkg", "w-choices", "mixed", "distribution-aware"]
"""One of each kind: those of a kind read their plans and statistics by the same code."""


def new(name: str) -> Any:
    grouping = create(name, WORKERS, dict(shared_settings(name) or {}))
    assert isinstance(grouping, Planned) and grouping.shared
    return grouping


def route(grouping: Grouping, now: float = 1.0) -> None:
    random = np.random.default_rng(5)
    keys = [b"hot"] * 400 + [b"%d" % key for key in random.integers(0, 300, 800)]
    for moment in (now, now + 30):
        routed = grouping.route_batch(hash_keys(keys, grouping.seeds), None, moment)
        assert routed.min() >= 0 and routed.max() < WORKERS


def poisoned(value: Any, depth: int = 0) -> Iterator[Any]:
    """The value with one thing in it that shouldn't be there, in all ways."""
    if isinstance(value, dict):
        for name in value:
            yield {other: value[other] for other in value if other != name}
            for bad in POISON:
                yield {**value, name: bad}
            for inner in poisoned(value[name], depth + 1):
                yield {**value, name: inner}
    elif isinstance(value, list) and depth < 4:
        yield value[:-1]
        yield [*value, *value[-1:]]
        yield [*value, 1]
        yield value[::-1]
        for bad in POISON if value else []:
            yield [bad, *value[1:]]
            yield [*value[:-1], bad]
        if value and isinstance(value[0], list):
            yield from ([inner, *value[1:]] for inner in poisoned(value[0], depth + 1))


def read(data: Any) -> Any:
    """As it is read from JSON."""
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("name", SHARED)
def test_a_poisoned_plan_is_refused_or_routes_to_workers_that_there_are(name: str) -> None:
    source = new(name)
    route(source)
    plan = read(source.plan([source.statistics(61.0)]))
    refused = 0
    for bad in poisoned(plan):
        receiver = new(name)
        try:
            receiver.apply(bad)
        except ValueError:
            refused += 1
            assert receiver.epoch == 0
        route(receiver)
    assert refused > 100


@pytest.mark.parametrize("name", SHARED)
def test_poisoned_statistics_are_refused_or_give_a_plan_that_can_be_followed(name: str) -> None:
    source, other = new(name), new(name)
    for grouping in (source, other):
        route(grouping)
    good = other.statistics(61.0)
    planned = 0
    for bad in poisoned(read(source.statistics(61.0))):
        receiver = new(name)
        try:
            plan = receiver.plan([good, bad])
        except ValueError:
            continue
        try:
            receiver.apply(read(plan))
        except ValueError:
            continue
        planned += 1
        route(receiver)
    assert planned
