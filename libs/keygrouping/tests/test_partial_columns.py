"""Partials that are read in columns are what they are one by one; what is unusual is left to that."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.accumulator import Accumulator
from keygrouping.aggregate import Aggregate, Sum
from keygrouping.job import JobSpec
from keygrouping.open_groups import OpenGroups
from keygrouping.partial import Partial, encode_receipt
from keygrouping.partial_columns import PartialReader
from keygrouping.slices import Slices

JOB = JobSpec.from_json(
    {
        "window": 100,
        "aggregates": [
            {"name": "events", "op": "count"},
            {"name": "total", "op": "sum", "field": "x"},
            {"name": "middle", "op": "mean", "field": "x"},
            {"name": "least", "op": "min", "field": "x"},
            {"name": "most", "op": "max", "field": "x"},
            {"name": "spread", "op": "variance", "field": "x"},
            {"name": "price", "op": "vwap", "field": "x", "weight": "y"},
            {"name": "kinds", "op": "distinct", "field": "kind"},
            {"name": "top_of_all_kinds_there_are", "op": "top-k", "field": "kind", "k": 2},
        ],
        "weight": {"field": "w"},
    }
)
_BYTES = b'{}[]",:\\ \x00\x7f\x80\xc3\xed\xf0\xff0123456789+-.eEtrufalsn'
ODD: list[Any] = [
    *(0, -0.0, 0.1, 1e300, 5e-324, -1, 2**53 + 1, 10**18 - 1, 10**18, 2**63, 10**40, "NaN", "Infinity", "1", "-0"),
    *(
        "007",
        "1" * 61,
        "",
        None,
        True,
        [],
        [1],
        [0.0],
        [-0.0],
        [1e16, 1.0],
        [1e16, 0.25],
        [1.0, 1e16],
        [1.0, 1e-9, 1e-18],
    ),
    *([1.0, 0], [0.0, 0.0], ["NaN"], {}, {"n": 1}, {"base64": "x"}, 'with "quotes"', "\ud83d\ude00"),
]


class Later(Sum):
    """A class of its own, which may read its states in its own way."""

    def decode(self, data: Any) -> Any:
        return super().decode(data)[0] + 100

    def seen(self, state: Any) -> int:
        return int(state)


class Anything(Sum):
    """Whose state may be whatever is written."""

    def decode(self, data: Any) -> Any:
        return 1 if isinstance(data, list) else 0

    def encode(self, state: Any) -> Any:
        return state

    def seen(self, state: Any) -> int:
        return int(state)


class Row(NamedTuple):
    """What was read of a partial, and the states of a group that has it alone."""

    members: tuple[Any, ...]
    states: tuple[Any, ...]


def read(aggregates: Sequence[Aggregate], values: Sequence[bytes | None]) -> list[Row | None]:
    columns = PartialReader(aggregates).read(Slices.of(values))
    columns.judge(np.ones(len(values), np.bool_), closed=-(1 << 63))
    sure = np.flatnonzero(columns.sure)
    groups = OpenGroups(aggregates)
    if len(sure):
        keys = Slices.of([b"%d" % row for row in sure])
        assert groups.add(columns, sure, keys, np.zeros_like(sure)) == (len(sure), {})
    found: list[Row | None] = [None] * len(values)
    for row, topic, (_, start, *members, states) in zip(
        sure, columns.topics(sure), groups.taken(np.arange(len(groups))), strict=True
    ):
        place = (columns.worker[row], columns.end[row], columns.first[row])
        found[row] = Row((topic, *map(int, place), start, *members), states)
    return found


def one_by_one(aggregates: Sequence[Aggregate], value: bytes | None) -> Row | None:
    """What the classes themselves say of a partial; None if it is none."""
    try:
        partial = Partial.decode(value)
        states = tuple(aggregate.decode(partial.aggregates[aggregate.name]) for aggregate in aggregates)
        seen = [aggregate.seen(state) for aggregate, state in zip(aggregates, states, strict=True)]
    except Exception:
        return None
    if max(seen, default=0) > partial.events or partial.aggregates.keys() != {each.name for each in aggregates}:
        return None
    place = (partial.topic.encode(), partial.worker, partial.end, partial.first)
    return Row((*place, partial.start, partial.events, partial.weight, partial.hashes), states)


def comparable(row: Row, aggregates: Sequence[Aggregate]) -> str:
    """To the last bit; sketches are no plain data, so they are written out."""
    states = [aggregate.encode(state) for aggregate, state in zip(aggregates, row.states, strict=True)]
    return repr((row.members, states, [state for state in row.states if isinstance(state, int | float | tuple | None)]))


def compare(aggregates: Sequence[Aggregate], values: Sequence[bytes | None]) -> int:
    """Compares all that was read with what it is one by one; gives how many were read."""
    found = read(aggregates, values)
    for value, row in zip(values, found, strict=True):
        if row is not None:
            expected = one_by_one(aggregates, value)
            assert expected is not None, value
            assert comparable(row, aggregates) == comparable(expected, aggregates), value
    return sum(row is not None for row in found)


def members(chance: random.Random, events: int = 3) -> dict[str, Any]:
    """A partial as workers write it."""
    numbers = [chance.choice([chance.random() * 1000, chance.randrange(-(10**12), 10**12)]) for _ in range(events)]
    values: dict[str, list[Any]] = {
        "x": numbers,
        "y": [chance.random() for _ in numbers],
        "kind": [chance.choice("abc") for _ in numbers],
    }
    states = {}
    for aggregate in JOB.aggregates:
        columns: list[list[Any]] = [values[each.field] for each in aggregate.inputs]
        given: list[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True)) or [()] * events
        states[aggregate.name] = aggregate.encode(aggregate.add_many(aggregate.initial(), given))
    first, start = chance.randrange(10**6), chance.randrange(1000) * 100
    receipt, weight = encode_receipt(chance.randrange(1 << 128)), chance.choice([events, 0.5, 10**17])
    partial = Partial(3, start, start + 100, events, weight, first, first + events, 7, states, "t" * 22, receipt)
    found: dict[str, Any] = orjson.loads(partial.encode())
    return found


GOOD = members(random.Random(0)) | {"weight": 3}


def document(chance: random.Random) -> bytes:
    """A partial with something odd, or with damage."""
    data = members(chance, chance.randrange(5))
    for _ in range(chance.choice([0, 1, 1, 2])):
        inner = chance.choice([data, data["aggregates"], *data["aggregates"].values()])
        if isinstance(inner, dict):
            name = chance.choice([*inner, *inner, "further"])
            inner[name] = copy.deepcopy(chance.choice(ODD))
            if chance.random() < 0.2:
                del inner[name]
        if not isinstance(data.get("aggregates"), dict):
            break
    if chance.random() < 0.3:
        data = dict(chance.sample(list(data.items()), len(data)))
    written = json.dumps(data, separators=chance.choice([(",", ":"), (", ", " : ")])).encode()
    if chance.random() < 0.3:
        written = orjson.dumps(orjson.loads(written)) if b'"\\ud8' not in written else written
    text = bytearray(written)
    for _ in range(chance.choice([0, 0, 1, 2])):
        where = chance.randrange(len(text))
        text[where : where + chance.randrange(2)] = bytes([chance.choice(_BYTES)] * chance.randrange(2))
    return bytes(text)


def run(documents: int, seed: int) -> tuple[int, int]:
    """Compares so many documents; gives how many were read in columns, and how many not."""
    chance = random.Random(seed)
    taken = 0
    for start in range(0, documents, 1000):
        taken += compare(JOB.aggregates, [document(chance) for _ in range(min(1000, documents - start))])
    return taken, documents - taken


def test_damaged_and_odd_partials_are_what_they_are_one_by_one() -> None:
    taken, left = run(5000, 1)
    assert min(taken, left) > 500


@pytest.mark.fuzz
def test_many_damaged_partials_are_what_they_are_one_by_one() -> None:
    taken, left = run(300_000, 2)
    assert min(taken, left) > 30_000


@pytest.mark.fuzz
def test_the_kernel_looks_at_no_byte_beyond(tmp_path: Path) -> None:
    """With numba's check of each index, which the kernel is compiled without."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, __file__, "100000"], env=environment, check=True, timeout=3000)


