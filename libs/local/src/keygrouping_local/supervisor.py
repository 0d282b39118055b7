"""Runs the services of an application as child processes and notices at once when one of them fails."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from keygrouping_local.errors import LocalError
from keygrouping_local.process import killed_from_outside, last_lines, spawn, terminate

_LISTENING = re.compile(r"listening on (http://\S+)")
_SHOWN_LINES = 12
_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Service:
    """A service to run: its name, its Python module, its environment, and whether it may end by itself (exit 0)."""

    name: str
    module: str
    environment: Mapping[str, str]
    finite: bool = False


class ServiceFailedError(LocalError):
    """A service has ended that should not; the message has its last lines."""


class Supervisor:
    """Starts services one by one, their output in `logs`/NAME.log, and stops the last one first.

    A context manager: leaving it stops whatever runs. The services end with this process, however that ends.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._services: dict[str, Service] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._born: dict[str, int] = {}

    def start(self, service: Service) -> None:
        """Starts a service."""
        log = self.log(service.name)
        self._born[service.name] = log.stat().st_size if log.exists() else 0
        self._services[service.name] = service
        command = [sys.executable, "-u", "-m", service.module]
        self._processes[service.name] = spawn(command, log, service.environment)

    def log(self, name: str) -> Path:
        """The log file of a service."""
        return self._logs / f"{name}.log"

    def pids(self) -> dict[str, int]:
        """Process ids of the services that run."""
        return {name: process.pid for name, process in self._processes.items() if process.poll() is None}

    def url(self, name: str) -> str | None:
        """Address of the service's HTTP interface, as its log tells it; None as long as it doesn't."""
        try:
            with self.log(name).open("rb") as log:
                log.seek(self._born[name])
                found = _LISTENING.findall(log.read(1 << 20).decode(errors="replace"))
        except (OSError, KeyError):
            return None
        return found[0] if found else None

    def has_started(self, name: str) -> bool:
        """Whether a service of this name has been started."""
        return name in self._services

    def has_ended(self, name: str) -> bool:
        """Whether a finite service has done its work."""
        return self._processes[name].poll() == 0

    def check(self) -> None:
        """Raises ServiceFailedError with the last lines of the first service found dead."""
        for name, process in self._processes.items():
            code = process.poll()
            if code is not None and not (code == 0 and self._services[name].finite):
                raise ServiceFailedError(self._obituary(name, code))

    def stop(self, names: Sequence[str] | None = None) -> None:
        """Stops services, all by default, one after the other: SIGTERM, and SIGKILL after a timeout."""
        for name in list(reversed(self._processes)) if names is None else names:
            process = self._processes.pop(name)
            terminate(process, _TIMEOUT_SECONDS)

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _obituary(self, name: str, code: int) -> str:
        if (killed := killed_from_outside(code)) is not None:
            return f"{name} {killed}; its log {self.log(name)} can't tell by whom"
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        lines = "".join(f"\n  {line}" for line in last_lines(self.log(name), _SHOWN_LINES, start=self._born[name]))
        return f"{name} {how}; the last lines of {self.log(name)}:{lines}"
