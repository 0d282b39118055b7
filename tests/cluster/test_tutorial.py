"""The tutorial on a cluster works: its commands as they stand, from the installation to the clean-up."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from ..docs.pages import DOCS, ROOT, blocks
from .cluster import Cluster
from .table import Table

pytestmark = pytest.mark.cluster

PAGE = DOCS / "tutorials" / "cluster.md"
IMAGES = "make images"
"""The block that is not tried: the images must be where the cluster finds them before any of these tests begins."""
PATIENCE_SECONDS = 900
TOOLS = """set -eu
kubectl() { ${KUBECTL:-kubectl} "$@"; }
helm() { ${HELM:-helm} "$@"; }
curl() { ${CLUSTER_EXEC:-} curl "$@"; }
answers() { until curl --silent --output /dev/null "$1"; do sleep 0.5; done; }
"""


def script(namespace: str, values: Path) -> str:
    """The page's shell, in a namespace of its own; a call waits until its port is forwarded."""
    parts = [block.text for block in blocks(PAGE, "sh") if not block.text.startswith(IMAGES)]
    text = "\n".join(parts).replace("streams", namespace).replace("values.yaml", str(values))
    for address in ("PRODUCER=http://127.0.0.1:8081\n", "ROUTER=http://127.0.0.1:8080\n"):
        assert address in text
        text = text.replace(address, f"{address}answers {address.partition('=')[2]}")
    return TOOLS + text


def test_the_tutorial_works(cluster: Cluster, tmp_path: Path, table: Table) -> None:
    (block,) = blocks(PAGE, "yaml")
    values = yaml.safe_load(block.text)
    values["image"]["registry"] = cluster.registry
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    told = tmp_path / "told"
    with told.open("w") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script(cluster.namespace, file)],
            cwd=ROOT,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(timeout=PATIENCE_SECONDS)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)  # the forwarded ports, too
    table.judge("docs/tutorials/cluster.md", "each command works", "yes" if code == 0 else told.read_text(), code == 0)
