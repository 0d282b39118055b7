"""Many kills on a cluster while events flow: of Spark's driver and executors, and of the parts of `stages: combine`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from .cluster import TOOLBOX, ClusterError, Release, ready
from .table import Table
from .test_on_a_cluster import NATIVE, SPARK, judge_exact, merged

pytestmark = pytest.mark.cluster

KILLS = 20
COMBINE: dict[str, Any] = {"runner": "native", "stages": "combine", "job": NATIVE["job"], "worker": {"replicas": 3}}


def killed(release: Release, parts: Sequence[str], chance: random.Random) -> Counter[str]:
    """Pods of these parts die `KILLS` times at random moments, without notice; how often each part did.

    Most of the time the next one dies before the former is back.
    """
    died = Counter[str]()
    while died.total() < KILLS:
        release.cluster.kubectl("exec", TOOLBOX, "--", "sleep", f"{chance.uniform(2, 25):.0f}")
        part = parts[died.total() % len(parts)]
        running = [pod["metadata"]["name"] for pod in release.pods(part) if pod["status"]["phase"] == "Running"]
        if not running:
            continue
        try:
            release.cluster.kubectl("delete", "pod", chance.choice(running), "--grace-period=0", "--force")
        except ClusterError:
            continue  # It has gone by itself meanwhile, with its driver.
        died[part] += 1
    return died


def all_ready(release: Release, counts: dict[str, int]) -> Callable[[], bool]:
    """Whether each part has so many pods, all ready."""
    return lambda: all(
        len(pods) == count and ready(pods) for part, count in counts.items() for pods in [release.pods(part)]
    )


def test_killed_drivers_and_executors_cost_no_event(release: Release, table: Table) -> None:
    release.install(merged(SPARK, {"worker": {"replicas": 3}}))
    release.open_toolbox()
    load = release.flowing_load(300, 3000, "--workload", "country-skew-80", "--tolerance", "0.9")
    died = killed(release, ("worker", "worker", "spark-driver"), random.Random(24))
    wanted = all_ready(release, {"worker": 3, "spark-driver": 1})
    seconds = release.cluster.until(wanted, 300, "a driver and three executors are ready")
    table.tell(f"killed: {dict(died)}", f"all ready {seconds:.0f} s after the last")
    release.stop_load(load)
    judge_exact(table, release, f"spark, {died.total()} kills")


def test_killed_workers_and_aggregators_that_combine_cost_no_event(release: Release, table: Table) -> None:
    seconds = release.install(COMBINE)
    release.cluster.helm("test", release.name, "--timeout", "10m")
    parts = sorted({pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in release.pods()})
    right = not {"router", "redis"} & set(parts) and {"worker", "aggregator"} <= set(parts)
    table.judge("stages=combine: ready, helm test green", "no router, no Redis", f"{parts} in {seconds:.0f} s", right)
    release.open_toolbox(KEYGROUPING_STAGES="combine")
    load = release.load(300, 3000, "--workload", "country-skew-80", "--tolerance", "0.9")
    died = killed(release, ("worker", "worker", "aggregator"), random.Random(25))
    for count in (5, 2):
        release.install(merged(COMBINE, {"worker": {"replicas": count}}))
        seconds = release.cluster.until(all_ready(release, {"worker": count}), 240, f"{count} workers are ready")
        table.tell(f"combine, scaled to {count}", f"{seconds:.0f} s")
    release.stop_load(load)
    judge_exact(table, release, f"combine, {died.total()} kills: {dict(died)}")
