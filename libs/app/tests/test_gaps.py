"""What has ended is told exactly, in as many bytes as a broker takes, and nothing else is believed."""

import asyncio
import base64
import random

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_app.codecs import Topic
from keygrouping_app.events import Record
from keygrouping_app.gaps import MOST_METADATA, Ended, Gaps, GapsError, decode
from keygrouping_app.kafka.partition import Partition


def filled(first: int, steps: list[int], position_after: int = 1) -> tuple[Gaps, list[int]]:
    offsets = [first]
    for step in steps:
        offsets.append(offsets[-1] + step)
    gaps = Gaps(first)
    gaps.take(offsets, offsets[-1] + position_after)
    return gaps, offsets


@given(st.integers(0, 2**40), st.lists(st.integers(1, 300), max_size=80), st.randoms())
def test_what_is_read_back_is_what_has_ended(first: int, steps: list[int], chance: random.Random) -> None:
    gaps, offsets = filled(first, steps)
    order = chance.sample(offsets, len(offsets))
    ended: set[int] = set()
    for offset in order[: chance.randrange(len(order) + 1)]:
        gaps.end([offset])
        ended.add(offset)
    left = [offset for offset in offsets if offset not in ended]
    assert gaps.first == (left[0] if left else offsets[-1] + 1)
    told = decode(gaps.first, gaps.encode())
    assert [offset for offset in offsets if offset >= gaps.first and offset not in told] == left
    assert len(gaps) == len(left)


