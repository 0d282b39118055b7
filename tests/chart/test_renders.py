"""What the chart renders to, with Helm."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chart_files
import pytest
import yaml
from chart_files import CHART, MANIFESTS
from keygrouping.cli import inspect
from keygrouping.cli.parser import OneLineParser
from keygrouping.job import JobSpec
from keygrouping_aggregator.settings import AggregatorSettings
from keygrouping_app import environment
from keygrouping_load.settings import EventLoadSettings, HttpLoadSettings
from keygrouping_observer.settings import ObserverSettings
from keygrouping_producer.probe import ProbeSettings
from keygrouping_producer.settings import ProducerSettings
from keygrouping_router.settings import RouterSettings
from keygrouping_service.kafka.topics import TopicsSettings
from keygrouping_service.settings import PREFIX, ApiSettings, ServiceSettings, unknown_names
from keygrouping_spark.settings import SparkSettings
from keygrouping_worker.settings import WorkerSettings
from monitoring.model import RUNBOOKS

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]
Helm = Callable[..., subprocess.CompletedProcess[str]]

CASES = sorted(CHART.glob("ci/*-values.yaml"))
PROGRAMS: dict[str, type[ServiceSettings]] = {
    "producer": ProducerSettings,
    "router": RouterSettings,
    "worker": WorkerSettings,
    "aggregator": AggregatorSettings,
    "observer": ObserverSettings,
    "spark-driver": SparkSettings,
    "topics": TopicsSettings,
    "probe": ProbeSettings,
    "endpoints": ServiceSettings,
    "load-events": EventLoadSettings,
    "load-http": HttpLoadSettings,
    "inspect": ApiSettings,
}
ENDING = {"check", "topics", "probe", "endpoints", "load-events", "load-http"}
"""Programs that run to their end, without HTTP."""
NOT_BUILT_IN = {kind.rpartition("/")[2] for kind in chart_files.OPERATORS} | {"HTTPRoute"}
"""Kinds that an API server knows if somebody has installed their definitions."""

each_case = pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)


def of_kind(objects: Objects, *kinds: str) -> Objects:
    return [item for item in objects if item["kind"] in kinds]


def pods(objects: Objects) -> Iterator[dict[str, Any]]:
    """The specs of all pods that the objects make."""
    for item in objects:
        if item["kind"] == "Pod":
            yield item["spec"]
        elif item["kind"] == "SparkApplication":
            yield from (item["spec"][role]["template"]["spec"] for role in ("driver", "executor"))
        elif "template" in item.get("spec", {}):
            yield item["spec"]["template"]["spec"]
        elif item["kind"] == "ConfigMap" and "executor.yaml" in item["data"]:
            yield yaml.safe_load(item["data"]["executor.yaml"])["spec"]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def our_containers(objects: Objects) -> Iterator[dict[str, Any]]:
    """Those that run a program of ours (an executor takes no settings)."""
    return (c for pod in pods(objects) for c in containers(pod) if program(c["name"]) in PROGRAMS and "image" in c)


def users_containers(objects: Objects) -> list[dict[str, Any]]:
    """Those that run an app."""
    return [c for pod in pods(objects) for c in containers(pod) if c.get("command", [])[:2] == ["keygrouping", "app"]]


def program(container: str) -> str:
    """Exporters are named after their topics, too."""
    return "inspect" if container.startswith("inspect-") else container


# as a whole


@each_case
def test_lint_is_content(run_helm: Helm, case: Path) -> None:
    done = run_helm("lint", "--strict", "--kube-version", chart_files.KUBERNETES, "--values", str(case), str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_examples_render_to_what_is_kept(helm: str) -> None:
    del helm
    for path, text in chart_files.examples().items():
        assert path.read_text() == text, f"{path.relative_to(CHART)} is out of date: run `make chart`"


def test_a_dashboard_stands_in_its_file_and_an_example_only_names_it() -> None:
    kept = (CHART / "examples" / "production" / "rendered.yaml").read_text()
    names = [path.name for path in (CHART / "files" / "dashboards").glob("*.json")]
    assert names and all(f"{name}: <files/dashboards/{name}>" in kept for name in names)
    assert "schemaVersion" not in kept


def test_plain_manifests_are_up_to_date(helm: str) -> None:
    del helm
    made = chart_files.manifests()
    for path, text in made.items():
        assert path.read_text() == text, f"{path.relative_to(chart_files.ROOT)} is out of date: run `make chart`"
    assert chart_files.stale_manifests(made) == []


@pytest.mark.parametrize("folder", ["base", "overlays/laptop", "overlays/combine", "overlays/production"])
def test_kustomize_builds_what_the_chart_renders(helm: str, folder: str) -> None:
    del helm
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed: the overlays are not built")
    done = subprocess.run([kubectl, "kustomize", str(MANIFESTS / folder)], capture_output=True, text=True, check=True)
    built = {(item["kind"], item["metadata"]["name"]): item for item in chart_files.objects(done.stdout)}
    for item in built.values():
        assert item["metadata"].pop("namespace") == "keygrouping"
    strimzi = {key for key in built if key[0].startswith("Kafka")}
    assert {key: item for key, item in built.items() if key not in strimzi} == chart_files.plain(folder)


@each_case
def test_the_api_server_knows_every_field(helm: str, case: Path) -> None:
    del helm
    kubeconform, schemas = shutil.which("kubeconform"), os.environ.get("KUBERNETES_SCHEMAS")
    if kubeconform is None or not schemas:
        pytest.skip("kubeconform or KUBERNETES_SCHEMAS (a folder of an API server's schemas) is missing")
    location = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    unknown = [kind for kind in NOT_BUILT_IN if not any(Path(schemas).glob(f"{kind.lower()}-*.json"))]
    done = subprocess.run(
        [kubeconform, "-strict", "-skip", ",".join(unknown), "-schema-location", location],
        input=chart_files.render("r", "ns", "--values", str(case)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@each_case
def test_names_are_unique_and_short_enough(render: Render, case: Path) -> None:
    found = [(item["apiVersion"], item["kind"], item["metadata"]["name"]) for item in render(case)]
    assert len(found) == len(set(found))
    assert all(len(name) <= 63 for _, _, name in found)
    assert all(item["metadata"]["labels"]["app.kubernetes.io/instance"] == "r" for item in render(case))


@each_case
def test_selectors_and_pods_do_not_change_with_the_versions(render: Render, case: Path) -> None:
    for item in of_kind(render(case), "Deployment", "StatefulSet"):
        labels = item["spec"]["template"]["metadata"]["labels"]
        selector = item["spec"]["selector"]["matchLabels"]
        assert selector.items() <= labels.items()
        assert not {"helm.sh/chart", "app.kubernetes.io/version"} & {*labels, *selector}


@each_case
def test_services_and_budgets_find_their_pods(render: Render, case: Path) -> None:
    objects = render(case)
    labels = [item["spec"]["template"]["metadata"]["labels"] for item in objects if "template" in item.get("spec", {})]
    labels += [
        item["spec"]["driver"]["template"]["metadata"]["labels"] for item in of_kind(objects, "SparkApplication")
    ]
    for item in of_kind(objects, "Service", "PodDisruptionBudget"):
        selector = item["spec"]["selector"]
        wanted = selector.get("matchLabels", selector)
        assert any(wanted.items() <= given.items() for given in labels), item["metadata"]["name"]


# environment


@each_case
def test_every_name_in_the_environment_is_a_setting(render: Render, case: Path) -> None:
    seen = 0
    for container in users_containers(render(case)):
        of_apps = {entry["name"] for entry in container["env"] if entry["name"].startswith(PREFIX)}
        assert of_apps <= environment.NAMES.keys()
        seen += 10 * len(of_apps)
    for container in our_containers(render(case)):
        names = [entry["name"] for entry in container["env"]]
        assert len(names) == len(set(names)), container["name"]
        ours = {name: "" for name in names if name.startswith(PREFIX)}
        assert unknown_names(PROGRAMS[program(container["name"])], ours) == []
        seen += len(ours)
    assert seen > 30


@each_case
def test_the_programs_take_their_environment(
    render: Render, case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = render(case)
    for job in (item["data"]["job.json"] for item in of_kind(objects, "ConfigMap") if "job.json" in item["data"]):
        (tmp_path / "job.json").write_text(job)
        JobSpec.from_json(job)
    (tmp_path / "secret").write_text("alice write secret\n")
    monkeypatch.setattr("keygrouping_service.settings._tls_context", lambda *_: None)
    for container in our_containers(objects):
        with monkeypatch.context() as patch:
            for entry in container["env"]:
                value = entry.get("value", "some-0")
                if value.endswith("/job.json"):
                    value = str(tmp_path / "job.json")
                elif value.startswith("/etc/keygrouping/"):
                    value = str(tmp_path / "secret")
                patch.setenv(entry["name"], value)
            PROGRAMS[program(container["name"])]()


@each_case
def test_settings_files_are_mounted(render: Render, case: Path) -> None:
    for pod in pods(render(case)):
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        claims = {"data"}
        for container in containers(pod):
            mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
            assert set(mounts.values()) <= volumes | claims, container["name"]
            for entry in container.get("env", []):
                value = entry.get("value", "")
                if value.startswith(("/etc/keygrouping", "file:///var/lib")):
                    path = value.removeprefix("file://")
                    assert any(path.startswith(mount) for mount in mounts), (container["name"], entry)


# pods


@each_case
def test_pods_have_the_restricted_security(render: Render, case: Path) -> None:
    for pod in pods(render(case)):
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


@each_case
def test_only_those_who_make_or_scale_pods_have_a_token(render: Render, case: Path) -> None:
    objects = render(case)
    with_token = {pod["containers"][0]["name"] for pod in pods(objects) if pod["automountServiceAccountToken"]}
    assert with_token == {
        item["metadata"]["labels"]["app.kubernetes.io/component"] for item in of_kind(objects, "Role")
    }
    assert len(with_token) <= 1


@each_case
def test_pods_are_probed_and_have_time_to_flush(render: Render, case: Path) -> None:
    for pod in pods(render(case)):
        for container in pod["containers"]:
            if container["name"] in ENDING or "image" not in container:
                continue
            assert {"startupProbe", "readinessProbe", "livenessProbe", "resources"} <= set(container)
            assert "cpu" in container["resources"]["requests"] and "memory" in container["resources"]["limits"]
            if program(container["name"]) in PROGRAMS:
                pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
                longest = {"spark-driver": 60, "producer": 10}.get(container["name"], 20)
                assert pod["terminationGracePeriodSeconds"] >= pause + longest


def test_the_defaults_fit_on_two_cores_and_12_gib(render: Render) -> None:
    cpu, memory = 0.0, 0.0
    for item in of_kind(render(), "Deployment", "StatefulSet"):
        for container in item["spec"]["template"]["spec"]["containers"]:
            requests = container["resources"]["requests"]
            cpu += int(requests["cpu"].removesuffix("m")) / 1000
            memory += int(requests["memory"].removesuffix("Mi")) / 1024
    # Two executors of 200m and 1.75 GiB.
    assert cpu + 0.4 <= 1.7
    assert memory + 3.5 <= 7


def test_a_change_of_the_job_makes_new_pods(render: Render) -> None:
    def checksums(objects: Objects) -> set[str]:
        found = (item["spec"]["template"]["metadata"] for item in of_kind(objects, "Deployment", "StatefulSet"))
        return {metadata.get("annotations", {}).get("checksum/job", "") for metadata in found} - {""}

    before, after = checksums(render()), checksums(render(None, "job.window=2m"))
    assert len(before) == len(after) == 1
    assert before != after


def test_values_of_a_part_go_over_those_of_all(render: Render) -> None:
    objects = render(CHART / "ci" / "all-options-values.yaml", "worker.nodeSelector.pool=big")
    by_name = {item["metadata"]["name"]: item for item in of_kind(objects, "Deployment", "StatefulSet")}
    worker = by_name["r-keygrouping-worker"]["spec"]["template"]["spec"]
    assert worker["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "big"}
    router = by_name["r-keygrouping-router"]["spec"]["template"]
    assert router["metadata"]["labels"]["tier"] == "routing"
    assert router["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    image = router["spec"]["containers"][0]["image"]
    assert image == "registry.example.com/team/keygrouping-router:1.2.3"


def test_a_digest_names_an_image_alone(render: Render) -> None:
    own, other = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    objects = render(None, f"router.image.digest={own}", f"kafka.bundled.image.digest={other}")
    images = {c["image"] for pod in pods(objects) for c in containers(pod) if "image" in c}
    assert {f"keygrouping-router@{own}", f"apache/kafka@{other}"} <= images


def test_large_numbers_stay_numbers(render: Render) -> None:
    objects = render(None, "producer.settings.events=1000000000")
    (producer,) = (c for c in our_containers(objects) if c["name"] == "producer")
    assert {"name": "KEYGROUPING_PRODUCER_EVENTS", "value": "1000000000"} in producer["env"]


# Spark


def test_executors_are_named_labelled_and_mounted_as_workers(render: Render) -> None:
    (conf,) = (item["data"] for item in of_kind(render(), "ConfigMap") if "executor.yaml" in item["data"])
    pod = yaml.safe_load(conf["executor.yaml"])
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"
    settings = dict(line.split(maxsplit=1) for line in conf["spark-defaults.conf"].splitlines())
    assert settings["spark.kubernetes.executor.podTemplateContainerName"] == pod["spec"]["containers"][0]["name"]
    assert settings["spark.executor.instances"] == "2"
    (driver,) = (c for c in our_containers(render()) if c["name"] == "spark-driver")
    checkpoint = "/var/lib/keygrouping/checkpoint"
    for mounts in (driver["volumeMounts"], pod["spec"]["containers"][0]["volumeMounts"]):
        assert checkpoint in {mount["mountPath"] for mount in mounts}
    (service,) = (item for item in of_kind(render(), "Service") if item["metadata"]["name"].endswith("-spark-driver"))
    assert settings["spark.driver.host"] == f"{service['metadata']['name']}.ns.svc"
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert ports["driver"] == int(settings["spark.driver.port"])
    assert ports["blocks"] == int(settings["spark.driver.blockManager.port"])


@pytest.mark.parametrize(
    ("options", "overhead"),
    [(set(), "768m"), ({"spark.executor.cores=3"}, "1280m"), ({"spark.executor.memoryOverhead=2g"}, "2g")],
)
def test_each_task_of_an_executor_has_memory_for_its_python(render: Render, options: set[str], overhead: str) -> None:
    (conf,) = (item["data"] for item in of_kind(render(None, *options), "ConfigMap") if "executor.yaml" in item["data"])
    settings = dict(line.split(maxsplit=1) for line in conf["spark-defaults.conf"].splitlines())
    assert settings["spark.executor.memoryOverhead"] == overhead
    (application,) = of_kind(render(None, "spark.mode=operator", *options), "SparkApplication")
    assert application["spec"]["executor"]["memoryOverhead"] == overhead


@pytest.mark.parametrize(("mode", "asks"), [("client", True), ("operator", True), ("local", False)])
def test_executors_follow_the_router(render: Render, mode: str, asks: bool) -> None:
    (driver,) = (c for c in our_containers(render(None, f"spark.mode={mode}")) if c["name"] == "spark-driver")
    assert ("KEYGROUPING_SPARK_ROUTER_URL" in {entry["name"] for entry in driver["env"]}) is asks


def spark_settings(render: Render, mode: str, *options: str) -> dict[str, str]:
    """Spark's settings where executors are pods, whoever starts the driver."""
    objects = render(None, f"spark.mode={mode}", *options)
    if mode == "operator":
        (application,) = of_kind(objects, "SparkApplication")
        return dict(application["spec"]["sparkConf"])
    (conf,) = (item["data"] for item in of_kind(objects, "ConfigMap") if "executor.yaml" in item["data"])
    return dict(line.split(maxsplit=1) for line in conf["spark-defaults.conf"].splitlines())


