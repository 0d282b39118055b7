"""What comes out depends on the records alone: not on the pieces they are read in, on restarts or on repetitions."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.grouping import create
from keygrouping.measure import Distribution, efficiency, lambda_, std_dev
from keygrouping.partial import NO_TOPIC, Partial
from keygrouping_observer.observation import Observation
from keygrouping_observer.offsets import Look
from keygrouping_observer.settings import ObserverSettings
from keygrouping_observer.state import RunState
from keygrouping_observer.widths import PREFIX
from keygrouping_service.records.record import DeadLetter, Record

PARTITIONS = 3
INTERVAL = 1000
FAR = 10**13
LEFT_OUT = b"what is left of a record that is too large"
GARBAGE = (b"{}", b"[]", LEFT_OUT)
JOB = '{"window": 1000, "aggregates": []}'
SETTINGS = ObserverSettings(bootstrap_servers="127.0.0.1:1", job=JOB, interval=1, idle_timeout=0.5, service_rate=50)
Logs: TypeAlias = list[list[Record]]


def record(partition: int, offset: int, time: int, key: bytes | None, value: bytes) -> Record:
    return Record("partials", partition, offset, time, key, value)


def home(key: bytes) -> int:
    return key[0] % PARTITIONS


@st.composite
def logs(draw: st.DrawFn) -> Logs:
    """Partials of random workers, keys and times that mostly grow; some come twice, some are none."""
    made: Logs = [[] for _ in range(PARTITIONS)]
    firsts: dict[int, int] = defaultdict(int)
    time = 0
    for _ in range(draw(st.integers(1, 40))):
        time += draw(st.sampled_from([0, 0, 30, 400, 2500]))
        kind = draw(st.sampled_from(["new"] * 8 + ["again", "garbage", "left out"]))
        key = draw(st.sampled_from([b"a", b"b", b"c", b"\xff\x00", b"d"]))
        log = made[home(key)]
        if kind == "again" and log:
            chosen = draw(st.sampled_from(log))
            key, value = chosen.key or b"", chosen.value or b""
        elif kind in ("garbage", "left out"):
            value = b"{}" if kind == "garbage" else LEFT_OUT
        else:
            worker, events = draw(st.integers(0, 3)), draw(st.integers(1, 9))
            first = firsts[worker]
            firsts[worker] += events
            value = Partial(worker, 0, 1000, events, 2 * events, first, first + events - 1, 3, {}).encode()
        log.append(record(home(key), len(log), time - draw(st.sampled_from([0, 0, 700])), key, value))
    return made


def counted(made: Logs) -> Iterator[tuple[int, Record, Partial]]:
    """By definition: every record with the number of its interval, each partial once."""
    for log in made:
        seen, time = set(), 0
        for item in log:
            time = max(time, item.timestamp)
            if item.value not in GARBAGE:
                partial = Partial.decode(item.value)
                if (item.key, partial.identity) not in seen:
                    seen.add((item.key, partial.identity))
                    yield time // INTERVAL, item, partial


def figures(part: list[tuple[int, Record, Partial]], before: list[float]) -> dict[str, Any]:
    """All figures by the library, of the partials of an interval or of all."""
    collected, intervals = Distribution(0), len({number for number, _, _ in part})
    for _, item, partial in part:
        collected.add(partial.worker, item.key, partial.weight, partial.events)
    m = collected.run()
    return {
        "seconds": float(intervals),
        "workers": len(m.loads),
        "events": m.events,
        "weight": m.weight,
        "keys": m.keys,
        "lambda": m.lambda_,
        "least_share": m.least_share,
        "std_dev": m.std_dev,
        "dist_cost": m.dist_cost,
        "lambda_before": lambda_(before),
        "std_dev_before": std_dev(before),
        "messages": len(part),
        "messages_per_event": len(part) / m.events,
        "throughput": m.events / intervals,
        "loads": list(m.loads),
    }


def key_hashing(part: list[tuple[int, Record, Partial]]) -> list[float]:
    """Loads of the same events by the grouping `key` on the workers of an interval."""
    workers = 1 + max(partial.worker for _, _, partial in part)
    hashing, loads = create("key", workers), [0.0] * workers
    for _, item, partial in part:
        loads[hashing.route(item.key or b"")] += partial.weight
    return loads


def expected(made: Logs) -> list[dict[str, Any]]:
    """What every snapshot must say of its interval, and the last one of the run."""
    rows = sorted(counted(made), key=lambda row: row[0])
    snapshots: list[dict[str, Any]] = []
    before: list[float] = []
    for number, group in groupby(rows, key=lambda row: row[0]):
        part = list(group)
        loads = key_hashing(part)
        longer = max(len(before), len(loads))
        before = [sum(row[i] for row in (before, loads) if i < len(row)) for i in range(longer)]
        so_far = [row for row in rows if row[0] <= number]
        snapshots.append({**figures(part, loads), "run": figures(so_far, before)})
    return snapshots


class Process:
    """An observer over logs that may die at any step; what it has written is all that its successor has."""

    def __init__(self, made: Logs, settings: ObserverSettings = SETTINGS) -> None:
        self.made = made
        self.settings = settings
        self.written: dict[bytes, bytes] = {}
        self.snapshots: list[dict[str, Any]] = []
        self.dead: list[tuple[int, int]] = []
        self.restart()

    def restart(self) -> None:
        run = self.written.get(b"run")
        state = RunState() if run is None else RunState.decode(run)
        rows = [(key, value) for key, value in self.written.items() if key.startswith(PREFIX)]
        self.observation = Observation(self.settings, state, rows, range(PARTITIONS))
        self.position = {p: state.lanes[p].again for p in range(PARTITIONS)}

    def read(self, partition: int, count: int) -> None:
        if partition in self.observation.timeline.hungry:
            start = self.position[partition]
            found = self.made[partition][start : start + count]
            self.position[partition] += len(found)
            read = [DeadLetter(item, "record-too-large", "why") if item.value == LEFT_OUT else item for item in found]
            self.observation.read(partition, read, self.position[partition], FAR)

    def look(self, part: float = 1.0) -> None:
        """A look at a time when this part of the logs was there, and the workers had committed what they hold."""
        ends = {p: int(part * len(log)) for p, log in enumerate(self.made)}
        committed: dict[tuple[str, int], int] = {}
        for item, partial in ((i, Partial.decode(i.value)) for log in self.made for i in log if i.value not in GARBAGE):
            if item.offset >= ends[item.partition] and not self.is_repeated(item):
                source = (partial.topic, partial.worker)
                committed[source] = min(partial.first, committed.get(source, partial.first))
        self.observation.look(Look(FAR if part == 1 else 0, committed, [], ends))

    def is_repeated(self, item: Record) -> bool:
        return any((i.key, i.value) == (item.key, item.value) for i in self.made[item.partition][: item.offset])

    def count(self) -> None:
        for _ in self.observation.take():
            pass

    def close(self) -> None:
        if self.observation.timeline.complete:
            snapshot = self.observation.close([])
            self.dead += [(u.record.partition, u.record.offset) for u in self.observation.take_unusable()]
            self.write(self.observation.rows())
            if snapshot is not None:
                self.snapshots.append(snapshot)

    def dead_letter(self) -> None:
        self.dead += [(u.record.partition, u.record.offset) for u in self.observation.take_unusable()]
        self.write([self.observation.state])

    def write(self, rows: Any) -> None:
        for key, value in rows:
            if value is None:
                self.written.pop(key, None)
            else:
                self.written[key] = value

    def turn(self, count: int) -> None:
        for partition in range(PARTITIONS):
            self.read(partition, count)
        self.count()
        self.close()

    def finish(self) -> None:
        while not self.is_done:
            self.look()
            self.turn(7)

    @property
    def is_done(self) -> bool:
        lanes = self.observation.timeline.lanes.values()
        is_read = all(self.position[p] >= len(log) for p, log in enumerate(self.made))
        return is_read and not any(lane.waiting for lane in lanes) and self.observation.timeline.open is None


steps = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.integers(1, 9)),
        st.tuples(st.just("turn"), st.integers(1, 9)),
        st.tuples(st.just("read"), st.integers(0, PARTITIONS - 1), st.integers(1, 9)),
        st.tuples(st.sampled_from(["count", "close", "restart", "dead_letter"])),
        st.tuples(st.just("look"), st.sampled_from([0.2, 0.5, 0.8])),
    ),
    max_size=40,
)


def run(made: Logs, actions: list[tuple[Any, ...]], settings: ObserverSettings = SETTINGS) -> Process:
    process = Process(made, settings)
    process.look()
    for name, *arguments in actions:
        getattr(process, name)(*arguments)
    process.finish()
    return process


@settings(max_examples=60, deadline=None)
@given(logs(), steps)
def test_snapshots_agree_exactly_with_the_library_whatever_is_read_when_and_killed_where(
    made: Logs, actions: list[tuple[Any, ...]]
) -> None:
    process = run(made, actions)
    wanted = expected(made)
    assert len(process.snapshots) == len(wanted)
    for snapshot, facts in zip(process.snapshots, wanted, strict=True):
        run_facts = facts.pop("run")
        assert {name: snapshot[name] for name in facts} == facts
        assert {name: snapshot["run"][name] for name in run_facts} == run_facts
        assert snapshot["efficiency"] == efficiency(snapshot["weight"], snapshot["workers"], 50)
    garbage = [(p, item.offset) for p, log in enumerate(made) for item in log if item.value in GARBAGE]
    assert sorted(process.dead) == garbage


@settings(max_examples=15, deadline=None)
@given(logs(), steps)
def test_a_sample_of_the_keys_depends_on_nothing_but_the_keys(made: Logs, actions: list[tuple[Any, ...]]) -> None:
    few = SETTINGS.model_copy(update={"run_keys": 2})
    one, other = run(made, [], few), run(made, actions, few)
    assert [s["run"] for s in one.snapshots] == [s["run"] for s in other.snapshots]
    assert sum(key.startswith(PREFIX) for key in other.written) <= 2


def test_intervals_are_ranges_of_offsets_and_empty_ones_have_no_snapshot() -> None:
    value = Partial(0, 0, 1000, 1, 1, 0, 0, 0, {}).encode()
    times = [100, 900, 1000, 990, 5000]
    log = [record(0, i, t, b"k%d" % i, value) for i, t in enumerate(times)]
    process = run([log, [], []], [])
    assert [s["offsets"][0] for s in process.snapshots] == [[0, 2], [2, 4], [4, 5]]
    assert [s["start"][17:] for s in process.snapshots] == ["00.000Z", "01.000Z", "05.000Z"]


def test_a_silent_partition_holds_an_interval_open_until_its_time_is_over_and_not_a_moment_longer() -> None:
    value = Partial(0, 0, 1000, 1, 1, 0, 0, 0, {}).encode()
    process = Process([[record(0, 0, 100, b"a", value), record(0, 1, 1100, b"b", value)], [], []])
    observation = process.observation
    process.read(0, 2)
    for at, complete in [(1499, False), (1500, True)]:
        observation.look(Look(at, {}, [], {0: 2, 1: 0, 2: 0}))
        process.count()
        assert observation.timeline.complete is complete
    process.close()
    late = record(1, 0, 200, b"c", Partial(1, 0, 1000, 5, 5, 0, 4, 0, {}).encode())
    process.made[1].append(late)
    process.finish()
    assert [s["events"] for s in process.snapshots] == [1, 6]


def test_a_clock_that_is_far_ahead_moves_nothing() -> None:
    value = Partial(0, 0, 1000, 1, 1, 0, 0, 0, {}).encode()
    log = [record(0, 0, 100, b"a", value), record(0, 1, FAR + 61_000, b"b", value), record(0, 2, 300, b"c", value)]
    process = run([log, [], []], [])
    assert [s["events"] for s in process.snapshots] == [3]


def test_workers_that_the_router_tells_of_count_although_they_have_no_events() -> None:
    value = Partial(0, 0, 1000, 1, 1, 0, 0, 0, {}).encode()
    process = Process([[record(0, 0, 100, b"a", value)], [], []])
    process.observation.workers = 4
    process.finish()
    (snapshot,) = process.snapshots
    assert (snapshot["workers"], snapshot["lambda"], snapshot["loads"]) == (4, 4.0, [1.0, 0.0, 0.0, 0.0])
    process.restart()
    assert process.observation.workers == 4


def test_each_partition_of_the_input_is_a_worker_where_they_are_combined_and_none_of_them_without_that() -> None:
    value = Partial(0, 0, 1000, 1, 1, 0, 0, 0, {}).encode()
    process = Process([[record(0, 0, 100, b"a", value)], [], []], SETTINGS.model_copy(update={"stages": "combine"}))
    told = RunState(workers=8, capacities=[2.0] * 8)
    process.observation = Observation(process.settings, told, [], range(PARTITIONS))
    process.read(0, 1)
    for partition in (1, 2):
        process.read(partition, 0)
    process.observation.look(Look(FAR, {(NO_TOPIC, 0): 1}, [0, 5, 0], {0: 1, 1: 0, 2: 0}))
    process.count()
    process.close()
    (snapshot,) = process.snapshots
    assert (snapshot["workers"], snapshot["lambda"], snapshot["capacities"]) == (3, 3.0, [1.0] * 3)
    process.settings = SETTINGS
    process.restart()
    assert (process.observation.workers, process.observation.capacities) == (0, [])


def test_loads_are_judged_by_the_capacities_that_the_router_tells() -> None:
    values = [Partial(worker, 0, 1000, n, n, 0, n - 1, 0, {}).encode() for worker, n in ((0, 40), (1, 10))]
    process = Process([[record(0, n, 100, b"a", value) for n, value in enumerate(values)], [], []])
    process.observation.workers, process.observation.capacities = 2, (4.0, 1.0)
    process.finish()
    (snapshot,) = process.snapshots
    for figures in (snapshot, snapshot["run"]):
        assert (figures["lambda"], figures["std_dev"], figures["capacities"]) == (1.0, 0.0, [4.0, 1.0])
        assert figures["least_share"] == 1.0
        assert figures["lambda_before"] == lambda_(figures["loads_before"], [4.0, 1.0]) > 1
    process.restart()
    assert list(process.observation.capacities) == [4.0, 1.0]


def test_a_batch_that_can_not_be_read_is_one_letter_and_none_again_after_a_restart() -> None:
    letter = DeadLetter(Record("partials", 0, 0, -1, None, b"raw"), "undecodable-batch", "its checksum is wrong", 4)
    process = Process([[], [], []])
    for letters in ([(letter.record, letter.detail)], []):
        process.observation.read(0, [letter], 5, FAR)
        process.observation.look(Look(FAR, {}, [], {0: 5, 1: 0, 2: 0}))
        process.count()
        assert process.observation.take_unusable() == letters
        process.write([process.observation.state])
        process.restart()
        assert process.position[0] == 0, "no interval has ended"
    process.observation.read(0, [letter], 5, FAR)
    process.observation.look(Look(FAR, {}, [], {0: 5, 1: 0, 2: 0}))
    process.count()
    process.close()
    process.restart()
    assert process.position[0] == 5 and process.dead == []


@pytest.mark.parametrize("key", [None, b"k"])
def test_what_is_no_partial_is_refused_once_and_counts_nowhere(key: bytes | None) -> None:
    value = b"[]" if key else Partial(0, 0, 1000, 1, 1, 0, 0, 0, {}).encode()
    process = run([[record(0, 0, 100, key, value)], [], []], [("look",), ("read", 0, 1), ("count",), ("dead_letter",)])
    assert (process.snapshots, process.dead) == ([], [(0, 0)])


def test_after_a_restart_in_an_open_interval_nothing_is_refused_again_and_nothing_is_missing() -> None:
    goods = [Partial(0, 0, 1000, 1, 1, first, first, 0, {}).encode() for first in range(2)]
    values = [(100, goods[0]), (1100, b"{}"), (1200, goods[1])]
    process = Process([[record(0, n, time, b"k", value) for n, (time, value) in enumerate(values)], [], []])
    process.look()
    process.turn(3)
    process.count()
    process.observation.look(Look(FAR, {(NO_TOPIC, 0): 2}, [], {0: 3, 1: 0, 2: 0}))
    process.count()
    process.dead_letter()
    process.restart()
    process.dead_letter()
    process.restart()
    process.finish()
    assert process.dead == [(0, 1)]
    assert [snapshot["events"] for snapshot in process.snapshots] == [1, 1]