@given(st.integers(0, 60_000), st.integers(0, 2**32), st.sampled_from([120, 500, MOST_METADATA]))
def test_as_many_as_there_is_room_for_fit_in_whatever_order_they_end(run: int, seed: int, limit: int) -> None:
    gaps, chance = Gaps(0, limit=limit), random.Random(seed)
    gaps.take([0], 1)
    while gaps.position <= run:
        some = range(gaps.position, min(run + 1, gaps.position + gaps.room()))
        gaps.take(some, some.stop)
        for offset in some:
            gaps.end([offset])
    more = range(gaps.position, gaps.position + gaps.room())
    gaps.take(more, more.stop)
    for offset in chance.choice([more, more[::2], chance.sample(more, len(more) // 2)]):
        gaps.end([offset])
    told = decode(gaps.first, gaps.encode())
    assert len(gaps.encode()) <= limit
    assert all((offset in told) != gaps.is_open(offset) for offset in more if offset <= gaps._highest)


@given(
    st.integers(0, 2**32),
    st.sampled_from([120, 500, MOST_METADATA]),
    st.sampled_from([1, 2, 3, 50, 10**4, 10**9]),
    st.booleans(),
)
def test_as_many_as_are_said_to_fit_do_however_far_apart_offsets_are(
    seed: int, limit: int, apart: int, taken_over: bool
) -> None:
    """As where each record has a transaction of its own, or where a topic is compacted."""
    chance = random.Random(seed)
    gaps = Gaps(0, limit=limit)
    ended: set[int] = set()
    for turn in range(6):
        found = [gaps.position]
        for _ in range(chance.choice([1, 30, 3000])):
            found.append(found[-1] + chance.choice([1, 1, chance.randint(1, apart)]))
        fitting = gaps.fitting(found[:-1])
        offsets = found[:fitting]
        gaps.take(offsets, found[fitting])
        chosen = chance.choice([offsets[1:], offsets[1::2], chance.sample(offsets, len(offsets) // 2)])
        gaps.end(chosen)
        ended |= set(chosen)
        metadata = gaps.encode()
        assert not gaps.cut
        assert len(metadata) <= limit
        told = decode(gaps.first, metadata)
        assert all(offset in told for offset in ended if offset > gaps.first)
        if taken_over and turn == 2:
            gaps = Gaps(gaps.first, told, limit)
            left = [offset for offset in told.still_open(gaps.first) if offset == gaps.first or chance.random() < 0.9]
            assert gaps.fitting(left) == len(left)
            gaps.take(left, gaps.known + 1)


def test_records_behind_those_that_fit_are_read_when_others_have_ended() -> None:
    """And it is not said meanwhile that there is room for them."""
    partition = Partition(TopicPartition("t", 0), Topic("t"), OffsetAndMetadata(0, ""), asyncio.Event())
    records = [Record("t", 0, 40 * number, 0, None, None) for number in range(5000)]
    first = partition.take(records, 200_000)
    assert 600 < len(first) < 5000
    assert partition.gaps.position == 40 * len(first)
    assert partition.gaps.room() == partition.gap_room == 0
    assert partition.take(records[len(first) :], 200_000) == []
    partition.end(first[:500], [])
    room = partition.gaps.room()
    assert 100 < room < 500, "by offsets as far apart as these"
    assert partition.gap_room > 10 * room
    assert len(partition.take(records[len(first) :][:room], 200_000)) == room


def test_one_hole_leaves_room_for_events_behind_it() -> None:
    gaps = Gaps(0)
    gaps.take(range(5000), 5000)
    gaps.take([5300], 5301)
    assert gaps.room() > 15_000
    gaps.end(range(5000))
    gaps.end([5300])
    gaps.take([35_000], 35_001)
    gaps.end([35_000])
    assert gaps.offsets_left == 8 * 3068, "nothing is open"
    assert gaps.room() > 1000
    assert gaps.fitting(range(70_000, 90_000)) == 20_000, "whatever is missing before the first of them"


@given(st.lists(st.integers(1, 4), min_size=1, max_size=40), st.randoms())
def test_a_new_owner_handles_what_had_not_ended_and_commits_no_less(steps: list[int], chance: random.Random) -> None:
    """It reads in pieces, and commits in between; offsets that had vanished by then count as ended."""
    gaps, offsets = filled(7, steps)
    left = set(offsets)
    for offset in chance.sample(offsets, chance.randrange(len(offsets))):
        gaps.end([offset])
        left.discard(offset)
    first, metadata = gaps.first, gaps.encode()
    vanished: set[int] = set()
    for _ in range(3):
        after = Gaps(first, decode(first, metadata))
        known = [offset for offset in offsets if offset >= first]
        assert (after.first, decode(after.first, after.encode()).ranges) == (first, decode(first, metadata).ranges)
        vanished |= {offset for offset in known if chance.random() < 0.1}
        cut = chance.randrange(first, offsets[-1] + 2) if known else first
        read = [offset for offset in known if offset < cut and after.wants(offset) and offset not in vanished]
        left -= {offset for offset in vanished if offset < cut}
        assert set(read) == {offset for offset in left if offset < cut}
        assert after.room() >= len(read)
        after.take(read, cut)
        for offset in chance.sample(read, chance.randrange(len(read) + 1)):
            after.end([offset])
            left.discard(offset)
        first, metadata = after.first, after.encode()
        told = decode(first, metadata)
        assert all(offset >= first for offset in left)
        assert not any(offset in told for offset in left)


def test_one_event_that_hangs_leaves_room_for_all_that_comes() -> None:
    gaps = Gaps(0)
    gaps.take([0], 1)
    while gaps.position < 300_000:
        some = range(gaps.position, min(300_000, gaps.position + gaps.room()))
        assert len(some) > 500 or some.stop == 300_000
        gaps.take(some, some.stop)
        for offset in some:
            gaps.end([offset])
    assert gaps.first == 0
    assert len(gaps.encode()) < 20
    assert decode(0, gaps.encode()).ranges == ((1, 300_000),)


def test_metadata_of_a_compacted_partition_fits_too_and_tells_nothing_wrong() -> None:
    gaps = Gaps(0)
    offsets = [number * 10**9 for number in range(3000)]
    gaps.take(offsets, offsets[-1] + 1)
    for offset in offsets[1::2]:
        gaps.end([offset])
    assert len(gaps.encode()) <= MOST_METADATA
    told = decode(0, gaps.encode())
    assert offsets[1] in told
    assert not any(offset in told for offset in offsets[::2])


def test_an_event_ends_once() -> None:
    gaps, _ = filled(5, [])
    gaps.end([5])
    with pytest.raises(KeyError):
        gaps.end([5])


def test_what_is_to_be_committed_is_written_down_once_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a key that hangs there may be a thousand events, and it is asked for much more often than it changes."""
    encode, written = Gaps.encode, 0

    def counted(gaps: Gaps) -> str:
        nonlocal written
        written += 1
        return encode(gaps)

    monkeypatch.setattr(Gaps, "encode", counted)
    partition = Partition(TopicPartition("t", 0), Topic("t"), OffsetAndMetadata(0, ""), asyncio.Event())
    events = partition.take([Record("t", 0, number, 0, None, None) for number in range(4)], 4)
    for ended, first in ((1, 0), (0, 2), (2, 3)):
        partition.end([events[ended]], [])
        found = [partition.due() for _ in range(3) if partition.take([], 4) == []]
        assert [each and each.offset for each in found] == [first] * 3
    partition.take([], 5)  # what a partition skips
    due = partition.due()
    assert due is not None
    partition.committed(due)
    assert partition.due() is None
    assert written == 4


def test_nothing_is_told_of_a_commit_without_metadata() -> None:
    assert decode(7, None).ranges == decode(7, "").ranges == ()
    assert not Ended()


@given(
    st.one_of(st.text(max_size=60), st.binary(max_size=400).map(lambda raw: "kg1:" + base64.b64encode(raw).decode()))
)
def test_hostile_metadata_is_refused_or_tells_of_offsets_behind_the_committed_one(metadata: str) -> None:
    try:
        told = decode(100, metadata)
    except GapsError:
        return
    stops = [100]
    for start, stop in told.ranges:
        assert stops[-1] < start < stop < 2**63
        stops.append(stop)
    assert 100 not in told


@pytest.mark.parametrize(
    "metadata",
    [
        "v2 12 3 active -",
        "kg1:" + base64.b64encode(b"\x00\xff\xff\xff\x7f\x01").decode(),
        "kg1:%%%",
        "kg1:" + "A" * MOST_METADATA,
        "kg1:" + base64.b64encode(b"\x00").decode(),
        "kg1:" + base64.b64encode(b"\x02\x01\x01").decode(),
        "kg1:" + base64.b64encode(b"\x00\x01").decode(),
        "kg1:" + base64.b64encode(b"\x00\x01\x00").decode(),
        "kg1:" + base64.b64encode(b"\x00\x01" + b"\xff" * 11 + b"\x01").decode(),
        "kg1:" + base64.b64encode(b"\x00\x01\xff").decode(),
        "kg1:" + base64.b64encode(b"\x01\x03").decode(),
        "kg1:" + base64.b64encode(b"\x01\x02\x00").decode(),
    ],
)
def test_damaged_metadata_is_refused(metadata: str) -> None:
    with pytest.raises(GapsError):
        decode(100, metadata)


@given(st.integers(0, 2**40), st.lists(st.integers(1, 300), max_size=80), st.randoms())
def test_what_will_be_once_some_have_ended_is_what_is_then(first: int, steps: list[int], chance: random.Random) -> None:
    gaps, offsets = filled(first, steps)
    order = chance.sample(offsets, len(offsets))
    now = chance.randrange(len(order) + 1)
    gaps.end(order[:now])
    before, later = (gaps.first, gaps.encode()), order[now:][: chance.randrange(len(order) + 1)]
    other = gaps.once_ended(later)
    assert (gaps.first, gaps.encode()) == before
    gaps.end(later)
    assert (other.first, other.encode()) == (gaps.first, gaps.encode())
