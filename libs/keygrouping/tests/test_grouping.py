"""The laws that every grouping keeps."""

import json
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import keygrouping
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from keygrouping.grouping import Grouping, GroupingError, SnapshotError, Space, create, describe, names, schema
from keygrouping.hashing import SEED, hash_key, hash_keys
from keygrouping.workload import workload

TABLE: dict[str, object] = {"interval": 1, "window": 2, "tracked_keys": 12}
QUICK: dict[str, dict[str, object]] = {
    "d-choices": {"half_life": 2.0, "threshold": 1.0},
    "w-choices": {"half_life": 2.0, "threshold": 1.0},
    "dstream": {"threshold": 0, "decline": 0.1},
    "distribution-aware": {"theta": 0.2, "buckets": 2, "interval": 1.0},
    "consistent": {"virtual_workers": 8, "half_life": 2.0, "capacities": [2.0, 0.5]},
    "dagreedy": {"slide": 1.0, "hot_keys": 8, "threshold": 0.2},
    "fish": {
        "epoch_events": 20, "counted_keys": 6, "threshold": 0.5, "service_time": 0.3, "capacities": [2.0, 0.5]
    },
    "llfd": TABLE, "mintable": {**TABLE, "window": 1}, "minmig": {**TABLE, "compact": 1}, "readj": TABLE,
    "mixed": {**TABLE, "table_size": 2}, "mixed-bf": {**TABLE, "table_size": 3},
    "level-fill": {
        "interval": 1.0, "evidence": 3.0, "counters": 4, "slack": 0.1, "capacities": [2.0, 0.5], "seed": 123
    },
    "potc": {"remembered_keys": 5},
    "on-greedy": {"remembered_keys": 5},
    "dkg": {
        "teenage_interval": 1, "old_interval": 2, "warm_up": 1, "check_interval": 2, "half_life": 4, "distinct_keys": 20
    },
    "dkg-legacy": {"promotion_interval": 1, "warm_up": 1, "check_interval": 2, "distinct_keys": 20},
}  # fmt: skip
"""Settings under which everything that takes time happens within seconds."""

Batch = tuple[float, list[tuple[int, float]]]
events = st.lists(st.tuples(st.sampled_from([0] * 8 + list(range(40))), st.sampled_from([1.0, 0.5, 7.0])))
batches = st.lists(st.tuples(st.sampled_from([0.0, 0.4, 1.0, 3.0, 50.0, 4000.0]), events), max_size=12)
every_grouping = pytest.mark.parametrize("name", names())


def quick(name: str, workers: int) -> Grouping:
    return create(name, workers, QUICK.get(name))


def key_of(number: int) -> bytes:
    return f"key{number}".encode()


def one_by_one(grouping: Grouping, batch: Batch, now: float) -> list[int]:
    return [grouping.route(key_of(key), weight, now) for key, weight in batch[1]]


def at_once(grouping: Grouping, batch: Batch, now: float) -> list[int]:
    hashes = hash_keys([key_of(key) for key, _ in batch[1]], grouping.seeds)
    weights = np.array([weight for _, weight in batch[1]], float)
    return [int(worker) for worker in grouping.route_batch(hashes, weights, now)]


def runs(stream: list[Batch]) -> list[tuple[float, Batch]]:
    """The batches of a stream, each with the time it comes at."""
    now = 100.0
    timed = []
    for batch in stream:
        now += batch[0]
        timed.append((now, batch))
    return timed


@every_grouping
@given(stream=batches, workers=st.integers(1, 12))
def test_a_batch_is_its_events_one_by_one(name: str, stream: list[Batch], workers: int) -> None:
    single, batched = quick(name, workers), quick(name, workers)
    for now, batch in runs(stream):
        routed = one_by_one(single, batch, now)
        assert at_once(batched, batch, now) == routed
        assert all(0 <= worker < workers for worker in routed)
    assert single.snapshot() == batched.snapshot() and single.epoch == batched.epoch


