"""Child processes that can't outlive this one, however it ends."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from keygrouping_local import tether

_DIES_WITHIN = 60.0
_LOOK_SECONDS = 0.02
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# The kernel ties a child to the thread that forked it, so all forks are made by one thread that lives as long as we.
_launcher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="keygrouping-launcher")


def spawn(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Starts `command` in a session of its own, its output appended to `log`; it is killed when this process ends."""
    log.parent.mkdir(parents=True, exist_ok=True)
    return _launcher.submit(_spawn, command, log, environment).result()


def _spawn(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None
) -> "subprocess.Popen[bytes]":
    tethered = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *map(str, command)]
    with log.open("ab") as output:
        return subprocess.Popen(
            tethered,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def terminate(process: "subprocess.Popen[bytes]", timeout: float) -> int:
    """Sends SIGTERM, after `timeout` seconds SIGKILL; returns the exit code."""
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        kill(process)
        return process.wait()


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kills a process that was spawned here with all that it has started, be it gone itself: a JVM outlives its Python.

    Returns when none of them runs any more.
    """
    deadline = time.monotonic() + _DIES_WITHIN
    while time.monotonic() < deadline and (found := [pid for pid in psutil.pids() if _is_of(process.pid, pid)]):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)
    process.wait()


def _is_of(session: int, pid: int) -> bool:
    """Whether it runs, in this session."""
    try:
        return os.getsid(pid) == session and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


def killed_from_outside(code: int) -> str | None:
    """What to say of a process whose exit code tells that somebody else has killed it; None if it ended by itself."""
    if -code not in _FROM_OUTSIDE:
        return None
    how = signal.Signals(-code).name
    return f"was killed by {how} from outside: by somebody, or by the system, as it does for want of memory"


def last_lines(log: Path, count: int = 15, reach: int = 16_384, start: int = 0) -> list[str]:
    """Returns the last lines of a log file, of at most its last `reach` bytes, and none before byte `start`."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - reach))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
