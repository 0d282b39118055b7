"""The commands that NOTES and pages give, to the letter, with the `helm` and `kubectl` that are here."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chart_files import CHART, ROOT

from .api_server import ApiServer, api_server

Run = Callable[[str], subprocess.CompletedProcess[str]]

_TEST = re.compile(r"^helm test .*$", re.M)
PAGES = ("README.md", "docs/kubernetes.md", "docs/tutorials/cluster.md")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


@pytest.fixture
def run(helm: str, server: ApiServer, tmp_path: Path) -> Run:
    """Runs a command against the API server."""
    environment = {**os.environ, "KUBECONFIG": str(server.config(tmp_path)), "HELM_NAMESPACE": "ns"}

    def run(command: str) -> subprocess.CompletedProcess[str]:
        program, *arguments = shlex.split(command)
        found = helm if program == "helm" else shutil.which(program)
        if found is None:
            pytest.skip(f"{program} is not installed")
        return subprocess.run(
            [found, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    return run


def notes(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The commands in the notes of an installation that need no pod that runs."""
    lines = [line.strip() for line in done.stdout.partition("NOTES:")[2].splitlines()]
    return [line for line in lines if line.startswith(("kubectl ", "helm ")) and "port-forward" not in line]


@pytest.mark.parametrize("runner", ["native", "spark"])
def test_the_notes_commands_work_also_after_the_driver_was_killed(server: ApiServer, run: Run, runner: str) -> None:
    done = run(f"helm install r {CHART} --namespace ns --set image.pullPolicy=Never --set runner={runner}")
    assert done.returncode == 0, done.stderr
    labels = {"app.kubernetes.io/instance": "r", "app.kubernetes.io/component": "worker", "spark-role": "executor"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "left", "namespace": "ns", "labels": labels}}
    server.put("/api/v1/namespaces/ns/pods/left", {**pod, "spec": {}, "status": {"phase": "Succeeded"}})
    commands = notes(done)
    assert [command.split()[0] for command in commands] == ["kubectl", "helm"]
    for command in commands:
        done = run(command)
        assert done.returncode == 0, (command, done.stderr)


def test_helm_test_shows_what_the_pods_say_each_time(server: ApiServer, run: Run) -> None:
    assert run(f"helm install r {CHART} --namespace ns --set image.pullPolicy=Never").returncode == 0
    pods = ("r-keygrouping-test-endpoints", "r-keygrouping-test-pipeline")
    for said in ("first", "second"):
        server.logs = {pod: f"{said} {pod}\n" for pod in pods}
        done = run("helm test r --namespace ns --logs")
        assert done.returncode == 0, done.stderr
        assert all(f"{said} {pod}" in done.stdout for pod in pods)


def test_a_test_that_fails_shows_its_log_too(server: ApiServer, run: Run) -> None:
    assert run(f"helm install r {CHART} --namespace ns --set image.pullPolicy=Never").returncode == 0
    server.failing = {"r-keygrouping-test-pipeline"}
    server.logs = {"r-keygrouping-test-pipeline": "200 events, none came out\n"}
    done = run("helm test r --namespace ns --logs")
    assert done.returncode == 1
    assert "200 events, none came out" in done.stdout


def test_settings_that_programs_refuse_end_the_installation_with_their_words(server: ApiServer, run: Run) -> None:
    server.failing = {"r-keygrouping-check"}
    server.logs = {"r-keygrouping-check-abcde": "wrong settings: router: this and that\n"}
    done = run(f"helm install r {CHART} --namespace ns --set image.pullPolicy=Never --wait --timeout 10m")
    assert done.returncode == 1
    assert "wrong settings: router: this and that" in done.stdout + done.stderr
    kept = [path for path in server.objects if "/secrets/" not in path]
    assert sorted(path.rpartition("/")[2] for path in kept) == ["r-keygrouping-check", "r-keygrouping-check-abcde"]


INSTALL = f"helm install r {CHART} --namespace ns --set image.pullPolicy=Never"
UPGRADE = f"helm upgrade r {CHART} --namespace ns --set image.pullPolicy=Never"
KAFKA = "kafka.bundled.image"


def test_a_kafka_that_cannot_read_its_volume_is_refused_before_anything_changes(server: ApiServer, run: Run) -> None:
    assert run(f"{INSTALL} --set {KAFKA}.tag=4.3.1").returncode == 0
    before = len(server.changes)
    done = run(f"{UPGRADE} --set {KAFKA}.tag=4.2.2")
    assert done.returncode == 1
    told = "apache/kafka:4.2.2 can't read the volume of the Kafka that runs, apache/kafka:4.3.1"
    assert f"{told}: set {KAFKA}.tag=4.3.1; or uninstall" in done.stderr
    assert len(server.changes) == before
    assert run(f"{UPGRADE} --set {KAFKA}.tag=4.3.1").returncode == 0, "the way out"


def test_a_kafka_of_a_major_version_before_is_refused(server: ApiServer, run: Run) -> None:
    del server
    registry = "registry.example.com:5000/mirror/kafka"
    assert run(f"{INSTALL} --set {KAFKA}.repository={registry},{KAFKA}.tag=4.0.0").returncode == 0
    done = run(f"{UPGRADE} --set {KAFKA}.tag=3.9.1-r2")
    assert done.returncode == 1
    assert f"runs, {registry}:4.0.0: set {KAFKA}.tag=4.0.0;" in done.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"{KAFKA}.tag=4.2.2", f"{KAFKA}.tag=4.3.1"),
        (f"{KAFKA}.tag=4.2.9", f"{KAFKA}.tag=4.2.2"),
        (f"{KAFKA}.tag=4.9.0", f"{KAFKA}.tag=4.10.0"),
        (f"{KAFKA}.tag=4.3.1", f"{KAFKA}.tag=latest"),
        (f"{KAFKA}.digest=sha256:{'4' * 64}", f"{KAFKA}.tag=4.2.2"),
        (f"kafka.bundled.persistence.enabled=false,{KAFKA}.tag=4.3.1", "kafka.bundled.persistence.enabled=false"),
    ],
)
def test_a_kafka_that_may_read_its_volume_is_upgraded(server: ApiServer, run: Run, before: str, after: str) -> None:
    del server
    assert run(f"{INSTALL} --set {before}").returncode == 0
    done = run(f"{UPGRADE} --set {after}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_give_that_command(page: str) -> None:
    found = _TEST.findall((ROOT / page).read_text())
    assert found == ["helm test keygrouping --namespace streams --logs"]
