"""Cooperative rebalancing as members play it: no partition is given to another before it is let go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import orjson
import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_app.kafka.assignor import Claim, CooperativeAssignor, Copies, Place, shares

TOPICS = frozenset({"a", "b"})
PLACES = [*(("a", number) for number in range(5)), *(("b", number) for number in range(3))]
NO_SLOTS = {"x": 0, "y": 0}


class Group:
    """Members that come, go, and take their time to give up. So many standby copies have the states of `a` and slots.

    `slots`: of each of two topics apart.
    """

    def __init__(self, standbys: int = 0, slots: Mapping[str, int] = NO_SLOTS) -> None:
        self.members: dict[str, Claim] = {}
        self.number = 0
        self.standbys = {"a": standbys, "y": standbys}
        self.slots = {topic: [(topic, number) for number in range(slots[topic])] for topic in "xy"}
        self.places = [*PLACES, *self.slots["x"], *self.slots["y"]]

    def come(self, member: str) -> None:
        self.members.setdefault(member, Claim(TOPICS | self.slots.keys(), standbys=self.standbys))

    def rebalance(self) -> None:
        self.number += 1
        for member, share in shares(self.places, self.members, self.slots.keys()).items():
            before = self.members[member]
            assert share.gives_up <= share.gets
            self.members[member] = replace(
                before,
                number=self.number,
                holds=frozenset(share.gets),
                leaving=frozenset(share.gives_up),
                follows=frozenset(share.follows),
            )
            assert before.holds <= share.gets
            assert before.leaving <= share.gives_up
        held = [place for claim in self.members.values() for place in claim.holds]
        assert len(held) == len(set(held))
        assert not any(claim.holds & claim.follows for claim in self.members.values())

    def let_go(self, member: str) -> None:
        claim = self.members[member]
        self.members[member] = replace(claim, holds=claim.holds - claim.leaving, leaving=frozenset())

    def let_all_go(self) -> None:
        for _ in range(3):
            for member in self.members:
                self.let_go(member)
            self.rebalance()


STEPS = st.lists(st.tuples(st.sampled_from(["come", "go", "let go"]), st.integers(0, 5)), max_size=25)


SLOTS = st.fixed_dictionaries({"x": st.integers(0, 9), "y": st.integers(0, 9)})


@given(STEPS, st.integers(0, 3), SLOTS)
def test_no_partition_has_two_owners_and_in_the_end_all_are_shared_evenly(
    steps: list[tuple[str, int]], standbys: int, slots: dict[str, int]
) -> None:
    """Those of each topic apart by themselves, the others by themselves, and all together."""
    group = Group(standbys, slots)
    group.come("m9")
    group.rebalance()
    for what, number in steps:
        member = f"m{number}"
        if what == "come":
            group.come(member)
        elif what == "go":
            group.members.pop(member, None)
        elif member in group.members:
            group.let_go(member)
        group.rebalance()
    group.let_all_go()
    for places in (PLACES, group.slots["x"], group.slots["y"], group.places):
        counts = [len(claim.holds.intersection(places)) for claim in group.members.values()]
        assert sum(counts) == len(places)
        # One that has more of one topic may keep more of the next one: that is a move less.
        assert max(counts) - min(counts) <= (2 if places is group.places and min(counts) else 1)
    assert not any(claim.leaving for claim in group.members.values())
    copies = Counter(place for claim in group.members.values() for place in claim.follows)
    wanted = min(standbys, len(group.members) - 1)
    assert copies == {place: wanted for place in group.places if place[0] in "ay" and wanted}
    before = dict(group.members)
    group.rebalance()
    assert {member: claim.holds for member, claim in group.members.items()} == {
        member: claim.holds for member, claim in before.items()
    }
    assert {member: claim.follows for member, claim in group.members.items()} == {
        member: claim.follows for member, claim in before.items()
    }, "what need not move stays"


@given(st.integers(2, 7), st.integers(1, 3), st.data())
def test_who_has_a_copy_takes_over_and_all_have_their_even_share(
    members: int, standbys: int, data: st.DataObject
) -> None:
    """A member has at most one more partition than another, so those of one that dies may be more than fit."""
    group = Group(standbys)
    for number in range(members):
        group.come(f"m{number}")
    group.rebalance()
    group.let_all_go()
    dead = group.members.pop(data.draw(st.sampled_from(sorted(group.members))))
    before = dict(group.members)
    group.rebalance()
    counts = [len(claim.holds) for claim in group.members.values()]
    assert max(counts) - min(counts) <= 1
    for place in dead.holds:
        (owner,) = (member for member, claim in group.members.items() if place in claim.holds)
        copies = [member for member, claim in before.items() if place in claim.follows]
        assert owner in copies or all(len(group.members[each].holds) >= len(PLACES) // (members - 1) for each in copies)


def test_each_of_two_members_takes_over_what_it_has_a_copy_of() -> None:
    places = [("a", number) for number in range(6)]
    y, z = frozenset(places[2:4]), frozenset(places[4:])
    claims = {
        member: Claim(TOPICS, 3, holds, frozenset(), frozenset(follows), {"a": 1})
        for member, holds, follows in [("y", y, [places[1], places[4]]), ("z", z, [places[0], places[2]])]
    }
    found = shares(places, claims)
    assert found["y"].gets == y | {places[1]} and found["z"].gets == z | {places[0]}
    assert found["y"].follows == z | {places[0]} and found["z"].follows == y | {places[1]}


def test_who_is_to_have_a_partition_keeps_its_copy_until_the_owner_has_let_go() -> None:
    places = [("a", number) for number in range(4)]
    claims = {
        "x": Claim(TOPICS, 3, frozenset(places), standbys={"a": 1}),
        "y": Claim(TOPICS, 3, follows=frozenset(places), standbys={"a": 1}),
    }
    found = shares(places, claims)
    assert len(found["x"].gives_up) == 2 and found["y"].follows == set(places)
    claims["x"] = replace(claims["x"], holds=claims["x"].holds - found["x"].gives_up)
    assert shares(places, claims)["y"].gets == found["x"].gives_up


def test_members_of_an_older_version_follow_nothing() -> None:
    leader = CooperativeAssignor((), cast(Copies, SimpleNamespace(places=set(), wanted={"a": 1})))
    old = orjson.dumps({"number": 1, "holds": [("a", 0)], "leaving": []})
    members = {"old": ConsumerProtocolMemberMetadata(0, ["a"], old), "new": leader.metadata(["a"])}
    cluster = cast(ClusterMetadata, SimpleNamespace(partitions_for_topic={"a": range(2)}.get))
    found = leader.assign(cluster, members)
    leader.on_assignment(found["new"])
    assert leader.follows == {("a", 0)}
    assert orjson.loads(found["old"].user_data)["follows"] == [], "it would not know what to do"


def test_members_that_cannot_take_the_topic_apart_have_no_part_in_its_even_share() -> None:
    slots = [("app.overflow", number) for number in range(6)]
    leader = CooperativeAssignor(["app.overflow"])
    holds = {"new": [], "old": [], "newer": slots}
    members = {
        member: ConsumerProtocolMemberMetadata(
            0, topics, orjson.dumps({"number": 3, "holds": [*held, (topics[0], place)], "leaving": []})
        )
        for place, (member, held) in enumerate(holds.items())
        for topics in [["a"] if member == "old" else ["a", "app.overflow"]]
    }
    cluster = cast(ClusterMetadata, SimpleNamespace(partitions_for_topic={"a": range(3), "app.overflow": range(6)}.get))
    found = leader.assign(cluster, members)
    gives_up = orjson.loads(found["newer"].user_data)["gives_up"]
    assert len(gives_up) == 3, "half of six, as the third member can't have any"


@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 12), st.integers(0, 9))
def test_nothing_moves_to_and_fro_where_members_have_not_asked_for_the_same_topics(
    members: int, older: int, more: int, slots: int
) -> None:
    """As while an app that gets a topic is updated, one member after another."""
    places = [*PLACES[:3], *(("b", number) for number in range(more)), *(("x", number) for number in range(slots))]
    claims = {f"m{number}": Claim(frozenset("ax" if number < older else "abx")) for number in range(older + members)}
    group = Group()
    group.members, group.places, group.slots = claims, places, {"x": places[3 + more :]}
    for _ in range(12):
        group.rebalance()
        for member in group.members:
            group.let_go(member)
    before = dict(group.members)
    group.rebalance()
    assert all(claim.holds == before[member].holds for member, claim in group.members.items())
    assert sum(len(claim.holds) for claim in group.members.values()) == len(places)


@pytest.mark.parametrize("victim", range(8))
def test_who_has_copies_of_a_slots_states_takes_it_over_beside_a_partition_of_the_input(victim: int) -> None:
    group = Group(1, NO_SLOTS | {"y": 8})
    group.places = [*(("a", number) for number in range(8)), *group.slots["y"]]
    for number in range(8):
        group.come(f"m{number}")
        group.rebalance()
        group.let_all_go()
    dead = group.members.pop(f"m{victim}")
    copies = {place: member for member, claim in group.members.items() for place in claim.follows}
    group.rebalance()
    owners = {place: member for member, claim in group.members.items() for place in claim.holds}
    assert {place[0] for place in dead.holds} == {"a", "y"}
    assert {place: owners[place] for place in dead.holds} == {place: copies[place] for place in dead.holds}


def test_slots_go_to_members_without_a_partition_of_the_input_first() -> None:
    """As when a member alone, which has all of both, gets seven others: each of eight has something to do."""
    group = Group(slots=NO_SLOTS | {"x": 3})
    group.places = [*PLACES[:5], *group.slots["x"]]
    for number in range(8):
        group.come(f"m{number}")
        group.rebalance()
        group.let_all_go()
    assert [len(claim.holds) for claim in group.members.values()] == [1] * 8


def test_what_need_not_move_stays() -> None:
    held = frozenset(PLACES[:4]), frozenset(PLACES[4:])
    claims = {"x": Claim(TOPICS, 3, held[0]), "y": Claim(TOPICS, 3, held[1]), "z": Claim(TOPICS)}
    found = shares(PLACES, claims)
    assert {member: len(share.gives_up) for member, share in found.items()} == {"x": 1, "y": 1, "z": 0}
    assert found["z"].gets == set()


def test_who_was_away_too_long_loses_what_others_hold_by_now() -> None:
    one: frozenset[Place] = frozenset(PLACES)
    claims = {"awake": Claim(TOPICS, 7, one), "was away": Claim(TOPICS, 6, one)}
    found = shares(PLACES, claims)
    assert found["was away"].gets == set()
    assert found["awake"].gets == set(PLACES)