def conf(name: str, value: str) -> str:
    return f"spark.conf.{name.replace('.', chr(92) + '.')}={value}"


on_pods = pytest.mark.parametrize("mode", ["client", "operator"])


@on_pods
def test_executors_hand_over_their_blocks_before_they_go(render: Render, mode: str) -> None:
    settings = spark_settings(render, mode)
    blocks = ["spark.storage.decommission.rddBlocks.enabled", "spark.storage.decommission.shuffleBlocks.enabled"]
    for name in ["spark.decommission.enabled", "spark.storage.decommission.enabled", *blocks]:
        assert settings[name] == "true"


@on_pods
def test_sparks_own_settings_have_the_last_word(render: Render, mode: str) -> None:
    told = {
        "spark.decommission.enabled": "no",
        "spark.eventLog.enabled": "yes",
        "spark.eventLog.dir": "s3a://bucket/events",
        "spark.dynamicAllocation.enabled": "yes",
    }
    settings = spark_settings(render, mode, *(conf(name, value) for name, value in told.items()))
    assert {name: settings[name] for name in told} == told


VOLUME = "spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1"


@on_pods
def test_a_claim_of_an_executor_is_taken_over_by_the_next_one(render: Render, mode: str) -> None:
    without = spark_settings(render, mode)
    assert without["spark.kubernetes.driver.reusePersistentVolumeClaim"] == "false"
    assert not any(name.startswith(VOLUME) for name in without)
    given = "spark.executor.persistence"
    options = [f"{given}.enabled=true", f"{given}.size=20Gi", f"{given}.storageClass=fast"]
    settings = spark_settings(render, mode, *options)
    for name in ("ownPersistentVolumeClaim", "reusePersistentVolumeClaim"):
        assert settings[f"spark.kubernetes.driver.{name}"] == "true"
    assert {name.removeprefix(f"{VOLUME}."): settings[name] for name in settings if name.startswith(VOLUME)} == {
        "options.claimName": "OnDemand",
        "options.sizeLimit": "20Gi",
        "options.storageClass": "fast",
        "mount.path": "/var/lib/keygrouping/local",
        "mount.readOnly": "false",
    }
    assert "KubernetesLocalDiskShuffleDataIO" in settings["spark.shuffle.sort.io.plugin.class"]
    (role,) = of_kind(render(None, f"spark.mode={mode}", *options), "Role")
    assert role["rules"][0]["resources"] == ["pods", "persistentvolumeclaims"]


