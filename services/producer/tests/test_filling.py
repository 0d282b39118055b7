"""Laws of filling: the partition Kafka would choose, the source's order, and no event twice after a restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import murmur2
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_producer.filling import Filler, Partitions, Target
from keygrouping_producer.plan import Plan
from keygrouping_producer.position import Counters, Place, Run, places_in
from keygrouping_producer.sources.base import Block, Fault, Rounds

PARTITIONS = 4
RUN = Run(number=1, plan=Plan(), configured=Plan(), partitions=PARTITIONS, slots=1)
NOW_MS = 1_700_000_000_000
TOO_LARGE = b"x" * 101


@dataclass
class Batch:
    """Stands for a record batch, and keeps what was appended."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def append(self, **row: Any) -> object:
        self.rows.append(row)
        return row


class Listed:
    """A source of the given keys; the value of an item is its number."""

    span_ms = 0

    def __init__(self, keys: Sequence[bytes | None], faulty: frozenset[int] = frozenset()) -> None:
        self._keys = keys
        self._faulty = faulty
        self.length = len(keys)

    def read(self, start: int, count: int) -> Block:
        count = min(count, 7)
        keys = self._keys[start : start + count]
        faults = {
            i - start: Fault("bad", "why", f"a:{i}", str(i).encode())
            for i in self._faulty
            if start <= i < start + len(keys)
        }
        return Block(keys, [None] * len(keys), lambda i: str(start + i).encode(), faults)


class Capture:
    """A producer whose batches stay here, in order, by topic and partition."""

    def create_batch(self) -> Batch:
        return Batch()


Written = dict[int, list[int]]
Rows = dict[tuple[str, int], list[dict[str, Any]]]


def filler(source: Any, places: dict[int, Place] | None = None) -> Filler:
    target = Target(cast(AIOKafkaProducer, Capture()), "events", "dead-letters", 100)
    places = places or places_in(RUN, {}, range(PARTITIONS))
    return Filler(target, Rounds(source), RUN, places, lambda: NOW_MS / 1000)


def rows_of(outbox: Any) -> Rows:
    return {target: [row for batch in batches for row in batch.rows] for target, batches in outbox._batches.items()}


def numbers(rows: Rows) -> Written:
    return {p: [int(row["value"]) for row in found] for (topic, p), found in rows.items() if topic == "events"}


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_go_where_kafka_s_java_client_sends_them(key: bytes, hashed: int) -> None:
    """The values are those of Kafka's own unit test of its murmur2."""
    assert murmur2(key) == hashed % 2**32
    for count in (1, 4, 16, 1000):
        assert Partitions(count)[key] == (hashed & 0x7FFFFFFF) % count


def test_keyed_events_keep_their_partition_and_order_keyless_go_round_robin() -> None:
    keys = [None if i % 3 == 0 else f"k{i % 11}".encode() for i in range(100)]
    written = numbers(rows_of(filler(Listed(keys)).fill(1000, RUN).outbox))
    table = Partitions(PARTITIONS)
    place = {number: partition for partition, found in written.items() for number in found}
    assert sorted(place) == list(range(100))
    assert all(found == sorted(found) for found in written.values())
    assert all(place[i] == table[key] for i, key in enumerate(keys) if key is not None)
    keyless = [place[i] for i, key in enumerate(keys) if key is None]
    assert keyless == [turn % PARTITIONS for turn in range(len(keyless))]


def test_events_without_time_get_the_time_of_writing() -> None:
    rows = rows_of(filler(Listed([b"k"])).fill(1, RUN).outbox)
    assert [row["timestamp"] for found in rows.values() for row in found] == [NOW_MS]


@given(
    keys=st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e", None]), max_size=60),
    faulty=st.frozensets(st.integers(0, 59), max_size=10),
    cuts=st.lists(st.integers(1, 20), max_size=8),
    slots=st.integers(1, 4),
)
def test_any_restarts_and_any_share_of_the_partitions_write_every_item_once(
    keys: list[bytes | None], faulty: frozenset[int], cuts: list[int], slots: int
) -> None:
    keys = [None if i in faulty else key for i, key in enumerate(keys)]
    source = Listed(keys, faulty)
    whole = numbers(rows_of(filler(source).fill(1000, RUN).outbox))
    written: Written = {}
    dead_lettered: Counter[int] = Counter()
    stored: dict[int, Place | None] = {}

    def go(slot: int, of: int, most: int) -> None:
        chunk = filler(source, places_in(RUN, stored, range(slot, PARTITIONS, of))).fill(most, RUN)
        rows = rows_of(chunk.outbox)
        for partition, found in numbers(rows).items():
            written.setdefault(partition, []).extend(found)
        dead_lettered.update(int(row["value"]) for row in rows.get(("dead-letters", 0), []))
        stored.update(chunk.places)

    for turn, cut in enumerate(cuts):
        go(turn % slots, slots, cut)
    go(0, 1, 1000)
    assert written == whole
    assert dead_lettered == Counter(i for i in faulty if i < len(keys))
    places = [place for place in stored.values() if place]
    assert {place.position for place in places} == {len(keys)}
    assert sum(place.counters.sent + place.counters.bad for place in places) == len(keys)


def test_a_dead_letter_says_why_and_where() -> None:
    chunk = filler(Listed([None, b"k"], frozenset({0}))).fill(10, RUN)
    (row,) = rows_of(chunk.outbox)["dead-letters", 0]
    assert row["value"] == b"0"
    assert dict(row["headers"]) == {
        "keygrouping-reason": b"bad",
        "keygrouping-detail": b"a:0: why",
        "keygrouping-source": b"a:0",
    }


def test_an_event_larger_than_allowed_is_a_dead_letter() -> None:
    class Large(Listed):
        def read(self, start: int, count: int) -> Block:
            block = super().read(start, count)
            return Block(block.keys, block.times, lambda i: TOO_LARGE if start + i == 1 else b"5")

    chunk = filler(Large([b"k"] * 3)).fill(10, RUN)
    rows = rows_of(chunk.outbox)
    (row,) = rows["dead-letters", 0]
    assert dict(row["headers"])["keygrouping-reason"] == b"too-large"
    assert b"position 1:" in dict(row["headers"])["keygrouping-detail"]
    assert sum(map(len, numbers(rows).values())) == 2


def test_keys_that_are_forgotten_keep_their_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keygrouping_producer.filling._KEYS_REMEMBERED", 3)
    table = Partitions(8)
    keys = [str(i).encode() for i in range(20)]
    assert [table[key] for key in keys] == [table[key] for key in keys]
    assert len(table) <= 3


def test_places_are_not_changed_by_what_comes_after() -> None:
    fill = filler(Listed([b"a"] * 20))
    first = fill.fill(7, RUN)
    before = {partition: place.counters.model_copy() for partition, place in first.places.items()}
    fill.fill(7, RUN)
    assert {partition: place.counters for partition, place in first.places.items()} == before
    assert sum(counters.sent for counters in before.values()) == 7
    assert Counters() not in [first.places[Partitions(PARTITIONS)[b"a"]].counters]
