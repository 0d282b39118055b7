"""States that are merged in columns are what their aggregates make of them one after the other, to the last bit."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.accumulator import Accumulator
from keygrouping.aggregate import Aggregate, Sum
from keygrouping.aggregate.exact import Total, encode_parts, parts_of
from keygrouping.job import JobSpec
from keygrouping.open_groups import Group, OpenGroups
from keygrouping.partial import Partial
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
        ],
    }
)
ALL = 1 << 40
"""Events of each partial: as many as there may be."""

reals = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.1, -0.0, 1e16, 1.0, 2.0**53, 2.0**900, 1.7e308, -1.7e308, 5e-324, 1e-300, 3.7e-9]),
)
wholes = st.one_of(st.integers(-9, 9), st.integers(1 - 10**18, 10**18 - 1), st.just(2**53 + 1))
counts = st.one_of(st.integers(1, 9), st.sampled_from([94906266, 94906265, 1 << 30, ALL]))
sums = st.lists(reals, max_size=3).map(lambda values: encode_parts(parts_of(values)) if values else [])


@st.composite
def states(draw: st.DrawFn) -> dict[str, Any]:
    """Of each aggregate, as they may be written, whether or not any events have them."""
    total = {"n": draw(counts), "whole": str(draw(wholes)), "parts": draw(sums)}
    extremes = {"whole": draw(st.none() | wholes), "real": draw(st.none() | reals)}
    moments = {"n": draw(st.just(0) | counts), "mean": draw(reals | wholes), "m2": abs(draw(reals))}
    products, weights = draw(sums), draw(sums)
    is_there = products and weights
    price: dict[str, Any] = {"n": draw(counts) if is_there else 0}
    price |= {"sum": products, "weight": weights} if is_there else {"sum": (), "weight": ()}
    return {
        "events": draw(st.just(0) | counts),
        "total": total,
        "middle": total,
        "least": extremes,
        "most": extremes,
        "spread": moments,
        "price": price,
    }


def partial_of(number: int, data: dict[str, Any], weight: int | float = 1, events: int = ALL) -> Partial:
    return Partial(0, 0, 100, events, weight, number, number + ALL, 0, data, "t" * 22, f"{number * 0xF << 100:032x}")


def merged(groups: OpenGroups, keys: Sequence[bytes], partials: Sequence[Partial], first: int = 0) -> None:
    """Merges one batch."""
    rows = np.arange(len(keys))
    columns = PartialReader(JOB.aggregates).read(Slices.of([partial.encode() for partial in partials]))
    columns.judge(np.ones(len(keys), np.bool_), closed=0)
    for row in np.flatnonzero(~columns.sure).tolist():
        read = Partial.decode(partials[row].encode())
        columns.put(row, read, [each.decode(read.aggregates[each.name]) for each in JOB.aggregates])
    assert groups.add(columns, rows, Slices.of(keys), rows + first) == (len(keys), {})


def one_after_the_other(key: bytes, partials: Sequence[Partial]) -> Group:
    decoded = [Partial.decode(partial.encode()) for partial in partials]
    weight = functools.reduce(lambda left, right: left + right, [each.weight for each in decoded])
    hashes, events = sum(each.hashes for each in decoded) % (1 << 128), sum(each.events for each in decoded)
    found = [
        functools.reduce(aggregate.merge, [aggregate.decode(each.aggregates[aggregate.name]) for each in decoded])
        for aggregate in JOB.aggregates
    ]
    return Group(key, 0, events, weight, hashes, tuple(found))


def everything(groups: OpenGroups) -> Iterator[Group]:
    return groups.taken(np.arange(len(groups)))


def odd_in(groups: OpenGroups) -> list[int]:
    """How many groups of each aggregate are not in columns; those of the events and weights first."""
    columns: list[Any] = [groups._members, *groups._merges]
    return [len(each._odd) for each in columns]


weights = st.sampled_from([1, 0, 0.25, -0.0, 10**18 - 1, 10**20, 2**53 + 1, 1e16, 1 << 61])


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), states(), weights), min_size=1, max_size=25), st.data())
def test_any_states_are_merged_as_one_after_the_other(
    drawn: list[tuple[bytes, dict[str, Any], int | float]], data: st.DataObject
) -> None:
    partials = [(key, partial_of(number, each, weight)) for number, (key, each, weight) in enumerate(drawn)]
    groups, start = OpenGroups(JOB.aggregates), 0
    while start < len(partials):
        stop = data.draw(st.integers(start + 1, len(partials)))
        keys, some = zip(*partials[start:stop], strict=True)
        merged(groups, keys, some, first=start)
        start = stop
        if data.draw(st.booleans()):
            groups = groups.cut(np.arange(len(groups)))
    names = list(dict.fromkeys(key for key, _ in partials))
    expected = [one_after_the_other(each, [partial for key, partial in partials if key == each]) for each in names]
    assert list(map(repr, everything(groups))) == list(map(repr, expected))
    chosen = np.array(data.draw(st.permutations(range(len(names)))))[: data.draw(st.integers(0, len(names)))]
    assert list(map(repr, groups.taken(chosen.astype(np.int64)))) == [repr(expected[place]) for place in chosen]


def test_what_workers_write_stays_in_columns() -> None:
    """What is merged by the aggregates themselves costs ten times as much, and nobody would notice."""
    from keygrouping_service.records.columns import Columns

    chance = random.Random(1)
    groups = OpenGroups(JOB.aggregates)
    for worker in range(20):
        accumulator = Accumulator(JOB, worker, "A" * 22)
        rows: list[Any] = []
        for row in range(1000):
            number = chance.choice([b"%d" % chance.randrange(10**9), b"%.2f" % (chance.random() * 10**6), b"null"])
            value = b'{"x":%s,"y":%.3f}' % (number, chance.random())
            rows.append((row, 1, b"key-%d" % chance.randrange(50), value, ()))
        assert not accumulator.add(Columns.of("routed", worker, rows))
        keys, partials = zip(*accumulator.partials(5), strict=True)
        merged(groups, keys, partials, first=1000 * worker)
    assert len(groups) == 50
    assert odd_in(groups) == [0] * 8


@pytest.mark.parametrize(
    ("name", "states", "place"),
    [
        ("total", [{"n": 1, "whole": "0", "parts": [2.0**901]}], 2),
        ("total", [{"n": 1, "whole": "0", "parts": [each]} for each in (1e200, 1.0, 1e-100, 1e-200)], 2),
        ("total", [{"n": 2, "whole": "9" * 19, "parts": []}], 2),
        ("spread", [{"n": 94906266, "mean": 0.5, "m2": 1.0}] * 2, 6),
        ("price", [{"n": 1, "sum": [1.0], "weight": [each]} for each in (1e200, 1.0, 1e-100, 1e-200)], 7),
    ],
)
def test_what_has_no_room_in_columns_is_merged_by_its_aggregate(
    name: str, states: list[dict[str, Any]], place: int
) -> None:
    """Its group alone leaves the columns; other aggregates of it only where the partial could not be read in them."""
    usual = {
        "events": 1,
        "total": {"n": 1, "whole": "1", "parts": []},
        "middle": {"n": 1, "whole": "1", "parts": []},
        "least": {"whole": 1, "real": None},
        "most": {"whole": 1, "real": None},
        "spread": {"n": 1, "mean": 1.0, "m2": 0.0},
        "price": {"n": 1, "sum": [1.0], "weight": [1.0]},
    }
    partials = [partial_of(number, usual | {name: state}) for number, state in enumerate([*states, *states])]
    groups = OpenGroups(JOB.aggregates)
    merged(groups, [b"k"] * len(partials), partials)
    assert list(map(repr, everything(groups))) == [repr(one_after_the_other(b"k", partials))]
    assert odd_in(groups)[place] == 1
    if "9" * 19 not in str(states):
        assert sum(odd_in(groups)) == 1


def test_weights_beyond_64_bits_are_exact() -> None:
    partials = [partial_of(number, orjson.loads(b"{}"), 10**18 - 1) for number in range(30)]
    groups = OpenGroups(())
    columns = PartialReader(()).read(Slices.of([each.encode() for each in partials]))
    columns.judge(np.ones(30, np.bool_), closed=0)
    assert columns.sure.all()
    groups.add(columns, np.arange(30), Slices.of([b"k"] * 30), np.arange(30))
    (group,) = everything(groups)
    assert (group.events, group.weight) == (30 * ALL, 30 * (10**18 - 1))


def test_a_partial_counts_once_in_its_group_however_many_there_are() -> None:
    """Thousands in one group, and few in each of thousands, in batches with repetitions, over several enlargements."""
    chance = random.Random(1)
    groups, seen = OpenGroups(()), set[tuple[bytes, int]]()
    for _ in range(40):
        keys = [chance.choice([b"hot", b"%d" % chance.randrange(3000)]) for _ in range(500)]
        identities = np.array([chance.choice([chance.randrange(3000) << 47, chance.randrange(9)]) for _ in keys])
        columns = PartialReader(()).read(Slices.of([partial_of(0, {}, events=1).encode()] * len(keys)))
        columns.judge(np.ones(len(keys), np.bool_), closed=0)
        before = len(seen)
        seen.update(zip(keys, identities.tolist(), strict=True))
        found, _ = groups.add(columns, np.arange(len(keys)), Slices.of(keys), identities)
        assert found == len(seen) - before
        if chance.random() < 0.3:
            kept = np.flatnonzero([chance.random() < 0.8 for _ in range(len(groups))])
            names = {group.key for group in groups.taken(kept)}
            groups, seen = groups.cut(kept), {each for each in seen if each[0] in names}
    assert {group.key: group.events for group in everything(groups)} == {
        key: sum(name == key for name, _ in seen) for key, _ in seen
    }


def test_a_table_that_grows_knows_the_groups_that_a_batch_has_none_of() -> None:
    """Thousands of keys come once, then one of the first ones until there is four times the room, then all again."""
    groups, sizes = OpenGroups(()), []

    def fresh(keys: Sequence[bytes], first: int) -> int:
        columns = PartialReader(()).read(Slices.of([partial_of(0, {}, events=1).encode()] * len(keys)))
        columns.judge(np.ones(len(keys), np.bool_), closed=0)
        found, _ = groups.add(columns, np.arange(len(keys)), Slices.of(keys), np.arange(first, first + len(keys)))
        sizes.append(len(groups._identities._owners))
        return found

    names = [b"%d" % number for number in range(3000)]
    assert fresh(names, 0) == 3000
    for number in range(1, 40):
        assert fresh([b"0"] * 500, 500 * number) == 500
    assert sizes[-1] >= 4 * sizes[0] and all(after in (before, 2 * before) for before, after in pairwise(sizes))
    assert fresh(names, 0) == 0
    assert {group.key: group.events for group in everything(groups)} == dict.fromkeys(names, 1) | {b"0": 1 + 39 * 500}


class Later(Sum):
    """A class of its own, which may merge in its own way."""

    def merge(self, left: Any, right: Any) -> Any:
        return (left[0] + right[0], right[1])


def test_a_class_that_derives_from_one_of_ours_merges_its_states_itself() -> None:
    later: tuple[Aggregate, ...] = (Later(name="total", field="x"),)
    states = [{"total": {"n": 1, "whole": str(number), "parts": []}} for number in (5, 7)]
    columns = PartialReader(later).read(Slices.of([partial_of(0, state).encode() for state in states]))
    columns.judge(np.ones(2, np.bool_), closed=0)
    groups = OpenGroups(later)
    groups.add(columns, np.arange(2), Slices.of([b"k"] * 2), np.arange(2))
    ((*_, (state,)),) = everything(groups)
    assert state == (2, Total(7))
