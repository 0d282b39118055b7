"""How members compare, by what calls of the same keys have cost at each of them."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_app.moves import HOME
from keygrouping_app.planning import PLANNERS, Held, Report, plan_of
from keygrouping_app.slowness import Slowness

SECONDS = 0.005


def heard(*told: tuple[str, dict[str, float]], events: int = 400, now: float = 0.0) -> Slowness:
    """Of what members have told: seconds of an event by key."""
    found = Slowness()
    found.note({member: [(key, cost, events) for key, cost in costs.items()] for member, costs in told}, now)
    return found


def test_members_without_a_key_in_common_are_alike() -> None:
    found = heard(("one", {"a": 1.0}), ("two", {"b": 9.0}))
    assert found.of(["one", "two", "three"], 0.0) == {"one": 1.0, "two": 1.0, "three": 1.0}


def test_a_member_is_slow_by_keys_that_cost_more_there() -> None:
    found = heard(("one", {"a": 3.0, "b": 0.3}), ("two", {"a": 1.0, "c": 7.0}), ("three", {"b": 0.1, "c": 7.0}))
    slowness = found.of(["one", "two", "three"], 0.0)
    assert slowness["one"] / slowness["two"] == pytest.approx(3, rel=0.05)
    assert slowness["two"] == pytest.approx(slowness["three"])


def test_few_events_prove_nothing_and_some_only_much() -> None:
    told = ("one", {"a": 1.5}), ("two", {"a": 1.0})
    assert set(heard(*told, events=19).of(["one", "two"], 0.0).values()) == {1.0}
    assert set(heard(*told, events=20).of(["one", "two"], 0.0).values()) == {1.0}
    assert len(set(heard(*told, events=400).of(["one", "two"], 0.0).values())) == 2
    much = ("one", {"a": 9.0}), ("two", {"a": 1.0})
    assert len(set(heard(*much, events=20).of(["one", "two"], 0.0).values())) == 2
    assert set(heard(*much, events=19).of(["one", "two"], 0.0).values()) == {1.0}


def test_little_difference_is_none_however_sure_it_is() -> None:
    keys = [f"k{n}" for n in range(50)]
    found = heard(("one", dict.fromkeys(keys, 1.0)), ("two", dict.fromkeys(keys, 1.15)))
    assert set(found.of(["one", "two"], 0.0).values()) == {1.0}


def test_what_is_old_or_of_a_member_that_is_gone_does_not_count() -> None:
    told = ("one", {"a": 4.0}), ("two", {"a": 1.0}), ("three", {"a": 1.0})
    found = heard(*told)
    assert found.of(["two", "three"], 0.0) == {"two": 1.0, "three": 1.0}
    assert set(found.of(["one", "two"], 600.0).values()) != {1.0}
    assert set(found.of(["one", "two"], 601.0).values()) == {1.0}


def test_what_has_changed_for_all_keys_is_no_difference_of_members() -> None:
    others = [f"k{number}" for number in range(12)]
    found = heard(("one", {"a": 1.0, **dict.fromkeys(others, 1.0)}), ("two", {"d": 2.0}))
    slow = [(key, 5.0, 500) for key in others]
    # The key has been at the other member since.
    found.note({"one": [*slow, ("a", 1.0, 400)], "two": [("d", 10.0, 500), ("a", 5.0, 100)]}, 10.0)
    assert set(found.of(["one", "two"], 10.0).values()) == {1.0}
    found.note({"one": [], "two": [("a", 15.0, 500)]}, 20.0)
    slowness = found.of(["one", "two"], 20.0)
    assert slowness["two"] / slowness["one"] == pytest.approx(3, rel=0.1)


def test_what_a_key_has_cost_is_remembered_when_its_former_member_does_not_tell_any_more() -> None:
    found = heard(("one", {"a": 3.0}), ("two", {"a": 1.0}))
    found.note({"one": [], "two": [("a", 1.0, 500)]}, 60.0)
    slowness = found.of(["one", "two"], 60.0)
    assert slowness["one"] / slowness["two"] == pytest.approx(3, rel=0.1)


def test_a_hundred_members_with_a_thousand_keys_each_are_not_too_many() -> None:
    names = [f"m{number}" for number in range(100)]
    told = {name: [(f"{name}-k{n}", 1.0, 400) for n in range(1000)] for name in names}
    for number in range(20):  # a key of each of some went to the slow one
        told["m99"].insert(0, (f"m{number}-k0", 4.0, 100))
    found = Slowness()
    found.note(told, 0.0)
    slowness = found.of(names, 0.0)
    assert slowness["m99"] / slowness["m50"] > 3
    for second in range(1, 3000):  # a member is another one each time that it begins
        found.note({"m0": [("a", 1.0, 400)], f"n{second}": [("a", 1.0, 400)]}, float(second))
    assert len(found._shared["a"]) <= 602  # of ten minutes


def test_a_few_events_beside_many_are_few() -> None:
    chance, wrong = random.Random(3), 0
    for _ in range(300):
        found = Slowness()
        found.note(
            {
                name: [("a", math.exp(chance.gauss(0, 1 / math.sqrt(events))), events)]
                for name, events in (("one", 500), ("two", 20))
            },
            0.0,
        )
        wrong += set(found.of(["one", "two"], 0.0).values()) != {1.0}
    assert wrong <= 15


def test_no_cost_is_too_large_or_too_small() -> None:
    found = heard(("one", {"a": 5e-324, "b": math.inf, "c": math.nan, "d": 0.0}), ("two", dict.fromkeys("abcd", 1e308)))
    assert found.of(["one", "two"], 0.0) == {"one": pytest.approx(1 / 16), "two": pytest.approx(16)}


@given(
    st.lists(st.floats(-1.5, 1.5), min_size=2, max_size=6),
    st.lists(st.floats(-2, 2), min_size=4, max_size=30),
    st.randoms(use_true_random=False),
)
def test_what_members_and_keys_have_is_told_apart(
    members: list[float], keys: list[float], chance: random.Random
) -> None:
    names = [f"m{number}" for number in range(len(members))]
    told: dict[str, list[tuple[str, float, int]]] = {name: [] for name in names}
    for number, key in enumerate(keys):
        # Each member and the next one have a key in common.
        for place in {number % len(members), (number + 1) % len(members), chance.randrange(len(members))}:
            told[names[place]].append((f"k{number}", math.exp(key + members[place]), 400))
    found = Slowness()
    found.note(told, 0.0)
    slowness = found.of(names, 0.0)
    assert set(slowness) == set(names)
    common = len(keys) >= len(members)
    for one, two in zip(range(len(members) - 1), range(1, len(members)), strict=True):
        if common:
            apart = math.log(slowness[names[one]] / slowness[names[two]])
            assert apart == pytest.approx(members[one] - members[two], abs=0.25)


class Group:
    """Members of several speeds, keys by Zipf's law that have calls in proportion, and plans of where they are."""

    def __init__(self, slowness: list[float], planner: str) -> None:
        self._chance = random.Random(1)
        self._true, self._planner = slowness, planner
        weights = [1 / (rank + 1) ** 0.8 for rank in range(200)]
        able = sum(16 / each for each in slowness)
        self._rates = [0.7 * able * weight / sum(weights) / SECONDS for weight in weights]
        self._homes = [self._chance.randrange(len(slowness)) for _ in weights]
        self._at = [*self._homes]
        self._slowness, self._now = Slowness(), 0.0

    def plan(self) -> tuple[float, int]:
        """The largest part of a member's lanes that is busy, over what is the least; and how many keys move then."""
        held: list[dict[str, Held]] = [{} for _ in self._true]
        for key, (rate, member) in enumerate(zip(self._rates, self._at, strict=True)):
            cost = SECONDS * self._true[member] * math.exp(self._chance.gauss(0, 0.05))
            held[member][f"k{key}"] = Held(rate * cost, 100, cost, int(30 * rate))
        reports = [
            Report(f"m{member}", 16.0, held=keys, places=self._places(member), slots=[member])
            for member, keys in enumerate(held)
        ]
        told = {each.member: [(key, one.cost, one.events) for key, one in each.held.items()] for each in reports}
        self._slowness.note(told, self._now)
        plan = plan_of(reports, self._planner, self._slowness.of([each.member for each in reports], self._now))
        for name, target in plan.targets.items():
            key = int(name[1:])
            self._at[key] = self._homes[key] if target == HOME else target
        self._now += 10.0
        return max(sum(each.seconds for each in keys.values()) / 16 for keys in held) / 0.7, len(plan.targets)

    def _places(self, member: int) -> dict[str, int]:
        return {
            f"k{key}": HOME if at == home else at
            for key, (home, at) in enumerate(zip(self._homes, self._at, strict=True))
            if home == member
        }


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(
    "slowness",
    [[1.0] * 6, [4.0, *[1.0] * 5], [2.0, 2.0, 2.0, 1.0, 1.0, 1.0], [*[1.0] * 5, 0.25], [3.0, 1.0]],
    ids=["alike", "one is slow", "half are slow", "one is fast", "two"],
)
def test_members_of_any_speed_have_as_much_to_do_after_some_plans_and_keys_stay_then(
    slowness: list[float], planner: str
) -> None:
    group = Group(slowness, planner)
    told = [group.plan() for _ in range(16)]
    assert max(busy for busy, _ in told[4:]) <= 1.15
    assert sum(moved for _, moved in told[8:]) <= 16  # as costs vary; MinTable makes all of its table again then
