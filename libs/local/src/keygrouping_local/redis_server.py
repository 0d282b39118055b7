"""A real Redis server for tests: on a free port, in a folder of its own, to be killed, frozen and started again."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from keygrouping_local.ports import free_ports

_START_TIMEOUT = 20.0

MISSING = "redis-server is not installed (Debian: apt-get install --no-install-recommends redis-server)"


def installed() -> bool:
    """Whether a Redis server can be started here."""
    return shutil.which("redis-server") is not None


class RedisServer:
    """One server process; `options` are those of its command line. Data stay in `folder` if `appendonly` is given.

    Use as a context manager. It speaks TLS only if the options name a certificate (`--tls-cert-file`).
    """

    def __init__(self, folder: Path, *options: str) -> None:
        (self.port,) = free_ports(1)
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """host:port"""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def start(self) -> None:
        """Starts the server, on the port that it had before; returns when it accepts connections."""
        self._folder.mkdir(parents=True, exist_ok=True)
        ports = ["--port", "0", "--tls-port"] if "--tls-cert-file" in self._options else ["--port"]
        command = ["redis-server", *self._configuration(), *ports, str(self.port), "--bind", "127.0.0.1", "--save", ""]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*command, *self._options], cwd=self._folder, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_TIMEOUT
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"redis-server does not start: {(self._folder / 'log').read_text()}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Ends the server as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Lets it accept connections and answer nothing, until `thaw`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def ask(self, *command: str) -> str:
        """Runs one command on it."""
        done = subprocess.run(
            ["redis-cli", "-h", "127.0.0.1", "-p", str(self.port), *command], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def _configuration(self) -> list[str]:
        """Sentinels want a file that they can write to."""
        if "--sentinel" not in self._options:
            return []
        file = self._folder / "sentinel.conf"
        file.touch()
        return [str(file)]

    def _accepts(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False
