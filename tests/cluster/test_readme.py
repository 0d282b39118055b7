"""README's commands for Kubernetes work as they stand: from the images to a release that is tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..docs.pages import ROOT, blocks
from .cluster import Cluster
from .shell import SHOWN_REGISTRY, execute
from .table import Table

pytestmark = pytest.mark.cluster


def test_the_block_works(cluster: Cluster, registry: str, tmp_path: Path, table: Table) -> None:
    (block,) = (block for block in blocks(ROOT / "README.md", "sh") if "helm install" in block.text)
    text = block.text
    for shown, used in {"streams": cluster.namespace, SHOWN_REGISTRY: registry}.items():
        assert shown in text
        text = text.replace(shown, used)
    fault = execute(text, tmp_path / "told")
    table.judge("README.md, Kubernetes", "each command works", fault or "yes", not fault)
    images = {container["image"] for pod in cluster.get("pods") for container in pod["spec"]["containers"]}
    own = {image for image in images if "keygrouping-" in image}
    assert own and all(image.startswith(f"{registry}/") for image in own), images
