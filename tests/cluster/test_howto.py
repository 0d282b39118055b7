"""The secrets of the how-to page on an external Kafka hold what the values beside them ask for."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..docs.pages import DOCS, blocks
from .cluster import CHART, Cluster
from .shell import execute
from .table import Table

pytestmark = pytest.mark.cluster

PAGE = DOCS / "howto" / "external-kafka.md"
SHOWN_FOLDER = "/etc/keygrouping"
AUTHORITY = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout ca.key -out ca.pem"


def asked_for(manifests: str) -> Iterator[tuple[str, str]]:
    """The secrets that pods of these manifests read and that the manifests don't make, and the key in each."""
    found = [*filter(None, yaml.safe_load_all(manifests))]
    made = {each["metadata"]["name"] for each in found if each["kind"] == "Secret"}
    for manifest in found:
        pod: dict[str, Any] = manifest.get("spec", {}).get("template", {}).get("spec", {})
        secrets = {each["name"]: each["secret"]["secretName"] for each in pod.get("volumes", []) if "secret" in each}
        for container in pod.get("containers", []):
            folders = {each["mountPath"]: secrets.get(each["name"]) for each in container.get("volumeMounts", [])}
            for variable in container.get("env", []):
                folder, _, name = str(variable.get("value", "")).rpartition("/")
                if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                    yield reference["name"], reference["key"]
                elif (secret := folders.get(folder)) and secret not in made:
                    yield secret, name


def test_the_secrets_are_those_of_the_values(cluster: Cluster, tmp_path: Path, table: Table) -> None:
    subprocess.run(shlex.split(AUTHORITY), cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "password").write_text("hush")
    (shell,) = (block for block in blocks(PAGE, "sh") if block.text.startswith("kubectl"))
    fault = execute(
        shell.text.replace(SHOWN_FOLDER, str(tmp_path)),
        tmp_path / "told",
        {**os.environ, "KUBECTL": shlex.join(cluster.kubectl_command)},
    )
    table.judge("docs/howto/external-kafka.md, secrets", "each command works", fault or "yes", not fault)
    (values,) = blocks(PAGE, "yaml")
    (tmp_path / "values.yaml").write_text(values.text)
    asked = set(
        asked_for(
            cluster.helm(
                "template", "kg", str(CHART), "--kube-version", "1.30", "--values", str(tmp_path / "values.yaml")
            )
        )
    )
    made = {(each["metadata"]["name"], key) for each in cluster.get("secrets") for key in each.get("data", {})}
    assert asked == made
