"""The command by which the page on dashboards switches monitoring on adds to a release, and keeps what that has."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ..docs.pages import DOCS, blocks
from .cluster import Cluster, Release
from .shell import execute
from .table import Table

pytestmark = pytest.mark.cluster

PAGE = DOCS / "dashboards.md"
GIVEN = {"runner": "native", "image": {"registry": "registry.example.com/team"}, "check": {"enabled": False}}
"""No image comes from there, so no pod of the release starts; an installation waits for its check alone."""


@pytest.mark.usefixtures("definitions")
def test_the_command_adds_to_a_release(cluster: Cluster, tmp_path: Path, table: Table) -> None:
    (block,) = (block for block in blocks(PAGE, "sh") if "helm upgrade" in block.text)
    assert "--namespace streams" in block.text
    Release(cluster, "keygrouping").install(GIVEN, wait=False)
    fault = execute(block.text.replace("streams", cluster.namespace), tmp_path / "told", os.environ)
    table.judge("docs/dashboards.md, helm upgrade", "each command works", fault or "yes", not fault)
    values = json.loads(cluster.helm("get", "values", "keygrouping", "--output", "json"))
    metrics = values.pop("metrics")
    assert values == GIVEN
    assert metrics["runbookUrl"].startswith("https://") and metrics["dashboards"]["enabled"]
    made = {kind: len(cluster.get(kind)) for kind in ("servicemonitors", "prometheusrules")}
    table.judge("docs/dashboards.md, what it makes", "accepted", str(made), all(made.values()))
