"""Idle lanes of others: what each slot may be given, by lanes, costs, bursts and rooms."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from keygrouping_app.spare import BURST, Bucket, SpareLanes

COST = 0.01


def plenty(_: int) -> int:
    return 1_000_000


def dealt(spare: SpareLanes, now: float, events: int = 1000, cost: float = COST, part: float = 1.0) -> Counter[int]:
    return Counter(spare.deal(events, cost, part, plenty, now))


def test_a_bucket_fills_by_its_rate_up_to_the_most() -> None:
    bucket = Bucket(rate=10.0, filled=0.0)
    assert [bucket.fill(now, 5.0) for now in (0.0, 0.25, 0.5, 100.0)] == [0.0, 2.5, 5.0, 5.0]


def test_slots_are_filled_as_their_lanes_have_room() -> None:
    spare = SpareLanes()
    spare.hear({0: 0.25, 1: 1.0, 2: 0.0}, 0.0)
    assert Counter(spare.deal(15, COST, 1.0, {0: 3, 1: 100, 2: 9}.__getitem__, 0.0)) == {1: 15}  # the emptiest first
    assert Counter(spare.deal(1000, COST, 1.0, {0: 3, 1: 100, 2: 9}.__getitem__, 0.0)) == {0: 3, 1: 5}
    assert dealt(spare, 0.0) == {0: 2}


def test_what_is_dealt_comes_up_again_by_the_idle_lanes() -> None:
    spare = SpareLanes()
    spare.hear({0: 0.5}, 0.0)
    assert dealt(spare, 0.0) == {0: 10}
    assert not dealt(spare, 0.0)
    assert dealt(spare, 0.125) == {0: 6}
    assert dealt(spare, 60.0) == {0: 10}


def test_what_is_not_written_may_be_given_again() -> None:
    spare = SpareLanes()
    spare.hear({0: 0.5}, 0.0)
    slots = spare.deal(1000, COST, 1.0, plenty, 0.0)
    spare.give_back(slots[:4], COST)
    assert dealt(spare, 0.0) == {0: 4}


def test_long_calls_fill_each_idle_lane_once() -> None:
    spare = SpareLanes()
    spare.hear({0: 3.0, 1: 0.5}, 0.0)
    assert dealt(spare, 0.0, cost=2.0) == {0: 3, 1: 1}
    assert dealt(spare, 1.0, cost=2.0) == {0: 1}
    assert dealt(spare, 4.0, cost=2.0) == {0: 3, 1: 1}


def test_busy_lanes_are_given_nothing() -> None:
    spare = SpareLanes()
    spare.hear({0: 0.5, 1: 0.5}, 0.0)
    spare.hear({0: 0.0, 1: 0.5}, 0.1)
    assert dealt(spare, 0.2) == {1: 10}
    spare.hear({1: 0.5}, 0.3)
    assert set(dealt(spare, 0.4)) == {1}


def test_who_has_a_part_of_what_waits_has_that_part_of_idle_lanes() -> None:
    spare = SpareLanes()
    spare.hear({0: 1.0}, 0.0)
    assert dealt(spare, 0.0, part=0.25) == {0: 5}
    assert dealt(spare, 0.08, part=0.25) == {0: 2}


@given(
    heard=st.lists(st.dictionaries(st.integers(0, 9), st.floats(0.01, 16), min_size=10), min_size=1, max_size=6),
    events=st.integers(0, 400),
    gap=st.floats(0, 2),
    cost=st.floats(0.001, 3),
)
def test_no_slot_gets_more_than_its_lanes_do_and_a_burst(
    heard: list[dict[int, float]], events: int, gap: float, cost: float
) -> None:
    spare, now, given_to = SpareLanes(), 0.0, Counter[int]()
    for lanes in heard:
        spare.hear(lanes, now)
        slots = spare.deal(events, cost, 1.0, lambda slot: 10 * slot, now)
        assert len(slots) <= events
        assert all(count <= 10 * slot for slot, count in Counter(slots).items())
        given_to.update(slots)
        now += gap
    for slot, count in given_to.items():
        highest = max(lanes[slot] for lanes in heard)
        burst = max(cost, highest * max(BURST, cost))
        assert count * cost <= burst + highest * now + 1e-6
