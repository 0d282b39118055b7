"""What the chart must do on a real cluster, in six parts: `make test-cluster`, `make test-cluster ARGS="-k scaling"`.

The images must be where the cluster finds them (`REGISTRY`). KUBECTL and HELM are commands, CLUSTER_EXEC runs one in
the cluster's network, CLUSTER_CRDS is a folder with definitions of operators' objects.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from .cluster import CHART, JOB, ROOT, TOOLBOX, Cluster, ClusterError, Release, longest_gap, ready
from .table import Table

pytestmark = pytest.mark.cluster

NATIVE: dict[str, Any] = {"runner": "native", "job": JOB, "router": {"settings": {"interval": 5}}}
SPARK: dict[str, Any] = {**NATIVE, "runner": "spark"}
RUNNERS = {"native": NATIVE, "spark": SPARK}
EXACT_SECONDS = 240.0
_IMAGE = "jsonpath={.spec.template.spec.containers[0].image}"
each_runner = pytest.mark.parametrize("runner", RUNNERS)


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Values with others over them, map by map."""
    both = dict(values)
    for name, value in more.items():
        old = both.get(name)
        both[name] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return both


def judge_exact(table: Table, release: Release, what: str) -> None:
    """Results are the oracle's."""
    found = release.check(EXACT_SECONDS)
    compared = sum(row["expected"] for row in found["rows"] if row["name"] == "events per window")
    measured = f"{compared} windows, {sum(row['different'] for row in found['rows'])} differences {found['examples']}"
    table.judge(f"{what}: results", "the oracle's", measured, found["equal"] and compared > 0)


