"""What the tests on a cluster are made of, without one."""

from __future__ import annotations

import base64
import json
import stat
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from . import inside
from .cluster import Cluster, ClusterError, Release, assignments, longest_gap, ready, tools
from .table import Table
from .test_on_a_cluster import merged


def pod(phase: str = "Running", ready: str = "True", **metadata: str) -> dict[str, Any]:
    return {"metadata": metadata, "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}}


@pytest.mark.parametrize(
    ("pods", "wanted"),
    [
        ([], False),
        ([pod()], True),
        ([pod(), pod(ready="False")], False),
        ([pod(), pod("Succeeded", "False")], True),
        ([pod("Failed", "False")], False),
        ([pod(), pod(deletionTimestamp="now")], False),
        ([{"metadata": {}}], False),
    ],
)
def test_pods_are_ready_if_each_is(pods: list[dict[str, Any]], wanted: bool) -> None:
    assert ready(pods) is wanted


@pytest.mark.parametrize(
    ("samples", "gap"),
    [
        ([], 0),
        ([(0.0, 1), (1.0, 2), (2.0, 3)], 1),
        ([(0.0, 1), (1.0, 2), (2.0, 2), (4.0, None), (7.0, 5), (8.0, 6)], 6),
        ([(0.0, 100), (1.0, None), (2.0, 3)], 2),
        ([(0.0, 1), (9.0, 1)], 9),
    ],
)
def test_a_gap_is_where_the_count_stands_still_or_is_not_known(
    samples: list[tuple[float, int | None]], gap: float
) -> None:
    assert longest_gap(samples) == gap


def test_values_are_merged_map_by_map_and_given_as_json() -> None:
    values = merged({"a": {"b": 1, "c": [1]}, "d": 1}, {"a": {"c": [2]}, "e": {"f": "x,y"}})
    assert values == {"a": {"b": 1, "c": [2]}, "d": 1, "e": {"f": "x,y"}}
    assert assignments(values) == 'a={"b": 1, "c": [2]},d=1,e={"f": "x,y"}'


def test_the_table_says_what_has_failed() -> None:
    table = Table()
    table.judge("start", "within 5 s", "3 s", passed=True)
    table.tell("gap", "1 s")
    with pytest.raises(AssertionError, match="results: 2 differences, the target is none"):
        table.judge("results", "none", "2 differences", passed=False)
    assert table.text().splitlines() == [
        "what     target      measured",
        "start    within 5 s  3 s            pass",
        "gap                  1 s",
        "results  none        2 differences  FAIL",
    ]


def test_the_toolbox_gets_all_that_the_check_imports() -> None:
    with tarfile.open(fileobj=BytesIO(tools())) as archive:
        names = set(archive.getnames())
        sources = {Path(name).stem: archive.extractfile(name) for name in names if "keygrouping_local" in name}
    assert "tools/inside.py" in names
    for source in sources.values():
        assert source is not None
        for line in source.read().decode().splitlines():
            if line.startswith("from keygrouping_local."):
                assert line.split()[1].removeprefix("keygrouping_local.") in sources, line


def test_an_address_where_nobody_answers_is_no_error() -> None:
    assert inside.ask("GET", "http://127.0.0.1:1/")["status"] == 0


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A cluster whose kubectl writes down what it was called with, and says what the test wants."""
    program = tmp_path / "kubectl"
    program.write_text(f'#!/bin/sh\ncat >"{tmp_path}/stdin"\necho "$@" >>"{tmp_path}/calls"\ncat "{tmp_path}/answer"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "answer").write_text(json.dumps({"items": [pod()]}))
    return Cluster("ns", {"KUBECTL": f"{program} --context c", "HELM": "false", "REGISTRY": "host/team"})


def test_commands_may_have_words_of_their_own(cluster: Cluster, tmp_path: Path) -> None:
    assert ready(Release(cluster).pods("worker"))
    selector = "app.kubernetes.io/instance=kg,app.kubernetes.io/component=worker"
    assert (
        tmp_path / "calls"
    ).read_text() == f"--context c --namespace ns get pods --output json --selector {selector}\n"
    with pytest.raises(ClusterError, match="false --namespace ns uninstall"):
        cluster.helm("uninstall", "kg")


def test_the_toolbox_is_a_pod_that_policies_and_security_admit(cluster: Cluster) -> None:
    made = Release(cluster).toolbox({"aggregates": []}, {"MORE": "1"})
    assert made["metadata"]["labels"]["app.kubernetes.io/component"] == "test"
    (container,) = made["spec"]["containers"]
    assert container["image"].startswith("host/team/keygrouping-load:")
    assert {"name": "MORE", "value": "1"} in container["env"]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_calls_carry_the_tokens_of_the_release(cluster: Cluster, tmp_path: Path) -> None:
    held = {"write": base64.b64encode(b"hush").decode()}
    names = ("kg-keygrouping-redis", "kg-keygrouping-router-tokens", "kg-keygrouping-producer-tokens")
    items = [{"metadata": {"name": name}, "data": held} for name in names]
    (tmp_path / "answer").write_text(json.dumps({"items": items}))
    Release(cluster).inside("ask", "GET", "http://r")
    call = (tmp_path / "calls").read_text().splitlines()[-1]
    assert "exec toolbox -- env ROUTER_TOKEN=hush PRODUCER_TOKEN=hush python " in call


def test_waiting_ends_with_what_was_waited_for(cluster: Cluster) -> None:
    assert cluster.until(lambda: True, 0, "nothing") < 5
    with pytest.raises(ClusterError, match="not so after 0 s: something"):
        cluster.until(lambda: False, 0, "something")


def test_pods_of_tests_stay_when_a_release_goes(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(json.dumps({"items": []}))
    cluster.helm_command = ["true"]
    assert Release(cluster).uninstall() == []
    for call in (tmp_path / "calls").read_text().splitlines():
        assert call.endswith("--selector app.kubernetes.io/instance=kg,app.kubernetes.io/component!=test")
