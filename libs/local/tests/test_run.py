"""Laws of whole runs of `keygrouping-run`, with the native runner."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.ports import HOST

pytestmark = pytest.mark.kafka

EVENTS = 20_000
JOB = """{"window": "10m", "lateness": "30s", "aggregates": [
    {"name": "n", "op": "count"}, {"name": "mean", "op": "mean", "field": "x"},
    {"name": "variance", "op": "variance", "field": "x"}, {"name": "rooms", "op": "distinct", "field": "room"},
    {"name": "price", "op": "vwap", "field": "x", "weight": "room"}, {"name": "shape", "op": "histogram", "field": "x"},
    {"name": "top", "op": "top-k", "field": "room", "k": 5, "capacity": 20},
    {"name": "kinds", "op": "naive-bayes", "field": "room", "features": ["house"], "entries": 90}]}"""


@dataclass
class Command:
    """Starts `keygrouping-run` on the file of a test."""

    folder: Path
    runs: list["subprocess.Popen[str]"] = field(default_factory=list)

    def start(self, *options: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "keygrouping_local", "--runner", "native", *options]
        environment = {**os.environ, "KEYGROUPING_LOCAL_DATA_DIR": str(self.folder / "data"), "COLUMNS": "200"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.runs.append(subprocess.Popen(command, env=environment, text=True, **pipes))  # type: ignore[call-overload]
        return self.runs[-1]

    def start_on_file(self, *options: str) -> "subprocess.Popen[str]":
        file = ["--workload", str(self.folder / "readings.csv"), "--key", "house", "--time-field", "at"]
        return self.start(*file, "--job", str(self.folder / "job.json"), *options)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    (tmp_path / "job.json").write_text(JOB)
    start = datetime(2020, 1, 1, tzinfo=UTC)
    with (tmp_path / "readings.csv").open("w") as file:
        file.write("house,at,room,x\nh1,yesterday,1,1\n")
        for i in range(EVENTS):
            house = "" if i % 500 == 0 else "hot" if i % 2 else f"h{i % 31}"
            x = "" if i % 7 == 0 else f"{(i * 37 % 1000) / 7:.6f}"
            file.write(f"{house},{(start + timedelta(seconds=i)).isoformat()},{i % 53},{x}\n")
    made = Command(tmp_path)
    yield made
    for run in made.runs:
        run.kill()
        run.communicate()


@pytest.fixture
def address(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


def wait_for(run: "subprocess.Popen[str]", condition: Callable[[str], object]) -> None:
    """Reads the run's lines until one of them is as wanted."""
    assert run.stdout is not None
    lines = []
    for line in run.stdout:
        lines.append(line)
        if condition(line):
            return
    assert run.stderr is not None
    pytest.fail("".join(lines) + run.stderr.read())


def has_routed(line: str) -> object:
    return re.match(r"events [1-9]", line)


def outcome(run: "subprocess.Popen[str]") -> tuple[int, str]:
    out, error = run.communicate(timeout=300)
    return run.returncode, out + error


def test_once_ends_by_itself_with_all_that_the_oracle_expects(command: Command, address: str) -> None:
    run = command.start_on_file("--once", "--grouping", "shuffle", "--workers", "10", "--bootstrap-servers", address)
    code, said = outcome(run)
    assert code == 0, said
    assert "every window equals the oracle's" in said
    unkeyed = EVENTS // 500
    assert re.search(rf"dead-letters\W+{unkeyed + 1}\W+{unkeyed + 1}\W+0", said)
    assert "readings.csv: 'at' is read as ISO 8601 (iso); --time-format names another" in said
    assert re.search(rf"read\W+{EVENTS + 1:,}\W+readings.csv", said)
    assert re.search(r"refused by the producer: invalid-time\W+1\W+readings.csv:2: field 'at' holds no time", said)
    assert re.search(rf"sent\W+{EVENTS:,}\W", said)
    assert re.search(rf"refused by the router: no-key\W+{unkeyed}\W+\S+events-\d at offset \d+: the record has", said)
    assert re.search(rf"used\W+{EVENTS - unkeyed:,}\W", said)


def test_times_since_1970_are_told_apart_and_refused_where_another_format_is_asked_for(
    command: Command, address: str
) -> None:
    file = command.folder / "epochs.csv"
    file.write_text("house;at\n" + "".join(f"h{i % 7};{1_704_067_200 + i}.5\n" for i in range(5000)))
    asked = ["--workload", str(file), "--key", "house", "--time-field", "at", "--delimiter", ";", "--once"]
    code, said = outcome(command.start(*asked, "--bootstrap-servers", address))
    assert (code, "'at' is read as seconds since 1970 (epoch_s)" in said) == (0, True), said
    assert re.search(r"used\W+5,000\W", said)
    code, said = outcome(command.start(*asked, "--time-format", "iso", "--bootstrap-servers", address))
    assert code == 1, said
    assert "every window equals the oracle's" not in said
    assert (
        "nothing was used: 5,000 of 5,000 are refused for invalid-time; name the format of the times by --time" in said
    )


