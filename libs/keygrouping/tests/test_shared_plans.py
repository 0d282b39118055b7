"""The laws that every grouping keeps of which several sources can share one plan."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.grouping import (
    Grouping,
    GroupingError,
    Planned,
    SnapshotError,
    create,
    create_shared,
    describe,
    names,
    shared_settings,
)
from keygrouping.grouping.choices.head import HeadGrouping
from keygrouping.grouping.dkg.plan import Counted
from keygrouping.hashing import hash_keys

TABLE: dict[str, object] = {"tracked_keys": 200, "window": 2, "theta_max": 0.02}
QUICK: dict[str, dict[str, object]] = {
    "dkg": {
        "warm_up": 0, "check_interval": 1, "teenage_interval": 1, "old_interval": 2, "half_life": 4, "distinct_keys": 40
    },
    "d-choices": {"half_life": 4, "threshold": 0.6},
    "w-choices": {"half_life": 4, "threshold": 0.6},
    "distribution-aware": {"theta": 0.05, "buckets": 2},
    **dict.fromkeys(("llfd", "mintable", "minmig", "mixed", "mixed-bf", "readj"), TABLE),
}  # fmt: skip
"""Settings under which plans change within few seconds."""

WORKERS = 6
SHARED = [name for name in names() if shared_settings(name) is not None]
SPLITTING = ("dkg", "d-choices", "w-choices")
OWN_WAY = ("level-fill",)
"""Their sources widen keys between plans too, so that every plan is news."""
KEYS = [f"key{number}".encode() for number in range(60)]
every_shared = pytest.mark.parametrize("name", SHARED)
every_splitting = pytest.mark.parametrize("name", SPLITTING)

Events = list[tuple[int, int, float]]
"""Number of the source, that of the key, weight."""
some_keys = st.sampled_from([0] * 9 + [1] * 5 + list(range(60)))
some_events: st.SearchStrategy[Events] = st.lists(
    st.tuples(st.integers(0, 2), some_keys, st.sampled_from([1.0, 0.3, 7.1])),
    max_size=80,
)
some_rounds = st.lists(some_events, min_size=1, max_size=5)


def shared(name: str, workers: int = WORKERS) -> Planned:
    grouping = create(name, workers, {**QUICK.get(name, {}), **(shared_settings(name) or {})})
    assert isinstance(grouping, Planned) and grouping.shared
    return grouping


def route(source: Grouping, events: Iterable[tuple[int, float]], now: float) -> list[int]:
    chosen = list(events)
    hashes = hash_keys([KEYS[key] for key, _ in chosen], source.seeds)
    return [int(each) for each in source.route_batch(hashes, np.array([weight for _, weight in chosen], float), now)]


def deal(sources: list[Planned], events: Events, now: float) -> None:
    for number, source in enumerate(sources):
        route(source, [(key, weight) for owner, key, weight in events if owner == number], now)


def through_json(data: Any) -> Any:
    return json.loads(json.dumps(data, allow_nan=False))


def plan_of(sources: list[Planned], now: float) -> dict[str, Any]:
    """One plan of all, by the first source; applied by all."""
    plan: dict[str, Any] = through_json(sources[0].plan([through_json(each.statistics(now)) for each in sources]))
    for source in sources:
        source.apply(plan)
    return plan


def routing(source: Planned) -> list[tuple[int, ...]]:
    """What must be the same for all sources: the workers that each key may use."""
    return [tuple(sorted(source.explain(key).candidates)) for key in KEYS]


def skewed(seed: int, events: int = 900, top: int = 0, share: float = 0.5) -> Events:
    """Events of which one key has its share, dealt to three sources."""
    random = np.random.default_rng(seed)
    keys = np.where(random.random(events) < share, top, random.integers(0, len(KEYS), events))
    return [(number % 3, int(key), 1.0) for number, key in enumerate(keys)]


def after_rounds(name: str, rounds: int = 12) -> list[Planned]:
    """Three sources that have planned together until nothing moves any more."""
    sources = [shared(name) for _ in range(3)]
    for step in range(rounds):
        deal(sources, skewed(1), float(step))
        plan_of(sources, step + 0.5)
    return sources


def test_settings_that_share_are_those_of_the_groupings_that_plan() -> None:
    for name in names():
        wanted = shared_settings(name)
        assert (wanted is not None) == isinstance(create(name, 4), Planned)
        if wanted is not None:
            assert wanted.keys() <= {setting.name for setting in describe(name)}
            alone = create(name, 4)
            assert isinstance(alone, Planned) and not alone.shared


@every_shared
@settings(max_examples=5)
@given(rounds=some_rounds)
def test_all_sources_route_alike_after_each_plan(name: str, rounds: list[Events]) -> None:
    sources = [shared(name) for _ in range(3)]
    for step, events in enumerate(rounds):
        epoch, before = sources[0].epoch, routing(sources[0])
        deal(sources, events, float(step))
        assert name in OWN_WAY or [routing(source) for source in sources] == [before] * 3
        plan = plan_of(sources, step + 0.5)
        after = routing(sources[0])
        assert [routing(source) for source in sources] == [after] * 3
        assert {frozenset((key.hash, key.width) for key in each.hot(99) if key.width > each.cold_width)
                for each in sources} == {frozenset(_hot(sources[0]))}  # fmt: skip
        assert len(_hot(sources[0])) == plan["hot_keys"]
        assert name in OWN_WAY or sources[0].epoch - epoch == plan["changed"]
        assert (after != before) <= (sources[0].epoch > epoch)
        assert len({source.epoch for source in sources}) == 1


def _hot(source: Planned) -> set[tuple[int, int]]:
    return {(key.hash, key.width) for key in source.hot(99) if key.width > source.cold_width}


@every_shared
@settings(max_examples=5)
@given(rounds=some_rounds, order=st.permutations(range(3)))
def test_the_plan_is_the_same_in_any_order_whoever_makes_it(name: str, rounds: list[Events], order: list[int]) -> None:
    sources = [shared(name) for _ in range(3)]
    for step, events in enumerate(rounds):
        deal(sources, events, float(step))
        statistics = [through_json(source.statistics(step + 0.5)) for source in sources]
        before = [source.snapshot() for source in sources]
        plans = [source.plan([statistics[at] for at in order]) for source in sources]
        assert [source.snapshot() for source in sources] == before
        assert plans == [sources[0].plan(statistics)] * 3
        assert {"changed", "moved_keys", "moved_state", "feasible", "hot_keys"} <= plans[0].keys()
        for source in sources:
            source.apply(through_json(plans[0]))


@every_shared
def test_the_epoch_rises_with_every_change_and_only_then(name: str) -> None:
    sources = after_rounds(name)
    assert sources[0].epoch > 0
    epoch, before = sources[0].epoch, routing(sources[0])
    deal(sources, skewed(1), 12.0)
    assert plan_of(sources, 12.5)["moved_keys"] == 0 and routing(sources[0]) == before
    assert name in OWN_WAY or sources[0].epoch == epoch
    for step in range(13, 60):
        deal(sources, skewed(2, top=33), float(step))
        plan_of(sources, step + 0.5)
    assert sources[0].epoch > epoch and routing(sources[0]) != before


@every_shared
def test_a_source_that_comes_late_gets_the_plan_and_one_that_lags_can_make_it(name: str) -> None:
    sources = after_rounds(name)
    late = shared(name)
    everybody = [late, *sources]
    deal(sources, skewed(1), 12.0)
    plan_of(everybody, 12.5)
    assert [routing(source) for source in everybody] == [routing(late)] * 4
    later = shared(name)
    deal(sources, skewed(1), 13.0)
    plan_of([*sources, later], 13.5)
    assert routing(later) == routing(sources[0])


@every_shared
def test_plans_and_routes_go_on_after_a_snapshot(name: str) -> None:
    sources = after_rounds(name)
    restored = shared(name)
    restored.restore(through_json(sources[0].snapshot()))
    assert restored.snapshot() == sources[0].snapshot() and routing(restored) == routing(sources[0])
    others = [[source, *sources[1:]] for source in (sources[0], restored)]
    made = []
    for source in (sources[0], restored):
        route(source, [(key, weight) for _, key, weight in skewed(7, top=5)], 13.0)
        made.append(source.statistics(13.5))
    assert made[0] == made[1]
    assert others[0][0].plan(made[:1]) == others[1][0].plan(made[:1])


@every_shared
def test_a_resize_leaves_all_sources_alike_and_old_plans_and_statistics_are_refused(name: str) -> None:
    sources = after_rounds(name)
    stale = sources[0].statistics(12.0)
    plan = sources[0].plan([stale])
    for workers in (WORKERS + 5, 3):
        epoch = sources[0].epoch
        for source in sources:
            source.resize(workers)
        assert [routing(source) for source in sources] == [routing(sources[0])] * 3
        assert sources[0].epoch == epoch + 1
        assert all(max(explained) < workers for explained in routing(sources[0]))
        before = sources[0].snapshot()
        for given_plan in (plan, {"changed": True}, {}):
            with pytest.raises(ValueError, match="not a plan"):
                sources[0].apply(given_plan)
        with pytest.raises(ValueError, match="statistics"):
            sources[0].plan([stale])
        assert sources[0].snapshot() == before
        deal(sources, skewed(1), 12.0)
        plan_of(sources, 12.5)
        assert [routing(source) for source in sources] == [routing(sources[0])] * 3


@every_shared
def test_a_plan_says_all_whatever_was_applied_before(name: str) -> None:
    sources = after_rounds(name)
    plan = plan_of(sources, 20.0)
    before = routing(sources[0])
    deal(sources[:1], skewed(3, top=9), 21.0)
    sources[0].apply(sources[0].plan([sources[0].statistics(21.5)]))
    sources[0].apply(plan)
    assert routing(sources[0]) == before


@every_shared
def test_statistics_are_bounded_whatever_the_number_of_keys(name: str) -> None:
    source = shared(name)
    random = np.random.default_rng(1)
    sizes = []
    for step in range(6):
        hashes = random.integers(-(2**63), 2**63 - 1, (20_000, len(source.seeds)))
        source.route_batch(hashes, None, float(step))
        sizes.append(len(json.dumps(source.statistics(step + 0.5), allow_nan=False)))
    assert max(sizes) < 40_000


@every_splitting
def test_a_plan_of_several_is_that_of_one_that_has_seen_all(name: str) -> None:
    alone, sources = [shared(name)], [shared(name) for _ in range(3)]
    for step in range(10):
        events = skewed(step)
        deal(sources, events, float(step))
        route(alone[0], [(key, weight) for _, key, weight in events], float(step))
        assert abs(plan_of(sources, step + 0.5)["hot_keys"] - plan_of(alone, step + 0.5)["hot_keys"]) <= 1
    assert KEYS[0] in {key for key in KEYS if alone[0].explain(key).width > 2 < sources[0].explain(key).width}


@every_splitting
def test_a_key_that_is_hot_for_all_together_is_found_though_no_source_could_tell(name: str) -> None:
    sources = after_rounds(name)
    hot = sources[0].explain(KEYS[0])
    assert hot.width > sources[0].cold_width and hot.hot_since is not None and 0 <= hot.hot_since <= 12
    blind = shared(name)
    blind.apply(plan_of([*sources, blind], 12.5))
    explained = blind.explain(KEYS[0])
    assert (explained.width, explained.share) == (sources[0].explain(KEYS[0]).width, None)
    assert sorted(set(route(blind, [(0, 1.0)] * 60, 12.5))) == sorted(explained.candidates)


@every_splitting
def test_between_plans_own_loads_decide_among_the_candidates(name: str) -> None:
    source = after_rounds(name)[0]
    candidates = source.explain(KEYS[0]).candidates
    routed = np.bincount(route(source, [(0, 1.0)] * 6000, 12.0), minlength=WORKERS)
    assert set(np.flatnonzero(routed).tolist()) == set(candidates)
    assert routed.max() - routed[list(candidates)].min() < 1000


@every_splitting
def test_a_source_that_has_no_events_notices_that_time_passes(name: str) -> None:
    sources = after_rounds(name)
    now = 1000.0
    idle, other = sources[0], sources[1:]
    for step in range(30):
        deal([shared(name), *other], skewed(3, top=44), now + step)
        plan_of([idle, *other], now + step + 0.5)
    assert idle.explain(KEYS[44]).width > idle.cold_width >= idle.explain(KEYS[0]).width


@every_splitting
def test_nothing_counted_leaves_the_plan_in_force(name: str) -> None:
    source, fresh = after_rounds(name)[0], shared(name)
    before = routing(source)
    for statistics in ([], [fresh.statistics(0.0)]):
        assert source.plan(statistics)["hot_keys"] == len(_hot(source)) > 0
        source.apply(source.plan(statistics))
        assert routing(source) == before


def fractional_statistics(name: str) -> list[dict[str, Any]]:
    """Of six sources, with weights whose sums depend on their order, and more keys than there are counters."""
    random = np.random.default_rng(5)
    made = []
    for _ in range(6):
        source = shared(name)
        hashes = random.integers(0, 300, (2000, 1)) * np.array([[7919, 104729][: len(source.seeds)]])
        for now in (0.0, 1.0, 3.0, 5.0):
            source.route_batch(hashes, random.random(2000) / 3, now)
        made.append(source.statistics(5.5))
    return made


@pytest.mark.parametrize("order", [[5, 4, 3, 2, 1, 0], [2, 0, 5, 1, 4, 3]])
def test_sums_over_sources_are_equal_to_the_last_bit_in_any_order(order: list[int]) -> None:
    statistics = fractional_statistics("d-choices")
    head = shared("d-choices")
    assert isinstance(head, HeadGrouping)
    merged = [head._merged([statistics[at] for at in some]).to_data() for some in (range(6), order)]
    assert merged[0] == merged[1] and merged[0]["offset"] > 0
    statistics = fractional_statistics("dkg")
    one, other = (Counted.parsed([statistics[at] for at in some], WORKERS) for some in (range(6), order))
    assert (one.mass, one.loads.tolist(), one.keys.tolist()) == (other.mass, other.loads.tolist(), other.keys.tolist())
    assert one.mass == pytest.approx(sum(source["mass"] for source in statistics)) and len(one.keys) > 5


@every_splitting
def test_sources_that_began_at_other_times_weigh_the_same_events_alike(name: str) -> None:
    """With a half-life of 4 s; each halves at times of its own."""
    totals = []
    for began in (0.0, 1.0, 2.0, 3.9):
        source = shared(name)
        for fifth in range(int(5 * (50.0 - began))):
            route(source, [(key, 1.0) for key in range(20)], began + fifth / 5)
        told, later = (source.statistics(now) for now in (50.0, 56.0))
        totals.append(told["mass"] if name == "dkg" else told["sketch"]["total"])
        assert (later["mass"] if name == "dkg" else later["sketch"]["total"]) == pytest.approx(totals[-1] * 0.5**1.5)
    assert totals == pytest.approx([totals[0]] * 4, rel=0.1)


def test_a_resize_scales_the_width_of_a_head_and_bounds_that_of_dkg() -> None:
    for name, expected in (("w-choices", {12: 12, 3: 3}), ("dkg", {12: 4, 3: 3})):
        for workers, width in expected.items():
            source = after_rounds(name)[0]
            assert source.explain(KEYS[0]).width in (4, 6)
            source.resize(workers)
            assert source.explain(KEYS[0]).width == source.hot(1)[0].width == width
    source = shared("d-choices", 20)
    source.apply({"changed": True, "workers": 20, "keys": [[hash_keys([KEYS[0]])[0, 0].item(), 9, 0.0, 0.0]]})
    source.resize(30)
    assert source.explain(KEYS[0]).width == 14


@every_splitting
def test_an_independent_source_gives_and_takes_nothing(name: str) -> None:
    alone = create(name, WORKERS)
    assert isinstance(alone, Planned) and not alone.shared
    with pytest.raises(ValueError, match="if `shared` is true"):
        alone.statistics()
    with pytest.raises(ValueError, match="if `shared` is true"):
        alone.apply({"changed": True, "workers": WORKERS, "keys": []})


@every_splitting
def test_wrong_statistics_and_plans_are_refused(name: str) -> None:
    source = after_rounds(name)[0]
    good, plan, before = source.statistics(12.0), source.plan([]), source.snapshot()
    keys: list[Any] = [[[1, 2]], [[1, WORKERS + 1, 0.0, 0.0]], [[1, 2, 0.0, 0.0]] * 2, [[2**70, 2, 0.0, 0.0]],
                       [[1, 2, float("nan"), 0.0]], 7]  # fmt: skip
    for rows in keys:
        with pytest.raises(ValueError, match="not a plan"):
            source.apply({**plan, "keys": rows})
    wrong: list[dict[str, Any]] = [
        {}, {**good, "workers": WORKERS + 1},
        *({**good, field: None} for field in good if field != "workers"),
    ]  # fmt: skip
    for statistics in wrong:
        with pytest.raises(ValueError, match="statistics"):
            source.plan([statistics])
    damaged = {**before, "state": {**before["state"], "wide": [[1, WORKERS + 1, 0.0, 0.0]]}}
    with pytest.raises(SnapshotError):
        source.restore(damaged)
    assert source.snapshot() == before


def test_a_grouping_for_one_of_several_sources_is_planned_by_its_owner() -> None:
    grouping = create_shared("level-fill", 3, {"eps": 0.1})
    assert grouping.shared and grouping.plan([grouping.statistics()])["hot_keys"] == 0
    with pytest.raises(GroupingError, match="grouping 'pkg' has no plan to share"):
        create_shared("pkg", 3)


def test_the_guide_s_example_type_checks(tmp_path: Path) -> None:
    """Statistics and plans are methods of what `create_shared` gives, for a strict type checker, too."""
    guide = (Path(__file__).parents[3] / "docs" / "howto" / "library.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (example,) = (block for block in blocks if "create_shared" in block)
    assert blocks.index(example) > 0, "it goes on where the first one ends"
    (tmp_path / "example.py").write_text(blocks[0] + example)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "example.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert checked.returncode == 0, checked.stdout