@every_grouping
@given(stream=batches, workers=st.integers(1, 12))
def test_a_function_of_single_events_routes_as_route_does(name: str, stream: list[Batch], workers: int) -> None:
    plain, quicker = quick(name, workers), quick(name, workers)
    for now, (_, batch) in [run for run in runs(stream) if run[1][1]]:
        choose = quicker.one_by_one(now)
        assert [choose(key_of(key)) for key, _ in batch] == [plain.route(key_of(key), now=now) for key, _ in batch]
        assert quicker.epoch == plain.epoch and quicker.snapshot() == plain.snapshot()


@pytest.mark.parametrize("name", ["mixed", "dkg-legacy", "dstream"])
def test_a_function_of_single_events_routes_more_keys_than_there_was_room_for(name: str) -> None:
    plain, quicker = create(name, 5), create(name, 5)
    choose = quicker.one_by_one(0.0)
    keys = [b"%d" % n for n in range(3000)]
    assert [choose(key) for key in keys] == [plain.route(key, now=0.0) for key in keys]
    assert quicker.snapshot() == plain.snapshot()


@every_grouping
@given(before=batches, after=batches, workers=st.integers(1, 12))
def test_a_pickled_grouping_goes_on_as_the_original(
    name: str, before: list[Batch], after: list[Batch], workers: int
) -> None:
    original = quick(name, workers)
    timed = runs([*before, *after])
    for now, batch in timed[: len(before)]:
        at_once(original, batch, now)
    pickled = pickle.loads(pickle.dumps(original))
    assert type(pickled) is type(original) and pickled.snapshot() == original.snapshot()
    for now, batch in timed[len(before) :]:
        assert at_once(pickled, batch, now) == at_once(original, batch, now)


@every_grouping
@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf, -1.0])
def test_weights_that_are_none_are_refused(name: str, weight: float) -> None:
    grouping = quick(name, 4)
    before = grouping.snapshot()
    hashes = hash_keys([key_of(0), key_of(1)], grouping.seeds)
    with pytest.raises(ValueError, match="weights must be finite and not negative; event 1 of the batch has"):
        grouping.route_batch(hashes, np.array([1.0, weight]), 0.0)
    with pytest.raises(ValueError, match="weights must be finite and not negative"):
        grouping.route(key_of(0), weight)
    with pytest.raises(ValueError, match="weights must be finite and not negative; worker 2 has"):
        grouping.bear(np.array([1.0, 0.0, weight, 0.0]))
    assert grouping.snapshot() == before


@every_grouping
def test_loads_are_one_for_each_worker(name: str) -> None:
    with pytest.raises(ValueError, match=r"loads must have shape \(4,\), not \(1,\)"):
        quick(name, 4).bear(np.array([1.0]))


@every_grouping
@given(before=batches, after=batches, workers=st.integers(1, 12))
@example(before=[(0.0, [(0, 1.0)]), (1.0, [(0, 0.5), (0, 1.0)])], after=[], workers=1)
def test_a_restored_snapshot_goes_on_as_the_original(
    name: str, before: list[Batch], after: list[Batch], workers: int
) -> None:
    original = quick(name, workers)
    timed = runs([*before, *after])
    for now, batch in timed[: len(before)]:
        at_once(original, batch, now)
    restored = quick(name, 1)
    restored.restore(json.loads(json.dumps(original.snapshot(), allow_nan=False)))
    assert restored.snapshot() == original.snapshot()
    for now, batch in timed[len(before) :]:
        assert at_once(restored, batch, now) == at_once(original, batch, now)
    assert (restored.epoch, restored.workers) == (original.epoch, original.workers)


@every_grouping
def test_a_snapshot_goes_on_under_another_clock(name: str) -> None:
    original, restored = quick(name, 6), quick(name, 6)
    stream = [batch for now, batch in runs([(1.0, [(key % 7, 1.0) for key in range(200)])] * 8)]
    for step, batch in enumerate(stream[:4]):
        at_once(original, batch, 1000.0 + step)
    restored.restore(original.snapshot(), now=5.0)
    for step, batch in enumerate(stream[4:]):
        assert at_once(restored, batch, 5.0 + step) == at_once(original, batch, 1003.0 + step)


