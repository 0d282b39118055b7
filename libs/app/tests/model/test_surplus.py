"""Surplus loses nothing and never overfills a slot; it keeps no order."""

from __future__ import annotations

import pytest

from .surplus import Surplus, verify


@pytest.mark.parametrize(
    "world", [Surplus(), Surplus(events=(2, 1), slots=1, exactly_once=False)], ids=["exactly once", "at least once"]
)
def test_no_event_is_lost_and_all_are_handled_in_the_end(world: Surplus) -> None:
    found = verify(world)
    print(found)  # noqa: T201
    assert not found.broken, str(found)
    assert found.ends


@pytest.mark.parametrize(
    ("world", "law"),
    [
        (Surplus(events=(2, 1), exactly_once=False, writes_first=False), "is lost"),
        (Surplus(events=(4, 1), slots=1, hears_first=False), "more open events than it has room for"),
        (Surplus(events=(2, 1), ordered=True), "is handled before event 0"),
    ],
    ids=["offset before event", "a successor that has not heard", "order of a split key"],
)
def test_what_does_not_hold_has_a_trace(world: Surplus, law: str) -> None:
    found = verify(world)
    print(found)  # noqa: T201
    assert law in found.broken, str(found)
    assert found.trace
