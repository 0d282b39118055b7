"""An alert on its whole way: metric, rule of a real Prometheus, real Alertmanager, webhook."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from keygrouping_local.monitoring import Alertmanager, Prometheus
from keygrouping_service.testing import until
from monitoring.alerts import ALERTS
from monitoring.writing import prometheus_rules

from ..docs.pages import DOCS, ROOT, blocks
from .conftest import program

EXAMPLE = ROOT / "helm" / "keygrouping" / "examples" / "alerting" / "alertmanager.yaml"
OUTAGE = "KeygroupingKafkaUnreachable"
OWN_CAUSES = {
    "KeygroupingAppDeadLetters",
    "KeygroupingAppMissing",
    "KeygroupingAppProcessesDying",
    "KeygroupingAppRestarting",
    "KeygroupingEventsLost",
    "KeygroupingEventsExpiring",
    "KeygroupingEventsUnaccounted",
    "KeygroupingExporterMissing",
    "KeygroupingFileDescriptorsLow",
    "KeygroupingOverrideEnds",
    "KeygroupingPremiseViolated",
    "KeygroupingStoreBadValues",
    "KeygroupingStoreDegraded",
    "KeygroupingTargetDown",
}
"""Alerts that an outage of Kafka does not bring about."""
SEVERITIES = {alert.name: alert.severity for alert in ALERTS}
(STORE_DEGRADED,) = (alert for alert in ALERTS if alert.name == "KeygroupingStoreDegraded")


_AGAIN = re.compile(r" and sum_over_time\(\(\S+ > bool 0\)\[\w+:5m\]\) >= 3")


def impatient(rules: str) -> str:
    """The rules, which fire at once, and not only when it comes again."""
    content = yaml.safe_load(rules)
    for rule in (rule for group in content["groups"] for rule in group["rules"] if "for" in rule):
        rule["for"] = "1s"
        rule["expr"] = _AGAIN.sub("", rule["expr"])
    return yaml.safe_dump(content)


def to_webhooks(on_call: str, team: str, wait: str = "0s") -> dict[str, Any]:
    """The example's routes, without its pauses; `wait`: time for what keeps an alert quiet to come as well."""
    configuration = json.loads(json.dumps(yaml.safe_load(EXAMPLE.read_text())))
    configuration["route"] |= {"group_wait": wait, "group_interval": "1s"}
    addresses = {"on-call": on_call, "team": team}
    for receiver in configuration["receivers"]:
        receiver["webhook_configs"] = [{"url": f"http://{addresses[receiver['name']]}/"}]
    assert isinstance(configuration, dict)
    return configuration


def fires(name: str, namespace: str, seconds: float = 3600, **more: str) -> dict[str, Any]:
    """What Prometheus would tell Alertmanager of an alert that lasts this long, with these labels more."""
    labels = {"alertname": name, "namespace": namespace, "severity": SEVERITIES[name], **more}
    now = datetime.now(UTC)
    return {"labels": labels, "startsAt": now.isoformat(), "endsAt": (now + timedelta(seconds=seconds)).isoformat()}


async def tell(alerts: Alertmanager, told: list[dict[str, Any]]) -> None:
    """Posts alerts, as Prometheus does."""
    async with httpx.AsyncClient(timeout=60) as client:
        (await client.post(f"http://{alerts.address}/api/v2/alerts", json=told)).raise_for_status()


class Receiver:
    """A webhook; what it was told, one by one."""

    def __init__(self) -> None:
        self.notices: list[dict[str, Any]] = []

    def __call__(self, body: bytes) -> str:
        self.notices.append(json.loads(body))
        return ""

    @property
    def heard(self) -> set[tuple[str, str]]:
        """Names and namespaces of the alerts that fire or fired."""
        labels = [alert["labels"] for notice in self.notices for alert in notice["alerts"]]
        return {(label["alertname"], label["namespace"]) for label in labels}