@every_grouping
@given(stream=batches, sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_workers_can_change_at_any_moment(name: str, stream: list[Batch], sizes: list[int]) -> None:
    grouping = quick(name, 3)
    for step, (now, batch) in enumerate(runs(stream)):
        epoch, workers = grouping.epoch, grouping.workers
        grouping.resize(sizes[step % len(sizes)])
        assert grouping.epoch - epoch == (grouping.workers != workers)
        assert all(0 <= worker < grouping.workers for worker in at_once(grouping, batch, now))
        for key, _ in batch[1]:
            assert grouping.explain(key_of(key)).width <= grouping.workers


@every_grouping
@given(stream=batches, workers=st.integers(1, 12))
def test_the_next_event_goes_where_the_explanation_says(name: str, stream: list[Batch], workers: int) -> None:
    grouping = quick(name, workers)
    for now, batch in runs(stream):
        at_once(grouping, batch, now)
        for key, _ in batch[1][:3]:
            before = grouping.snapshot()
            explanation = grouping.explain(key_of(key))
            assert grouping.snapshot() == before
            assert len(set(explanation.candidates)) == explanation.width >= 1 and explanation.why
            assert explanation.home in (None, explanation.candidates[0])
            epoch, routed = grouping.epoch, grouping.route(key_of(key), 1.0)
            assert routed in explanation.candidates or grouping.epoch > epoch


def innermost(spaces: Sequence[Space], hashed: int) -> str | None:
    """The last space that holds a key."""
    held = [space.name for space in spaces if space.hashes is None or hashed in space.hashes.tolist()]
    return held[-1] if held else None


@every_grouping
@settings(max_examples=10)
@given(stream=batches, workers=st.integers(1, 12))
def test_hot_keys_are_those_wider_than_cold_ones_and_in_a_space(name: str, stream: list[Batch], workers: int) -> None:
    grouping = quick(name, workers)
    assert 1 <= grouping.cold_width <= workers
    new = grouping.explain("new")
    assert new.width <= grouping.cold_width and new.hot_since is None
    for now, batch in runs(stream):
        at_once(grouping, batch, now)
        spaces = grouping.spaces()
        by_name = {space.name: space for space in spaces}
        assert len(by_name) == len(spaces) and all(space.meaning for space in spaces)
        for space in spaces:
            assert space.size >= 0 and (space.name == "baby" or space.capacity is None or space.size <= space.capacity)
        for space in spaces:
            assert space.hashes is None or len(space.hashes) == space.size
        for key, _ in batch[1][:3]:
            explanation = grouping.explain(key_of(key))
            assert explanation.space == innermost(spaces, hash_key(key_of(key), grouping.seeds[0] if spaces else SEED))
            if explanation.hot_since is not None:
                assert explanation.width > grouping.cold_width and 0 <= explanation.hot_since <= now - 100.0


@pytest.mark.parametrize("name", ["dkg", "dkg-legacy", "d-choices", "w-choices"])
def test_it_is_known_since_when_a_key_is_hot_over_resizes_and_restarts(name: str) -> None:
    grouping = quick(name, 8)
    seconds = [(1.0, [(0 if key % 4 else key % 40, 1.0) for key in range(200)])] * 30
    widths = []
    for now, batch in runs(seconds):
        at_once(grouping, batch, now)
        widths.append(grouping.explain(key_of(0)).width)
    became = next(step for step, width in enumerate(widths) if width > 2)
    assert grouping.explain(key_of(0)).hot_since == pytest.approx(29.0 - became, abs=0.1)
    restored = quick(name, 1)
    restored.restore(grouping.snapshot(), now=7.0)
    assert restored.explain(key_of(0)).hot_since == pytest.approx(29.0 - became, abs=0.1)
    assert grouping.explain("new").hot_since is None


@every_grouping
def test_no_weights_are_weights_of_one_and_bytes_are_text(name: str) -> None:
    keys = [f"schlüssel{i % 9}" for i in range(300)]
    unweighted, weighted, single = quick(name, 7), quick(name, 7), quick(name, 7)
    hashes = hash_keys([key.encode() for key in keys], unweighted.seeds)
    routed = unweighted.route_batch(hashes, None, 1.0).tolist()
    assert weighted.route_batch(hashes, np.ones(300), 1.0).tolist() == routed
    assert [single.route(key, now=1.0) for key in keys] == routed


@every_grouping
def test_the_smallest_hash_has_a_worker(name: str) -> None:
    for workers in (1, 3, 10, 999):
        grouping = create(name, workers)
        hashes = np.full((4, len(grouping.seeds)), -(2**63), np.int64)
        assert all(0 <= worker < workers for worker in grouping.route_batch(hashes, None, 0.0))


@every_grouping
def test_arrays_of_any_layout_are_taken_and_wrong_shapes_refused(name: str) -> None:
    grouping, other = quick(name, 5), quick(name, 5)
    columns = len(grouping.seeds)
    hashes = np.asfortranarray(hash_keys([key_of(i) for i in range(50)], grouping.seeds))
    hashes.flags.writeable = False
    assert grouping.route_batch(hashes, None, 0.0).tolist() == other.route_batch(hashes.copy("C"), None, 0.0).tolist()
    assert grouping.route_batch(np.empty((0, columns), np.int64), None, 0.0).shape == (0,)
    if columns:
        with pytest.raises(ValueError, match="hashes must have shape"):
            grouping.route_batch(np.zeros((2, columns + 1), np.int64), None, 0.0)


@every_grouping
def test_a_foreign_or_damaged_snapshot_changes_nothing(name: str) -> None:
    grouping = quick(name, 4)
    for i in range(50):
        grouping.route(key_of(i), 1.0, float(i))
    good = grouping.snapshot()
    damaged: list[dict[str, Any]] = [
        {**good, "grouping": "other"},
        {**good, "version": 99},
        {**good, "workers": 0},
        {**good, "state": None},
        {**good, "state": {"loads": [1.0], "next": 99}},
        {key: value for key, value in good.items() if key != "epoch"},
    ]
    no_mappings: list[Any] = [None, []]
    for snapshot in (*damaged, {**good, "now": math.nan}, *no_mappings):
        with pytest.raises(SnapshotError):
            grouping.restore(snapshot)
        assert grouping.snapshot() == good


def test_shuffle_is_round_robin() -> None:
    shuffle = create("shuffle", 3)
    assert [shuffle.route(b"x") for _ in range(4)] == [0, 1, 2, 0]
    assert shuffle.route_batch(hash_keys([b"x"] * 5, ()), None, 0.0).tolist() == [1, 2, 0, 1, 2]
    assert shuffle.route(b"x") == 0


def test_key_grouping_has_the_golden_workers() -> None:
    key = create("key", 10)
    golden = {"Turkey": 5, "key1": 2, "": 0, "a": 6, "Afghanistan": 3, "çığ": 7}
    assert {name: key.route(name) for name in golden} == golden


def test_pkg_alternates_between_two_golden_choices() -> None:
    pkg = create("pkg", 10)
    assert [pkg.route("Turkey") for _ in range(4)] == [5, 6, 5, 6]
    assert create("pkg", 6).explain("key1").candidates == (4, 1)


def test_pkg_prefers_the_lighter_choice_by_weight() -> None:
    pkg = create("pkg", 10)
    assert [pkg.route("Turkey", weight) for weight in (5.0, 2.0, 2.0, 2.0, 1.0)] == [5, 6, 6, 6, 5]


def test_pkg_choices_differ_unless_they_may_collide() -> None:
    distinct, colliding = create("pkg", 3), create("pkg", 3, {"distinct_choices": False})
    widths = [(distinct.explain(key_of(i)).width, colliding.explain(key_of(i)).width) for i in range(200)]
    assert {width for width, _ in widths} == {2} and {width for _, width in widths} == {1, 2}
    single = next(key_of(i) for i in range(200) if widths[i][1] == 1)
    assert distinct.explain(single).candidates[0] == colliding.explain(single).candidates[0]
    assert len({colliding.route(single) for _ in range(9)}) == 1
    assert len({distinct.route(single) for _ in range(9)}) == 2


@pytest.mark.parametrize(("name", "low", "high"), [("shuffle", 1, 1.01), ("pkg", 3.8, 4.3), ("key", 7.9, 8.6)])
def test_the_published_imbalance_at_80_per_cent_skew(name: str, low: float, high: float) -> None:
    grouping = create(name, 10)
    loads = np.zeros(10)
    skewed = workload("country-skew-80", 100_000)
    for chunk in skewed.chunks():
        routed = grouping.route_batch(skewed.table.hashes(grouping.seeds)[chunk.keys], None, 0.0)
        loads += np.bincount(routed, minlength=10)
    assert low <= loads.max() / loads.mean() <= high


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("pgk", {}, f"unknown grouping 'pgk'; choose from {', '.join(names())}"),
        ("key", {"x": 1}, "grouping 'key': unknown setting x; choose from none"),
        ("pkg", {"choices": 0, "d": 3}, "grouping 'pkg': choices must be from 2 to 256, not 0; "
         "unknown setting d; choose from choices, distinct_choices"),
        ("pkg", {"d": 3}, "grouping 'pkg': unknown setting d; choose from choices, distinct_choices"),
        ("pkg", {"distinct_choices": 1}, "grouping 'pkg': distinct_choices must be true or false, not 1"),
        ("dkg", {"half_life": "x"}, "grouping 'dkg': half_life must be a number or null, not 'x'"),
        ("dkg", {"distinct_keys": 2.5}, "grouping 'dkg': distinct_keys must be an integer, not 2.5"),
        ("dkg", {"distinct_keys": 9}, "grouping 'dkg': distinct_keys must be from 10 to 100000, not 9"),
        ("dkg", {"warm_up": -1, "half_life": 0, "old_interval": 0},
         "grouping 'dkg': warm_up must be at least 0, not -1; old_interval must be above 0, not 0; "
         "half_life must be above 0, not 0"),
        ("dkg", {"warm_up": float("nan")}, "grouping 'dkg': warm_up must be a number, not nan"),
    ],
)  # fmt: skip
def test_wrong_names_and_settings_name_the_choices(name: str, given: dict[str, object], message: str) -> None:
    with pytest.raises(GroupingError) as caught:
        create(name, 4, given)
    assert str(caught.value) == message