finite = st.floats(allow_nan=False, allow_infinity=False)
values = st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), finite), min_size=1, max_size=6)


@settings(max_examples=200)
@given(st.lists(values, min_size=1, max_size=5))
def test_any_state_of_ours_is_what_it_is_by_itself(all_values: list[list[Any]]) -> None:
    aggregates = JOB.aggregates[:7]
    written = []
    for numbers in all_values:
        data = members(random.Random(0), len(numbers))
        given = [(number, number) for number in numbers]
        data["aggregates"] = {
            each.name: each.encode(each.add_many(each.initial(), given if len(each.inputs) > 1 else numbers))
            for each in aggregates
        }
        written.append(orjson.dumps(data))
    compare(aggregates, written)


def test_all_that_a_worker_writes_is_read_in_columns() -> None:
    """Whatever is left to the way one by one costs ten times as much, and nobody would notice."""
    from keygrouping_service.records.columns import Columns

    chance = random.Random(1)
    accumulator = Accumulator(JOB, 2, "AAAAAAAAAAAAAAAAAAAAAA")
    for batch in range(3):
        rows: list[Any] = []
        for row in range(2000):
            number = chance.choice([b"%d" % chance.randrange(1000), b"%.2f" % (chance.random() * 100), b"null"])
            value = b'{"x":%s,"y":%d,"kind":"k\\"%d","w":%d.5}' % (number, row % 5, row % 7, row % 3)
            rows.append((batch * 2000 + row, 1000 + row % 300, b"key-%d" % chance.randrange(500), value, ()))
        assert not accumulator.add(Columns.of("routed", 2, rows))
    written = [partial.encode() for _, partial in accumulator.partials(5)]
    assert compare(JOB.aggregates, written) == len(written) > 1000


