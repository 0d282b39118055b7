"""What the chart ships of rules, alerts and dashboards: current, complete, and of registered metrics."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import monitoring_files
import pytest
import yaml
from keygrouping_service.observability.metrics import DEFINITIONS, LABELS, PROCESS, register_installed
from monitoring.alerts import ALERTS, GROUPS
from monitoring.boards import BOARDS
from monitoring.boards.kit import as_json, scoped
from monitoring.model import RELEASE, RUNBOOKS, SEVERITIES, runbook
from monitoring.recordings import RECORDINGS, inlined
from monitoring.writing import DATASOURCE
from prometheus_client import REGISTRY, Histogram

from ..app_metrics import LABELS as LABELS_OF_APPS
from ..app_metrics import NAMES as NAMES_OF_APPS

ROOT = Path(__file__).parents[2]
PROVOKED = Path(__file__).parent / "test_provoked.py"
PAGE = (ROOT / "docs" / "runbooks.md").read_text()
CHART = ROOT / "helm" / "keygrouping"
EXAMPLES = CHART / "examples" / "alerting"
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
SERVICES = register_installed()
REGISTERED = {
    d.name + suffix for d in (*DEFINITIONS, *PROCESS) for suffix in SUFFIXES.get(d.kind, ("",))
} | NAMES_OF_APPS
# What Prometheus itself adds to every target.
ALWAYS = {"namespace", RELEASE, "pod", "job", "instance", "le"}
PARTS = ("What it means", "Impact", "Diagnosis", "Mitigation")
TRAFFIC = {
    "Calls by outcome",
    "Commits",
    "Dead letters by service",
    "Dropped rows",
    "Events",
    "Events accepted",
    "Events and partials",
    "Events by worker",
    "Events given to other members",
    "Keys handed over",
    "States on their way",
    "Events of the topics",
    "Events in memory",
    "Events routed",
    "Events that end",
    "Events to be routed",
    "Final results",
    "Final windows",
    "Further tries",
    "Flushes",
    "Gaps",
    "Lag by group",
    "Lag of the apps",
    "Lag of Spark's queries",
    "Moved keys",
    "Partials",
    "Purged",
    "Records read",
    "Records to read",
    "Records that tell no key",
    "Late events and dead letters",
    "Skipped fields",
    "Throughput by worker",
    "Windows compared",
    "Windows to compare",
}
STATES = {
    "Assigned partitions",
    "Age of the driver",
    "Age of the watermark",
    "Restarts",
    "Bytes of states",
    "CPU",
    "CPU of the members",
    "CPU of the routers",
    "Ceiling by the heaviest key",
    "Changelog still to be read",
    "Changes of the settings",
    "DIST_COST and messages",
    "Epoch",
    "Groups of the aggregators",
    "Groups of the workers",
    "Hot keys",
    "Hot keys and splitting",
    "Keys with a count",
    "Keys with a state",
    "Keys at slots",
    "Lanes in use",
    "Load of each member",
    "Members",
    "Memory",
    "Memory of the members",
    "Memory of the routers",
    "Memory of the state",
    "Open windows",
    "Paused partitions",
    "Premises",
    "Overrides",
    "Replicas that see each other",
    "Rows of state",
    "Seconds of a call",
    "Share of the heaviest keys",
    "STD_DEV",
    "Time in the kernel",
    "Version of the settings",
    "Width of the widest keys",
    "Workers",
    "Workers in use",
    "Workers of the heaviest keys",
    "Time until an override ends",
    "λ by key hash",
    "Work given to a member",
}
WITHOUT_LIMITS = TRAFFIC | STATES
"""Panels of which no value is bad by itself: it depends on the stream, the job and the machines."""


def panels() -> Iterator[Any]:
    for board in BOARDS:
        for panel in json.loads(as_json(board))["panels"]:
            if panel["type"] != "row":
                yield pytest.param(panel, id=f"{board.uid}: {panel['title']}")


def expressions() -> Iterator[Any]:
    """Every expression of rules and dashboards, with a name."""
    for recording in RECORDINGS:
        yield pytest.param(recording.expr, id=recording.name)
    for alert in ALERTS:
        yield pytest.param(alert.expr, id=alert.name)
    for board in BOARDS:
        for panel in (panel for row in board.rows for panel in row.panels):
            for number, query in enumerate(panel.queries):
                yield pytest.param(query.expr, id=f"{board.uid}: {panel.title} {number}")


def test_the_files_are_current() -> None:
    documents = monitoring_files.documents()
    for path, text in documents.items():
        assert path.read_text() == text, f"{path.name} is out of date: run `make monitoring`"
    folders = {path.parent for path in documents}
    assert {path for folder in folders for path in folder.iterdir()} == set(documents)


def test_the_chart_puts_its_values_in_place_of_what_is_written() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())["metrics"]
    assert values["runbookUrl"] == "", "only who installs it knows the address"
    assert values["grafanaAlerts"]["datasourceUid"] == DATASOURCE
    assert RUNBOOKS in (CHART / "templates" / "monitoring" / "_files.tpl").read_text()
    assert f"datasourceUid: {DATASOURCE}" in (CHART / "templates" / "monitoring" / "grafana-alerts.yaml").read_text()


# names


@pytest.mark.parametrize("expr", list(expressions()))
def test_expressions_use_what_is_registered(expr: str) -> None:
    assert set(re.findall(r"\b(?:keygrouping|process)_\w+", inlined(expr))) <= REGISTERED
    assert re.findall(r"keygrouping:[\w:]+", inlined(expr)) == []
    assert set(re.findall(r"keygrouping:[\w:]+", expr)) <= {recording.name for recording in RECORDINGS}
    grouped = {
        label.strip()
        for labels in re.findall(r"(?:by|on|ignoring) \(([^)]*)\)", inlined(expr))
        for label in labels.split(",")
    }
    assert grouped <= {*LABELS, *LABELS_OF_APPS, *ALWAYS, "part", "process", "stage"}


def test_selectors_go_to_every_metric() -> None:
    assert scoped('a(keygrouping_x_total{b="c"}) / process_cpu_seconds_total') == (
        'a(keygrouping_x_total{namespace="$namespace", b="c"}) / process_cpu_seconds_total{namespace="$namespace"}'
    )


def test_recorded_series_are_put_in() -> None:
    assert inlined("max(keygrouping:app_lag:sum[1h])") == (
        f"max((sum by (namespace, {RELEASE}, group, topic) (keygrouping_app_lag_records))[1h:1m])"
    )
    assert inlined("keygrouping:instances:count").count("label_replace(") == len(SERVICES)


# alerts


def test_alerts_say_what_and_where_with_values() -> None:
    names = [alert.name for alert in ALERTS]
    assert len(set(names)) == len(names) and all(name.startswith("Keygrouping") for name in names)
    for alert in ALERTS:
        assert alert.severity in SEVERITIES
        assert re.fullmatch(r"\d+[mh]", alert.lasts)
        assert "{{ $labels." in alert.summary, alert.name
        assert "{{ $" in alert.description and alert.description.endswith("."), alert.name
        assert not alert.summary.endswith(".")


def test_grafana_has_the_same_alerts() -> None:
    written = yaml.safe_load((CHART / "files" / "grafana-alerts" / "keygrouping.yaml").read_text())
    assert {group["name"]: [rule["title"] for rule in group["rules"]] for group in written["groups"]} == {
        name: [alert.name for alert in alerts] for name, alerts in GROUPS.items()
    }
    for rule in (rule for group in written["groups"] for rule in group["rules"]):
        assert re.fullmatch(r"[a-z0-9-]{1,40}", rule["uid"])
        assert rule["condition"] in [query["refId"] for query in rule["data"]]
        assert "$value " not in str(rule["annotations"])


def test_every_alert_is_provoked_by_a_real_pipeline() -> None:
    """The tests marked `fault` wait for each of them."""
    nodes = list(ast.walk(ast.parse(PROVOKED.read_text())))
    named = {
        node.targets[0].id: [each.value for each in node.value.elts if isinstance(each, ast.Constant)]
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Tuple)
    }
    awaited: set[object] = set()
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fires":
            for each in node.args:
                if isinstance(each, ast.Constant):
                    awaited.add(each.value)
                elif isinstance(each, ast.Starred) and isinstance(each.value, ast.Name):
                    awaited.update(named[each.value.id])
    assert awaited == {alert.name for alert in ALERTS}


# runbooks


def anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_alert_has_a_section_and_every_section_an_alert() -> None:
    assert [name for name in sections() if name.startswith("Keygrouping")] == [alert.name for alert in ALERTS]
    assert {runbook(name).partition("#")[2] for name in sections()} >= {
        alert.runbook.partition("#")[2] for alert in ALERTS
    }


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_section_says_all_that_is_needed(alert: Any) -> None:
    section = sections()[alert.name]
    assert re.findall(r"^\*\*(.+?)\.\*\*", section, re.MULTILINE) == list(PARTS)
    assert f"Severity: {alert.severity}" in section
    diagnosis = section.partition("**Diagnosis.**")[2].partition("**Mitigation.**")[0]
    assert "`" in diagnosis, "no command"
    boards = {board.title.removeprefix("Keygrouping / "): board for board in BOARDS}
    shown = re.findall(r"^- \*([^*]+)\*: (.+)", diagnosis, re.MULTILINE)
    assert shown, "no panel"
    for board, titles in shown:
        known = {panel.title for row in boards[board].rows for panel in row.panels}
        assert set(titles.rstrip(".").split(", ")) <= known


def test_links_of_the_runbooks_resolve() -> None:
    anchors = {anchor(heading) for heading in re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)}
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        path, _, fragment = target.partition("#")
        page = (ROOT / "docs" / path).read_text() if path else PAGE
        headings = {anchor(heading) for heading in re.findall(r"^#+ (.+)$", page, re.MULTILINE)} if path else anchors
        assert not fragment or fragment in headings, target
    assert {alert.runbook.partition("#")[2] for alert in ALERTS} <= anchors


def test_the_page_lists_all_alerts_and_shows_all_dashboards() -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text()
    rows = re.findall(r"^\| \[(\w+)\]\(runbooks\.md#(\w+)\) \| (\w+) \| (\d+) min \|", page, re.MULTILINE)
    assert rows == [(a.name, a.name.lower(), a.severity, a.lasts.removesuffix("m")) for a in ALERTS]
    pictures = re.findall(r"!\[.+\]\((.+)\)", page)
    # That of apps shows a failing minute already.
    failing = [f"failing-{board.uid}" for board in BOARDS if board.uid != "keygrouping-apps"]
    assert pictures == [f"images/dashboards/{name}.png" for name in [*(board.uid for board in BOARDS), *failing]]
    assert all((ROOT / "docs" / picture).exists() for picture in pictures)


# dashboards


def test_uids_are_fixed() -> None:
    assert [board.uid for board in BOARDS] == [
        f"keygrouping-{name}"
        for name in ("overview", "router", "stages", "keyspace", "dependencies", "slo", "topics", "apps")
    ]


@pytest.mark.parametrize("panel", list(panels()))
def test_a_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["title"] and panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert panel["datasource"]["uid"] == "${datasource}"
    (link,) = panel["links"]
    assert link["url"] in [alert.runbook for alert in ALERTS]
    for target in panel["targets"]:
        named = len(re.findall(r"\b(?:keygrouping|process)_\w+|ALERTS|__name__", target["expr"]))
        assert target["expr"].count('namespace="$namespace"') == named


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_a_dashboard_can_be_used_everywhere(board: Any) -> None:
    written = json.loads(as_json(board))
    datasource, namespace = written["templating"]["list"]
    assert [datasource["name"], namespace["name"]] == ["datasource", "namespace"]
    assert not namespace.get("multi") and not namespace.get("includeAll"), "sums of several pipelines mean nothing"
    assert [note["name"] for note in written["annotations"]["list"]] == ["Plans", "Settings"]
    places = [tuple(panel["gridPos"][name] for name in "xywh") for panel in written["panels"]]
    assert all(x + w <= 24 for x, _, w, _ in places)
    cells = [(i, j) for x, y, w, h in places for i in range(x, x + w) for j in range(y, y + h)]
    assert len(cells) == len(set(cells)), "panels overlap"
    numbers = [panel["id"] for panel in written["panels"]]
    assert len(numbers) == len(set(numbers))


def test_every_alert_is_linked_from_a_panel() -> None:
    linked = {panel.alert for board in BOARDS for row in board.rows for panel in row.panels}
    assert linked == {alert.name for alert in ALERTS}


def test_panels_have_limits_but_for_those_that_can_have_none() -> None:
    panels = [panel for board in BOARDS for row in board.rows for panel in row.panels]
    assert {panel.title for panel in panels if not panel.limits} == WITHOUT_LIMITS
    assert not WITHOUT_LIMITS & {panel.title for panel in panels if panel.limits}


def test_a_title_stands_for_one_thing() -> None:
    """Runbooks name panels by their titles: there are no two of one title, unless they show the same."""
    shown: dict[str, set[tuple[str, ...]]] = {}
    for board in BOARDS:
        titles = [panel.title for row in board.rows for panel in row.panels]
        assert len(set(titles)) == len(titles), board.title
        for panel in (panel for row in board.rows for panel in row.panels):
            shown.setdefault(panel.title, set()).add(tuple(query.expr for query in panel.queries))
    assert [title for title, queries in shown.items() if len(queries) > 1] == []
    assert len({board.title for board in BOARDS}) == len(BOARDS)


def test_lags_are_judged_by_the_time_that_they_take() -> None:
    """A million records are nothing to one stream and a day's work to another."""
    for panel in (panel for board in BOARDS for row in board.rows for panel in row.panels):
        if any("lag_records" in query.expr or "keygrouping:lag:sum" in query.expr for query in panel.queries):
            assert not panel.limits, panel.title