def test_an_object_store_needs_no_claim(render: Render) -> None:
    objects = render(None, "spark.checkpoint.uri=s3a://bucket/folder")
    assert of_kind(objects, "PersistentVolumeClaim") == []
    assert not any("checkpoint" in json.dumps(pod.get("volumes", [])) for pod in pods(objects))


# scaling and operators


def test_who_scales_owns_the_number_of_pods(render: Render) -> None:
    keda = "networkPolicy.kafkaFrom[0].podSelector.matchLabels.app=keda"
    objects = render(None, "runner=native", "worker.keda.enabled=true", "aggregator.autoscaling.enabled=true", keda)
    numbers = {item["metadata"]["name"]: item["spec"].get("replicas") for item in of_kind(objects, "Deployment")}
    assert numbers == {
        "r-keygrouping-aggregator": None,
        "r-keygrouping-observer": 1,
        "r-keygrouping-producer": 1,
        "r-keygrouping-router": 1,
    }
    targets = [
        item["spec"]["scaleTargetRef"]["name"] for item in of_kind(objects, "ScaledObject", "HorizontalPodAutoscaler")
    ]
    assert sorted(targets) == ["r-keygrouping-aggregator", "r-keygrouping-worker"]


@pytest.mark.parametrize(("part", "runner"), [("router", "spark"), ("router", "native"), ("aggregator", "native")])
def test_a_number_that_others_scale_can_be_left_out(render: Render, part: str, runner: str) -> None:
    objects = render(None, f"runner={runner}", f"{part}.replicas=null")
    (found,) = (i for i in of_kind(objects, "Deployment") if i["metadata"]["name"] == f"r-keygrouping-{part}")
    assert "replicas" not in found["spec"]