@pytest.mark.usefixtures("prometheus", "alertmanager")
async def test_a_degraded_store_is_told_to_the_team_and_so_is_its_end(
    serve: Callable[[Callable[[bytes], str]], str], tmp_path: Path
) -> None:
    degraded = 1
    told: list[dict[str, Any]] = []

    def hear(body: bytes) -> str:
        told.append(json.loads(body))
        return ""

    def statuses() -> list[str]:
        return [notice["status"] for notice in told]

    router = serve(lambda _: f"keygrouping_router_store_degraded {degraded}\n")
    configuration = to_webhooks(serve(lambda _: pytest.fail("it is not critical")), serve(hear))
    (tmp_path / "rules.yaml").write_text(impatient(prometheus_rules()))
    with (
        Alertmanager(tmp_path / "alertmanager", configuration) as alerts,
        Prometheus(
            tmp_path / "prometheus",
            [(router, {"namespace": "streams", "pod": "router-0"})],
            rules=tmp_path / "rules.yaml",
            alertmanager=alerts.address,
            seconds=0.5,
        ),
    ):
        await until(lambda: "firing" in statuses())
        degraded = 0
        await until(lambda: "resolved" in statuses())
    (alert,) = told[0]["alerts"]
    assert told[0]["receiver"] == "team"
    assert alert["labels"] == {
        "alertname": "KeygroupingStoreDegraded",
        "severity": "warning",
        "namespace": "streams",
        "pod": "router-0",
        "instance": router,
    }
    assert alert["annotations"]["runbook_url"] == STORE_DEGRADED.runbook
    assert alert["annotations"]["summary"] == f"{router} has not reached its store for five minutes"
    assert "{{" not in alert["annotations"]["description"]


@pytest.mark.usefixtures("prometheus", "alertmanager")
async def test_late_events_wake_somebody_and_the_slower_warning_of_the_same_is_quiet(
    serve: Callable[[Callable[[bytes], str]], str], tmp_path: Path
) -> None:
    name, counts = "keygrouping_observer_latency_seconds", itertools.count()

    def show(_: bytes) -> str:
        return f'{name}_bucket{{le="10.0"}} 0\n{name}_count {100 * next(counts)}\n'

    observer, on_call, team = serve(show), Receiver(), Receiver()
    (tmp_path / "rules.yaml").write_text(impatient(prometheus_rules()))
    with (
        Alertmanager(tmp_path / "alertmanager", to_webhooks(serve(on_call), serve(team), wait="10s")) as alerts,
        Prometheus(
            tmp_path / "prometheus",
            [(observer, {"namespace": "streams"})],
            rules=tmp_path / "rules.yaml",
            alertmanager=alerts.address,
            seconds=0.5,
        ),
    ):
        await until(lambda: on_call.heard)

        def quiet() -> list[str]:
            found = alerts.get("/api/v2/alerts", inhibited="true", active="false")
            return [alert["labels"]["alertname"] for alert in found]

        await until(lambda: quiet() == ["KeygroupingLatencyBudgetBurnSlow"])
        await asyncio.sleep(3)
    assert on_call.heard == {("KeygroupingLatencyBudgetBurnFast", "streams")}
    assert {(notice["receiver"], notice["commonLabels"]["severity"]) for notice in on_call.notices} == {
        ("on-call", "critical")
    }
    assert team.heard == set()


@pytest.mark.usefixtures("alertmanager")
async def test_missing_results_keep_quiet_what_they_explain_in_their_namespace_alone(
    serve: Callable[[Callable[[bytes], str]], str], tmp_path: Path
) -> None:
    behind = ("KeygroupingLagGrowing", "KeygroupingWorkerSaturated")
    on_call, team = Receiver(), Receiver()
    with Alertmanager(tmp_path / "alertmanager", to_webhooks(serve(on_call), serve(team), wait="2s")) as alerts:
        told = [fires("KeygroupingNoResults", "a"), fires("KeygroupingStoreDegraded", "a")]
        told += [fires(name, namespace) for name in behind for namespace in ("a", "b")]
        await tell(alerts, told)
        others = {("KeygroupingStoreDegraded", "a"), *((name, "b") for name in behind)}
        await until(lambda: on_call.heard and team.heard >= others)
        assert (on_call.heard, team.heard) == ({("KeygroupingNoResults", "a")}, others)
        await tell(alerts, [fires("KeygroupingNoResults", "a", 0)])
        await until(lambda: team.heard == {*others, *((name, "a") for name in behind)})
    assert on_call.heard == {("KeygroupingNoResults", "a")}


@pytest.mark.usefixtures("alertmanager")
async def test_late_results_keep_quiet_the_slower_warning_of_the_same(
    serve: Callable[[Callable[[bytes], str]], str], tmp_path: Path
) -> None:
    fast, slow = "KeygroupingResultsBudgetBurnFast", "KeygroupingResultsBudgetBurnSlow"
    on_call, team = Receiver(), Receiver()
    with Alertmanager(tmp_path / "alertmanager", to_webhooks(serve(on_call), serve(team), wait="2s")) as alerts:
        told = [fires(fast, "a"), fires(slow, "a"), fires(slow, "b")]
        await tell(alerts, told)
        await until(lambda: on_call.heard and team.heard)
        await asyncio.sleep(1)
    assert (on_call.heard, team.heard) == ({(fast, "a")}, {(slow, "b")})


