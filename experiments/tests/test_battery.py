"""Laws of the battery: the oracle counts as one does by hand, and finds what the library's own measures find."""

import csv
from pathlib import Path

import numpy as np
import pytest
from keygrouping.measure import IndexedDistribution
from keygrouping.simulate import Deal, create_sources
from keygrouping.workload import workload
from keygrouping_experiments.battery import LAMBDA, PLANNED, RIVALS, STREAMS, Scope, measure
from keygrouping_experiments.battery_cli import main
from keygrouping_experiments.battery_rules import findings, worse
from keygrouping_experiments.level_run import Drive
from keygrouping_experiments.oracle import Oracle

SMALL = Scope(sources=(2,), workers=(4,), seeds=(0,), interval=2_000, intervals=8)


def numbers(*given: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(given, np.int64)


class TestOracle:
    def test_counts_as_by_hand(self) -> None:
        oracle = Oracle()
        oracle.take(numbers(7, 7, 8, 9), np.array([1.0, 2.0, 2.0, 3.0]), numbers(0, 1, 1, 1).astype(np.int32), 2)
        (verdict,) = oracle.verdicts
        assert (verdict.lambda_, verdict.least, verdict.cost) == (1.75, 0.25, 4 / 3)
        assert oracle.efficiency == 8 / (2 * 7) and oracle.run_cost == 4 / 3

    def test_a_new_number_of_workers_begins_with_empty_queues(self) -> None:
        oracle = Oracle()
        oracle.take(numbers(1, 2), None, numbers(0, 1).astype(np.int32), 2)
        oracle.take(numbers(1, 2), None, numbers(0, 0).astype(np.int32), 1)
        assert oracle.efficiency == 1.0 and oracle.run_cost == 1.5

    def test_a_queue_makes_all_sources_wait(self) -> None:
        """The second worker's events come after 1,500 of the first one's, of which 1,000 fit into its queue."""
        oracle = Oracle()
        chosen = np.repeat(np.array([0, 1], np.int32), 1_500)
        oracle.take(np.zeros(3_000, np.int64), None, chosen, 2)
        assert oracle.efficiency == pytest.approx(3_000 / (2 * (500 + 1_500)), rel=1e-3)

    @pytest.mark.parametrize("chosen", [(0, 2), (0, -1), (0,)])
    def test_every_event_has_a_worker(self, chosen: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match="every event needs one of 2 workers"):
            Oracle().take(numbers(1, 2), None, np.array(chosen, np.int32), 2)

    @pytest.mark.parametrize("name", ["zipf", "pareto-weights"])
    def test_finds_what_the_measures_find(self, name: str) -> None:
        oracle, distribution = Oracle(), IndexedDistribution(4)
        groupings = create_sources("level-fill", 4, 3)
        for chunk, chosen, workers in Drive(workload(name, 9_000, 1), groupings, None, 3_000, Deal.KEY):
            oracle.take(chunk.keys, chunk.weights, chosen, workers)
            distribution.add_many(chosen, chunk.keys, chunk.weights)
            measures = distribution.interval()
            verdict = oracle.verdicts[-1]
            assert (verdict.lambda_, verdict.cost) == pytest.approx((measures.lambda_, measures.dist_cost))
        assert len(oracle.verdicts) == 3 and oracle.run_cost == pytest.approx(distribution.run().dist_cost)


class TestBattery:
    def test_has_the_streams_that_people_have(self) -> None:
        assert len({each.name for each in STREAMS}) == len(STREAMS) >= 20

    def test_every_stream_gives_figures_for_every_rival(self) -> None:
        rows = list(measure(SMALL))
        assert len(rows) == len(STREAMS) * len(RIVALS)
        assert all(float(row[LAMBDA]) >= 1 for row in rows)
        kept = {each.promise for each in findings(rows)}
        assert {"λ no worse than key", "efficiency no worse than level-fill, no plan", "λ at most 1.1"} <= kept

    def test_the_command_prints_and_writes_what_it_found(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        scope = ["--sources", "2", "--workers", "4", "--seeds", "0", "--interval", "1000", "--intervals", "8"]
        main([*scope, "--deal", "round-robin", "--streams", "80 % skew", "--output", str(tmp_path)])
        assert len(capsys.readouterr().out.splitlines()) == 1 + len(RIVALS)
        with (tmp_path / "battery.csv").open(encoding="utf-8", newline="") as file:
            assert [row["grouping"] for row in csv.DictReader(file)] == list(RIVALS)
        text = (tmp_path / "battery.md").read_text("utf-8")
        assert "`round-robin`" in text and "| 80 % skew | 4 | 2 |" in text

    def test_the_same_arguments_are_the_same_figures(self) -> None:
        scope = Scope(STREAMS[:2], (2,), (4,), (PLANNED,), (1,), interval=1_000, intervals=8)
        assert list(measure(scope)) == list(measure(scope))


class TestRules:
    def test_worse_means_by_more_than_the_margin(self) -> None:
        assert worse((1.02,), (1.0,)) == pytest.approx(0.01) and not worse((1.009,), (1.0,))

    def test_chance_is_not_worse(self) -> None:
        assert not worse((1.2, 0.95, 1.01, 1.0), (1.0, 1.0, 1.0, 1.0))
        assert worse((1.05, 1.04, 1.05, 1.06), (1.0, 1.0, 1.0, 1.0))
