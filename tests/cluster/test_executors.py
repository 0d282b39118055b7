"""Executors whose number is Spark's choice, whose claims outlive them, that are drained; and the log of a driver."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
import yaml

from .cluster import Release, ready
from .table import Table
from .test_on_a_cluster import SPARK, judge_exact, merged

pytestmark = pytest.mark.cluster

MOST = 3
LOGS = "spark-logs"
HISTORY = "history"
FOLDER = "/var/lib/keygrouping/logs"
VALUES: dict[str, Any] = {
    "worker": {"replicas": 1},
    "spark": {
        "conf": {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.minExecutors": "1",
            "spark.dynamicAllocation.maxExecutors": str(MOST),
            "spark.dynamicAllocation.executorIdleTimeout": "20s",
            "spark.dynamicAllocation.shuffleTracking.timeout": "20s",
            "spark.kubernetes.allocation.executor.timeout": "60s",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file:{FOLDER}",
        },
        "executor": {"persistence": {"enabled": True, "size": "1Gi"}},
        "driver": {
            "extraVolumes": [{"name": LOGS, "persistentVolumeClaim": {"claimName": LOGS}}],
            "extraVolumeMounts": [{"name": LOGS, "mountPath": FOLDER}],
        },
    },
}


def running(release: Release) -> dict[str, dict[str, Any]]:
    """Executors that are ready and are not about to go, by name."""
    pods = [pod for pod in release.pods("worker") if not pod["metadata"].get("deletionTimestamp")]
    return {pod["metadata"]["name"]: pod for pod in pods if ready([pod])}


def driver(release: Release) -> dict[str, Any]:
    (pod,) = release.pods("spark-driver")
    return pod


def claim_of(executor: dict[str, Any]) -> str:
    """The claim with Spark's local files."""
    claims = [volume.get("persistentVolumeClaim", {}).get("claimName", "") for volume in executor["spec"]["volumes"]]
    (found,) = [name for name in claims if name.endswith("pvc-0")]
    return str(found)


def executors_claims(release: Release) -> set[str]:
    names = {claim["metadata"]["name"] for claim in release.cluster.get("pvc")}
    return {name for name in names if name.endswith("pvc-0")}


def usual_storage(release: Release) -> str:
    """The cluster's default storage class."""
    mark = "storageclass.kubernetes.io/is-default-class"
    found = [each["metadata"] for each in release.cluster.get("storageclasses")]
    (name,) = [each["name"] for each in found if each.get("annotations", {}).get(mark) == "true"]
    return str(name)


def make_claim_for_logs(release: Release) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": LOGS}, "spec": spec}
    release.cluster.kubectl("apply", "--filename", "-", data=yaml.safe_dump(claim).encode())


def start_history_server(release: Release) -> None:
    """Spark's own, of the job's image."""
    job = driver(release)["spec"]["containers"][0]
    container = {
        "name": HISTORY,
        "image": job["image"],
        "imagePullPolicy": job["imagePullPolicy"],
        "command": ["sh", "-c", 'exec "$SPARK_HOME"/bin/spark-class org.apache.spark.deploy.history.HistoryServer'],
        "env": [
            {"name": "SPARK_HISTORY_OPTS", "value": f"-Dspark.history.fs.logDirectory=file:{FOLDER}"},
            {"name": "SPARK_DAEMON_MEMORY", "value": "512m"},
        ],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": LOGS, "mountPath": FOLDER}],
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "fsGroup": 185, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": LOGS, "persistentVolumeClaim": {"claimName": LOGS}}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": HISTORY}, "spec": spec}
    release.cluster.kubectl("apply", "--filename", "-", data=yaml.safe_dump(pod).encode())


def told(release: Release, path: str) -> list[dict[str, Any]]:
    """What the history server answers."""
    url = f"http://127.0.0.1:18080/api/v1/applications{path}"
    script = f"import urllib.request as r; print(r.urlopen({url!r}).read().decode())"
    return list(json.loads(release.cluster.kubectl("exec", HISTORY, "--", "python", "-c", script)))


def heirs(release: Release) -> list[str]:
    """Claims that executors have which were made for earlier ones."""
    claims = {name: claim_of(pod) for name, pod in running(release).items()}
    return [f"{name} has {claim}" for name, claim in claims.items() if not claim.startswith(f"{name}-pvc")]


def kill(release: Release) -> None:
    """An executor dies without notice; until there is another one."""
    before = running(release)
    release.cluster.kubectl("delete", "pod", min(before), "--grace-period=0", "--force")
    release.cluster.until(lambda: running(release).keys() - before, 240, "an executor for the killed one")


def drain(release: Release) -> str:
    """An executor is deleted with time to hand over what it has; what it says meanwhile."""
    name = max(running(release))
    words = [*release.cluster.kubectl_command, "logs", "--follow", "--tail=0", name]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as following:
        release.cluster.kubectl("delete", "pod", name, "--wait=true", "--timeout=120s")
        said, _ = following.communicate(timeout=60)
    return said


def test_executors_by_the_tasks_that_wait_with_claims_and_a_log_cost_no_event(release: Release, table: Table) -> None:
    make_claim_for_logs(release)
    storage = {"spark": {"executor": {"persistence": {"storageClass": usual_storage(release)}}}}
    release.install(merged(SPARK, merged(VALUES, storage)))
    release.open_toolbox()
    load = release.flowing_load(2000, 3000, "--workload", "country-skew-80", "--tolerance", "0.9")
    seconds = release.cluster.until(lambda: len(running(release)) == MOST, 300, f"{MOST} executors")
    table.judge("executors by the tasks that wait", f"{MOST} of at most {MOST}", f"after {seconds:.0f} s", passed=True)
    for _ in range(6):  # A claim is taken over once it is older than the timeout above.
        if not heirs(release):
            kill(release)
    table.judge("claims of killed executors", "taken over", f"{heirs(release)}", bool(heirs(release)))
    said = [line for line in drain(release).splitlines() if "ecommission" in line]
    table.judge("a drained executor", "hands over", f"{len(said)} lines, the last: {' '.join(said[-1:])}", bool(said))
    first, claims = driver(release), executors_claims(release)
    table.tell("claims after a kill and a drain", f"{len(claims)}")

    release.cluster.kubectl("delete", "pod", first["metadata"]["name"], "--wait=true", "--timeout=180s")
    release.cluster.until(lambda: ready([driver(release)]) and running(release), 300, "another driver and an executor")
    release.cluster.until(lambda: not claims & executors_claims(release), 120, "claims of the first driver are gone")
    release.stop_load(load)
    judge_exact(table, release, "dynamic allocation, claims, a kill, a drain and another driver")
    seconds = release.cluster.until(lambda: len(running(release)) == 1, 300, "one executor")
    table.judge("executors without work", "1", f"1 after {seconds:.0f} s", passed=True)

    start_history_server(release)
    release.cluster.until(lambda: len(told(release, "")) == 2, 180, "the history server has read two logs")
    (ended,) = [each for each in told(release, "") if each["attempts"][0]["completed"]]
    executors = told(release, f"/{ended['id']}/allexecutors")
    measured = f"{len(executors)} executors of {ended['name']}"
    table.judge("history server", "the driver that has ended", measured, len(executors) > MOST)
