"""An alert on its whole way: metric, rule of a real Prometheus, real Alertmanager, webhook."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from keygrouping_local.monitoring import Alertmanager, Prometheus
from keygrouping_service.testing import until
from monitoring.alerts import ALERTS
from monitoring.writing import prometheus_rules

EXAMPLE = Path(__file__).parents[2] / "helm" / "keygrouping" / "examples" / "alerting" / "alertmanager.yaml"
(STORE_DEGRADED,) = (alert for alert in ALERTS if alert.name == "KeygroupingStoreDegraded")


def impatient(rules: str) -> str:
    content = yaml.safe_load(rules)
    for rule in (rule for group in content["groups"] for rule in group["rules"] if "for" in rule):
        rule["for"] = "1s"
    return yaml.safe_dump(content)


def to_webhooks(on_call: str, team: str) -> dict[str, Any]:
    """The example's routes, without its pauses."""
    configuration = json.loads(json.dumps(yaml.safe_load(EXAMPLE.read_text())))
    configuration["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    addresses = {"on-call": on_call, "team": team}
    for receiver in configuration["receivers"]:
        receiver["webhook_configs"] = [{"url": f"http://{addresses[receiver['name']]}/"}]
    assert isinstance(configuration, dict)
    return configuration


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
        await until(lambda: "firing" in statuses(), 60)
        degraded = 0
        await until(lambda: "resolved" in statuses(), 60)
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
