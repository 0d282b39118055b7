"""A driver that is started again in its pod deletes the executors of the one before, and no others."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import certifi
import pytest
from keygrouping_service.kubernetes import Kubernetes
from keygrouping_spark import cli, leftovers, session
from keygrouping_spark.settings import SparkSettings

DRIVER = "r-keygrouping-spark-driver-abc12-xyz34"


class Pods(ThreadingHTTPServer):
    """An API server that knows the pods of a namespace; a pod goes only some looks after it was deleted."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pods: dict[str, dict[str, Any]] = {}
        self.status = 200
        self.slow = 0
        self.deleted: list[str] = []

    def add(self, name: str, owner: str, phase: str = "Succeeded", role: str = "executor") -> None:
        owners = [{"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": "u"}] if owner else None
        metadata = {"name": name, "labels": {"spark-role": role}, "ownerReferences": owners}
        self.pods[name] = {"metadata": metadata, "status": {"phase": phase}}


class _Handler(BaseHTTPRequestHandler):
    server: Pods

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        assert asked.path == "/api/v1/namespaces/ns/pods"
        name, _, value = parse_qs(asked.query)["labelSelector"][0].partition("=")
        for gone in self.server.deleted if self.server.slow == 0 else []:
            self.server.pods.pop(gone, None)
        self.server.slow = max(0, self.server.slow - 1)
        items = [pod for pod in self.server.pods.values() if pod["metadata"]["labels"].get(name) == value]
        self._answer({"kind": "PodList", "items": items})

    def do_DELETE(self) -> None:
        asked = urlsplit(self.path)
        assert parse_qs(asked.query) == {"gracePeriodSeconds": ["0"]}
        name = asked.path.rpartition("/")[2]
        self.server.deleted.append(name)
        if name in self.server.pods:
            self._answer({"kind": "Pod"})
        else:
            self._answer({"kind": "Status", "message": "not found"}, 404)

    def _answer(self, content: Any, status: int = 200) -> None:
        refused = {"kind": "Status", "message": "pods is forbidden"}
        text = json.dumps(content if self.server.status == 200 else refused).encode()
        self.send_response(status if self.server.status == 200 else self.server.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def server() -> Iterator[Pods]:
    with Pods() as pods:
        thread = threading.Thread(target=pods.serve_forever)
        thread.start()
        yield pods
        pods.shutdown()
        thread.join()


@pytest.fixture
def api(server: Pods, tmp_path: Path) -> Kubernetes:
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("ns")
    shutil.copy(certifi.where(), tmp_path / "ca.crt")
    return Kubernetes(f"http://127.0.0.1:{server.server_port}", tmp_path)


async def test_executors_of_this_pod_are_deleted_whatever_they_do(
    server: Pods, api: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_LOOK_SECONDS", 0.01)
    server.add("r-worker-xyz34-exec-1", DRIVER)
    server.add("r-worker-xyz34-exec-2", DRIVER, "Running")
    server.add("r-worker-other-exec-1", "r-keygrouping-spark-driver-abc12-other", "Running")
    server.add("somebody-exec-1", "", "Running")
    server.add("r-producer", DRIVER, "Running", role="driver")
    server.slow = 4
    await leftovers.delete_leftovers(api, DRIVER)
    assert server.deleted == ["r-worker-xyz34-exec-1", "r-worker-xyz34-exec-2"]
    assert sorted(server.pods) == ["r-producer", "r-worker-other-exec-1", "somebody-exec-1"], "it waits for their end"


async def test_a_first_driver_deletes_nothing(server: Pods, api: Kubernetes) -> None:
    server.add("somebody-exec-1", "other", "Running")
    await leftovers.delete_leftovers(api, DRIVER)
    assert server.deleted == []


async def test_what_refuses_to_go_is_told_and_stops_no_start(
    server: Pods, api: Kubernetes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leftovers, "_LOOK_SECONDS", 0.001)
    server.add("r-worker-xyz34-exec-1", DRIVER)
    server.slow = 10_000
    with caplog.at_level(logging.WARNING):
        await leftovers.delete_leftovers(api, DRIVER)
    assert "still there" in caplog.text


async def test_missing_rights_are_told_and_stop_no_start(
    server: Pods, api: Kubernetes, caplog: pytest.LogCaptureFixture
) -> None:
    server.status = 403
    with caplog.at_level(logging.WARNING):
        await leftovers.delete_leftovers(api, DRIVER)
    assert "in this pod, if there are any: 403 pods is forbidden" in caplog.text


async def test_the_job_does_so_before_spark_starts(
    server: Pods, api: Kubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Started(Exception):
        """Spark would have started."""

    def create(settings: object) -> None:
        del settings
        assert server.deleted == ["r-worker-xyz34-exec-1"]
        raise Started

    server.add("r-worker-xyz34-exec-1", DRIVER)
    monkeypatch.setattr(cli, "Kubernetes", lambda: api)
    monkeypatch.setattr(session, "create", create)
    monkeypatch.setenv("POD_NAME", DRIVER)
    job = '{"aggregates": [{"name": "events", "op": "count"}]}'
    settings = SparkSettings(bootstrap_servers="unused:9092", checkpoint=str(tmp_path), job=job)
    with pytest.raises(Started):
        await cli.serve(settings, asyncio.Event())