@pytest.mark.long
def test_an_interrupted_run_goes_on_to_the_exact_end(command: Command, address: str) -> None:
    first = command.start_on_file("--once", "--rate", "2000", "--bootstrap-servers", address)
    wait_for(first, has_routed)
    first.send_signal(signal.SIGINT)
    code, said = outcome(first)
    assert (code, "the next start goes on from here" in said) == (0, True), said
    code, said = outcome(command.start_on_file("--once", "--bootstrap-servers", address))
    assert code == 0, said
    assert "every window equals the oracle's" in said
    names = {path.name for path in (command.folder / "data").iterdir() if path.is_dir()}
    assert len(names) == 1


def test_a_live_run_ends_on_sigterm_and_leaves_no_process(command: Command) -> None:
    run = command.start("--rate", "2000", "--observer")
    wait_for(run, lambda line: line.startswith("observer http"))
    wait_for(run, has_routed)
    children = psutil.Process(run.pid).children(recursive=True)
    assert len(children) == 6
    run.send_signal(signal.SIGTERM)
    code, said = outcome(run)
    assert code == 0, said
    assert not any(child.is_running() for child in children)
    (kept,) = (command.folder / "data").glob("*/router.json")
    assert b'"grouping":"level-fill"' in kept.read_bytes()


def test_as_many_processes_combine_as_there_are_to_be_workers(command: Command, address: str) -> None:
    run = command.start_on_file("--once", "--stages", "combine", "--workers", "3", "--bootstrap-servers", address)
    code, said = outcome(run)
    assert code == 0, said
    assert "every window equals the oracle's" in said
    logs = sorted((command.folder / "data").glob("*/logs/worker-*.log"))
    assert [log.name for log in logs] == ["worker-0.log", "worker-1.log", "worker-2.log"]
    assert "router" not in said and re.search(r"no-key.*worker|worker.*no-key", said), said


@pytest.mark.parametrize("part", ["router", "worker"])
def test_a_crash_of_one_part_stops_the_run_with_its_last_lines(command: Command, address: str, part: str) -> None:
    run = command.start("--rate", "2000", "--bootstrap-servers", address)
    wait_for(run, has_routed)
    children = psutil.Process(run.pid).children(recursive=True)
    (victim,) = (child for child in children if f"keygrouping_{part}" in child.cmdline())
    victim.kill()
    code, said = outcome(run)
    assert code == 1
    assert f"keygrouping: {part} was killed by SIGKILL from outside" in said
    assert "Traceback" not in said
    assert not any(child.is_running() for child in children)


def test_faults_of_the_surroundings_are_told_in_one_line(command: Command, address: str, tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = str(taken.getsockname()[1])
        code, said = outcome(command.start("--api-port", port, "--bootstrap-servers", address))
    assert (code, said.count("\n")) == (1, 1)
    assert f"port {port} is taken: choose another" in said
    code, said = outcome(command.start("--bootstrap-servers", f"{HOST}:1"))
    assert (code, said.count("\n")) == (1, 1)
    assert "--bootstrap-servers" in said
    with EmbeddedBroker(tmp_path / "data" / "broker"):
        code, said = outcome(command.start())
    assert code == 1
    assert said.splitlines()[-1].startswith("keygrouping: another broker uses")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workload", "nothing"], "unknown workload 'nothing'"),
        (["--workers", "17"], "--workers: must be an integer, from 1 to 16, not '17'"),
        (["--api-port", "65536"], "--api-port: must be an integer, from 0 to 65535"),
        (["--grouping", "off-greedy"], "--grouping: invalid choice: 'off-greedy'"),
        (["--rate", "-1"], "must be 0 or more"),
        (["--rate", "many"], "must be 0 or more events per second, not 'many'"),
        (["--job", "nowhere.json"], "--job nowhere.json: No such file"),
        (["--stages", "combine", "--grouping", "pkg"], "--grouping is the router's, and --stages combine has none"),
        (["--stages", "combine", "--api-port", "0"], "--api-port is the router's, and --stages combine has none"),
        (["--stages", "combine", "--runner", "spark"], "--stages combine needs --runner native"),
    ],
)
def test_wrong_options_are_told(command: Command, options: list[str], message: str) -> None:
    code, said = outcome(command.start(*options))
    assert (code, said.count("\n")) == (2, 1)
    assert message in said


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--workers", "0", "--rate", "x", "--grouping", "y", "--z"], ["--workers", "--rate", "--grouping", "'--z'"]),
        (["--workload", "nothing", "--job", "nowhere.json"], ["--job nowhere.json", "unknown workload 'nothing'"]),
    ],
)
def test_all_wrong_options_are_told_at_once(command: Command, options: list[str], told: list[str]) -> None:
    code, said = outcome(command.start(*options))
    assert code == 2 and len(said.splitlines()) == len(told)
    assert all(each in line for each, line in zip(told, said.splitlines(), strict=True))
