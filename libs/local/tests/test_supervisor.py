"""Laws of child processes and of the supervisor."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.errors import LocalError
from keygrouping_local.process import kill, last_lines, spawn, terminate
from keygrouping_local.supervisor import Service, ServiceFailedError, Supervisor

PROGRAMS = {
    "listens": "import signal; print('listening on http://127.0.0.1:1234'); signal.pause()",
    "fails": "import sys; print('before'); sys.exit('the reason')",
    "ends": "print('done')",
    "stubborn": (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf')\nwhile True: signal.pause()"
    ),
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    for name, text in PROGRAMS.items():
        (tmp_path / f"{name}.py").write_text(text)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(tmp_path / "logs") as running:
        yield running


def eventually(condition: Callable[[], bool], timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.01)


def test_output_goes_to_the_log_and_tells_the_address(supervisor: Supervisor, environment: dict[str, str]) -> None:
    supervisor.start(Service("router", "listens", environment))
    eventually(lambda: supervisor.url("router") is not None)
    assert supervisor.url("router") == "http://127.0.0.1:1234"
    supervisor.check()


def test_the_address_of_an_earlier_run_does_not_count(supervisor: Supervisor, environment: dict[str, str]) -> None:
    supervisor.log("ends").parent.mkdir(parents=True)
    supervisor.log("ends").write_text("listening on http://127.0.0.1:1\n")
    supervisor.start(Service("ends", "ends", environment, finite=True))
    eventually(lambda: supervisor.has_ended("ends"))
    assert supervisor.url("ends") is None


def failure(supervisor: Supervisor) -> str:
    def failed() -> bool:
        try:
            supervisor.check()
        except ServiceFailedError:
            return True
        return False

    eventually(failed)
    with pytest.raises(ServiceFailedError) as error:
        supervisor.check()
    return str(error.value)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_is_told_and_not_what_the_log_says_of_something_else(
    supervisor: Supervisor, environment: dict[str, str], how: signal.Signals
) -> None:
    supervisor.log("listens").parent.mkdir(parents=True)
    supervisor.log("listens").write_text("Traceback (most recent call last):\nof another day\n")
    supervisor.start(Service("listens", "listens", environment))
    eventually(lambda: supervisor.url("listens") is not None)
    os.kill(supervisor.pids()["listens"], how)
    told = failure(supervisor)
    assert told.startswith(f"listens was killed by {how.name} from outside: by somebody, or by the system")
    assert "Traceback" not in told
    assert str(supervisor.log("listens")) in told


def test_a_kill_of_the_broker_is_told(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path, port=1)
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        broker._process = process
        broker.check()
        process.kill()
        process.wait()
        with pytest.raises(LocalError, match="the broker was killed by SIGKILL from outside: by somebody, or by the"):
            broker.check()


def test_the_last_lines_of_an_earlier_run_are_not_those_of_a_crash(
    supervisor: Supervisor, environment: dict[str, str]
) -> None:
    supervisor.log("fails").parent.mkdir(parents=True)
    supervisor.log("fails").write_text("of another day\n")
    supervisor.start(Service("fails", "fails", environment))
    assert failure(supervisor).splitlines()[1:] == ["  before", "  the reason"]


def test_a_crash_is_told_with_the_last_lines(supervisor: Supervisor, environment: dict[str, str]) -> None:
    supervisor.start(Service("fails", "fails", environment))
    told = failure(supervisor)
    assert told.startswith("fails ended with exit code 1")
    assert told.splitlines()[-2:] == ["  before", "  the reason"]


def test_only_a_finite_service_may_end(supervisor: Supervisor, environment: dict[str, str]) -> None:
    supervisor.start(Service("finite", "ends", environment, finite=True))
    eventually(lambda: supervisor.has_ended("finite"))
    supervisor.check()
    supervisor.start(Service("endless", "ends", environment))
    assert "endless ended with exit code 0" in failure(supervisor)


def test_leaving_stops_everything(tmp_path: Path, environment: dict[str, str]) -> None:
    with Supervisor(tmp_path / "logs") as supervisor:
        for name in ("a", "b"):
            supervisor.start(Service(name, "listens", environment))
        children = [psutil.Process(pid) for pid in supervisor.pids().values()]
    assert len(children) == 2
    assert not any(child.is_running() for child in children)
    assert supervisor.pids() == {}


def test_what_ignores_a_request_to_end_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = spawn([sys.executable, "-u", "-c", PROGRAMS["stubborn"]], log)
    eventually(lambda: "deaf" in log.read_text())
    assert terminate(process, timeout=0.1) == -signal.SIGKILL


LEAVES = """
import os, signal, subprocess, sys
for own_group in (None, 0):
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], process_group=own_group)
    print(child.pid, flush=True)
if sys.argv[1] == "stays":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pause()
"""


@pytest.mark.parametrize("itself", ["stays", "goes"])
def test_a_kill_reaches_what_a_process_has_started_be_it_gone_itself(tmp_path: Path, itself: str) -> None:
    log = tmp_path / "log"
    process = spawn([sys.executable, "-u", "-c", LEAVES, itself], log)
    eventually(lambda: len(log.read_text().split()) == 2)
    left = [psutil.Process(int(pid)) for pid in log.read_text().split()]
    if itself == "goes":
        process.wait()
    assert all(child.is_running() for child in left)
    kill(process)
    assert process.returncode is not None
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in left)


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from keygrouping_local.process import spawn\n"
        "child = spawn([sys.executable, '-c', 'import signal; signal.pause()'], pathlib.Path(sys.argv[1]))\n"
        "print(child.pid, flush=True); sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    _, alive = psutil.wait_procs([child], timeout=20)
    assert not alive


def test_last_lines_are_the_last_and_of_bounded_reach(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_lines(log) == []
    log.write_text("".join(f"line {i}\n" for i in range(10_000)))
    assert last_lines(log, 2) == ["line 9998", "line 9999"]
    assert len(last_lines(log, 10_000, reach=1000)) < 120