def test_workers_that_read_the_events_themselves_have_no_router(render: Render) -> None:
    objects = render(CHART / "ci" / "combine-values.yaml")
    names = {item["metadata"]["name"] for item in objects}
    assert not [name for name in names if name.startswith(("r-keygrouping-router", "r-keygrouping-redis"))]
    (worker,) = (i for i in of_kind(objects, "StatefulSet") if i["metadata"]["name"] == "r-keygrouping-worker")
    assert worker["spec"]["replicas"] == 4
    told = {c["name"]: {entry["name"]: entry.get("value") for entry in c["env"]} for c in our_containers(objects)}
    assert {told[part]["KEYGROUPING_STAGES"] for part in ("worker", "aggregator", "observer")} == {"combine"}
    assert "KEYGROUPING_OBSERVER_ROUTER_URL" not in told["observer"]
    assert told["worker"]["KEYGROUPING_WORKER_IDLE_TIMEOUT"] == "5"


def test_workers_that_read_the_events_themselves_are_as_many_as_somebody_says(render: Render) -> None:
    combine = ("runner=native", "stages=combine")
    for number in (20, None):
        (worker,) = workers_of(render(None, *combine, f"worker.replicas={'null' if number is None else number}"))
        assert worker["spec"].get("replicas") == number
    keda = "networkPolicy.kafkaFrom[0].podSelector.matchLabels.app=keda"
    objects = render(None, *combine, "worker.keda.enabled=true", "worker.keda.maxReplicas=20", keda)
    (scaled,) = of_kind(objects, "ScaledObject")
    (trigger,) = scaled["spec"]["triggers"]
    assert (trigger["metadata"]["topic"], trigger["metadata"]["consumerGroup"]) == ("events", "keygrouping-router")
    assert "replicas" not in workers_of(objects)[0]["spec"]


