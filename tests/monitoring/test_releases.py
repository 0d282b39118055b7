"""Several releases in one namespace are told apart, and a plain Prometheus finds their pods."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import chart_files
import pytest
import yaml
from monitoring.alerts import ALERTS
from monitoring.boards.kit import scoped
from monitoring.model import RELEASE, by_release, naming_release
from monitoring.recordings import RECORDINGS
from monitoring.writing import prometheus_rules

_GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
ROOT = chart_files.ROOT
PAGE = ROOT / "docs" / "dashboards.md"
EXAMPLES = chart_files.CHART / "examples" / "alerting"


@pytest.mark.parametrize("rule", [*RECORDINGS, *ALERTS], ids=lambda rule: rule.name)
def test_what_goes_by_namespace_goes_by_release(rule: Any) -> None:
    for labels in _GROUPED.findall(rule.expr):
        assert "namespace" not in labels or RELEASE in labels, rule.expr


def test_panels_go_by_release_too() -> None:
    shown = scoped("max by (namespace) (keygrouping_router_workers) / on (namespace) keygrouping:results:rate5m")
    assert _GROUPED.findall(shown) == [f"namespace, {RELEASE}"] * 3
    assert by_release(shown) == shown, "twice is once"


def release(name: str, results: str, lag: str) -> dict[str, str]:
    labels = f'namespace="ns", {RELEASE}="{name}"'
    return {
        f'keygrouping_router_routed_total{{{labels}, instance="{name}-r", worker="0"}}': "0+60000x600",
        f'keygrouping_last_result_timestamp_seconds{{{labels}, instance="{name}-a", group="k-aggregator"}}': results,
        f'keygrouping_router_result_wait_seconds{{{labels}, instance="{name}-r"}}': "70x600",
        f'keygrouping_lag_records{{{labels}, instance="{name}-a", group="k-worker"}}': lag,
        f'process_start_time_seconds{{{labels}, instance="{name}-r", job="r"}}': "0x600",
        f'keygrouping_router_epoch{{{labels}, instance="{name}-r"}}': "1x600",
    }


def written(labels: dict[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def test_only_the_release_that_is_ill_fires(promtool: str, tmp_path: Path) -> None:
    well, ill = release("well", "0+60x100", "0x100"), release("ill", "0+60x10 600x100", "0+1000x100")
    (tmp_path / "rules.yaml").write_text(prometheus_rules())
    labels = {"namespace": "ns", RELEASE: "ill"}
    samples = [
        ("keygrouping:events:rate5m", [{"namespace": "ns", RELEASE: name} for name in ("ill", "well")]),
        ('ALERTS{alertname="KeygroupingNoResults", alertstate="firing"}', [labels]),
        ('ALERTS{alertname="KeygroupingLagGrowing", alertstate="firing"}', [{**labels, "stage": "worker"}]),
    ]
    content = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in (well | ill).items()],
                "promql_expr_test": [
                    {
                        "expr": f"count by (namespace, {RELEASE}, stage) ({expr})",
                        "eval_time": "50m",
                        "exp_samples": [{"labels": written(each), "value": 1} for each in found],
                    }
                    for expr, found in samples
                ],
            }
        ],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(content))
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "tests.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_release_keeps_no_alert_of_another_quiet() -> None:
    config = yaml.safe_load((EXAMPLES / "alertmanager.yaml").read_text())
    for equal in (config["route"]["group_by"], *(rule["equal"] for rule in config["inhibit_rules"])):
        assert "namespace" not in equal or RELEASE in equal


def test_the_texts_say_which_release_it_is_where_that_is_known(promtool: str, tmp_path: Path) -> None:
    (alert,) = (alert for alert in ALERTS if alert.name == "KeygroupingEventsExpiring")
    (tmp_path / "rules.yaml").write_text(prometheus_rules())
    places = {"ns/r": {"namespace": "ns", RELEASE: "r"}, "ns": {"namespace": "ns"}}
    plain = "Retention is about to delete 5 records that k-router in {} has not read"
    fires = [
        {
            "exp_labels": {**labels, "group": "k-router", "severity": alert.severity},
            "exp_annotations": {
                "summary": plain.format(place),
                "description": re.sub(r"{{ \$value .*?}}", "5", alert.description).replace(
                    "{{ $labels.group }}", "k-router"
                ),
                "runbook_url": alert.runbook,
            },
        }
        for place, labels in places.items()
    ]
    content = {
        "rule_files": ["rules.yaml"],
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {
                        "series": "keygrouping_expiring_records" + written({**labels, "group": "k-router"}),
                        "values": "5x20",
                    }
                    for labels in places.values()
                ],
                "alert_rule_test": [{"eval_time": "15m", "alertname": alert.name, "exp_alerts": fires}],
            }
        ],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(content))
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "tests.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_text_names_a_namespace_without_its_release() -> None:
    for alert in ALERTS:
        for text in (alert.summary, alert.description):
            assert naming_release(text) == text, alert.name


# scraping


def scrape_configs() -> list[dict[str, Any]]:
    """Those for pods."""
    return shown_configs()[0]


def shown_configs() -> list[list[dict[str, Any]]]:
    """Of each block that the page shows: for pods, and for processes outside Kubernetes."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.S | re.M)
    return [list(yaml.safe_load(text)["scrape_configs"]) for text in blocks if "scrape" in text]


