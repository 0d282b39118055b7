"""One namespace for each module, and the table that is printed at the end."""

from __future__ import annotations

import os
import shlex
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from .cluster import Cluster, ClusterError, Release
from .registry import PROGRAM, docker_command, forgotten, own_registry
from .table import Table

_TABLE = Table()


@pytest.fixture(scope="session")
def table() -> Table:
    """What the tests have measured."""
    return _TABLE


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A namespace of its own in the cluster of kubectl's context; gone afterwards with all that is in it."""
    made = Cluster(f"kg-{uuid.uuid4().hex[:8]}")
    try:
        made.kubectl("create", "namespace", made.namespace)
    except (ClusterError, OSError) as error:
        pytest.fail(f"there is no cluster to test on: {error}")
    made.kubectl("label", "namespace", made.namespace, "pod-security.kubernetes.io/enforce=restricted")
    yield made
    made.kubectl("delete", "namespace", made.namespace, "--wait=true", "--timeout=300s")


@pytest.fixture(scope="session")
def registry() -> Iterator[str]:
    """Where images can be pushed to, and the cluster pulls from: PUSH_REGISTRY, or one that is started here."""
    docker, given = docker_command(), os.environ.get("PUSH_REGISTRY")
    if not shutil.which(docker[0]):
        pytest.skip(f"{docker[0]} is missing (DOCKER names another): no image is made, pushed and installed")
    if given:
        yield given
        return
    if not shutil.which(PROGRAM):
        pytest.skip(f"no registry to push to: install {PROGRAM}, or name one by PUSH_REGISTRY")
    with (
        TemporaryDirectory() as folder,
        own_registry(Path(folder), shlex.split(os.environ.get("CLUSTER_EXEC", ""))) as address,
        forgotten(docker, address),
    ):
        yield address


@pytest.fixture
def definitions(cluster: Cluster) -> None:
    """Operators' objects are known to the cluster."""
    folder = os.environ.get("CLUSTER_CRDS")
    if not folder:
        pytest.skip("CLUSTER_CRDS names no folder with the definitions of operators' objects")
    for file in sorted(Path(folder).glob("*.yaml")):
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(file))
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "--filename", str(file))


@pytest.fixture
def release(cluster: Cluster) -> Release:
    """A release that the test installs; it goes with its namespace."""
    return Release(cluster)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the table."""
    if _TABLE.rows:
        terminalreporter.section("measured on the cluster")
        terminalreporter.write_line(_TABLE.text())