def outcome(load: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    """What the load generator says at its end."""
    out, err = load.communicate(timeout=seconds)
    if not out:
        raise ClusterError(err)
    return dict(json.loads(out.splitlines()[-1]))


# 1


def test_install_with_defaults(release: Release, table: Table) -> None:
    seconds = release.install({})
    table.judge("install with defaults: all ready", "within 300 s", f"{seconds:.0f} s", seconds <= 300)
    release.cluster.helm("test", release.name, "--timeout", "10m")
    table.judge("helm test", "green", "green", passed=True)
    left = release.uninstall()
    claims = [name for name in left if name.startswith("PersistentVolumeClaim/")]
    table.judge("uninstall leaves", "claims alone", ", ".join(left) or "nothing", left == claims)


# 2


def test_variant_native(release: Release, table: Table) -> None:
    seconds = release.install({"runner": "native", "load": {"events": {"enabled": True, "settings": {"seconds": 10}}}})
    release.cluster.helm("test", release.name, "--timeout", "10m")
    table.judge("runner=native: ready, helm test green", "within 300 s", f"{seconds:.0f} s", seconds <= 300)
    jobs = release.cluster.get("jobs", "--selector", "app.kubernetes.io/component=load-events")
    release.cluster.kubectl("wait", "--for=condition=Complete", f"job/{jobs[0]['metadata']['name']}", "--timeout=180s")
    told = release.cluster.kubectl("logs", f"job/{jobs[0]['metadata']['name']}").splitlines()
    (rate,) = (line.removeprefix("rate").strip() for line in told if line.startswith("rate "))
    table.judge("load.events: its rate", "held", rate, passed=True)


def test_variant_external_servers(release: Release, table: Table) -> None:
    bundled = "redis.bundled.enabled", "kafka.bundled.enabled"
    servers = {"producer": {"enabled": False}, "observer": {"enabled": False}, "networkPolicy": {"enabled": False}}
    release.install({"runner": "native", **servers})
    other = Release(release.cluster, "other")
    names = ("events", "routed", "partials", "results", "late", "deadLetters", "distribution")
    topics = {f"{name}Topic": f"other.{name.lower()}" for name in names}
    seconds = other.install(
        {
            "runner": "native",
            "settings": {"application": "other", **topics},
            "observer": {"settings": {"stateTopic": "other.observer-state"}},
            "kafka": {
                "bundled": {"enabled": False},
                "external": {"bootstrapServers": f"{release.full_name}-kafka:9092"},
            },
            "redis": {
                "bundled": {"enabled": False},
                "external": {"url": f"redis://{release.full_name}-redis:6379/1"},
                "auth": {"existingSecret": f"{release.full_name}-redis"},
            },
        }
    )
    other.cluster.helm("test", other.name, "--timeout", "10m")
    table.judge(
        f"external servers ({', '.join(bundled)} false): ready, helm test green", "yes", f"{seconds:.0f} s", True
    )


@pytest.mark.usefixtures("definitions")
def test_variant_operator_objects(release: Release, table: Table) -> None:
    release.install(yaml.safe_load((CHART / "ci" / "operators-values.yaml").read_text()), wait=False)
    kinds = ("servicemonitors", "prometheusrules", "scaledobjects", "sparkapplications")
    found = {kind: len(release.cluster.get(kind)) for kind in kinds}
    table.judge("operator objects", "accepted", str(found), all(found.values()))
    parts = ("router", "producer", "observer", "kafka", "redis")
    release.cluster.until(lambda: all(ready(release.pods(part)) for part in parts), 300, "what needs no operator runs")
    table.judge("beside them", "what can run runs", ", ".join(parts), passed=True)


# 3


@each_runner
def test_skew_is_spread(release: Release, table: Table, runner: str) -> None:
    release.install(merged(RUNNERS[runner], {"worker": {"replicas": 4}}))
    release.open_toolbox()
    release.wait_for_workers(4)
    load = release.flowing_load(1000, 900, "--workload", "country-skew-80", "--tolerance", "0.9")
    for name, least, most in (("w-choices", 1.0, 1.1), ("level-fill", 1.0, 1.1), ("key", 2.5, 4.0)):
        release.put("/grouping", {"name": name, "settings": {}})
        report = _after_intervals(release, 3)
        measured = f"λ {report['lambda']:.3f}, loads {[round(item['load']) for item in report['items'][:4]]}"
        passed = least <= report["lambda"] <= most and sum(item["load"] for item in report["items"]) > 1000
        table.judge(f"{runner}, 80 % of one key, W=4, {name}", f"λ from {least} to {most}", measured, passed)
    release.stop_load(load)
    judge_exact(table, release, f"{runner}, three groupings in turn")


def _after_intervals(release: Release, count: int) -> Any:
    """`/workers` after so many whole intervals (of 5 s)."""
    release.cluster.kubectl("exec", TOOLBOX, "--", "sleep", str(5 * count + 1))
    return release.get("/workers")


# 4


def _by_upgrade(release: Release, values: Mapping[str, Any], count: int) -> None:
    release.install(merged(values, {"worker": {"replicas": count}}), wait=False)


def _by_api(release: Release, values: Mapping[str, Any], count: int) -> None:
    del values
    release.put("/workers", {"workers": count})


def _by_kubectl(release: Release, values: Mapping[str, Any], count: int) -> None:
    del values
    release.cluster.kubectl("scale", f"statefulset/{release.full_name}-worker", f"--replicas={count}")


Way = Callable[[Release, Mapping[str, Any], int], None]
WAYS: dict[str, Way] = {"helm upgrade": _by_upgrade, "PUT /workers": _by_api, "kubectl scale": _by_kubectl}


@each_runner
def test_scaling_in_every_way_ends_in_the_same_state(release: Release, table: Table, runner: str) -> None:
    values = merged(RUNNERS[runner], {"worker": {"replicas": 2}})
    ways = {name: way for name, way in WAYS.items() if runner == "native" or way is not _by_kubectl}
    release.install(values)
    release.open_toolbox()
    release.wait_for_workers(2)
    load = release.flowing_load(500, 60 + 120 * len(ways), "--tolerance", "0.5")
    for name, way in ways.items():
        for count in (4, 3, 2):
            way(release, values, count)
            seconds = release.wait_for_workers(count)
            table.tell(f"{runner}, {name} to {count}: W and pods there", f"{seconds:.0f} s")
        lags = release.get("/workers")["items"]
        stranded = [item["worker"] for item in lags if item["state"] == "draining" and item["lag"]]
        release.cluster.until(lambda: _drained(release), 120, "what removed workers had left is processed")
        table.judge(f"{runner}, {name}: partitions left behind", "none", f"none (at first {stranded})", passed=True)
    # An upgrade after all of it finds nothing in its way, and changes no number of pods.
    release.install(values)
    release.wait_for_workers(release.get("/workers")["workers"])
    release.stop_load(load)
    judge_exact(table, release, f"{runner}, scaled")


def _drained(release: Release) -> bool:
    return not any(item["state"] == "draining" for item in release.get("/workers")["items"])


def test_routers_scaled_by_hand_last_as_long_as_documented(release: Release, table: Table) -> None:
    """The chart's README says what an upgrade does then, by Helm 3 and by Helm 4."""
    version = release.cluster.helm("version", "--template", "{{.Version}}")
    router = f"deployment/{release.full_name}-router"
    changed = {"router": {"settings": {"interval": 6}}}
    release.install(NATIVE)
    release.cluster.kubectl("scale", router, "--replicas=2")
    told = _refusal(lambda: release.install(merged(NATIVE, changed), wait=False))
    refused = "conflict" in told and ".spec.replicas" in told
    right = refused == version.startswith("v4.")
    table.judge(f"Helm {version} after kubectl scale", "4 refuses", told[-120:] or "upgraded", right)
    if refused:
        release.cluster.helm("upgrade", release.name, str(CHART), "--reuse-values", "--force-conflicts")
    assert _replicas(release, router) == 1
    without = merged(NATIVE, {"router": {"replicas": None}})
    release.install(without, wait=False)
    assert _replicas(release, router) == 1
    release.cluster.kubectl("scale", router, "--replicas=2")
    told = _refusal(lambda: release.install(merged(without, changed), wait=False))
    table.judge("the same, router.replicas=null", "upgraded", told[-120:] or "upgraded", not told)
    assert _replicas(release, router) == 2


def _refusal(change: Callable[[], object]) -> str:
    """What a command says that has failed; empty if it has not."""
    try:
        change()
    except ClusterError as refused:
        return str(refused)
    return ""


def _replicas(release: Release, workload: str) -> int:
    return int(release.cluster.kubectl("get", workload, "--output", "jsonpath={.spec.replicas}"))


@each_runner
def test_faults_cost_no_event(release: Release, table: Table, runner: str) -> None:
    values = merged(RUNNERS[runner], {"worker": {"replicas": 2}})
    release.install(values)
    release.open_toolbox()
    load = release.flowing_load(300, 3000, "--tolerance", "0.9")
    # Spark's driver last: with it go its executors, and others come under other names.
    names = [pod["metadata"]["name"] for pod in release.pods()]
    for name in sorted(names, key=lambda name: ("-driver-" in name, name)):
        part = name.removeprefix(f"{release.full_name}-")
        watching = release.started("python", "/tmp/tools/inside.py", "watch", release.router, "45")
        seconds = release.delete_pod(name)
        samples = json.loads(watching.communicate(timeout=120)[0])
        told = f"all ready after {seconds:.0f} s, routing stood still for {longest_gap(samples):.1f} s at most"
        table.tell(f"{runner}, {part} deleted", told)
    table.tell(f"{runner}, everything restarted: all ready", f"{release.restart():.0f} s")
    release.install(merged(values, {"router": {"grouping": {"name": "w-choices", "settings": {}}}}))
    name = release.get("/grouping")["name"]
    table.judge(f"{runner}, upgrade to another grouping", "w-choices", name, name == "w-choices")
    release.stop_load(load)
    judge_exact(table, release, f"{runner}, after all faults")


# 5


def test_prometheus_scrapes_every_pod(release: Release, table: Table, tmp_path: Path) -> None:
    release.install(NATIVE)
    release.open_toolbox()
    targets = {}
    for pod in release.pods():
        told = pod["metadata"].get("annotations", {})
        if told.get("prometheus.io/scrape") == "true":
            place = f"{pod['status']['podIP']}:{told['prometheus.io/port']}"
            targets[pod["metadata"]["name"]] = (place, told["prometheus.io/path"])
    parts = {"router", "producer", "observer", "worker", "aggregator"}
    assert all(any(f"-{part}-" in name for name in targets) for part in parts), targets
    answers = {name: release.inside("ask", "GET", f"http://{place}{path}") for name, (place, path) in targets.items()}
    down = sorted(name for name, answer in answers.items() if answer["status"] != 200)
    table.judge("metrics of the annotated pods", "none down", f"{len(targets)} pods, down: {down or 'none'}", not down)
    rules = sorted((CHART / "files" / "rules").glob("*.yaml"))
    promtool, prometheus = shutil.which("promtool"), shutil.which("prometheus")
    if promtool is None or prometheus is None or not release.cluster.exec:
        pytest.skip("Prometheus itself is not run: prometheus, promtool or CLUSTER_EXEC is missing")
    config = {
        "global": {"scrape_interval": "5s"},
        "rule_files": [str(rule) for rule in rules],
        "scrape_configs": [
            {"job_name": "pods", "static_configs": [{"targets": [place for place, _ in targets.values()]}]}
        ],
    }
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    down, groups = _scraped(release.cluster, prometheus, tmp_path)
    table.judge("Prometheus: targets down", "none", str(down or "none"), not down)
    table.judge("Prometheus: rules", "loaded", f"{groups} groups", groups > 0)


def _scraped(cluster: Cluster, prometheus: str, folder: Path) -> tuple[list[str], int]:
    """Targets that are down after some scrapes, and the groups of rules."""
    address = "127.0.0.1:19090"
    options = (
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder}",
        f"--web.listen-address={address}",
    )
    running = subprocess.Popen([*cluster.exec, prometheus, *options], stderr=subprocess.DEVNULL)

    def asked(path: str) -> Any:
        command = [*cluster.exec, "curl", "--silent", "--fail", f"http://{address}/api/v1/{path}"]
        return json.loads(subprocess.run(command, capture_output=True, check=False).stdout or "{}").get("data", {})

    def scraped() -> bool:
        targets = asked("targets").get("activeTargets", [])
        return bool(targets) and all(target["health"] != "unknown" for target in targets)

    try:
        cluster.until(scraped, 60, "all targets have been scraped")
        down = [target["scrapeUrl"] for target in asked("targets")["activeTargets"] if target["health"] != "up"]
        return down, len(asked("rules")["groups"])
    finally:
        running.terminate()
        running.wait(timeout=30)


