"""Every experiment runs and compares all that was published; what they are made of does what it says."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.grouping import Planned, create
from keygrouping.grouping.choices.pkg import PkgSettings
from keygrouping.hashing import hash_keys
from keygrouping.workload import workload
from keygrouping_experiments import Lab, Outcome, experiment, lab, level_fill, migration, mixed_table, names, pkg
from keygrouping_experiments.dkg import FEW_WORKERS, RATE, measure
from keygrouping_experiments.probing import Probing
from keygrouping_experiments.published import published
from keygrouping_experiments.streams import Unsourced, key_counts

KEYS = [b"key-%d" % number for number in range(40)]
SKEWED = {"country-skew-20", "country-skew-30", "country-skew-40", "country-skew-60", "country-skew-80"}
ZIPF_1 = {"zipf z=1.0 keys=10,000", "zipf z=1.0 keys=1,000,000", "ln1"}
ZIPF_HALF = {"zipf z=0.5 keys=1,000,000"}
DESIGNED = [
    (SKEWED - {"country-skew-30"}, "default", {10: (1.005, 0.01, 1.05, 1.13)}),
    ({"country-skew-30", "country-skew-80"}, "default", {5: (1.005, 0.01, 1.05, 1.13)}),
    (
        {"country-skew-40", "country-skew-80"},
        "default",
        {10: (1.005, 0.01, 1.05, 1.06), 50: (1.01, 0.005, 1.25, 1.5), 200: (1.02, 0.005, 2.0, 3.1)},
    ),
    (
        ZIPF_1,
        "balance-first",
        {10: (1.005, 0.03, 1.03, 1.13), 50: (1.01, 0.013, 1.02, 1.05), 200: (1.04, 0.01, 1.06, 1.12)},
    ),
    ({"zipf z=1.5 keys=10,000"}, "default", {10: (1.005, 0.005, 1.01, 1.02), 200: (1.015, 0.003, 1.15, 1.12)}),
    ({"zipf z=2.0 keys=10,000"}, "default", {10: (1.005, 0.005, 1.03, 1.02), 200: (1.015, 0.003, 1.7, 1.3)}),
    (
        ZIPF_HALF,
        "default",
        {10: (1.025, 0.11, 1.0005, 1.002), 50: (1.055, 0.045, 1.0005, 1.002), 200: (1.12, 0.022, 1.0005, 1.002)},
    ),
    (
        ZIPF_HALF,
        "balance-first",
        {10: (1.005, 0.01, 1.015, 1.16), 50: (1.01, 0.01, 1.015, 1.16), 200: (1.055, 0.01, 1.015, 1.16)},
    ),
    ({"country-skew-0"}, "default", {10: (1.03, 0.18, 1.06, 1.4), 50: (1.03, 0.04, 1.45, 2.5)}),
]
"""Streams, variant, and for each number of workers the most λ, STD_DEV, DIST_COST per window and of the run."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few points in time."""
    monkeypatch.setattr(lab, "INTERVALS", 3)
    monkeypatch.setattr(migration, "INTERVALS", 3)
    monkeypatch.setattr(mixed_table, "_GROWTH", 21)
    monkeypatch.setattr(pkg, "_MINUTES", 4)
    monkeypatch.setattr(level_fill, "_SEEDS", 1)
    monkeypatch.setattr(level_fill, "_CASES", level_fill._CASES[:2])
    monkeypatch.setattr(level_fill, "_STREAMS", {"uniform": level_fill._UNIFORM})
    monkeypatch.setattr(level_fill, "names", lambda: ["ln1"])
    yield


def outcome(name: str, events: int, seed: int = 0) -> Outcome:
    return experiment(name).run(Lab(events, seed))


def ours(found: Outcome) -> dict[tuple[str, str], float]:
    return {(each.case, each.measure): each.ours for each in found.comparisons}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", names())
def test_an_experiment_is_whole(name: str) -> None:
    found = outcome(name, 1000)
    assert found.rows
    assert len({tuple(row) for row in found.rows}) == 1
    assert {(each.case, each.measure) for each in found.comparisons} == set(published(name))
    assert found.comparisons or found.claims
    assert found.panels
    for panel in found.panels:
        assert panel.lines
        assert all(len(line.x) == len(line.y) > 0 for line in panel.lines)
    assert all(claim.what and claim.source and claim.measured for claim in found.claims)


def test_level_fills_targets_are_those_of_its_design() -> None:
    cases = {(level_fill._named(case.stream), case.workers, case.variant): case for case in level_fill._CASES}
    designed = [
        ((stream, workers, variant), targets)
        for streams, variant, by_workers in DESIGNED
        for stream in streams
        for workers, targets in by_workers.items()
    ]
    assert len(cases) == len(level_fill._CASES) and cases.keys() == {row for row, _ in designed}
    for row, targets in designed:
        case = cases[row]
        assert all(np.array([case.lambda_, case.std_dev, case.cost, case.run_cost]) <= targets), row
        assert case.largest == 1.01 if case.regime == level_fill._ONE_HOT else case.largest is None
        calm = row in {(f"country-skew-{s}", w, "default") for s, w in ((20, 10), (40, 10), (80, 10), (80, 50))}
        assert case.calm == 0 if calm else case.calm in (0.003, None)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["pkg-memory", "dstream-synopsis", "mixed-migration"])
def test_the_same_scale_and_seed_are_the_same_figures(name: str) -> None:
    timeless = [
        [
            {column: cell for column, cell in row.items() if column != "plan time (s)"}
            for row in outcome(name, 600, 5).rows
        ]
        for _ in range(2)
    ]
    assert timeless[0] == timeless[1]


