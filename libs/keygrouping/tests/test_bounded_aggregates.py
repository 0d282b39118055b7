"""Aggregates whose memory is bounded: the papers' examples, their precision, and what they do when room ends."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.aggregate import Aggregate, StreamHistogram, parse_aggregates
from keygrouping.aggregate.text import LONGEST, bounded

numbers = st.lists(st.integers(-50, 50) | st.floats(-1e300, 1e300), min_size=1, max_size=40)


def declared(op: str, **properties: Any) -> Aggregate:
    return parse_aggregates([{"name": "a", "op": op, "field": "x", **properties}])[0]


def over(it: Aggregate, values: Sequence[Any]) -> Any:
    return it.add_many(it.initial(), values)


def in_parts(it: Aggregate, values: Sequence[Any], parts: int) -> Any:
    merged = it.initial()
    for part in range(parts):
        merged = it.merge(merged, over(it, values[part::parts]))
    return merged


def words(count: int, seed: int) -> list[str]:
    """A stream of words, a few of them much more frequent than the others."""
    source = random.Random(seed)
    return [f"w{int(source.paretovariate(0.5))}" for _ in range(count)]


# Histogram


def paper_example() -> tuple[Aggregate, StreamHistogram, StreamHistogram]:
    it = declared("histogram", bins=5)
    first, second = it.initial(), over(it, [32, 30, 45])
    for number in (23, 19, 10, 16, 36, 2, 9):
        first = it.add(first, number)
    return it, first, it.merge(first, second)


def rounded(histogram: StreamHistogram) -> list[tuple[float, int]]:
    return [(round(bin_.mean, 2), bin_.size) for bin_ in histogram.bins]


def test_the_example_of_ben_haim_and_tom_tov() -> None:
    _, first, merged = paper_example()
    assert rounded(first) == [(2, 1), (9.5, 2), (17.5, 2), (23, 1), (36, 1)]
    assert rounded(merged) == [(2, 1), (9.5, 2), (19.33, 3), (32.67, 3), (45, 1)]
    assert merged.below(15) == pytest.approx(3.28, abs=0.01)
    # The paper goes on with two decimals of each intermediate number.
    assert merged.uniform(3) == pytest.approx([15.21, 28.98], abs=0.02)


def test_bins_know_their_range_and_so_bound_every_quantile() -> None:
    it, _, merged = paper_example()
    median = merged.quantile(0.5)
    assert (median.least, median.greatest) == (16, 23)
    assert 16 <= median.value <= 23
    assert it.finish(merged)["bins"][0] == [2.0, 1]


@given(numbers, st.floats(0, 1), st.integers(2, 8))
def test_a_quantile_lies_within_its_bounds(values: list[float], fraction: float, bins: int) -> None:
    it = declared("histogram", bins=bins)
    found = in_parts(it, values, 3).quantile(fraction)
    rank = max(1, math.ceil(fraction * len(values)))
    assert found.least <= sorted(values)[rank - 1] <= found.greatest
    assert found.least <= found.value <= found.greatest


@given(numbers, st.integers(2, 8), st.integers(1, 10))
def test_uniform_cuts_where_below_says(values: list[float], bins: int, parts: int) -> None:
    histogram = over(declared("histogram", bins=bins), values)
    cuts = histogram.uniform(parts)
    assert cuts == sorted(cuts)
    for part, cut in enumerate(cuts, 1):
        wanted, error = len(values) * part / parts, 1e-6 * len(values)
        # Where several numbers are the same, the count jumps at them.
        assert histogram.below(math.nextafter(cut, -math.inf)) - error <= wanted
        assert wanted <= histogram.below(math.nextafter(cut, math.inf)) + error


def test_a_histogram_is_all_there_is_below_and_above_its_ends() -> None:
    histogram = over(declared("histogram", bins=2), [1, 2, 3, 4, 5, 6])
    assert [histogram.below(number) for number in (0, 6, 7)] == [0, 6, 6]
    assert [histogram.quantile(fraction).value for fraction in (0, 1)] == [1, 6]


@pytest.mark.parametrize("parts", [1, 2, 16])
def test_quantiles_of_a_large_stream_are_near_the_truth_however_it_is_split(parts: int) -> None:
    source = random.Random(3)
    values = [source.lognormvariate(0, 1) for _ in range(8000)]
    it = declared("histogram", quantiles=[0.01, 0.1, 0.5, 0.9, 0.99])
    state = in_parts(it, values, parts)
    for quantile in it.finish(state)["quantiles"]:
        rank = sum(value <= quantile["value"] for value in values) / len(values)
        assert rank == pytest.approx(quantile["q"], abs=0.02)
    assert len(orjson.dumps(it.encode(state))) < 8000


def test_numbers_at_the_ends_of_all_floats_do_no_harm() -> None:
    it = declared("histogram", bins=3)
    values = [-1.7e308, 1.7e308, 0.0, -0.0, 1e308, -1e308, 5e-324]
    state = over(it, values)
    found = it.finish(state)
    assert all(math.isfinite(quantile["value"]) for quantile in found["quantiles"])
    assert (found["n"], found["min"], found["max"]) == (7, -1.7e308, 1.7e308)
    assert 0 <= state.below(1.5e308) <= 7


# Top-k


@pytest.mark.parametrize("parts", [1, 5, 40])
def test_frequent_values_are_found_with_their_counts_bounded(parts: int) -> None:
    stream = words(20_000, seed=1)
    it = declared("top-k", k=5, capacity=100)
    state = in_parts(it, stream, parts)
    exact = Counter(stream)
    assert len(exact) > 1000
    assert [entry["value"] for entry in it.finish(state)] == [value for value, _ in exact.most_common(5)]
    for entry in it.finish(state):
        assert entry["least"] <= exact[entry["value"]] <= entry["most"] <= entry["least"] + 20_000 // 101
    assert len(state.counts) <= 100


def test_values_as_frequent_as_each_other_come_in_the_order_of_their_text() -> None:
    it = declared("top-k", k=2)
    assert [entry["value"] for entry in it.finish(over(it, ["c", "a", "b", None, "a", "c", "b"]))] == ["a", "b"]


def test_long_texts_take_little_room_and_stay_different() -> None:
    texts = ["ä" * 5000 + str(number) for number in range(50)]
    short = [bounded(text) for text in texts]
    assert len(set(short)) == 50
    assert all(len(text.encode()) <= LONGEST and text.startswith("ääää") for text in short)
    exact = ["x" * LONGEST, "ç" * (LONGEST // 2), "", "12"]
    assert [bounded(text) for text in exact] == exact
    assert len(bounded("x" * (LONGEST + 1))) < LONGEST


# Naive Bayes


def classified(count: int, seed: int) -> list[tuple[str, str, str]]:
    source = random.Random(seed)
    return [
        (source.choice("xyz"), f"w{int(source.paretovariate(0.8))}", f"s{source.randrange(4)}") for _ in range(count)
    ]


def test_words_are_counted_with_their_classes() -> None:
    it = declared("naive-bayes", features=["word"])
    events = [("spam", "win"), ("spam", "win"), ("ham", "win"), ("ham", None), (None, "win"), ("ham", "hi")]
    assert it.finish(over(it, events)) == {
        "events": 5,
        "classes": {"ham": 3, "spam": 2},
        "features": {
            "word": {
                "classes": {"ham": 2, "spam": 2},
                "values": {"hi": {"ham": 1}, "win": {"ham": 1, "spam": 2}},
            }
        },
        "complete": True,
    }


def test_a_key_that_is_the_word_needs_no_features() -> None:
    it = declared("naive-bayes")
    found = it.finish(over(it, ["spam", "ham", "spam", None]))
    assert found == {"events": 3, "classes": {"ham": 1, "spam": 2}, "features": {}, "complete": True}


@pytest.mark.parametrize("parts", [2, 7, 50])
def test_without_room_for_all_the_same_exact_counts_are_left_whatever_the_split(parts: int) -> None:
    events = classified(3000, seed=5)
    it = declared("naive-bayes", features=["word", "s"], entries=200)
    whole = it.finish(over(it, events))
    assert it.finish(in_parts(it, events, parts)) == whole
    assert whole["complete"] is False
    pairs = Counter((word, label) for label, word, _ in events)
    values = whole["features"]["word"]["values"]
    assert 20 < len(values) < len({word for _, word, _ in events})
    assert all(counts == {c: pairs[word, c] for c in "xyz" if pairs[word, c]} for word, counts in values.items())
    assert whole["features"]["word"]["classes"] == whole["classes"] == Counter(label for label, _, _ in events)
    assert len(orjson.dumps(it.encode(over(it, events)))) < 200 * 40


def test_what_is_left_does_not_depend_on_how_frequent_it_is_in_a_part() -> None:
    it = declared("naive-bayes", features=["word"], entries=10)
    common, rare = [("c", f"w{i}") for i in range(5)] * 10, [("c", f"w{i}") for i in range(40)]
    assert it.finish(it.merge(over(it, common), over(it, rare))) == it.finish(over(it, rare + common))


def test_more_classes_than_there_is_room_for_are_said_to_be_too_many() -> None:
    it = declared("naive-bayes", entries=3)
    assert it.finish(over(it, list("abc")))["complete"]
    overfull = over(it, list("abcd"))
    found = it.finish(overfull)
    assert found == {
        "events": 4,
        "classes": None,
        "features": None,
        "complete": False,
        "exceeded": "the classes alone need more than 3 counts: allow more entries, at most 10000",
    }
    assert it.finish(it.merge(overfull, over(it, ["a"]))) == {**found, "events": 5}
    assert it.finish(it.decode(orjson.loads(orjson.dumps(it.encode(overfull))))) == found
    bounds = it.expected("abcd")
    assert bounds.accept(found)
    assert not any(map(bounds.accept, (None, {**found, "events": 5}, {**found, "exceeded": ""})))


# Bounds


WRONG: dict[str, list[Any]] = {
    "top-k": [
        lambda found: found[:-1],
        lambda found: found[::-1],
        lambda found: [*found[:-1], found[0]],
        lambda found: [{**found[0], "least": found[0]["most"] + 1, "most": found[0]["most"] + 1}, *found[1:]],
        lambda found: [{**found[0], "least": 0}, *found[1:]],
        lambda found: [*found[:-1], {"value": "w99999", "least": 1, "most": 1}],
        lambda found: found[1:],
        lambda _: [],
        lambda _: None,
        lambda _: [1],
    ],
    "histogram": [
        lambda found: {**found, "n": found["n"] + 1},
        lambda found: {**found, "min": found["min"] - 1},
        lambda found: {**found, "bins": found["bins"][1:]},
        lambda found: {**found, "bins": [[found["bins"][0][0] + 1, found["bins"][0][1]], *found["bins"][1:]]},
        lambda found: {**found, "bins": [[found["bins"][0][0], 0.5]] * 99},
        lambda found: {**found, "quantiles": found["quantiles"][1:]},
        lambda found: {**found, "quantiles": [{**q, "least": q["most"] + 1e9} for q in found["quantiles"]]},
        lambda found: {**found, "quantiles": [{**q, "value": q["most"] + 1e9} for q in found["quantiles"]]},
        lambda found: {**found, "quantiles": [{"q": 0.5}] * 3},
        lambda _: None,
        lambda _: {},
    ],
    "naive-bayes": [
        lambda found: {**found, "events": found["events"] + 1},
        lambda found: {**found, "complete": not found["complete"]},
        lambda found: {**found, "classes": {}},
        lambda found: {**found, "features": {}},
        lambda found: {**found, "features": {"f": {**found["features"]["f"], "classes": {}}}},
        lambda found: {**found, "features": {"f": {**found["features"]["f"], "values": {"w1": {"x": 10**6}}}}},
        lambda found: {**found, "features": {"f": {**found["features"]["f"], "values": {"w0": {"x": 1}}}}},
        lambda _: None,
        lambda _: {},
    ],
}


@pytest.mark.parametrize("room", ["little", "enough"])
@pytest.mark.parametrize(("op", "wrong"), [(op, change) for op, changes in WRONG.items() for change in changes])
def test_bounds_accept_what_an_aggregate_says_and_nothing_beyond(op: str, wrong: Any, room: str) -> None:
    little = room == "little"
    stream = words(900, seed=2)
    declarations: dict[str, tuple[Aggregate, Sequence[Any]]] = {
        "top-k": (declared("top-k", k=4, capacity=60 if little else 900), stream),
        "histogram": (declared("histogram", bins=12 if little else 900), [float(word[1:]) for word in stream]),
        "naive-bayes": (
            declared("naive-bayes", features=["f"], entries=80 if little else 5000),
            [(label, word) for label, word, _ in classified(900, seed=2)],
        ),
    }
    it, values = declarations[op]
    bounds = it.expected(values)
    found = it.finish(in_parts(it, values, 3))
    assert bounds.accept(found)
    assert not bounds.accept(wrong(found))
