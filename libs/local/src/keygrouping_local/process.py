"""Child processes that can't outlive this one, however it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from keygrouping_local import tether

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


def terminate(process: "subprocess.Popen[bytes]", patience: float) -> int:
    """Sends SIGTERM, after `patience` seconds SIGKILL; returns the exit code."""
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


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