def test_a_class_that_derives_from_one_of_ours_reads_its_states_itself() -> None:
    later = Later(name="total", field="x")
    data = GOOD | {"events": 103, "aggregates": {"total": {"n": 3, "whole": "5", "parts": []}}}
    (row,) = read([later], [orjson.dumps(data)])
    assert row is not None and row.states == (103,)
    assert read([later], [orjson.dumps(data | {"events": 102})]) == [None]


@pytest.mark.parametrize("count", [0, 1, 40])
def test_jobs_may_have_any_number_of_aggregates_with_long_names(count: int) -> None:
    sums = [Sum(name=f"{'x' * 60}{number}", field="x") for number in range(count)]
    state = {"n": 1, "whole": "5", "parts": [0.5]}
    data = GOOD | {"aggregates": {each.name: state for each in reversed(sums)}}
    assert compare(sums, [orjson.dumps(data)]) == 1
    for name in list(data["aggregates"])[:1]:
        data["aggregates"][name[:-1]] = data["aggregates"].pop(name)
        assert compare(sums, [orjson.dumps(data)]) == 0


SAME = orjson.dumps(GOOD)
TWICE = (b'"v":', b'"events":', b'"aggregates":', b'"kinds":', b'"n":', b'"real":')


@pytest.mark.parametrize("after", [b"x", b"{}", b"}", b",", b"\x00", SAME])
def test_what_has_more_behind_it_is_left_to_the_other_way(after: bytes) -> None:
    assert compare(JOB.aggregates, [SAME + after, SAME + b" \r\n\t"]) == 1


@pytest.mark.parametrize("name", TWICE)
@pytest.mark.parametrize("second", [b"{}", b"3", b'"x"', b"[]", b"null"])
def test_members_that_are_there_twice_are_left_to_the_other_way(name: bytes, second: bytes) -> None:
    assert SAME.count(name) >= 1
    assert compare(JOB.aggregates, [SAME.replace(name, name + second + b"," + name, 1)]) == 0


def test_states_that_only_their_class_reads_may_not_be_nested_without_end() -> None:
    def nested(levels: int) -> bytes:
        return orjson.dumps(GOOD | {"aggregates": {"any": 0}}).replace(
            b'"any":0', b'"any":' + b"[" * levels + b"]" * levels
        )

    assert compare([Anything(name="any", field="x")], [nested(levels) for levels in (1, 50, 1023, 1024, 100_000)]) == 2


@pytest.mark.parametrize("parts", ["", "1.5", "1.5,1e-30", "1.5,1e-30,1e-60"])
@pytest.mark.parametrize("damage", [",", " , ", ",,", ",null"])
def test_what_follows_the_parts_of_a_sum_is_left_to_the_other_way(parts: str, damage: str) -> None:
    empty = SAME.replace(b'"parts":[]', b'"parts":[%s]' % parts.encode(), 1)
    assert empty != SAME or not parts
    damaged = SAME.replace(b'"parts":[]', b'"parts":[%s]' % (parts + damage).encode(), 1)
    assert compare(JOB.aggregates, [empty, damaged]) == 1


def test_zeros_without_a_sign_are_what_is_kept() -> None:
    least, total = GOOD["aggregates"]["least"], GOOD["aggregates"]["total"]
    for name, state in (("least", least | {"whole": None, "real": -0.0}), ("total", total | {"parts": [-0.0]})):
        assert compare(JOB.aggregates, [orjson.dumps(GOOD | {"aggregates": GOOD["aggregates"] | {name: state}})]) == 1


@pytest.mark.parametrize("topic", ["t" * 21 + "\\", "t" * 21 + "\u00e9", "t" * 20 + "/+", "t" * 21, "t" * 23])
def test_what_is_no_id_of_a_topic_is_left_to_the_other_way(topic: str) -> None:
    other = GOOD | {"topic": "_-" * 11}
    bad = json.dumps(GOOD | {"topic": topic}, ensure_ascii=False, separators=(",", ":")).encode()
    assert compare(JOB.aggregates, [orjson.dumps(GOOD), bad, None, b"", orjson.dumps(other)]) == 2


if __name__ == "__main__":
    run(int(sys.argv[1]), 3)
