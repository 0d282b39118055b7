"""Generators have the statistics that the papers publish for the data sets that they stand for."""

import math

import numpy as np
import pytest
from keygrouping.hashing import hash_key
from keygrouping.workload import Workload, describe, workload
from keygrouping.workload.datasets import Popular
from keygrouping.workload.popularity import Zipf
from keygrouping.workload.registry import _class
from numpy.typing import NDArray

MILLION = 1_000_000


def totals(stream: Workload) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Weight and number of events per key."""
    weights, lines = np.zeros(0), np.zeros(0, np.int64)
    for chunk in stream.chunks():
        size = len(stream.table)
        weight = np.bincount(chunk.keys, chunk.weights, minlength=size).astype(float)
        line = np.bincount(chunk.keys, minlength=size)
        weight[: len(weights)] += weights
        line[: len(lines)] += lines
        weights, lines = weight, line
    return weights, lines


def expected_keys(ranks: Zipf, events: float) -> float:
    """Mean number of different keys among so many events."""
    near = np.arange(1, min(ranks.keys, 20_000) + 1)
    met = float(-np.expm1(-events * ranks.share(near)).sum())
    if ranks.keys > len(near):
        edges = np.geomspace(len(near) + 0.5, ranks.keys + 0.5, 5_000)
        middles = np.sqrt(edges[1:] * edges[:-1])
        met += float((np.diff(edges) * -np.expm1(-events * middles**-ranks.z * float(ranks.share(1)))).sum())
    return met


@pytest.mark.parametrize(
    ("name", "messages", "keys", "top_share"),
    [
        ("wikipedia-pageviews", 22e6, 2.9e6, 0.0932),
        ("words", 1.2e9, 31e6, 0.0267),
        ("livejournal", 69e6, 4.9e6, 0.0029),
        ("slashdot", 905e3, 77e3, 0.0328),
        ("slashdot-0902", 948e3, 82e3, 0.0311),
        ("ticker", 1.5e6, 2.9e3, 0.10),
    ],
)
def test_published_keys_and_top_share(name: str, messages: float, keys: float, top_share: float) -> None:
    model = _class(name).of({})
    assert isinstance(model, Popular)
    assert expected_keys(model.ranks(), messages) == pytest.approx(keys, rel=0.01)
    events = MILLION // 2
    stream = workload(name, events, 1)
    _, lines = totals(stream)
    assert lines.max() / events == pytest.approx(top_share, abs=4 * math.sqrt(top_share / events))
    assert len(stream.table) == pytest.approx(expected_keys(model.ranks(), events), rel=0.01)


@pytest.mark.parametrize(
    ("name", "keys", "top_share", "top"), [("ln1", 16, 0.1471, b"key-0"), ("ln2", 1.1, 0.0701, b"key-3")]
)
def test_log_normal_keys(name: str, keys: float, top_share: float, top: bytes) -> None:
    events = 10 * MILLION
    stream = workload(name, events, 1)
    _, lines = totals(stream)
    assert lines.max() / events == pytest.approx(top_share, abs=0.0004)
    assert stream.table.name(int(lines.argmax())) == top
    assert len(stream.table) / 1_000 == pytest.approx(keys, rel=0.03)


def test_twitter_election_has_a_made_hot_key_and_the_dist_cost_of_shuffling() -> None:
    events, workers = 5 * MILLION, 10
    stream = workload("twitter-election", events, 1)
    _, lines = totals(stream)
    assert stream.table.name(int(lines.argmax())) == b"tag-0"
    assert lines.max() / events == pytest.approx(0.68, abs=0.001)
    workers_per_key = workers * (1 - (1 - 1 / workers) ** lines)
    assert workers_per_key.mean() == pytest.approx(2.449, rel=0.01)


def test_cashtags_drift_from_week_to_week() -> None:
    events = 690_000
    stream = workload("cashtags", events, 1)
    weeks = np.zeros((4, 2_900))
    place = 0
    for chunk in stream.chunks():
        assert place * 4 // events == (place + len(chunk) - 1) * 4 // events, "a chunk lies within a week"
        weeks[place * 4 // events] += np.bincount(chunk.keys, minlength=2_900)
        place += len(chunk)
    assert len(stream.table) == 2_900
    total = weeks.sum(axis=0)
    assert total.max() / events == pytest.approx(0.0329, abs=0.001)
    tops = [set(np.argsort(week)[-5:]) for week in weeks]
    assert len(set.union(*tops)) == 20, "no week shares one of its five hottest keys with another"
    assert weeks.max() / weeks.sum(axis=1)[0] > 2 * 0.0329
    tail = np.argsort(total)[:2_000]
    assert np.corrcoef(weeks[0, tail], weeks[3, tail])[0, 1] > 0.2, "the others stay what they are"


@pytest.mark.parametrize(
    ("name", "top_share", "top_lines", "mean", "tolerance"),
    [("pageviews-by-language", 0.27, 0.27, 5, 0.02), ("clickstream", 0.10, 0.005, 364, 0.06)],
)
def test_weighted_lines(name: str, top_share: float, top_lines: float, mean: float, tolerance: float) -> None:
    stream = workload(name, MILLION, 1)
    weights, lines = totals(stream)
    assert weights.argmax() == lines.argmax()
    assert weights.max() / weights.sum() == pytest.approx(top_share, rel=tolerance)
    assert lines.max() / MILLION == pytest.approx(top_lines, rel=0.05)
    assert weights.sum() / MILLION == pytest.approx(mean, rel=0.02)
    chunk = next(stream.chunks())
    assert chunk.weights is not None and (chunk.weights == np.rint(chunk.weights)).all()


def test_nasdaq_trades_are_80_per_cent_in_8_per_cent_of_the_symbols() -> None:
    stream = workload("nasdaq", 3 * MILLION, 1)
    weights, lines = totals(stream)
    assert 6_649 * 0.8 < len(stream.table) <= 6_649
    head = math.ceil(0.08 * 6_649)
    assert np.sort(lines)[-head:].sum() / lines.sum() == pytest.approx(0.8, abs=0.005)
    assert np.array_equal(weights, lines)
    by_volume = next(workload("nasdaq", 10_000, 1, {"volume": True}).chunks())
    assert by_volume.weights is not None and (by_volume.weights % 100 == 0).all() and by_volume.weights.max() > 1_000


def test_edges_come_from_vertices_with_their_hashes() -> None:
    sources = np.concatenate(
        [c.sources for c in workload("slashdot", MILLION // 4, 1).chunks() if c.sources is not None]
    )
    distinct, counts = np.unique(sources, return_counts=True)
    assert hash_key(b"1") == distinct[counts.argmax()]
    assert counts.max() / len(sources) == pytest.approx(0.0328, abs=0.002)
    assert {hash_key(b"%d" % vertex) for vertex in range(1, 80_197)} >= set(distinct.tolist())


def test_settings_move_the_statistics() -> None:
    _, lines = totals(workload("words", MILLION // 4, 1, {"keys": 50, "top_share": 0.5}))
    assert len(lines) == 50 and lines.max() / lines.sum() == pytest.approx(0.5, abs=0.005)
    assert {setting.name for setting in describe("clickstream")} == {"keys", "top_share", "top_lines", "mean_weight"}
