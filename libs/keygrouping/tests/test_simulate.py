"""Laws of the simulator."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.grouping import Explanation, GroupingError, create, registry
from keygrouping.grouping.base import BaseGrouping
from keygrouping.grouping.level_fill import LevelFill, LevelFillSettings
from keygrouping.grouping.protocol import Hashes, Weights, Workers
from keygrouping.hashing import SEED, hash_key, kafka_hashes, kafka_partitions
from keygrouping.measure import Distribution, Measures
from keygrouping.settings import Settings, SettingsError, setting
from keygrouping.simulate import Deal, Interval, Performance, Result, SimulatorSettings, create_sources, simulate
from keygrouping.simulate.cluster import Cluster
from keygrouping.workload import workload
from keygrouping.workload.stream import Chunk
from keygrouping.workload.table import NumberedKeys

NAN = math.nan


class Stream:
    """A workload of given events, in chunks of a given size."""

    name = "stream"

    def __init__(
        self,
        keys: Sequence[int] | np.ndarray,
        weights: Sequence[float] | None = None,
        sources: Sequence[int] | None = None,
        chunk: int = 1000,
    ) -> None:
        self.table = NumberedKeys(b"key-")
        self.events = len(keys)
        self._keys = self.table.positions(np.asarray(keys, np.int64))
        self._weights = None if weights is None else np.array(weights, float)
        self._sources = None if sources is None else np.array(sources, np.int64)
        self._size = chunk

    def chunks(self) -> Iterator[Chunk]:
        for begin in range(0, self.events, self._size):
            part = slice(begin, begin + self._size)
            weights, sources = self._weights, self._sources
            yield Chunk(
                self._keys[part],
                None if weights is None else weights[part],
                None if sources is None else sources[part],
            )


class Recorder(BaseGrouping[Settings]):
    """Sends everything to the worker that its hash modulo W says, and keeps what it was asked."""

    name: ClassVar[str] = "recorder"
    seeds = (SEED,)

    def __init__(self, workers: int, settings: Settings | None = None) -> None:
        super().__init__(workers, settings)
        self.asked: list[tuple[float, list[int], list[float] | None]] = []

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:
        self.asked.append((now, hashes[:, 0].tolist(), None if weights is None else weights.tolist()))
        return (hashes[:, 0] % self._workers).astype(np.int32)

    def hashes(self) -> list[int]:
        return [hashed for _, hashes, _ in self.asked for hashed in hashes]

    def explain(self, key: bytes | str) -> Explanation:
        raise NotImplementedError

    def _resized(self) -> None: ...

    def _state(self) -> Any: ...

    def _restore_state(self, state: Any, shift: float) -> None: ...


@dataclass(frozen=True)
class PlannerSettings(Settings):
    interval: float | None = setting(10.0, "time between plans", unit="s", above=0)


class Planner(Recorder):
    """Moves all keys on by one worker at each plan."""

    name: ClassVar[str] = "planner"
    settings = PlannerSettings

    def __init__(self, workers: int, settings: Settings | None = None) -> None:
        super().__init__(workers, settings)
        self.interval = self._settings.interval  # type: ignore[attr-defined]
        self.shared = self.interval is None
        self.seen = 0
        self.applied: list[dict[str, Any]] = []

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:
        self.seen += len(hashes)
        return (super().route_batch(hashes, weights, now) + len(self.applied)).astype(np.int32) % self._workers

    def statistics(self, now: float | None = None) -> dict[str, Any]:  # noqa: ARG002
        seen, self.seen = self.seen, 0
        return {"events": seen}

    def plan(self, statistics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        events = sum(part["events"] for part in statistics)
        return {
            "changed": True,
            "moved_keys": 2,
            "moved_state": float(events),
            "feasible": True,
            "hot_keys": 0,
            "table": [[1, 2]],
        }

    def apply(self, plan: Mapping[str, Any]) -> None:
        self._epoch += 1
        self.applied.append(dict(plan))


class Learner(Recorder):
    """Keeps what it was told beforehand."""

    name: ClassVar[str] = "learner"

    def learn(self, hashes: Hashes, weights: Weights) -> None:
        assert not self.asked
        self.learnt = dict(zip(hashes[:, 0].tolist(), weights.tolist(), strict=True))


def hash_of(number: int) -> int:
    return hash_key(b"key-%d" % number)


def keys_of(events: int, skew: float = 0.5, keys: int = 40) -> np.ndarray:
    random = np.random.default_rng(events)
    return np.where(random.random(events) < skew, 0, random.integers(0, keys, events))


# --- queues -----------------------------------------------------------------------------------------------------------


def served(workers: Sequence[int], settings: SimulatorSettings, weights: Sequence[float] | None = None) -> Performance:
    """The performance of two workers with these events."""
    given = None if weights is None else np.array(weights, float)
    cluster = Cluster(2, settings)
    times = cluster.offer(len(workers), given)
    cluster.serve(np.array(workers, np.int32), given, times)
    distribution = Distribution(2)
    distribution.add_many(np.array(workers), list(range(len(workers))), given)
    cluster.interval(distribution.interval())
    return cluster.run(distribution.run())


def test_latencies_of_a_small_schedule() -> None:
    settings = SimulatorSettings(service_time=1.0, load=1.0, merge_time=0)
    # They come at 0, 0.5, 1, 1.5; worker 0 is done with its three at 1, 2, 3, worker 1 with its one at 2.5.
    performance = served([0, 0, 0, 1], settings)
    assert (performance.latency_p50, performance.latency_p99) == (1.0, 2.0)
    # The second event takes 2 s, and the third comes twice as late after it.
    performance = served([0, 0, 0, 1], settings, [1, 2, 1, 1])  # at 0, 0.5, 1.5, 2: done at 1, 3, 4, 3
    assert (performance.latency_p50, performance.latency_p99) == (1.0, 2.5)


@pytest.mark.parametrize(("queue", "seconds"), [(1, 5), (2, 4), (3, 3)])
def test_a_full_queue_holds_back_the_events_behind(queue: int, seconds: int) -> None:
    """Queue 1: worker 1 gets nothing before worker 0 began its last event; queue 3: they work side by side."""
    settings = SimulatorSettings(service_time=1.0, queue=queue, merge_time=0)
    performance = served([0, 0, 0, 1, 1, 1], settings)
    assert performance.throughput == 6 / seconds
    assert performance.efficiency == 6 / seconds / 2


def test_aggregators_can_be_what_is_slow() -> None:
    settings = SimulatorSettings(service_time=1.0, merge_time=10.0, aggregators=4)
    performance = served([0, 0, 1, 1], settings)  # four keys, so four partials
    assert performance.throughput == 4 / 10
    assert performance.efficiency == 4 / 10 / 2
    assert served([0, 0, 1, 1], replace(settings, aggregators=None)).throughput == 4 / 20  # as many as workers


def test_faster_workers_do_more() -> None:
    settings = SimulatorSettings(service_time=1.0, speeds=(1.0, 3.0), merge_time=0, load=1.0)
    performance = served([1, 1, 0, 1], settings)
    assert performance.efficiency == 1.0
    assert performance.throughput == 4
    assert performance.latency_p99 == pytest.approx(1.0)
    with pytest.raises(ValueError, match="speeds must be those of 3 workers, not of 2"):
        Cluster(3, settings)


def slow_schedule(events: list[tuple[int, float]], settings: SimulatorSettings) -> tuple[list[float], float]:
    """Latencies at the offered load, and time at saturation, out of lists of when each worker is done."""
    done: list[list[float]] = [[0.0], [0.0]]
    latencies, offered = [], 0.0
    for worker, weight in events:
        come = offered / (settings.load * sum(settings.speeds))
        done[worker].append(max(come, done[worker][-1]) + weight / settings.speeds[worker])
        latencies.append(done[worker][-1] - come)
        offered += weight
    saturated: list[list[float]] = [[0.0], [0.0]]
    released = 0.0
    for worker, weight in events:
        mine = saturated[worker]
        released = max(released, mine[-settings.queue] if len(mine) > settings.queue else 0.0)
        mine.append(max(released, mine[-1]) + weight / settings.speeds[worker])
    return latencies, max(saturated[0][-1], saturated[1][-1])


@given(
    events=st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0.25, 1.0, 1.0, 4.0])), min_size=1, max_size=40),
    load=st.sampled_from([0.3, 0.9, 2.0]),
    queue=st.integers(1, 5),
    speeds=st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.5, 1.0, 2.0])),
)
def test_queues_agree_with_lists(
    events: list[tuple[int, float]], load: float, queue: int, speeds: tuple[float, ...]
) -> None:
    settings = SimulatorSettings(service_time=1.0, load=load, queue=queue, speeds=speeds, merge_time=0)
    performance = served([worker for worker, _ in events], settings, [weight for _, weight in events])
    latencies, seconds = slow_schedule(events, settings)
    latencies.sort()
    rank = {part: latencies[math.ceil(part * len(events)) - 1] for part in (0.5, 0.99)}
    assert performance.latency_p50 == pytest.approx(rank[0.5], rel=0.01)
    assert performance.latency_p99 == pytest.approx(rank[0.99], rel=0.01)
    assert performance.throughput == pytest.approx(len(events) / seconds)
    assert performance.efficiency == pytest.approx(sum(weight for _, weight in events) / seconds / sum(speeds))


@given(st.floats(1e-9, 1e9))
def test_latencies_that_differ_by_a_hundredth_are_told_apart(latency: float) -> None:
    from keygrouping.simulate._queue_kernel import bucket_of

    assert bucket_of(latency) <= bucket_of(1.001 * latency) < bucket_of(1.01 * latency)


# --- closed forms -----------------------------------------------------------------------------------------------------


def test_one_key_keeps_one_worker_busy_and_its_queue_grows() -> None:
    settings = SimulatorSettings(service_time=0.01, load=0.5)
    result = simulate(Stream([0] * 1000), create_sources("key", 4, 1), settings, interval=500)
    run = result.performance
    assert (result.measures.lambda_, run.efficiency) == (4.0, 0.25)
    assert run.throughput == pytest.approx(100)
    # Events come every 5 ms and take 10 ms: number i (from 0) leaves 10 + 5 i ms after it has come.
    assert run.latency_p50 == pytest.approx(0.010 + 0.005 * 499, rel=0.01)
    assert run.latency_p99 == pytest.approx(0.010 + 0.005 * 989, rel=0.01)
    assert result.intervals[1].performance.latency_p50 == pytest.approx(0.010 + 0.005 * 749, rel=0.01)
    assert result.seconds == pytest.approx(5.0)


def test_round_robin_reaches_the_limit_without_waiting() -> None:
    result = simulate(Stream(keys_of(8000)), create_sources("shuffle", 10, 1), interval=1000)
    assert all(interval.measures.lambda_ == 1.0 for interval in result.intervals)
    assert (result.performance.efficiency, result.performance.throughput) == (1.0, 100_000.0)
    assert result.performance.latency_p99 == pytest.approx(1e-4)
    assert result.measures.dist_cost == 10.0


def test_at_saturation_a_stationary_stream_goes_as_fast_as_its_busiest_worker() -> None:
    result = simulate(Stream(keys_of(50_000, 0.8)), create_sources("pkg", 10, 5))
    assert result.performance.efficiency == pytest.approx(1 / result.measures.lambda_, rel=1e-3)


def test_throughput_feels_a_hot_spot_that_moves() -> None:
    """Key by key, each key hot for a while: the run is balanced, no moment of it is."""
    first = {hash_of(key) % 4: key for key in range(40)}
    keys = [first[worker] for worker in range(4) for _ in range(5000)]
    result = simulate(Stream(keys), (Recorder(4),), SimulatorSettings(queue=100), interval=5000)
    assert result.measures.lambda_ == 1.0
    assert result.performance.efficiency == pytest.approx(0.25, rel=0.02)


# --- sources ----------------------------------------------------------------------------------------------------------


def test_events_are_dealt_by_key_unless_told_otherwise() -> None:
    """Two partitions for each of three sources, numbered one source after the other."""
    groupings = [Recorder(4) for _ in range(3)]
    keys = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3] * 3
    simulate(Stream(keys, chunk=7), groupings, interval=5)
    partitions = kafka_partitions(kafka_hashes([b"key-%d" % key for key in keys]), 6).tolist()
    assert {partition // 2 for partition in partitions} == {0, 1, 2}
    for source, grouping in enumerate(groupings):
        mine = [key for key, partition in zip(keys, partitions, strict=True) if partition // 2 == source]
        assert grouping.hashes() == [hash_of(key) for key in mine]


def test_events_are_dealt_round_robin_across_chunks() -> None:
    groupings = [Recorder(4) for _ in range(3)]
    simulate(Stream(list(range(20)), chunk=7), groupings, interval=5, deal=Deal.ROUND_ROBIN)
    for source, grouping in enumerate(groupings):
        assert grouping.hashes() == [hash_of(key) for key in range(source, 20, 3)]


def test_events_are_dealt_by_their_sources() -> None:
    origins = [0, 5, -4, 1, 2, -(2**63), 3, 3]
    groupings = [Recorder(4) for _ in range(3)]
    simulate(Stream(list(range(8)), sources=origins, chunk=5), groupings)
    for source, grouping in enumerate(groupings):
        assert grouping.hashes() == [hash_of(key) for key, origin in enumerate(origins) if abs(origin) % 3 == source]


def test_groupings_are_told_weights_and_virtual_time() -> None:
    grouping = Recorder(2)
    settings = SimulatorSettings(service_time=1.0, load=1.0, clock_step=1.0)  # so weight 1 takes half a second
    simulate(Stream([0, 1, 2, 3], [1, 2, 1, 1], chunk=3), [grouping], settings)  # at 0, 0.5, 1.5, 2
    asked = [(0.0, [1.0, 2.0], [0, 1]), (1.0, [1.0], [2]), (2.0, [1.0], [3])]
    assert grouping.asked == [(now, [hash_of(key) for key in keys], weights) for now, weights, keys in asked]


@pytest.mark.parametrize("name", ["key", "pkg", "shuffle", "dkg"])
def test_chunks_change_nothing_and_runs_repeat(name: str) -> None:
    keys = keys_of(1000)
    weights = (1 + np.arange(1000) % 3).tolist()
    settings = SimulatorSettings(service_time=0.5)
    results = [
        simulate(Stream(keys, weights, chunk=size), create_sources(name, 4, 3), settings, interval=300)
        for size in (1000, 1000, 64, 1)
    ]
    assert all(result == results[0] for result in results)


def test_only_the_first_events_are_taken_if_so_many_are_wanted() -> None:
    some = simulate(Stream(keys_of(3000)), create_sources("pkg", 4, 2), interval=700, events=1500)
    assert some == simulate(Stream(keys_of(3000)[:1500]), create_sources("pkg", 4, 2), interval=700)
    assert [interval.end for interval in some.intervals] == [700, 1400, 1500]


def test_measures_are_those_of_the_decisions() -> None:
    keys = keys_of(2000)
    groupings = create_sources("pkg", 5, 3)
    again = create_sources("pkg", 5, 3)
    result = simulate(Stream(keys), groupings, interval=450, deal=Deal.ROUND_ROBIN)
    collected = Distribution(5)
    intervals: list[Measures] = []
    totals = []
    for event, key in enumerate(keys.tolist()):
        collected.add(again[event % 3].route(b"key-%d" % key), key)
        if (event + 1) % 450 == 0 or event + 1 == 2000:
            intervals.append(collected.interval())
            totals.append(collected.run().imbalance)
    assert [interval.measures for interval in result.intervals] == intervals
    assert result.measures == collected.run()
    assert [interval.run_imbalance for interval in result.intervals] == pytest.approx(totals)
    assert result.average_imbalance_fraction == pytest.approx(sum(totals) / sum([450, 900, 1350, 1800, 2000]))


def test_one_plan_of_all_statistics_starts_each_interval() -> None:
    groupings = [Planner(4, PlannerSettings(interval=None)) for _ in range(3)]
    result = simulate(Stream(list(range(25)), chunk=4), groupings, interval=10)
    figures = [
        {"changed": True, "moved_keys": 2, "moved_state": 10.0, "feasible": True, "hot_keys": 0} for _ in range(2)
    ]
    plans = [{**plan, "table": [[1, 2]]} for plan in figures]
    assert all(grouping.applied == plans for grouping in groupings)  # and none after the last event
    assert [each.plan for each in result.intervals] == [{}, *({**plan, "table": 1} for plan in figures)]
    moved = [(each.measures.moved_keys, each.measures.moved_state) for each in result.intervals]
    assert moved == [(0, 0.0), (2, 10.0), (2, 10.0)]
    assert (result.measures.moved_keys, result.measures.moved_state) == (4, 20.0)


def test_urgent_plans_of_all_sources_are_made_inside_of_intervals_at_the_checks() -> None:
    seen: list[tuple[int, list[float]]] = []

    class Watched(LevelFill):
        """Tells which statistics plans were made of."""

        def plan(self, statistics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
            plan = super().plan(statistics)
            seen.append((self.epoch + 1, [source["mass"] for source in statistics]))
            return plan

    groupings = [Watched(4, LevelFillSettings(interval=None)) for _ in range(2)]
    simulate(Stream(keys_of(20_000), chunk=700), groupings, interval=6400, deal=Deal.ROUND_ROBIN)
    within_first = [[events / 2] * 2 for events in (200, 400, 800, 1600, 3200)]
    ends = [[3200.0] * 2] * 3
    assert seen == list(enumerate([*within_first, *ends], 1)), "later ones only on evidence"
    assert {grouping.epoch for grouping in groupings} == {8}


@pytest.mark.parametrize("sources", [1, 5])
def test_level_fill_catches_a_hot_key_inside_the_interval_in_which_it_changes(sources: int) -> None:
    stream = workload("moving-hot-key", 80_000, 1, {"share": 0.5, "interval": 20_000})
    result = simulate(stream, create_sources("level-fill", 10, sources), interval=20_000)
    assert max(each.measures.lambda_ for each in result.intervals) < 1.05


def test_offline_groupings_learn_the_stream_beforehand() -> None:
    groupings = [Learner(4), Learner(4)]
    simulate(Stream([5, 6, 5, 7, 8], [1, 2, 3, 4, 9], chunk=2), groupings, events=4)
    expected = {hash_of(5): 4.0, hash_of(6): 2.0, hash_of(7): 4.0}
    assert all(grouping.learnt == expected for grouping in groupings)


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> str:
    module = ModuleType("keygrouping.grouping.planner_of_tests")
    vars(module)["Planner"] = Planner
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(registry._GROUPINGS, "planner", "planner_of_tests:Planner")
    return "planner"


def test_sources_share_their_plans_unless_told_otherwise(planner: str) -> None:
    def intervals(settings: Mapping[str, object]) -> list[float | None]:
        return [grouping.interval for grouping in create_sources(planner, 4, 2, settings) if type(grouping) is Planner]

    assert intervals({}) == [None, None]
    assert intervals({"interval": 3.0}) == [3.0, 3.0]


def test_a_grouping_that_plans_by_itself_is_left_alone() -> None:
    alone = Planner(4, PlannerSettings(interval=3.0))
    simulate(Stream(list(range(25))), [alone], interval=10)
    assert alone.applied == []


# --- results ----------------------------------------------------------------------------------------------------------


def test_the_json_object() -> None:
    data = simulate(Stream(keys_of(250)), create_sources("pkg", 4, 2), interval=100).to_data()
    assert list(data) == ["grouping", "workload", "workers", "sources", "events", "intervals", "run"]
    assert [data[name] for name in ("grouping", "workload", "workers", "sources", "events")] == [
        "pkg", "stream", 4, 2, 250
    ]  # fmt: skip
    assert [list(each) for each in data["intervals"]] == 3 * [
        ["lambda", "least_share", "std_dev", "dist_cost", "width_changes"]
    ]
    assert list(data["run"]) == [
        "lambda", "least_share", "std_dev", "dist_cost", "throughput", "efficiency", "latency_p50_ms", "latency_p99_ms"
    ]  # fmt: skip


def test_a_run_without_events_is_calm() -> None:
    run = simulate(Stream([]), create_sources("pkg", 4, 2)).to_data()["run"]
    assert run == {
        "lambda": 1.0, "least_share": 1.0, "std_dev": 0.0, "dist_cost": 1.0, "throughput": 0.0, "efficiency": 0.0,
        "latency_p50_ms": None, "latency_p99_ms": None,
    }  # fmt: skip


def result_with(lambdas: Sequence[float]) -> Result:
    """Intervals of 10 events and 2 s, for 10 workers."""
    nothing = Measures(10, 1, 1, 1, 10, 0, 0, 0.0, (10.0, *(0.0,) * 9))
    performance = Performance(0.0, 0.0, NAN, NAN)
    intervals = tuple(
        Interval(10 * i + 10, 2.0 * i + 2, replace(nothing, loads=(value, *((10 - value) / 9,) * 9)), 0.0, performance)
        for i, value in enumerate(lambdas)
    )
    return Result("key", "stream", 10, 1, intervals, nothing, performance)


def test_adaptation_goes_from_the_change_to_the_first_good_interval() -> None:
    result = result_with([1.0, 5.0, 4.0, 1.1, 3.0])
    assert result.adaptation(10, 1.2) == (2, 4.0)
    assert result.adaptation(15, 1.2) == (2, 3.0)
    assert result.adaptation(3, 1.2) == (0, 0.0)
    assert result.adaptation(44, 1.2) is None
    assert result.adaptation(1000, 1.2) is None


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="interval"):
        simulate(Stream([0]), create_sources("key", 2, 1), interval=0)
    with pytest.raises(ValueError, match="same number of workers"):
        simulate(Stream([0]), [create("key", 2), create("key", 3)])
    with pytest.raises(ValueError, match="a grouping for each source"):
        simulate(Stream([0]), [])
    with pytest.raises(GroupingError, match="unknown grouping"):
        create_sources("rubbish", 2, 1)
    with pytest.raises(SettingsError, match="load must be above 0"):
        SimulatorSettings(load=0)
