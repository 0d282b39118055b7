"""What the chart promises of its defaults, on a cluster: secrets, policies, settings, memory, a second installation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from .cluster import TOOLBOX, Cluster, ClusterError, Release, ready
from .table import Table
from .test_on_a_cluster import NATIVE, RUNNERS, SPARK, each_runner, judge_exact, merged

pytestmark = pytest.mark.cluster

LISTENER = 9999
PORTS = {
    "native": {"router": 8080, "producer": 8080, "worker": 8080, "aggregator": 8080, "kafka": 9092, "redis": 6379},
    "spark": {"router": 8080, "producer": 8080, "spark-driver": 7078, "worker": 7079, "kafka": 9092, "redis": 6379},
}
REACHED = """
import json, socket, sys
answers = {}
for place in sys.argv[1:]:
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
        answers[place] = True
    except OSError:
        answers[place] = False
print(json.dumps(answers))
"""
LISTEN = f"import http.server as s; s.HTTPServer(('', {LISTENER}), s.BaseHTTPRequestHandler).serve_forever()"
KILL_JAVA = """
import os, pathlib, signal
for process in pathlib.Path("/proc").glob("[0-9]*"):
    if (process / "comm").read_text().strip() == "java":
        os.kill(int(process.name), signal.SIGKILL)
"""
WORKING_SET = """
cd /sys/fs/cgroup
if [ -f memory.current ]; then cat memory.current memory.max; grep '^inactive_file ' memory.stat
else cat memory/memory.usage_in_bytes memory/memory.limit_in_bytes; grep '^total_inactive_file ' memory/memory.stat; fi
"""
UNSEEN: dict[str, Any] = {
    "producer": {"settings": {"workload": "file"}},
    "router": {"grouping": {"settings": {"interval": 7200}}},
}
"""Faults that only the programs know, of two of them."""


@pytest.fixture
def stranger(cluster: Cluster) -> Iterator[Cluster]:
    """A namespace that has nothing to do with the release."""
    made = Cluster(f"{cluster.namespace}-other")
    made.kubectl("create", "namespace", made.namespace)
    yield made
    made.kubectl("delete", "namespace", made.namespace, "--wait=false")


def secrets(release: Release) -> dict[str, dict[str, str]]:
    """What the release's own Secrets hold."""
    found = release.cluster.get("secrets", "--selector", f"app.kubernetes.io/instance={release.name}")
    return {secret["metadata"]["name"]: secret["data"] for secret in found}


def test_secrets_outlive_an_upgrade(release: Release, table: Table) -> None:
    release.install(NATIVE)
    before = secrets(release)
    release.install(merged(NATIVE, {"router": {"settings": {"interval": 6}}}))
    kept = sorted(before)
    assert all(len(value) > 40 for held in before.values() for value in held.values())
    table.judge("upgrade: Secrets kept", "all", ", ".join(kept), secrets(release) == before and len(kept) == 3)
    release.open_toolbox()
    body = json.dumps({"workers": 2})
    answer = release.inside("ask", "PUT", f"{release.router}/workers", body)
    table.judge("the token that writes, after it", "200", str(answer["status"]), answer["status"] == 200)
    release.cluster.kubectl("delete", "secret", f"{release.full_name}-router-tokens")
    answer = release.inside("ask", "PUT", f"{release.router}/workers", body)
    table.judge("without a token", "401", str(answer["status"]), answer["status"] == 401)


@each_runner
def test_strangers_reach_nothing(release: Release, stranger: Cluster, table: Table, runner: str) -> None:
    release.install(RUNNERS[runner])
    release.open_toolbox()
    toolbox = Release(stranger, release.name).toolbox({"aggregates": []}, {})
    stranger.kubectl("apply", "--filename", "-", data=json.dumps(toolbox).encode())
    stranger.kubectl("wait", "--for=condition=Ready", f"pod/{TOOLBOX}", "--timeout=180s")
    (own,) = (pod for pod in release.cluster.get("pods") if pod["metadata"]["name"] == TOOLBOX)
    listening = release.started("python", "-c", LISTEN)
    places = {"toolbox": f"{own['status']['podIP']}:{LISTENER}"}
    for part, port in PORTS[runner].items():
        places[part] = f"{release.pods(part)[0]['status']['podIP']}:{port}"
    try:
        answers = json.loads(stranger.kubectl("exec", TOOLBOX, "--", "python", "-c", REACHED, *places.values()))
    finally:
        listening.kill()
    if answers[places["toolbox"]]:
        pytest.skip("the cluster's network enforces no policies")
    reached = sorted(part for part, place in places.items() if answers[place])
    table.judge(
        f"{runner}: a pod of another namespace reaches", "nothing", ", ".join(reached) or "nothing", not reached
    )
    release.cluster.helm("test", release.name, "--timeout", "10m")
    table.judge(f"{runner}: what belongs together works", "helm test green", "green", passed=True)


