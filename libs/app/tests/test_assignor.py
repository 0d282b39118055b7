"""Cooperative rebalancing as members play it: no partition is given to another before it is let go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import orjson
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_app.kafka.assignor import Claim, CooperativeAssignor, Place, shares

TOPICS = frozenset({"a", "b"})
PLACES = [*(("a", number) for number in range(5)), *(("b", number) for number in range(3))]


class Group:
    """Members that come, go, and take their time to give up."""

    def __init__(self) -> None:
        self.members: dict[str, Claim] = {}
        self.number = 0

    def rebalance(self) -> None:
        self.number += 1
        for member, share in shares(PLACES, self.members).items():
            before = self.members[member]
            assert share.gives_up <= share.gets
            self.members[member] = Claim(TOPICS, self.number, frozenset(share.gets), frozenset(share.gives_up))
            assert before.holds <= share.gets
            assert before.leaving <= share.gives_up
        held = [place for claim in self.members.values() for place in claim.holds]
        assert len(held) == len(set(held))

    def let_go(self, member: str) -> None:
        claim = self.members[member]
        self.members[member] = Claim(TOPICS, claim.number, claim.holds - claim.leaving)


@given(st.lists(st.tuples(st.sampled_from(["come", "go", "let go"]), st.integers(0, 5)), max_size=25))
def test_no_partition_has_two_owners_and_in_the_end_all_are_shared_evenly(steps: list[tuple[str, int]]) -> None:
    group = Group()
    group.members["m9"] = Claim(TOPICS)
    group.rebalance()
    for what, number in steps:
        member = f"m{number}"
        if what == "come":
            group.members.setdefault(member, Claim(TOPICS))
        elif what == "go":
            group.members.pop(member, None)
        elif member in group.members:
            group.let_go(member)
        group.rebalance()
    for _ in range(3):
        for member in group.members:
            group.let_go(member)
        group.rebalance()
    counts = [len(claim.holds) for claim in group.members.values()]
    assert sum(counts) == len(PLACES)
    assert max(counts) - min(counts) <= 1
    assert not any(claim.leaving for claim in group.members.values())


def test_members_that_cannot_take_the_topic_apart_have_no_part_in_its_even_share() -> None:
    slots = [("app.overflow", number) for number in range(6)]
    leader = CooperativeAssignor("app.overflow")
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