# 6

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown name": ({"router": {"replica": 2}}, "replica"),
    "negative replicas": ({"router": {"replicas": -1}}, "/router/replicas"),
    "a budget for one pod": ({"router": {"pdb": {"enabled": True}}}, "router.pdb.enabled"),
    "no Kafka": ({"kafka": {"bundled": {"enabled": False}}}, "kafka.external.bootstrapServers"),
    "more workers than partitions": ({"worker": {"replicas": 17}}, "worker.replicas=17"),
    "a budget for one worker": (
        {"runner": "native", "worker": {"replicas": 1, "pdb": {"enabled": True}}},
        "worker.pdb",
    ),
}


def test_bad_values_are_refused(release: Release, table: Table) -> None:
    for what, (values, named) in BAD.items():
        with pytest.raises(ClusterError) as refused:
            release.install(values, wait=False)
        told = " ".join(str(refused.value).split())
        table.judge(f"install with {what}", f"refused, names {named}", told[-120:], named in told)
    left = [item["metadata"]["name"] for item in release.cluster.get("deployments,statefulsets")]
    table.judge("after refusals there is", "nothing", str(left or "nothing"), not left)


def test_an_older_kafka_is_refused_on_the_volume_of_a_newer_one(release: Release, table: Table) -> None:
    """The newer one needs no image: what counts is what the cluster has been told to run."""
    release.install(merged(NATIVE, {"kafka": {"bundled": {"image": {"tag": "99.1.0"}}}}), wait=False)
    told = _refusal(lambda: release.install(NATIVE, wait=False))
    kafka = release.cluster.kubectl("get", f"statefulset/{release.full_name}-kafka", "--output", _IMAGE)
    kept = kafka.endswith(":99.1.0") and "set kafka.bundled.image.tag=99.1.0" in told
    table.judge("upgrade to an older Kafka", "refused, nothing changed", f"{told[-180:]}, runs {kafka}", kept)


def test_an_upgrade_from_the_previous_chart_keeps_the_data(release: Release, table: Table, tmp_path: Path) -> None:
    tag = os.environ.get("CLUSTER_PREVIOUS", "")
    if not tag:
        pytest.skip("CLUSTER_PREVIOUS names no git tag or commit of the chart to upgrade from")
    archive = subprocess.run(["git", "archive", tag, "helm/keygrouping"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(tmp_path)], input=archive.stdout, check=True)
    release.install(NATIVE, chart=tmp_path / "helm" / "keygrouping")
    release.open_toolbox()
    outcome(release.load(200, 20), 180)
    release.install(NATIVE)
    outcome(release.load(200, 20), 180)
    judge_exact(table, release, f"upgraded from {tag}")
