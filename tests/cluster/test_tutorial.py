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
_MOVES = """events() {
  curl --silent "$1/keyspace?limit=0" | grep --only-matching '"events": *[0-9]*' | head -1 | tr -dc 0-9
}
moves() {
  local before=$(( $(events "$1") + 0 ))
  for _ in {1..120}; do
    [ $(( $(events "$1") + 0 )) -le $((before + 1000)) ] || return 0
    sleep 1
  done
  echo "nothing of the stream is routed" >&2
  return 1
}
"""


def script(namespace: str, registry: str, values: Path) -> str:
    """The page's shell, in a namespace of its own; calls wait until the stream is routed."""
    text = "\n".join(block.text for block in blocks(PAGE, "sh"))
    changes = {"streams": namespace, SHOWN_REGISTRY: registry, "values.yaml": str(values)}
    address = "ROUTER=http://127.0.0.1:8080\n"
    changes[address] = f"{address}answers $ROUTER\nmoves $ROUTER\n"
    for shown, used in changes.items():
        assert shown in text
        text = text.replace(shown, used)
    return _MOVES + text


def test_the_tutorial_works(cluster: Cluster, registry: str, tmp_path: Path, table: Table) -> None:
    (block,) = blocks(PAGE, "yaml")
    assert SHOWN_REGISTRY in block.text
    values = tmp_path / "values.yaml"
    values.write_text(block.text.replace(SHOWN_REGISTRY, registry))
    fault = execute(script(cluster.namespace, registry, values), tmp_path / "told")
    table.judge("docs/tutorials/cluster.md", "each command works", fault or "yes", not fault)
