"""The page on apps works: from ten lines to a release, an event that is handled, and a backfill that ends."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from ..docs.pages import DOCS, blocks
from .cluster import Cluster, Release
from .registry import docker_command
from .shell import SHOWN_REGISTRY, execute
from .table import Table

pytestmark = pytest.mark.cluster

PAGE = DOCS / "howto" / "app-on-kubernetes.md"
NAMES = {"python": "billing.py", "dockerfile": "Dockerfile", "yaml": "values.yaml"}


def written(folder: Path, registry: str) -> None:
    """The page's files, the first block of each language."""
    folder.mkdir()
    for language, name in NAMES.items():
        first, *_ = blocks(PAGE, language)
        (folder / name).write_text(first.text.replace(SHOWN_REGISTRY, registry))


def script(folder: Path, namespace: str, registry: str) -> str:
    """The page's shell, with another folder, registry and namespace."""
    text = "\n".join(block.text for block in blocks(PAGE, "sh"))
    build = f"docker build {os.environ.get('BUILD_ARGS', '')} "
    changes = {
        "billing/": f"{folder}/",
        ":1.0.0 billing\n": f":1.0.0 {folder}\n",
        "namespace shop": f"namespace {namespace}",
        "-n shop": f"-n {namespace}",
        SHOWN_REGISTRY: registry,
        "docker build ": build,
    }
    for shown, used in changes.items():
        assert shown in text
        text = text.replace(shown, used)
    return f'docker() {{ {shlex.join(docker_command())} "$@"; }}\n{text}'


def test_the_page_works(cluster: Cluster, registry: str, tmp_path: Path, table: Table) -> None:
    written(tmp_path / "app", registry)
    fault = execute(script(tmp_path / "app", cluster.namespace, registry), tmp_path / "told")
    table.judge("docs/howto/app-on-kubernetes.md", "each command works", fault or "yes", not fault)
    assert '{"paid":3}' in (tmp_path / "told").read_text()
    release = Release(cluster, "billing")
    assert {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in release.pods()} == {"app", "kafka"}
    seconds = release.delete_pod("billing-keygrouping-app-0")
    table.tell("pod of an app deleted", f"{seconds:.0f} s")
    assert release.uninstall() == ["PersistentVolumeClaim/data-billing-keygrouping-kafka-0"]