def test_histograms_reach_beyond_their_red_lines() -> None:
    by_name = {f"{m._name}_bucket": m for m in REGISTRY._collector_to_names if isinstance(m, Histogram)}
    judged = set()
    for panel in (panel for board in BOARDS for row in board.rows for panel in row.panels):
        names = {name for query in panel.queries for name in re.findall(r"\w+_bucket", query.expr)}
        for name in names - NAMES_OF_APPS:
            *_, highest, infinite = by_name[name]._upper_bounds
            if panel.limits and "histogram_quantile" in panel.queries[0].expr:
                judged.add(name)
                assert infinite == math.inf and highest >= 4 * max(panel.limits), name
    assert len(judged) >= 4


def test_the_objectives_are_shown_over_the_time_that_they_are_reckoned_in() -> None:
    (slo,) = (board for board in BOARDS if board.uid == "keygrouping-slo")
    numbers = [panel for row in slo.rows for panel in row.panels if "3 days" in panel.title]
    assert numbers and json.loads(as_json(slo))["time"] == {"from": "now-3d", "to": "now"}
    assert all("3d" in query.expr for panel in numbers for query in panel.queries)


def test_processes_are_named_by_their_pod() -> None:
    for panel in (panel for board in BOARDS for row in board.rows for panel in row.panels):
        assert "{{instance}}" not in "".join(query.legend for query in panel.queries), panel.title


def test_queries_of_a_panel_have_one_unit() -> None:
    """What is counted in an hour, what comes each second and what is a time are not on one axis."""
    kinds = {
        f"{board.uid}: {panel.title}": {
            kind
            for query in panel.queries
            for kind, pattern in {
                "rate": r"\brate\(",
                "increase": r"\bincrease\(",
                "time": r"(?<!> )\btime\(\)",
            }.items()
            if re.search(pattern, query.expr)
        }
        for board in BOARDS
        for row in board.rows
        for panel in row.panels
    }
    assert {title: found for title, found in kinds.items() if len(found) > 1} == {}


# examples


def test_examples_route_all_severities_to_receivers_that_there_are() -> None:
    points = yaml.safe_load((EXAMPLES / "grafana-contact-points.yaml").read_text())
    policies = yaml.safe_load((EXAMPLES / "grafana-policies.yaml").read_text())
    names = {point["name"] for point in points["contactPoints"]}
    (policy,) = policies["policies"]
    assert {policy["receiver"], *(route["receiver"] for route in policy["routes"])} <= names
    matched = {value for route in policy["routes"] for _, _, value in route["object_matchers"]}
    assert matched <= set(SEVERITIES)
