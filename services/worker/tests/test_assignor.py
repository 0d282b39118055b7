from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_worker.assignor import OrdinalAssignor, decode_ordinal, encode_ordinal, share_out

members = st.dictionaries(st.text(max_size=5), st.none() | st.integers(0, 20), min_size=1, max_size=12)


class Cluster:
    """The one question that an assignor asks of the cluster's metadata."""

    def __init__(self, **partitions: int) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        count = self._partitions.get(topic)
        return None if count is None else set(range(count))


@given(st.sets(st.integers(0, 63)), members)
def test_every_partition_has_exactly_one_owner(partitions: set[int], ordinals: dict[str, int | None]) -> None:
    shares = share_out(partitions, ordinals)
    assert sorted(p for share in shares.values() for p in share) == sorted(partitions)
    assert set(shares) == set(ordinals)


@given(st.integers(0, 64), members)
def test_shares_differ_by_at_most_one(partitions: int, ordinals: dict[str, int | None]) -> None:
    sizes = [len(share) for share in share_out(range(partitions), ordinals).values()]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 16), st.permutations(range(8)))
def test_replica_n_of_m_owns_the_partitions_of_rank_n_whatever_the_member_ids(partitions: int, ids: list[int]) -> None:
    shares = share_out(range(partitions), {f"member-{ids[n]}": n for n in range(8)})
    for n in range(8):
        assert shares[f"member-{ids[n]}"] == list(range(n, partitions, 8))


def test_members_without_ordinal_come_last_and_twins_go_by_their_id() -> None:
    shares = share_out(range(4), {"z": 0, "b": 7, "a": 7, "0": None})
    assert shares == {"z": [0], "a": [1], "b": [2], "0": [3]}


@given(st.none() | st.integers(0, 10**6))
def test_an_ordinal_survives_its_journey(ordinal: int | None) -> None:
    assert decode_ordinal(encode_ordinal(ordinal)) == ordinal


@given(st.binary(max_size=8))
def test_foreign_user_data_is_no_fault(data: bytes) -> None:
    found = decode_ordinal(data)
    assert found is None or found >= 0


def test_the_assignor_speaks_the_consumer_protocol() -> None:
    joined = {f"m{n}": OrdinalAssignor(2 - n).metadata({"routed"}) for n in range(3)}
    carried = {m: ConsumerProtocolMemberMetadata.decode(data.encode()) for m, data in joined.items()}
    shares = OrdinalAssignor(0).assign(Cluster(routed=7), carried)
    owned = {m: [tp.partition for tp in share.partitions()] for m, share in shares.items()}
    assert owned == {"m2": [0, 3, 6], "m1": [1, 4], "m0": [2, 5]}


def test_a_topic_that_does_not_exist_yet_is_shared_out_as_nothing() -> None:
    joined = {"m": OrdinalAssignor(0).metadata({"routed"})}
    assert OrdinalAssignor(0).assign(Cluster(), joined)["m"].partitions() == []