def test_key_grouping_and_pkg_are_as_fast_to_shuffle_as_in_table_3() -> None:
    """Within 3 %, whatever the length: where the hot key goes doesn't change."""
    trial = Lab(100_000)
    stream = trial.workload("twitter-election")
    rates = {label: float(measure(trial, stream, label, FEW_WORKERS)[RATE]) for label in ("SG", "KG", "PKG")}
    for label in ("KG", "PKG"):
        figure = published("dkg-table-3")[label, "throughput relative to SG"].value
        assert rates[label] / rates["SG"] == pytest.approx(figure, rel=0.03)


def test_dkg_is_simulated_at_the_pace_that_it_reaches() -> None:
    """At full pace 400,000 events last 40 s, too short to widen a key; two workers take them in 200 s."""
    trial = Lab(400_000)
    row = measure(trial, trial.workload("country-skew-100"), "DKG", FEW_WORKERS)
    assert int(row["widest key"]) >= 4


@pytest.mark.usefixtures("quick")
def test_the_numbers_of_choices_are_those_of_the_authors() -> None:
    assert all(each.ratio == 1 for each in outcome("choices-zipf", 100).comparisons)


@pytest.mark.usefixtures("quick")
def test_thresholds_are_those_of_table_1() -> None:
    assert all(each.ratio == pytest.approx(1, rel=2e-3) for each in outcome("dkg-workers", 100).comparisons)


def test_the_bound_of_dstream_is_that_of_its_table() -> None:
    bound = next(line for line in outcome("dstream-precision", 100).panels[0].lines if line.label == "lower bound")
    table = [published("dstream-precision")[f"c={c}", "keys with 2^c events or more (%)"].value for c in (7, 8, 9, 10)]
    assert bound.y == pytest.approx(tuple(table), abs=0.05)


def test_top_shares_are_those_of_table_1() -> None:
    """Within 5 % for those that don't drift, on a part of their length."""
    for name, symbol in (("wikipedia-pageviews", "WP"), ("words", "TW"), ("ln1", "LN1"), ("ln2", "LN2")):
        counts = key_counts(workload(name, 200_000))
        share = published("pkg-imbalance")[symbol, "share of the top key (%)"].value
        assert 100 * counts.max() / counts.sum() == pytest.approx(share, rel=0.05)


class TestProbing:
    @given(st.lists(st.integers(0, 39), max_size=60), st.integers(1, 7), st.integers(0, 60))
    def test_one_source_that_probes_decides_like_pkg(self, drawn: list[int], workers: int, at: int) -> None:
        probing, plain = Probing(workers), create("pkg", workers)
        hashes = hash_keys(KEYS, plain.seeds)[np.array(drawn, np.int64)]
        routed = [probing.route_batch(hashes[:at], None, 0.0)]
        probing.apply(probing.plan([probing.statistics()]))
        routed.append(probing.route_batch(hashes[at:], None, 0.0))
        assert np.concatenate(routed).tolist() == plain.route_batch(hashes, None, 0.0).tolist()

    def test_sources_go_on_from_their_part_of_all_loads(self) -> None:
        sources = [Probing(4, PkgSettings(distinct_choices=False)) for _ in range(3)]
        assert all(isinstance(source, Planned) for source in sources)
        hashes = hash_keys(KEYS, sources[0].seeds)
        sent = np.zeros(4)
        for times in (1, 2):
            for number, source in enumerate(sources):
                part = np.tile(hashes[number::3], (times, 1))
                sent += np.bincount(source.route_batch(part, None, 0.0), minlength=4)
            plan = sources[0].plan([source.statistics() for source in sources])
            for source in sources:
                source.apply(plan)
            assert [source.snapshot()["state"]["loads"] for source in sources] == [pytest.approx(sent / 3)] * 3
            assert [source.epoch for source in sources] == [times] * 3


class TestStreams:
    def test_counts_are_those_of_the_stream(self) -> None:
        stream = workload("zipf", 70_000, 1, {"keys": 30})
        counts = key_counts(stream)
        keys = np.concatenate([chunk.keys for chunk in stream.chunks()])
        assert counts.tolist() == np.bincount(keys, minlength=len(stream.table)).tolist()

    def test_unsourced_events_are_the_same_but_for_their_sources(self) -> None:
        stream = workload("slashdot", 500)
        (sourced,), (plain,) = stream.chunks(), Unsourced(stream).chunks()
        assert sourced.sources is not None and plain.sources is None
        assert plain.keys.tolist() == sourced.keys.tolist()
        assert Unsourced(stream).table is stream.table and Unsourced(stream).events == 500


class TestAdjustments:
    def test_plans_balance_within_the_tolerance_where_they_say_so(self) -> None:
        made = migration.adjustments(Lab(100_000), "mixed", {"theta_max": 0.1}, keys=500, instances=4)
        assert len(made) == migration.INTERVALS
        assert all(each.loads.sum() == 2000 for each in made)
        assert any(each.feasible for each in made)
        assert all(each.skewness <= 1.1 + 1e-9 for each in made if each.feasible)
        assert all(0 <= each.moved <= 1 and each.seconds > 0 for each in made)

    def test_a_table_that_tolerates_anything_moves_nothing(self) -> None:
        made = migration.adjustments(Lab(20_000), "mixed", {"theta_max": 1e9}, keys=100, instances=3, intervals=4)
        assert [(each.moved, each.entries) for each in made] == [(0, 0)] * 4

    def test_the_mean_leaves_out_the_beginning(self) -> None:
        made = migration.adjustments(Lab(20_000), "mixed", {}, keys=100, instances=3, intervals=10)
        expected = math.fsum(each.skewness for each in made[1:]) / 9
        assert migration.mean(made, "skewness") == pytest.approx(expected)
