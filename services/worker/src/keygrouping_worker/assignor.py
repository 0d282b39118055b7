"""Shares the partitions of `routed` out by the replicas' ordinals, so that worker w stays where it is.

Kafka's own assignors sort members by ids that change with every restart. Here a member announces its ordinal (the
number of its pod), and partition p goes to the member of rank p % members: evenly, and the same after each restart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

_VERSION = 0


def encode_ordinal(ordinal: int | None) -> bytes:
    """What a member tells the group's leader about itself."""
    return b"" if ordinal is None else str(ordinal).encode()


def decode_ordinal(user_data: bytes | None) -> int | None:
    """The ordinal that a member told, or None: unknown, or a member of another program."""
    return int(user_data) if user_data and user_data.isdigit() and user_data.isascii() else None


def share_out(partitions: Iterable[int], ordinals: Mapping[str, int | None]) -> dict[str, list[int]]:
    """Partitions per member: p goes to rank p % members, members sorted by ordinal.

    Members without an ordinal come last; members of one ordinal (a pod and its successor) by their id.
    """
    ranked = sorted(ordinals, key=lambda member: _rank(ordinals[member], member))
    shares: dict[str, list[int]] = {member: [] for member in ranked}
    for partition in sorted(partitions):
        shares[ranked[partition % len(ranked)]].append(partition)
    return shares


def _rank(ordinal: int | None, member: str) -> tuple[bool, int, str]:
    return (ordinal is None, ordinal or 0, member)


class OrdinalAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """An aiokafka assignor that knows its own replica's ordinal; pass an instance to the consumer."""

    name = "keygrouping-ordinal"

    def __init__(self, ordinal: int | None) -> None:
        self._ordinal = ordinal

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What this member sends when it joins: its topics and its ordinal."""
        return ConsumerProtocolMemberMetadata(_VERSION, sorted(topics), encode_ordinal(self._ordinal))

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """The leader's decision: every member's partitions of every topic that it subscribes to."""
        shares: dict[str, list[tuple[str, list[int]]]] = {member: [] for member in members}
        for topic in sorted({topic for metadata in members.values() for topic in metadata.subscription}):
            ordinals = {
                member: decode_ordinal(metadata.user_data)
                for member, metadata in members.items()
                if topic in metadata.subscription
            }
            partitions: Collection[int] = cluster.partitions_for_topic(topic) or ()
            for member, share in share_out(partitions, ordinals).items():
                shares[member].append((topic, share))
        return {member: ConsumerProtocolMemberAssignment(_VERSION, share, b"") for member, share in shares.items()}

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Nothing to remember: the ordinal says it all."""
