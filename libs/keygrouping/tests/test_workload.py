"""Laws of all generated workloads; the country workloads have the published keys and skews."""

import tracemalloc
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from keygrouping.hashing import hash_key
from keygrouping.workload import COUNTRIES, HOT_COUNTRY, Chunk, Workload, WorkloadError, describe, names, workload
from keygrouping.workload.stream import CHUNK
from numpy.typing import NDArray

EVENTS = 70_001
QUICK = {
    "wikipedia-pageviews": {"keys": 1_000_000},
    "words": {"keys": 1_000_000},
    "livejournal": {"keys": 1_000_000},
    "moving-hot-key": {"interval": 20_000},
    "rotating-head": {"interval": 20_000},
    "swap": {"interval": 20_000},
    "fluctuation": {"interval": 20_000},
}
CUT_BY_LENGTH = {"cashtags", "step"}
"""Workloads whose parts are fractions of the whole, so that a longer one doesn't begin with a shorter one."""


def joined(chunks: Iterator[Chunk]) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Positions, weights and sources of a stream."""
    keys, weights, sources = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0, np.int64)]
    for chunk in chunks:
        keys.append(chunk.keys)
        weights.append(np.ones(len(chunk)) if chunk.weights is None else chunk.weights)
        sources.append(np.zeros(len(chunk), np.int64) if chunk.sources is None else chunk.sources)
    return np.concatenate(keys), np.concatenate(weights), np.concatenate(sources)


def beginning(stream: Workload) -> list[bytes]:
    """The first keys."""
    keys = next(stream.chunks()).keys[:200]
    return [stream.table.name(index) for index in keys]


@pytest.mark.parametrize("name", names())
def test_a_seed_is_a_stream_that_can_be_read_again(name: str) -> None:
    stream = workload(name, EVENTS, 3, QUICK.get(name))
    half_read = stream.chunks()
    next(half_read)
    first, again = joined(stream.chunks()), joined(stream.chunks())
    other = workload(name, EVENTS, 3, QUICK.get(name))
    same = joined(other.chunks())
    for left, middle, right in zip(first, again, same, strict=True):
        assert np.array_equal(left, middle) and np.array_equal(left, right)
    assert beginning(stream) == beginning(other)
    assert beginning(stream) != beginning(workload(name, EVENTS, 4, QUICK.get(name))) or name == "country-skew-100"


@pytest.mark.parametrize("name", names())
def test_chunks_are_small_and_fit_the_table(name: str) -> None:
    stream = workload(name, EVENTS, 1, QUICK.get(name))
    total = 0
    for chunk in stream.chunks():
        total += len(chunk)
        assert 0 < len(chunk) <= CHUNK
        assert chunk.keys.dtype == np.int64
        assert chunk.keys.min() >= 0 and chunk.keys.max() < len(stream.table)
        assert chunk.weights is None or (chunk.weights.shape == chunk.keys.shape and chunk.weights.min() >= 1)
        assert chunk.sources is None or chunk.sources.shape == chunk.keys.shape
    assert total == EVENTS == stream.events


@pytest.mark.parametrize("name", [name for name in names() if not name.startswith("country")])
def test_the_table_holds_the_keys_that_were_met_in_their_order(name: str) -> None:
    stream = workload(name, EVENTS, 1, QUICK.get(name))
    keys = joined(stream.chunks())[0]
    distinct, first = np.unique(keys, return_index=True)
    assert distinct.tolist() == list(range(len(stream.table)))
    assert (np.diff(first) > 0).all()
    hashes = stream.table.hashes((13, 17))
    place = len(distinct) - 1
    assert hashes[place].tolist() == [hash_key(stream.table.name(place), seed) for seed in (13, 17)]


@pytest.mark.parametrize("name", [n for n in names() if n not in CUT_BY_LENGTH and not n.startswith("country")])
def test_a_longer_stream_begins_with_a_shorter_one(name: str) -> None:
    longer, shorter = (joined(workload(name, events, 1, QUICK.get(name)).chunks()) for events in (EVENTS, EVENTS - 999))
    for left, right in zip(longer, shorter, strict=True):
        assert np.array_equal(left[: len(right)], right)


@pytest.mark.parametrize("name", ["country-half-skew", "zipf", "cashtags", "burst"])
@pytest.mark.parametrize("events", [0, 1, 10_000, 10_001, 65_536])
def test_a_stream_has_its_length(name: str, events: int) -> None:
    assert sum(map(len, workload(name, events).chunks())) == events


@pytest.mark.parametrize("name", ["country-skew-80", "zipf", "ln2", "nasdaq", "moving-hot-key"])
def test_memory_does_not_grow_with_the_events(name: str) -> None:
    settings = {"keys": 5_000} if name in ("zipf", "nasdaq", "moving-hot-key") else {}
    peaks = []
    for chunks in (4, 24):
        stream = workload(name, chunks * CHUNK, settings=settings)
        tracemalloc.start()
        for _ in stream.chunks():
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] < 20_000_000


@pytest.mark.parametrize("name", names())
def test_the_described_defaults_are_the_defaults(name: str) -> None:
    defaults = {setting.name: setting.default for setting in describe(name)}
    assert all(setting.meaning for setting in describe(name))
    stated, default = (joined(workload(name, 1000, 1, given).chunks()) for given in (defaults, None))
    assert all(np.array_equal(left, right) for left, right in zip(stated, default, strict=True))


def counts(name: str, events: int = 100_000) -> list[Counter[bytes]]:
    """Counts of the first and the second half."""
    stream = workload(name, events)
    keys = [stream.table.name(index) for index in joined(stream.chunks())[0]]
    return [Counter(keys[: events // 2]), Counter(keys[events // 2 :])]


def test_there_are_204_different_names() -> None:
    assert len(COUNTRIES) == len(set(COUNTRIES)) == 204
    assert {HOT_COUNTRY, "Korea, North", "North Korea", "East Timor", "Timor-Leste"} <= set(COUNTRIES)


@pytest.mark.parametrize("skew", range(0, 101, 10))
def test_the_hot_country_has_its_share_and_the_others_the_rest(skew: int) -> None:
    first, second = counts(f"country-skew-{skew}")
    expected = skew / 100 + (1 - skew / 100) / 204
    for half in (first, second):
        assert half[b"Turkey"] / half.total() == pytest.approx(expected, abs=0.01)
    assert len(first + second) == (204 if skew < 100 else 1)


def test_half_skew_is_skewed_only_at_first() -> None:
    first, second = counts("country-half-skew")
    assert first[b"Turkey"] / first.total() == pytest.approx(0.801, abs=0.01)
    assert second[b"Turkey"] / second.total() == pytest.approx(1 / 204, abs=0.01)


def test_a_seed_of_a_country_workload_means_the_same_stream_for_ever() -> None:
    events, hot = 25_001, COUNTRIES.index(HOT_COUNTRY)
    for name, skews in (("country-skew-37", [37]), ("country-half-skew", [80, 0])):
        random = np.random.default_rng(7)
        stream = workload(name, events, 7)
        start = 0
        for size, chunk in zip((10_000, 10_000, 5_001), stream.chunks(), strict=True):
            skew = np.array([skews[place * len(skews) // events] for place in range(start, start + size)])
            is_hot = random.integers(0, 100, size) < skew
            assert np.array_equal(chunk.keys, np.where(is_hot, hot, random.integers(0, 204, size)))
            start += size


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        (
            "country-skew-101",
            {},
            r"unknown workload 'country-skew-101'; choose from country-skew-R \(R from 0 to 100\)",
        ),
        ("country-skew-08", {}, "unknown workload .* country-half-skew, zipf, ln1"),
        ("zip", {}, "unknown workload 'zip'; choose from .* moving-hot-key, fluctuation"),
        ("country-skew-80", {"keys": 3}, "workload 'country-skew-80': unknown setting keys; choose from none"),
        ("zipf", {"k": 3}, "workload 'zipf': unknown setting k; choose from z, keys"),
        ("zipf", {"z": -1}, "workload 'zipf': z must be from 0 to 10, not -1"),
        ("zipf", {"keys": 1.5}, "keys must be an integer"),
        ("words", {"keys": 10, "top_share": 0.05}, r"top_share must be at least 1/10 with 10 keys, not 0.05"),
        ("clickstream", {"keys": 10, "top_lines": 0.05}, "top_lines must be at least 1/10 with 10 keys, not 0.05"),
        ("slashdot", {"keys": 10, "top_source": 0.05}, "top_source must be at least 1/10"),
        ("cashtags", {"keys": 10, "top_share": 0.2, "weeks": 4}, "weeks times turnover must be at most 10, not 20"),
        ("nasdaq", {"head": 0.5, "head_share": 0.4}, "head_share must be at least head, not 0.4"),
        ("nasdaq", {"keys": 2, "head": 0.08}, "head must be at least 1/2 with 2 keys"),
        ("burst", {"length": 10, "interval": 5}, "length must be at most 5, not 10"),
        ("swap", {"swaps": 10, "keys": 15}, "swaps must be at most half of keys"),
        ("rotating-head", {"keys": 5}, "head must be at most 5"),
    ],
)
def test_an_error_is_one_line_that_names_the_choices(name: str, given: dict[str, object], message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as raised:
        workload(name, 1, settings=given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("events", "seed"), [(-1, 0), (1, -1), (1.0, 0), (True, 0), (1, "x")])
def test_a_length_and_a_seed_are_not_negative(events: int, seed: int) -> None:
    with pytest.raises(WorkloadError, match="must be an integer that is not negative"):
        workload("country-skew-0", events, seed)


def test_an_unknown_name_has_no_description() -> None:
    with pytest.raises(WorkloadError, match="unknown workload"):
        describe("zip")