def workers_of(objects: Objects) -> Objects:
    return [item for item in of_kind(objects, "StatefulSet") if item["metadata"]["name"] == "r-keygrouping-worker"]


def test_a_pipeline_without_a_router_is_tested_and_routes_nothing(render: Render) -> None:
    objects = render(CHART / "ci" / "combine-values.yaml")
    told = {c["name"]: {entry["name"]: entry.get("value") for entry in c["env"]} for c in our_containers(objects)}
    assert told["topics"]["KEYGROUPING_STAGES"] == "combine"
    assert told["probe"]["KEYGROUPING_PROBE_PRODUCER_URL"] == "http://r-keygrouping-producer:80"
    assert "KEYGROUPING_PROBE_ROUTER_URL" not in told["probe"]


def test_routers_of_unknown_number_share_their_plan(helm: str) -> None:
    del helm
    with pytest.raises(chart_files.ChartError, match="several routers need a Redis"):
        chart_files.render("r", "ns", "--set", "router.replicas=null,redis.bundled.enabled=false")


@pytest.mark.parametrize("workers", [2, 3])
def test_the_chart_leaves_the_number_of_workers_to_the_router(render: Render, workers: int) -> None:
    objects = render(None, "runner=native", f"worker.replicas={workers}")
    (worker,) = (i for i in of_kind(objects, "StatefulSet") if i["metadata"]["name"] == "r-keygrouping-worker")
    assert "replicas" not in worker["spec"]
    (router,) = (c for c in our_containers(objects) if c["name"] == "router")
    told = {entry["name"]: entry.get("value") for entry in router["env"]}
    assert told["KEYGROUPING_ROUTER_WORKERS"] == str(workers)
    assert told["KEYGROUPING_ROUTER_WORKER_PODS"] == "r-keygrouping-worker"
    (role,) = of_kind(objects, "Role")
    assert role["rules"] == [
        {
            "apiGroups": ["apps"],
            "resources": ["statefulsets/scale"],
            "resourceNames": ["r-keygrouping-worker"],
            "verbs": ["get", "patch"],
        }
    ]
    (binding,) = of_kind(objects, "RoleBinding")
    accounts = {pod["serviceAccountName"] for pod in pods(objects) if pod["automountServiceAccountToken"]}
    assert accounts == {subject["name"] for subject in binding["subjects"]}