@every_grouping
@pytest.mark.parametrize("workers", [0, -1, 2.0, True])
def test_there_must_be_workers(name: str, workers: Any) -> None:
    with pytest.raises(GroupingError, match="workers must be an integer"):
        create(name, workers)


@every_grouping
def test_schemas_say_of_each_value_what_the_grouping_says(name: str) -> None:
    values: list[Any] = [None, True, -1, 0, 1e-7, 0.5, 1, 2, 2.5, 50, "all", "", [1], [0.5], [True], {}]
    for told in describe(name):
        setting, validator = told.name, jsonschema_rs.Draft7Validator(schema(name)[told.name])
        for value in values:
            try:
                create(name, 2, {setting: value})
                refused = False
            except GroupingError as error:
                words = [f"{setting} must be {what}, not" for what in (told.kind, told.range)]
                refused = any(word in str(error) for word in words)
            assert validator.is_valid(value) is not refused, (setting, value)


@every_grouping
def test_described_settings_build_the_default(name: str) -> None:
    defaults = {setting.name: setting.default for setting in describe(name)}
    assert create(name, 3, defaults).snapshot() == create(name, 3).snapshot()
    assert all(setting.meaning and setting.kind for setting in describe(name))


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=True
    )
    return done.stdout.strip()


def test_importing_leaves_numba_alone() -> None:
    code = "import sys, keygrouping.grouping, keygrouping.hashing, keygrouping.aggregate, keygrouping.measure\n"
    assert run_python(code + "print('numba' in sys.modules)") == "False"


def test_kernels_run_where_nothing_can_be_written() -> None:
    source = Path(keygrouping.__file__).parent / "grouping" / "_kernels.py"
    code = (
        "import numba.core.caching as caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "from keygrouping.grouping._kernels import route_key\n"
        "import numpy as np\n"
        f"assert route_key.__code__.co_filename == {str(source)!r}\n"
        "print(route_key(np.array([[13]]), 10)[0])"
    )
    assert run_python(code) == "3"
