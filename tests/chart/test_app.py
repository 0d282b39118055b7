"""A user's own image by `runner: app`: on the same footing as the built-in workers, and without a pipeline."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chart_files import CHART
from keygrouping_app.commands import run

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]

APP, BACKFILL = (CHART / "ci" / f"{name}-values.yaml" for name in ("app", "backfill"))
PROGRAM = """
from keygrouping.app import App, Event

app = App("billing-in-code")

@app.on("orders", timeout={timeout})
async def charge(event: Event) -> None: ...
"""


def parts(objects: Objects) -> set[str]:
    return {item["metadata"]["labels"]["app.kubernetes.io/component"] for item in objects}


def only(objects: Objects, kind: str, part: str = "app") -> dict[str, Any]:
    (found,) = (
        item
        for item in objects
        if item["kind"] == kind and item["metadata"]["labels"]["app.kubernetes.io/component"] == part
    )
    return found


def container(item: dict[str, Any]) -> dict[str, Any]:
    (found,) = item["spec"]["template"]["spec"]["containers"]
    return dict(found)


def env(item: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "from elsewhere") for entry in container(item)["env"]}


def test_nothing_of_a_pipeline_is_installed(render: Render) -> None:
    assert parts(render(APP)) == {"app", "services", "check", "test", "metrics", "kafka"}
    assert {item["kind"] for item in render(APP) if parts([item]) == {"kafka"}} == {"TriggerAuthentication"}
    assert parts(render(BACKFILL)) == {"app", "services", "check", "test", "kafka"}
    assert not any(item["kind"] == "Secret" for item in render(BACKFILL))


def test_members_are_static_by_the_names_of_their_pods(render: Render) -> None:
    members = only(render(APP), "StatefulSet")
    assert members["spec"]["podManagementPolicy"] == "Parallel"
    assert members["spec"]["serviceName"] == only(render(APP), "Service")["metadata"]["name"]
    (instance,) = (e for e in container(members)["env"] if e["name"] == "KEYGROUPING_APP_INSTANCE_ID")
    assert instance["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert "KEYGROUPING_APP_INSTANCE_ID" not in env(only(render(BACKFILL), "Job"))


def test_it_is_the_users_image_with_the_command_for_apps(render: Render) -> None:
    member = container(only(render(APP, "image.registry=ours.example.com", "image.tag=v9"), "StatefulSet"))
    assert member["image"] == "registry.example.com/team/billing:1.0.0"
    assert member["command"] == ["keygrouping", "app", "billing:app"]
    digest = f"app.image.digest=sha256:{'a' * 64}"
    assert container(only(render(APP, digest), "StatefulSet"))["image"].endswith(f"/billing@sha256:{'a' * 64}")


def test_it_has_brokers_and_secrets_as_the_services_have_them(render: Render) -> None:
    external = CHART / "ci" / "external-values.yaml"
    mine = env(only(render(APP), "StatefulSet"))
    theirs = env(only(render(external), "StatefulSet", "worker"))
    shared = {"BOOTSTRAP_SERVERS", "SECURITY_PROTOCOL", "SASL_MECHANISM", "SASL_USERNAME", "SASL_PASSWORD_FILE"}
    for name in (*shared, "SSL_CAFILE", "LOG_LEVEL", "LOG_FORMAT"):
        assert mine[f"KEYGROUPING_{name}"] == theirs[f"KEYGROUPING_{name}"]
    assert "KEYGROUPING_EVENTS_TOPIC" not in mine
    mounts = {mount["name"] for mount in container(only(render(APP), "StatefulSet"))["volumeMounts"]}
    assert mounts == {"tmp", "kafka-sasl", "kafka-tls"}


def test_it_is_probed_and_stops_without_a_pause(render: Render) -> None:
    for item in (only(render(APP), "StatefulSet"), only(render(BACKFILL), "Job")):
        member = container(item)
        assert member["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
        assert member["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
        assert member["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
        assert env(item)["KEYGROUPING_APP_PORT"] == "8080"
        assert "lifecycle" not in member, "nobody sends it requests, and its image may have no `sleep`"


def test_a_pause_before_the_stop_is_no_time_to_stop(render: Render) -> None:
    members = only(render(APP, "app.preStopSeconds=5"), "StatefulSet")
    assert members["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 130
    assert env(members)["KEYGROUPING_APP_STOP_SECONDS"] == "125"
    assert container(members)["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]


def test_keda_looks_at_the_groups_lag_in_each_topic(render: Render) -> None:
    scaled = only(render(APP), "ScaledObject")
    target = only(render(APP), "StatefulSet")
    assert scaled["spec"]["scaleTargetRef"] == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": target["metadata"]["name"],
    }
    assert "replicas" not in target["spec"]
    triggers = [trigger["metadata"] for trigger in scaled["spec"]["triggers"]]
    assert [(each["consumerGroup"], each["topic"]) for each in triggers] == [
        ("billing", "orders"),
        ("billing", "payments"),
    ]
    assert env(target)["KEYGROUPING_APP_GROUP"] == "billing", "or KEDA would look at another group"
    assert all(
        trigger["authenticationRef"] == {"name": "r-keygrouping-kafka"} for trigger in scaled["spec"]["triggers"]
    )


def test_keda_starts_members_beyond_the_partitions_if_it_is_told_to(render: Render) -> None:
    """It has idle consumers in mind, but those that share hot keys have work."""

    def says(*values: str) -> set[str | None]:
        scaled = only(render(APP, *values), "ScaledObject")
        return {trigger["metadata"].get("allowIdleConsumers") for trigger in scaled["spec"]["triggers"]}

    assert says() == {None}
    assert says("app.keda.allowIdleConsumers=true") == {"true"}


def test_a_fixed_number_and_scaling_by_cpu(render: Render) -> None:
    fixed = render(APP, "app.keda.enabled=false", "app.replicas=3")
    assert only(fixed, "StatefulSet")["spec"]["replicas"] == 3
    by_cpu = render(APP, "app.keda.enabled=false", "app.autoscaling.enabled=true", "app.autoscaling.minReplicas=2")
    assert only(by_cpu, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["kind"] == "StatefulSet"
    assert "replicas" not in only(by_cpu, "StatefulSet")["spec"]
    left = render(APP, "app.keda.enabled=false", "app.pdb.enabled=false", "app.replicas=null")
    assert "replicas" not in only(left, "StatefulSet")["spec"]


def test_members_are_evicted_one_after_another(render: Render) -> None:
    budget = only(render(APP), "PodDisruptionBudget")["spec"]
    template = only(render(APP), "StatefulSet")["spec"]["template"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert not any(item["kind"] == "PodDisruptionBudget" for item in render(BACKFILL))


def test_handlers_call_what_is_named_and_nothing_else(render: Render) -> None:
    def ports(objects: Objects) -> list[int]:
        policies = [item for item in objects if item["kind"] == "NetworkPolicy" and parts([item]) == {"app"}]
        (policy,) = (item for item in policies if item["metadata"]["name"] == "r-keygrouping-app")
        return [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]

    assert ports(render(APP)) == [53, 53, 9093, 443]
    assert ports(render(BACKFILL)) == [53, 53, 9092]


def test_a_backfill_is_a_job_that_ends_when_its_group_is_at_the_end(render: Render) -> None:
    job = only(render(BACKFILL), "Job")
    assert job["spec"]["parallelism"] == 2
    assert "completions" not in job["spec"], "the first member that ends must not start another"
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never", "as podFailurePolicy wants it"
    first, second = job["spec"]["podFailurePolicy"]["rules"]
    assert (first["action"], first["onExitCodes"]["values"]) == ("FailJob", [2])
    assert first["onExitCodes"]["containerName"] == container(job)["name"]
    assert (second["action"], second["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert env(job)["KEYGROUPING_APP_UNTIL"] == "2025-12-01T00:00:00Z"
    assert not any(item["kind"] == "StatefulSet" and parts([item]) == {"app"} for item in render(BACKFILL))
    other = only(render(BACKFILL, "app.settings.until=latest"), "Job")
    assert other["metadata"]["name"] != job["metadata"]["name"], "a Job can't be changed"


@pytest.mark.parametrize("case", [APP, BACKFILL], ids=lambda path: path.stem)
@pytest.mark.parametrize(("timeout", "code"), [(60, 0), (600, 2)])
def test_the_app_itself_says_whether_it_takes_the_values(
    render: Render, case: Path, timeout: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run as the Job that comes first runs it, with its environment."""
    job = only(render(case), "Job", "check")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    asked = container(job)
    assert (asked["image"], job["spec"]["backoffLimit"]) == (container(member_of(render(case)))["image"], 0)
    name = f"billing_{case.stem.partition('-')[0]}_{timeout}"
    (tmp_path / f"{name}.py").write_text(PROGRAM.format(timeout=timeout))
    (tmp_path / "secret").write_text("secret\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("keygrouping_app.environment._tls", lambda _: None)
    for variable, value in env(job).items():
        monkeypatch.setenv(variable, str(tmp_path / "secret") if value.startswith("/etc/") else value)
    program, command, target, *options = asked["command"]
    assert (program, command, target) == ("keygrouping", "app", "billing:app")
    parser = argparse.ArgumentParser()
    run.declare(parser)
    ended = None
    try:
        run.run(parser.parse_args([f"{name}:app", *options]))
    except SystemExit as end:
        ended = end.code
    assert (ended or 0) == code


def member_of(objects: Objects) -> dict[str, Any]:
    kinds = {item["kind"] for item in objects if parts([item]) == {"app"}}
    return only(objects, "StatefulSet" if "StatefulSet" in kinds else "Job")


def test_helm_test_asks_whether_members_are_ready(render: Render) -> None:
    pod = only(render(APP), "Pod", "test")
    (asks,) = pod["spec"]["containers"]
    assert asks["image"] == "registry.example.com/team/billing:1.0.0", "none of ours is needed"
    assert asks["command"][-1] == "http://r-keygrouping-app:8080"


def test_its_pods_are_scraped(render: Render) -> None:
    selector = only(render(APP), "PodMonitor", "metrics")["spec"]["selector"]["matchLabels"]
    template = only(render(APP), "StatefulSet")["spec"]["template"]
    assert selector.items() <= template["metadata"]["labels"].items()
    assert only(render(APP), "Service")["metadata"]["labels"]["keygrouping/scrape"] == "true"