def test_spark_needs_no_rights_of_the_router(render: Render) -> None:
    objects = render()
    (router,) = (c for c in our_containers(objects) if c["name"] == "router")
    assert "KEYGROUPING_ROUTER_WORKER_PODS" not in {entry["name"] for entry in router["env"]}
    assert {item["metadata"]["name"] for item in of_kind(objects, "Role")} == {"r-keygrouping-spark-driver"}


# load


def test_load_is_off_and_a_job_of_its_own_for_every_change(render: Render) -> None:
    def jobs(*assignments: str) -> dict[str, Any]:
        objects = render(None, "check.enabled=false", *assignments)
        return {item["metadata"]["name"]: item["spec"] for item in of_kind(objects, "Job")}

    assert jobs() == {}
    names = {
        name for rate in (1000, 2000) for name in jobs("load.events.enabled=true", f"load.events.settings.rate={rate}")
    }
    assert len(names) == 2
    assert all(re.fullmatch(r"r-keygrouping-load-events-[0-9a-f]{8}", name) for name in names)
    (http,) = jobs("load.http.enabled=true", "producer.enabled=false").values()
    (container,) = http["template"]["spec"]["containers"]
    told = {entry["name"]: entry["value"] for entry in container["env"]}
    assert told["KEYGROUPING_HTTPLOAD_ROUTER_URL"] == "http://r-keygrouping-router:80"
    assert "KEYGROUPING_HTTPLOAD_PRODUCER_URL" not in told
    assert (http["backoffLimit"], http["template"]["spec"]["restartPolicy"]) == (0, "Never")


def test_external_kafka_is_checked_before_anything_changes(render: Render) -> None:
    objects = render(CHART / "ci" / "external-values.yaml", "check.enabled=false")
    (job,) = (job for job in of_kind(objects, "Job") if "load" not in job["metadata"]["name"])
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == "default"
    assert not any("initContainers" in pod for pod in pods(objects))


@each_case
def test_topics_of_the_stages_are_made_in_a_bundled_kafka_of_every_installation(render: Render, case: Path) -> None:
    """Load generators make them, too, but run only where somebody asks for them."""
    running = of_kind(render(case), "Deployment", "StatefulSet")
    parts = {item["metadata"]["name"].removeprefix("r-keygrouping-") for item in running}
    makers = [pod for pod in pods(running) if any(c["name"] == "topics" for c in pod.get("initContainers", []))]
    assert bool(makers) == ("kafka" in parts and bool({"router", "worker"} & parts))


def test_rules_alerts_and_dashboards_link_to_the_runbooks_that_were_named(render: Render) -> None:
    url = "https://wiki.example.org/keygrouping"
    objects = render(
        CHART / "ci" / "operators-values.yaml",
        f"metrics.runbookUrl={url}",
        "metrics.grafanaAlerts.datasourceUid=mine",
    )
    monitoring = [
        item
        for item in objects
        if item["kind"] == "PrometheusRule" or any(name.startswith("grafana_") for name in item["metadata"]["labels"])
    ]
    assert len(monitoring) == 2 + len(list(CHART.glob("files/dashboards/*.json")))
    for item in monitoring:
        text = json.dumps(item)
        assert f"{url}#keygrouping" in text
        assert RUNBOOKS not in text
    (alerts,) = (item for item in monitoring if "grafana_alert" in item["metadata"]["labels"])
    uids = set(re.findall(r"datasourceUid: (\S+)", alerts["data"]["keygrouping.yaml"]))
    assert uids == {'"mine"', "__expr__"}


@each_case
def test_every_part_has_a_policy(render: Render, case: Path) -> None:
    objects = render(case, "networkPolicy.enabled=true")
    selectors = [item["spec"]["podSelector"]["matchLabels"] for item in of_kind(objects, "NetworkPolicy")]
    for item in of_kind(objects, "Deployment", "StatefulSet", "Job"):
        labels = item["spec"]["template"]["metadata"]["labels"]
        assert sum(selector.items() <= labels.items() for selector in selectors) == 1, item["metadata"]["name"]