def test_a_second_installation_runs_what_the_values_say(release: Release, table: Table) -> None:
    values = merged(NATIVE, {"worker": {"replicas": 3}})
    release.install(values)
    release.open_toolbox()
    release.wait_for_workers(3)
    release.uninstall()
    release.install(values)
    release.open_toolbox()
    seconds = release.wait_for_workers(3)
    release.cluster.kubectl("exec", TOOLBOX, "--", "sleep", "10")
    found = release.workers()
    table.judge("installed again on its claims: W and pods", "3, 3", f"{found} after {seconds:.0f} s", found == (3, 3))


def test_a_driver_killed_in_its_pod_leaves_no_executors(release: Release, table: Table) -> None:
    release.install(merged(SPARK, {"worker": {"replicas": 2}}))
    release.open_toolbox()
    load = release.flowing_load(200, 900, "--tolerance", "0.9")
    (driver,) = (pod["metadata"]["name"] for pod in release.pods("spark-driver"))
    former = {pod["metadata"]["uid"] for pod in release.pods("worker")}
    release.cluster.kubectl("exec", driver, "--", "python", "-c", KILL_JAVA)

    def gone_on() -> bool:
        pods = release.pods("worker")
        return (
            len(pods) == 2
            and ready(pods)
            and not any(pod["status"]["phase"] == "Succeeded" for pod in pods)
            and not former & {pod["metadata"]["uid"] for pod in pods}
        )

    seconds = release.cluster.until(gone_on, 300, "there are other executors, and none that has ended")
    release.cluster.kubectl(
        *("rollout", "status", "deployment,statefulset", "--timeout=60s"),
        *("--selector", f"app.kubernetes.io/instance={release.name}"),
    )
    (again,) = release.pods("spark-driver")
    restarts = again["status"]["containerStatuses"][0]["restartCount"]
    told = f"{seconds:.0f} s, the same pod: {again['metadata']['name'] == driver}, started again {restarts} time(s)"
    table.judge("the driver's JVM killed: other executors", "no former one left", told, restarts == 1)
    release.stop_load(load)
    judge_exact(table, release, "the driver's JVM killed")


def test_settings_that_only_programs_refuse_end_the_installation(release: Release, table: Table) -> None:
    with pytest.raises(ClusterError):
        release.install(merged(NATIVE, UNSEEN), wait=False)
    told = release.cluster.kubectl("logs", f"job/{release.full_name}-check")
    named = all(f"{part}: " in told for part in UNSEEN)
    table.judge("settings that two programs refuse", "told in one message", told[:200], named)
    left = [item["metadata"]["name"] for item in release.cluster.get("deployments,statefulsets,services")]
    table.judge("after that there is", "nothing", str(left or "nothing"), not left)


@each_runner
def test_memory_stays_below_its_limits(release: Release, table: Table, runner: str) -> None:
    release.install(RUNNERS[runner])
    release.open_toolbox()
    load = release.flowing_load(500, 90, "--workload", "country-skew-80", "--tolerance", "0.5")
    load.communicate(timeout=300)
    over = {}
    for pod in release.pods():
        name = pod["metadata"]["name"]
        said = release.cluster.kubectl("exec", name, "--", "sh", "-c", WORKING_SET).split()
        used, limit = int(said[0]) - int(said[3]), int(said[1])
        part = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        table.tell(f"{runner}, memory of {part}", f"{used / 2**20:.0f} of {limit / 2**20:.0f} MiB")
        restarts = [status["restartCount"] for status in pod["status"]["containerStatuses"]]
        if used > 0.9 * limit or any(restarts):
            over[name] = (used, limit, restarts)
    table.judge(f"{runner}, after load: pods near their limit, or restarted", "none", str(over or "none"), not over)
