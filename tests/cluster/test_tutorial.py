"""The tutorial on a cluster works: its commands as they stand, from the images to the clean-up."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..docs.pages import DOCS, blocks
from .cluster import Cluster
from .shell import SHOWN_REGISTRY, execute
from .table import Table

pytestmark = pytest.mark.cluster

PAGE = DOCS / "tutorials" / "cluster.md"


def script(namespace: str, registry: str, values: Path) -> str:
    """The page's shell, in a namespace of its own; a call waits until its port is forwarded."""
    text = "\n".join(block.text for block in blocks(PAGE, "sh"))
    changes = {"streams": namespace, SHOWN_REGISTRY: registry, "values.yaml": str(values)}
    for address in ("PRODUCER=http://127.0.0.1:8081\n", "ROUTER=http://127.0.0.1:8080\n"):
        changes[address] = f"{address}answers {address.partition('=')[2]}"
    for shown, used in changes.items():
        assert shown in text
        text = text.replace(shown, used)
    return text


def test_the_tutorial_works(cluster: Cluster, registry: str, tmp_path: Path, table: Table) -> None:
    (block,) = blocks(PAGE, "yaml")
    assert SHOWN_REGISTRY in block.text
    values = tmp_path / "values.yaml"
    values.write_text(block.text.replace(SHOWN_REGISTRY, registry))
    fault = execute(script(cluster.namespace, registry, values), tmp_path / "told")
    table.judge("docs/tutorials/cluster.md", "each command works", fault or "yes", not fault)