# exporters


def test_exporters_need_no_pipeline(render: Render) -> None:
    objects = render(CHART / "ci" / "inspect-values.yaml")
    parts = {item["metadata"]["labels"]["app.kubernetes.io/component"] for item in objects}
    assert parts == {"services", "inspect-shop-orders-v2", "inspect-clicks"}
    assert {item["kind"] for item in objects} == {"ServiceAccount", "Deployment", "Service", "NetworkPolicy"}
    assert all(item["spec"]["publishNotReadyAddresses"] for item in of_kind(objects, "Service"))


def test_exporters_have_the_options_of_the_command(render: Render) -> None:
    parser = OneLineParser()
    inspect.declare(parser)
    given = {}
    for item in of_kind(render(CHART / "ci" / "inspect-values.yaml"), "Deployment"):
        (container,) = item["spec"]["template"]["spec"]["containers"]
        name, *options = container["args"]
        assert (container["command"], name) == (["start", "keygrouping"], "inspect")
        given[container["name"]] = parser.parse_args(options)
    orders, clicks = given["inspect-shop-orders-v2"], given["inspect-clicks"]
    assert (orders.topic, orders.key, orders.workers, orders.key_labels) == (
        "shop.orders_v2",
        "field=customer",
        [8, 16],
        True,
    )
    assert (clicks.window, clicks.hash_keys, clicks.follow, clicks.metrics_port) == (600, True, True, 8080)


@pytest.mark.parametrize("runner", ["native", "spark"])
def test_tokens_for_kafka_come_from_a_function_and_no_secret(render: Render, runner: str) -> None:
    external = "kafka.external.securityProtocol=SASL_SSL,kafka.external.sasl.mechanism=OAUTHBEARER"
    given = "kafka.bundled.enabled=false,kafka.external.bootstrapServers=k:9092,image.pullPolicy=Never"
    objects = render(None, f"runner={runner}", given, external, "kafka.external.sasl.tokenProvider=iam:token")
    environments = [
        {entry["name"]: entry.get("value") for entry in container.get("env", ())}
        for container in our_containers(objects)
    ]
    logged_in = [each for each in environments if "KEYGROUPING_BOOTSTRAP_SERVERS" in each]
    assert len(logged_in) > 3
    for each in logged_in:
        assert each["KEYGROUPING_SASL_MECHANISM"] == "OAUTHBEARER"
        assert each["KEYGROUPING_SASL_TOKEN_PROVIDER"] == "iam:token"
        assert not {"KEYGROUPING_SASL_USERNAME", "KEYGROUPING_SASL_PASSWORD_FILE"} & set(each)
    assert "kafka-sasl" not in str(objects)


@pytest.mark.parametrize(("mechanism", "ports"), [("OAUTHBEARER", [7078, 7079, 8080]), ("PLAIN", [7078, 7079])])
def test_executors_may_ask_the_driver_for_tokens_of_kafka(render: Render, mechanism: str, ports: list[int]) -> None:
    sasl = f"mechanism={mechanism},kafka.external.sasl.tokenProvider=iam:token,kafka.external.sasl.existingSecret=user"
    external = f"kafka.external.securityProtocol=SASL_SSL,kafka.external.sasl.{sasl}"
    objects = render(
        None,
        "runner=spark,networkPolicy.enabled=true,kafka.bundled.enabled=false,kafka.external.bootstrapServers=k:9092",
        external,
    )
    policies = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "NetworkPolicy"}
    (worker,) = (spec for name, spec in policies.items() if name.endswith("-worker"))
    (driver,) = (spec for name, spec in policies.items() if name.endswith("-spark-driver"))
    allowed = [[port["port"] for port in rule["ports"]] for rule in worker["egress"] + driver["ingress"]]
    assert allowed.count(ports) == 2, "out of an executor, and into the driver"


# refusals

