"""Cooperative rebalancing over a client that has only the eager protocol.

A member works on while the group rebalances. The leader gives everybody what they hold already, together with what they
are to give up; a partition comes to its next owner only after the one before has ended what runs of it, has committed,
and has joined again without it. So a handler may take longer than every timeout of the group.

What members hold goes with their requests to join, what they are to give up with the answers, as user data (JSON). Each
assignment has a number. A member that was away too long claims what it held under an old number: who holds it under a
newer one keeps it.

States may have standby copies on other members. The leader says who follows the states of which partition, and gives a
partition whose owner has gone to a member that follows them, as long as all get the same number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import orjson
from aiokafka import TopicPartition
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

Place: TypeAlias = "tuple[str, int]"


@dataclass(slots=True)
class Claim:
    """What a member says when it joins: what it holds, what of it it is giving up, and by which assignment.

    `follows`: places whose states it has copies of; `standbys`: how many such copies there are to be, by topic.
    """

    topics: frozenset[str]
    number: int = 0
    holds: frozenset[Place] = frozenset()
    leaving: frozenset[Place] = frozenset()
    follows: frozenset[Place] = frozenset()
    standbys: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Share:
    """What a member is given, what of it it has to give up, and the places whose states it is to follow."""

    gets: set[Place] = field(default_factory=set)
    gives_up: set[Place] = field(default_factory=set)
    follows: set[Place] = field(default_factory=set)


def shares(places: Iterable[Place], claims: Mapping[str, Claim], apart: Set[str] = frozenset()) -> dict[str, Share]:
    """Who gets what: as evenly as possible with few moves; what somebody else holds is not given yet.

    The places of each topic of `apart` are even by themselves, and so are all others together. Where one of these
    groups leaves some members with less than others, the next one makes up for it, so that all is even, too.
    """
    found = {member: Share() for member in claims}
    beside: Counter[str] = Counter()
    for group in _groups(places, claims, apart):
        topics = {topic for topic, _ in group}
        # Who has not asked for it, as members of an older version, has no part in an even share.
        able = {member: claim for member, claim in claims.items() if claim.topics & topics}
        held = _held(group, able)
        target = _targets(group, able, held, beside)
        _share(group, able, held, target, found)
        beside.update(target.values())
    return found


def _groups(places: Iterable[Place], claims: Mapping[str, Claim], apart: Set[str]) -> list[list[Place]]:
    asked = frozenset[str]().union(*(claim.topics for claim in claims.values()))
    wanted = sorted(place for place in places if place[0] in asked)
    groups = [[place for place in wanted if place[0] not in apart]]
    groups += ([place for place in wanted if place[0] == topic] for topic in sorted(apart))
    return [group for group in groups if group]


def _share(
    places: list[Place],
    claims: Mapping[str, Claim],
    held: Mapping[Place, str],
    target: Mapping[Place, str],
    found: Mapping[str, Share],
) -> None:
    for place in places:
        owner = held.get(place)
        if owner is None:
            found[target[place]].gets.add(place)
            continue
        found[owner].gets.add(place)
        if target[place] != owner or place in claims[owner].leaving:
            found[owner].gives_up.add(place)
    for place, member in _standbys_of(places, claims, held, target):
        found[member].follows.add(place)


def _held(places: list[Place], claims: Mapping[str, Claim]) -> dict[Place, str]:
    found: dict[Place, str] = {}
    newest_first = sorted(claims, key=lambda member: (-claims[member].number, member))
    for member in newest_first:
        for place in claims[member].holds:
            found.setdefault(place, member)
    return {place: found[place] for place in places if place in found and place[0] in claims[found[place]].topics}


def _targets(
    places: list[Place], claims: Mapping[str, Claim], held: Mapping[Place, str], beside: Mapping[str, int]
) -> dict[Place, str]:
    """The owner that each place is to have: see `_Division`."""
    division = _Division(places, claims, held, beside)
    division.keep()
    division.give(only_ready=True)
    division.give(only_ready=False)
    return division.target


class _Division:
    """Of places among members, who keep what they hold up to an even share.

    One place above that is for those who are to have the fewest of other groups, `beside`. Who has one already keeps
    it for a difference of one, so that less moves.
    """

    def __init__(
        self, places: list[Place], claims: Mapping[str, Claim], held: Mapping[Place, str], beside: Mapping[str, int]
    ) -> None:
        self._places, self._claims, self._held = places, claims, held
        self._even, self._more = divmod(len(places), len(claims))
        self._slack = int(self._even > 0)  # Nobody has a second one for as long as another has none.
        self._beside = {member: beside.get(member, 0) for member in sorted(claims)}
        self._loads = dict.fromkeys(self._beside, 0)
        self._kept: dict[str, list[Place]] = {member: [] for member in self._beside}
        for place in places:
            if place in held and place not in claims[held[place]].leaving:
                self._kept[held[place]].append(place)
        self.target: dict[Place, str] = {}

    def keep(self) -> None:
        """Leaves each member its even share of what it holds."""
        for number, member in enumerate(sorted(self._kept, key=self._rank)):
            for place in self._kept[member][: self._even + (number < self._more)]:
                self._give(place, member)

    def give(self, only_ready: bool) -> None:
        """Gives all that is left. `only_ready`: to who has a copy of its states, unless others would have less."""
        for place in self._places:
            if place in self.target:
                continue
            able = [
                member
                for member, claim in self._claims.items()
                if place[0] in claim.topics and self._held.get(place) != member
            ]
            if only_ready:
                able = [each for each in able if place in self._claims[each].follows and self._has_room(each)]
            if able or not only_ready:
                self._give(place, self._best(place, able))

    def _give(self, place: Place, member: str) -> None:
        self.target[place] = member
        self._loads[member] += 1

    def _rank(self, member: str) -> tuple[int, int, str]:
        has_more = len(self._kept[member]) > self._even
        return self._beside[member] - self._slack * has_more, -len(self._kept[member]), member

    def _has_room(self, member: str) -> bool:
        if self._loads[member] != self._even:
            return self._loads[member] < self._even
        are_left = sum(load > self._even for load in self._loads.values()) < self._more
        return are_left and self._beside[member] <= min(self._beside.values()) + self._slack

    def _best(self, place: Place, able: list[str]) -> str:
        """Who has least. Who gives it up does not get it back at once; who has too much keeps what others can't take,
        or only if they then had more."""
        owner = self._held.get(place)
        if not able:
            assert owner is not None
            return owner
        best = min(able, key=lambda each: (*self._load(each), each))
        if owner is not None and place in self._kept[owner] and self._load(owner) <= self._load(best):
            return owner
        return best

    def _load(self, member: str) -> tuple[int, int]:
        return self._loads[member], self._beside[member]


def _standbys_of(
    places: list[Place], claims: Mapping[str, Claim], held: Mapping[Place, str], target: Mapping[Place, str]
) -> Iterable[tuple[Place, str]]:
    """Who follows the states of which place: who does already, up to an even share, else who follows the fewest."""
    copies: dict[str, int] = {}
    for claim in claims.values():
        for topic, number in claim.standbys.items():
            copies[topic] = max(number, copies.get(topic, 0))
    able: dict[Place, list[str]] = {}
    for place in places:
        if not copies.get(place[0]):
            continue
        owner, following = held.get(place), target[place]
        members = [member for member, claim in sorted(claims.items()) if place[0] in claim.standbys]
        able[place] = [member for member in members if member not in (owner, following)]
        # It has the place when the owner has let it go, and needs its copy then.
        if owner not in (None, following) and place in claims[following].follows:
            yield place, following
    wanted = {place: min(copies[place[0]], len(members)) for place, members in able.items()}
    most = -(-sum(wanted.values()) // len(claims))
    loads = dict.fromkeys(claims, 0)
    for keeps in (True, False):
        for place, members in able.items():
            stays = [each for each in members if not keeps or (place in claims[each].follows and loads[each] < most)]
            for member in sorted(stays, key=lambda member: (loads[member], member))[: wanted[place]]:
                wanted[place] -= 1
                loads[member] += 1
                members.remove(member)
                yield place, member


class Copies(Protocol):
    """Copies of the states of others' partitions."""

    @property
    def places(self) -> Set[Place]:
        """Those that there are."""

    @property
    def wanted(self) -> Mapping[str, int]:
        """How many copies there are to be of each topic's states that can be kept here."""

    def follow(self, places: set[Place]) -> None:
        """These are to be kept from now on, and no others."""


class CooperativeAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """Of one member: says what it holds, and, if the group's leader, gives shares.

    `holds` and `leaving` are the caller's to keep; `gives_up` and `follows` are set by each assignment. `apart`: see
    `shares`. `copies` tells which copies of states it has, and is to have.
    """

    name = "keygrouping-cooperative"

    def __init__(self, apart: Iterable[str] = (), copies: Copies | None = None) -> None:
        self._apart = frozenset(apart)
        self._copies = copies
        self.number = 0
        self.holds: set[Place] = set()
        self.leaving: set[Place] = set()
        self.gives_up: set[Place] = set()
        self.follows: set[Place] = set()

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What this member says when it joins."""
        data = {
            "number": self.number,
            "holds": sorted(self.holds),
            "leaving": sorted(self.leaving),
            "follows": sorted(self._copies.places) if self._copies else [],
            "standbys": dict(self._copies.wanted) if self._copies else {},
        }
        return ConsumerProtocolMemberMetadata(0, sorted(topics), orjson.dumps(data))

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """What the leader gives to all."""
        claims = {member: _claim(metadata) for member, metadata in members.items()}
        topics = frozenset[str]().union(*(claim.topics for claim in claims.values()))
        places = [(topic, number) for topic in topics for number in cluster.partitions_for_topic(topic) or ()]
        number = 1 + max(claim.number for claim in claims.values())
        found = shares(places, claims, self._apart)
        return {member: _assignment(number, share) for member, share in found.items()}

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Takes note of what this member has to give up."""
        data = orjson.loads(assignment.user_data)
        self.number = data["number"]
        self.gives_up, self.follows = (
            {(topic, partition) for topic, partition in data.get(name, ())} for name in ("gives_up", "follows")
        )


def _claim(metadata: ConsumerProtocolMemberMetadata) -> Claim:
    data: dict[str, Any] = orjson.loads(metadata.user_data)
    # Members of an older version say nothing of standby copies.
    holds, leaving, follows = (
        frozenset((topic, number) for topic, number in data.get(name, ())) for name in ("holds", "leaving", "follows")
    )
    topics = frozenset(metadata.subscription)
    return Claim(topics, data["number"], holds, leaving, follows, data.get("standbys", {}))


def _assignment(number: int, share: Share) -> ConsumerProtocolMemberAssignment:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(share.gets):
        by_topic.setdefault(topic, []).append(partition)
    data = {"number": number, "gives_up": sorted(share.gives_up), "follows": sorted(share.follows)}
    return ConsumerProtocolMemberAssignment(0, sorted(by_topic.items()), orjson.dumps(data))


def places_of(partitions: Iterable[TopicPartition]) -> set[Place]:
    """As plain pairs."""
    return {(tp.topic, tp.partition) for tp in partitions}