def test_the_page_shows_a_prometheus_how_to_scrape(promtool: str, tmp_path: Path) -> None:
    pods, processes = shown_configs()
    assert pods[0].pop("kubernetes_sd_configs") == [{"role": "pod"}], "Debian's promtool knows no Kubernetes"
    for number, configs in enumerate((pods, processes)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(yaml.safe_dump({"scrape_configs": configs}))
        done = subprocess.run([promtool, "check", "config", file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_processes_outside_kubernetes_bring_the_labels_that_rules_go_by() -> None:
    _, processes = shown_configs()
    for config in processes:
        for group in config["static_configs"]:
            assert set(group["labels"]) == {"namespace", RELEASE}
    assert len({config["job_name"] for config in processes}) == len(processes) > 1


def relabelled(pod: dict[str, str], rules: list[dict[str, Any]]) -> dict[str, str] | None:
    """What Prometheus makes of a pod's labels; None if it drops it."""
    for rule in rules:
        text = ";".join(pod.get(name, "") for name in rule["source_labels"])
        fits = re.fullmatch(rule.get("regex", "(.*)"), text) is not None
        action = rule.get("action", "replace")
        if (action == "keep" and not fits) or (action == "drop" and fits):
            return None
        if action == "replace":
            pod = {**pod, rule["target_label"]: text}
    return {name: value for name, value in pod.items() if not name.startswith("__")}


def discovered(template: dict[str, Any], phase: str) -> list[dict[str, str]]:
    """A target for each port, as Prometheus' discovery names its labels."""
    named = {re.sub(r"\W", "_", name): value for name, value in template["metadata"]["labels"].items()}
    pod = {f"__meta_kubernetes_pod_label_{name}": value for name, value in named.items()}
    pod |= {
        "__meta_kubernetes_namespace": "ns",
        "__meta_kubernetes_pod_name": "p",
        "__meta_kubernetes_pod_phase": phase,
    }
    ports = [port["name"] for container in template["spec"]["containers"] for port in container.get("ports", [])]
    return [{**pod, "__meta_kubernetes_pod_container_port_name": name} for name in ports or [""]]


@pytest.mark.parametrize("runner", ["native", "spark"])
def test_each_part_is_scraped_once(runner: str) -> None:
    if chart_files.find_helm() is None:
        pytest.skip("helm is not installed")
    (config,) = scrape_configs()
    found = []
    for item in chart_files.objects(chart_files.render("r", "ns", "--set", f"runner={runner}")):
        template = item.get("spec", {}).get("template")
        if template is not None:
            targets = [relabelled(pod, config["relabel_configs"]) for pod in discovered(template, "Running")]
            found += [target for target in targets if target is not None]
            assert all(relabelled(pod, config["relabel_configs"]) is None for pod in discovered(template, "Succeeded"))
    parts = {"native": {"worker", "aggregator"}, "spark": {"spark-driver"}}[runner]
    assert sorted(target["job"] for target in found) == sorted(parts | {"router", "producer", "observer"})
    assert all(target["namespace"] == "ns" and target[RELEASE] == "r" and target["pod"] == "p" for target in found)


@pytest.mark.parametrize("kind", ["ServiceMonitor", "PodMonitor"])
def test_the_operators_monitors_bring_the_release_along(kind: str) -> None:
    if chart_files.find_helm() is None:
        pytest.skip("helm is not installed")
    value = f"metrics.{kind[0].lower()}{kind[1:]}.enabled=true"
    (item,) = (o for o in chart_files.objects(chart_files.render("r", "ns", "--set", value)) if o["kind"] == kind)
    assert [re.sub(r"\W", "_", name) for name in item["spec"]["podTargetLabels"]] == [RELEASE]