REFUSED = {
    "kafka: there is none": "kafka.bundled.enabled=false",
    "kafka: there are two": "kafka.external.bootstrapServers=k:9092",
    "kafka.external.securityProtocol=SASL_SSL needs kafka.external.sasl.existingSecret": (
        "kafka.bundled.enabled=false,kafka.external.bootstrapServers=k:9092,kafka.external.securityProtocol=SASL_SSL"
    ),
    "kafka.external.tls.existingSecret is not used with kafka.external.securityProtocol=PLAINTEXT": (
        "kafka.external.tls.existingSecret=ca"
    ),
    "redis: there are two": "redis.external.url=redis://r",
    "router: several routers need a Redis": "redis.bundled.enabled=false,router.replicas=2",
    "router: set either router.autoscaling.enabled or router.keda.enabled": (
        "router.autoscaling.enabled=true,router.keda.enabled=true"
    ),
    "worker.replicas=17 is more than worker.maxReplicas=16": "worker.replicas=17",
    "worker.keda.enabled needs runner=native": "worker.keda.enabled=true",
    "worker.pdb.enabled needs runner=native": "worker.pdb.enabled=true",
    "aggregator.pdb.enabled needs runner=native": "aggregator.pdb.enabled=true",
    "aggregator.autoscaling.enabled needs runner=native": "aggregator.autoscaling.enabled=true",
    "worker.keda.maxReplicas is more than worker.maxReplicas=16": (
        "runner=native,worker.keda.enabled=true,worker.keda.maxReplicas=17"
    ),
    "router.pdb.enabled needs at least two replicas, there may be 1": "router.pdb.enabled=true",
    "worker.pdb.enabled needs at least two replicas, there may be 1": "worker.pdb.enabled=true,worker.replicas=1",
    "metrics.runbookUrl: alerts and dashboards link to runbooks": "metrics.dashboards.enabled=true",
    "secrets.generate=false needs the names of Secrets that you have made: "
    "redis.auth.existingSecret (keys: password); router.auth.existingSecret (keys: read, tokens, write); "
    "producer.auth.existingSecret (keys: read, tokens, write); spark.auth.existingSecret (keys: secret)": (
        "secrets.generate=false"
    ),
    "router.settings.apiReads=closed needs router.auth.enabled=true": (
        "router.settings.apiReads=closed,router.auth.enabled=false"
    ),
    "observer.settings.apiReads=closed needs router.auth.enabled=true": (
        "observer.settings.apiReads=closed,router.auth.enabled=false"
    ),
    "router.settings.apiReads=closed needs router.auth.readerTokenKey": (
        "router.settings.apiReads=closed,router.auth.readerTokenKey="
    ),
    "router: an Ingress, a route or a service of type NodePort or LoadBalancer needs networkPolicy.apiFrom": (
        "router.ingress.enabled=true,router.ingress.hosts[0].host=r.example.com"
    ),
    "producer: an Ingress, a route or a service of type NodePort or LoadBalancer needs networkPolicy.apiFrom": (
        "producer.service.type=LoadBalancer"
    ),
    "observer: an Ingress, a route or a service of type NodePort or LoadBalancer needs networkPolicy.apiFrom": (
        "observer.service.type=NodePort"
    ),
    "keda with a bundled Kafka needs networkPolicy.kafkaFrom": "router.keda.enabled=true",
    "producer.ingress.enabled needs producer.ingress.hosts": "producer.ingress.enabled=true",
    "router.httpRoute.enabled needs router.httpRoute.parentRefs": "router.httpRoute.enabled=true",
    "metrics: set either metrics.serviceMonitor.enabled or metrics.podMonitor.enabled": (
        "metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true"
    ),
    "pipeline.enabled=false leaves nothing to install": "pipeline.enabled=false",
    "inspect.topics: topic orders_ makes no name for Kubernetes": "inspect.topics[0].topic=orders_",
    "inspect.topics: a.b and a_b have the same name a-b": "inspect.topics[0].topic=a.b,inspect.topics[1].topic=a_b",
    "inspect.topics: topic a: set either hashKeys or keyLabels": (
        "inspect.topics[0].topic=a,inspect.topics[0].hashKeys=true,inspect.topics[0].keyLabels=true"
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_values_that_do_not_fit_are_refused_with_a_sentence(helm: str, sentence: str) -> None:
    del helm
    with pytest.raises(chart_files.ChartError, match=re.escape(sentence)):
        chart_files.render("r", "ns", "--set", REFUSED[sentence])


@pytest.mark.parametrize(
    ("assignments", "kind"),
    [
        ("metrics.serviceMonitor.enabled=true", "ServiceMonitor"),
        ("metrics.podMonitor.enabled=true", "PodMonitor"),
        ("metrics.runbookUrl=https://r,metrics.prometheusRule.enabled=true", "PrometheusRule"),
        ("router.keda.enabled=true", "ScaledObject"),
        ("runner=native,worker.keda.enabled=true", "ScaledObject"),
        ("spark.mode=operator", "SparkApplication"),
    ],
)
def test_objects_that_the_cluster_does_not_know_are_refused(run_helm: Helm, assignments: str, kind: str) -> None:
    version = ("--kube-version", chart_files.KUBERNETES)
    done = run_helm("template", "r", str(CHART), *version, "--set", assignments)
    wanted = assignments.rpartition(",")[2].removesuffix("=true")
    assert f"{wanted}: the cluster knows no {kind}" in done.stderr


def test_a_misspelt_value_is_named(helm: str) -> None:
    del helm
    with pytest.raises(chart_files.ChartError, match="replica"):
        chart_files.render("r", "ns", "--set", "router.replica=2")