@pytest.mark.usefixtures("alertmanager")
async def test_an_override_that_overloads_a_worker_keeps_quiet_that_loads_are_uneven(
    serve: Callable[[Callable[[bytes], str]], str], tmp_path: Path
) -> None:
    override, uneven = "KeygroupingOverrideOverloads", "KeygroupingUnbalanced"
    on_call, team = Receiver(), Receiver()
    with Alertmanager(tmp_path / "alertmanager", to_webhooks(serve(on_call), serve(team), wait="2s")) as alerts:
        told = [fires(override, "a", worker="3"), fires(uneven, "a"), fires(uneven, "b")]
        await tell(alerts, told)
        await until(lambda: len(team.heard) >= 2)
        await asyncio.sleep(1)
    assert team.heard == {(override, "a"), (uneven, "b")}


@pytest.mark.usefixtures("alertmanager")
async def test_the_page_silences_late_results_of_one_namespace(tmp_path: Path) -> None:
    program("amtool")
    (block,) = (block for block in blocks(DOCS / "dashboards.md", "sh") if "amtool" in block.text)
    names = ("KeygroupingResultsBudgetBurnFast", "KeygroupingResultsBudgetBurnSlow")
    with Alertmanager(tmp_path / "alertmanager", to_webhooks("127.0.0.1:9", "127.0.0.1:9")) as alerts:
        command = block.text.replace("127.0.0.1:9093", alerts.address)
        await asyncio.to_thread(subprocess.run, ["bash", "-ec", command], check=True)
        others = [fires(names[0], "b"), fires("KeygroupingNoResults", "streams")]
        await tell(alerts, [*others, *(fires(name, "streams") for name in names)])

        def quiet() -> set[tuple[str, str]]:
            found = alerts.get("/api/v2/alerts", silenced="true", active="false")
            return {(alert["labels"]["alertname"], alert["labels"]["namespace"]) for alert in found}

        await until(lambda: quiet() == {(name, "streams") for name in names})


@pytest.mark.usefixtures("alertmanager")
async def test_a_group_that_is_cut_off_keeps_quiet_what_it_does_over_again(
    serve: Callable[[Callable[[bytes], str]], str], tmp_path: Path
) -> None:
    away, again = "KeygroupingKafkaCutOff", ("KeygroupingTransactionAborts", "KeygroupingPartitionRestarting")
    on_call, team = Receiver(), Receiver()
    with Alertmanager(tmp_path / "alertmanager", to_webhooks(serve(on_call), serve(team), wait="2s")) as alerts:
        told = [fires(away, "a", group="k-router"), *(fires(name, "a", group="k-router") for name in again)]
        told += [fires(name, "b", group="k-router") for name in again]
        await tell(alerts, told)
        others = {(name, "b") for name in again}
        await until(lambda: on_call.heard and team.heard >= others)
        await asyncio.sleep(1)
    assert (on_call.heard, team.heard) == ({(away, "a")}, others)


@pytest.mark.usefixtures("alertmanager")
async def test_an_outage_of_kafka_is_one_page(serve: Callable[[Callable[[bytes], str]], str], tmp_path: Path) -> None:
    """Whatever fires beside it in its namespace, but what has nothing to do with it."""
    on_call, team = Receiver(), Receiver()
    with Alertmanager(tmp_path / "alertmanager", to_webhooks(serve(on_call), serve(team), wait="2s")) as alerts:
        told = [fires(alert.name, "a", group="k-router", stage="router") for alert in ALERTS]
        told += [fires("KeygroupingStageStalled", "b", group="k-router")]
        await tell(alerts, told)
        apart = {(name, "a") for name in OWN_CAUSES}
        wakes = {(name, namespace) for name, namespace in apart if SEVERITIES[name] == "critical"}
        wakes |= {(OUTAGE, "a"), ("KeygroupingStageStalled", "b")}
        await until(lambda: on_call.heard >= wakes and team.heard >= apart - wakes)
        await asyncio.sleep(2)
    assert (on_call.heard, team.heard) == (wakes, apart - wakes)
    pages = [notice for notice in on_call.notices if notice["commonLabels"]["alertname"] == OUTAGE]
    assert [(page["status"], len(page["alerts"])) for page in pages] == [("firing", 1)]


def test_the_example_names_alerts_that_there_are() -> None:
    named = set(re.findall(r"Keygrouping\w+", EXAMPLE.read_text()))
    assert named and named <= {alert.name for alert in ALERTS}
