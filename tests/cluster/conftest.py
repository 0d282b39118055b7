"""One namespace for each module, and the table that is printed at the end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from .cluster import Cluster, ClusterError, Release
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


@pytest.fixture
def release(cluster: Cluster) -> Release:
    """A release that the test installs; it goes with its namespace."""
    return Release(cluster)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the table."""
    if _TABLE.rows:
        terminalreporter.section("measured on the cluster")
        terminalreporter.write_line(_TABLE.text())
