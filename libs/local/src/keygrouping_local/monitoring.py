"""A real Prometheus and a real Alertmanager on free ports of 127.0.0.1, for tests and pictures."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import orjson

from keygrouping_local.errors import LocalError
from keygrouping_local.ports import HOST, free_ports
from keygrouping_local.process import last_lines, spawn, terminate

_START_TIMEOUT = 60.0
_LOOK_SECONDS = 0.1
_LISTENING = re.compile(r"listening on http://(\S+)")

Sample = tuple[dict[str, str], list[tuple[float, float]]]
"""Labels of a series, and its points: seconds since 1970 and value."""


class _Server:
    """One process with an HTTP interface; a context manager."""

    program: str
    storage: str
    options: tuple[str, ...]

    def __init__(self, folder: Path, configuration: Mapping[str, Any]) -> None:
        (port,) = free_ports(1)
        self.address = f"{HOST}:{port}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._client = httpx.Client(base_url=f"http://{self.address}", timeout=30)
        folder.mkdir(parents=True, exist_ok=True)
        # JSON is YAML.
        (folder / "configuration.yaml").write_bytes(orjson.dumps(configuration))

    def __enter__(self) -> Self:
        given = [f"--config.file={self._folder / 'configuration.yaml'}", f"{self.storage}={self._folder / 'data'}"]
        command = [self.program, *given, f"--web.listen-address={self.address}", *self.options]
        self._process = spawn(command, self._folder / "log")
        deadline = time.monotonic() + _START_TIMEOUT
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise LocalError(f"{self.program} does not start: {' '.join(last_lines(self._folder / 'log', 3))}")
            time.sleep(_LOOK_SECONDS)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            terminate(self._process, 10)
            self._process = None
        self._client.close()

    def get(self, path: str, **parameters: str) -> Any:
        """The answer to a question, from its JSON; `LocalError` with the server's own words if it refuses."""
        answer = self._client.get(path, params=parameters)
        if answer.is_error:
            raise LocalError(f"{self.program}: {path} {parameters}: {answer.text}")
        return answer.json()

    def _is_ready(self) -> bool:
        try:
            return self._client.get("/-/ready").is_success
        except httpx.HTTPError:
            return False


class Prometheus(_Server):
    """Scrapes targets, evaluates the rules of a file, tells an Alertmanager; all each `seconds`.

    `targets`: addresses with the labels that their series get beside `job` and `instance`.
    """

    program = "prometheus"
    storage = "--storage.tsdb.path"
    options = ("--rules.alert.resend-delay=1s",)

    def __init__(
        self,
        folder: Path,
        targets: Sequence[tuple[str, Mapping[str, str]]],
        *,
        rules: Path | None = None,
        alertmanager: str | None = None,
        seconds: float = 1,
    ) -> None:
        interval = f"{round(seconds * 1000)}ms"
        configuration: dict[str, Any] = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "scrape_configs": [
                {
                    "job_name": "keygrouping",
                    "static_configs": [{"targets": [address], "labels": dict(labels)} for address, labels in targets],
                }
            ],
        }
        if rules is not None:
            configuration["rule_files"] = [str(rules.absolute())]
        if alertmanager is not None:
            configuration["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
        super().__init__(folder, configuration)

    def query(self, expr: str) -> list[Sample]:
        """What an expression gives now, one point each; `LocalError` if it can't be understood."""
        data = self.get("/api/v1/query", query=expr)["data"]
        if data["resultType"] == "scalar":
            return [({}, [_point(data["result"])])]
        return [(row["metric"], [_point(row["value"])]) for row in data["result"]]

    def query_range(self, expr: str, start: float, end: float, step: float) -> list[Sample]:
        """What an expression has given, from `start` to `end` in seconds since 1970, each `step` seconds."""
        data = self.get("/api/v1/query_range", query=expr, start=f"{start}", end=f"{end}", step=f"{step}")["data"]
        return [(row["metric"], [_point(pair) for pair in row["values"]]) for row in data["result"]]


class Alertmanager(_Server):
    """Routes alerts to receivers, as its configuration says."""

    program = "prometheus-alertmanager"
    storage = "--storage.path"
    options = ("--cluster.listen-address=",)


def metrics_address(log: Path) -> str | None:
    """Where a service shows its metrics (host:port), by what it says in its log; None: not yet."""
    found = _LISTENING.findall(log.read_text(errors="replace")) if log.exists() else []
    return found[-1] if found else None


def _point(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
