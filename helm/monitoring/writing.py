"""The rules as files: Prometheus' own format, and Grafana's provisioning of alerts."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml
from grafana_foundation_sdk.builders import alerting
from grafana_foundation_sdk.builders.expr import TypeMath
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.alerting import RelativeTimeRange

from monitoring.alerts import GROUPS
from monitoring.model import Alert, Recording
from monitoring.recordings import RECORDINGS, inlined

DATASOURCE = "prometheus"
"""Uid of the Prometheus in Grafana; the chart puts its own value in place of it."""

_MADE = "# Made by helm/monitoring_files.py of helm/monitoring: change that.\n"
_SECONDS = 600
_MEMBERS = ("uid", "title", "condition", "data", "noDataState", "execErrState", "for", "labels", "annotations")


def prometheus_rules() -> str:
    """A rule file: all recording rules, then all alerts."""
    groups = [{"name": "keygrouping.recordings", "rules": [_recording(recording) for recording in RECORDINGS]}]
    groups += [{"name": name, "rules": [_alert(alert) for alert in alerts]} for name, alerts in GROUPS.items()]
    return _yaml({"groups": groups})


def grafana_alerts() -> str:
    """A provisioning file of Grafana: the same alerts, which need no recording rules."""
    groups = [
        {
            "orgId": 1,
            "name": name,
            "folder": "keygrouping",
            "interval": "1m",
            "rules": [_grafana_rule(alert) for alert in alerts],
        }
        for name, alerts in GROUPS.items()
    ]
    return _yaml({"apiVersion": 1, "groups": groups})


def _recording(recording: Recording) -> dict[str, Any]:
    labels = {"labels": dict(recording.labels)} if recording.labels else {}
    return {"record": recording.name, "expr": recording.expr, **labels}


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": _annotations(alert),
    }


def _annotations(alert: Alert) -> dict[str, str]:
    return {"summary": alert.summary, "description": alert.description, "runbook_url": alert.runbook}


def _grafana_rule(alert: Alert) -> dict[str, Any]:
    """The expression gives only what is wrong, so whatever it gives is an alert."""
    query = alerting.Query("A").datasource_uid(DATASOURCE).relative_time_range(RelativeTimeRange(_SECONDS, 0))
    condition = alerting.Query("B").datasource_uid("__expr__").relative_time_range(RelativeTimeRange(_SECONDS, 0))
    rule = (
        alerting.Rule(alert.name)
        .uid(alert.name.lower())
        .condition("B")
        .with_query(query.model(Dataquery().ref_id("A").expr(inlined(alert.expr)).instant()))
        .with_query(condition.model(TypeMath().ref_id("B").expression("is_number($A) || is_inf($A)")))
        .for_val(alert.lasts)
        .no_data_state("OK")
        .exec_err_state("Error")
        .labels({"severity": alert.severity})
        .annotations({name: _grafana_template(text) for name, text in _annotations(alert).items()})
    )
    plain = json.loads(JSONEncoder().encode(rule.build()))
    return {name: plain[name] for name in _MEMBERS}


def _grafana_template(text: str) -> str:
    return re.sub(r"\$value\b", "$values.A.Value", text)


def _yaml(content: object) -> str:
    return _MADE + yaml.safe_dump(content, sort_keys=False, width=120, allow_unicode=True)
