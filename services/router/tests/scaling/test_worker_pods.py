"""W and the number of worker pods: whoever changes one of them, both are equal afterwards."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import certifi
import pytest
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.api.shapes import WorkersChange
from keygrouping_router.scaling.statefulset import Scale, StatefulSetPods
from keygrouping_router.scaling.worker_pods import BY_PODS, WorkerPods
from keygrouping_service.kubernetes import Unreachable
from keygrouping_service.store.memory import MemoryStore

from ..planes import FakeTime, new_plane


class FakePods:
    """Pods that are there as soon as they are asked for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.uid = "first"

    def install(self) -> None:
        """Another StatefulSet of the same name: it begins with one pod."""
        self.number, self.uid = 1, f"after {self.uid}"

    async def read(self) -> Scale:
        return Scale(self.uid, self.number)

    async def scale(self, count: int) -> None:
        self.number = count

    async def close(self) -> None:
        pass


class Release:
    """Routers that share a store, and the pods of their workers."""

    def __init__(self, pods: int = 1) -> None:
        self.store = MemoryStore()
        self.pods = FakePods(pods)
        self.plane: ControlPlane

    async def start(self, workers: int) -> None:
        """A router (a new one, if there was one) whose settings say so many workers."""
        self.plane = new_plane(self.store, FakeTime(), most_workers=8, workers=workers)
        await self.plane.replica.start()
        self._keeper = WorkerPods(self.plane.replica, self.pods, self.plane.replica.store)

    async def put(self, workers: Any) -> None:
        await self.plane.set_workers(WorkersChange(workers=workers), expected=None, by="api")

    async def found(self) -> tuple[int, int]:
        """W and the pods, after two looks."""
        await self._keeper.look()
        await self._keeper.look()
        return (await self.plane.workers()).workers, self.pods.number


async def test_every_way_to_scale_ends_in_the_same_state() -> None:
    release = Release()
    await release.start(4)
    assert await release.found() == (4, 4), "a new release: the pods come"
    await release.put(3)
    assert await release.found() == (3, 3), "PUT /workers"
    release.pods.number = 5
    assert await release.found() == (5, 5), "kubectl scale"
    assert (await release.plane.history(1)).entries[0].by == BY_PODS
    await release.start(2)
    assert await release.found() == (2, 2), "helm upgrade"
    await release.start(2)
    release.pods.number = 6
    assert await release.found() == (6, 6), "kubectl scale, to another number than the settings'"
    await release.start(2)
    assert await release.found() == (6, 6), "a restart changes nothing"


async def test_what_was_scaled_while_no_router_ran_is_followed() -> None:
    release = Release()
    await release.start(4)
    await release.found()
    release.pods.number = 2
    await release.start(4)
    assert await release.found() == (2, 2)


@pytest.mark.parametrize("stored", [4, 6])
async def test_a_release_that_is_installed_again_has_as_many_workers_as_before(stored: int) -> None:
    release = Release()
    await release.start(4)
    await release.found()
    await release.put(stored)
    assert await release.found() == (stored, stored)
    release.pods.install()
    await release.start(4)
    assert await release.found() == (stored, stored), "one pod of a new StatefulSet is nobody's wish"
    release.pods.number = 3
    assert await release.found() == (3, 3), "what is scaled then, is"


async def test_a_release_that_is_installed_again_with_other_values_has_those() -> None:
    release = Release()
    await release.start(4)
    await release.found()
    release.pods.install()
    await release.start(2)
    assert await release.found() == (2, 2)


async def test_a_new_stateful_set_while_the_router_runs_changes_nothing() -> None:
    release = Release()
    await release.start(4)
    await release.found()
    release.pods.install()
    assert await release.found() == (4, 4)


async def test_with_auto_a_new_stateful_set_begins_with_as_many_pods_as_there_were() -> None:
    release = Release()
    await release.start(4)
    await release.put("auto")
    release.pods.number = 5
    await release.found()
    release.pods.install()
    assert await release.found() == (4, 4)


async def test_more_pods_than_partitions_stay_and_are_no_reason_to_scale() -> None:
    release = Release()
    await release.start(4)
    await release.found()
    release.pods.number = 11
    assert await release.found() == (8, 11)
    await release.put(7)
    assert await release.found() == (7, 7)


async def test_no_pods_are_a_pause() -> None:
    release = Release()
    await release.start(4)
    await release.found()
    release.pods.number = 0
    await release.put(5)
    assert await release.found() == (5, 0)
    release.pods.number = 3
    assert await release.found() == (3, 3)


async def test_with_auto_the_pods_decide() -> None:
    release = Release()
    await release.start(4)
    await release.found()
    await release.put("auto")
    release.pods.number = 6
    assert await release.found() == (4, 6), "W follows the members of the group, once they run"
    await release.put(2)
    assert await release.found() == (2, 2)


# the API server


class ApiServer(ThreadingHTTPServer):
    """The scale of one StatefulSet."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scale: dict[str, Any] = {"kind": "Scale", "metadata": {"uid": "u"}, "spec": {"replicas": 3}}
        self.status = 200
        self.asked: list[tuple[str, str, str | None, str | None]] = []


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.status == 200:
            self.server.scale["spec"] = json.loads(body)["spec"]
        self._answer()

    def _answer(self) -> None:
        asked = (self.command, self.path, self.headers["Authorization"], self.headers["Content-Type"])
        self.server.asked.append(asked)
        refused = {"kind": "Status", "message": 'statefulsets "w"\nis forbidden'}
        text = json.dumps(self.server.scale if self.server.status == 200 else refused).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
async def stateful_set(api: ApiServer, tmp_path: Path) -> Any:
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "namespace").write_text("ns")
    shutil.copy(certifi.where(), tmp_path / "ca.crt")
    pods = StatefulSetPods("w", f"http://127.0.0.1:{api.server_port}", tmp_path)
    yield pods
    await pods.close()


async def test_the_scale_of_a_stateful_set_is_read_and_set(
    api: ApiServer, stateful_set: StatefulSetPods, tmp_path: Path
) -> None:
    assert await stateful_set.read() == ("u", 3)
    (tmp_path / "token").write_text("two")
    await stateful_set.scale(5)
    assert await stateful_set.read() == ("u", 5)
    api.scale["spec"] = {}
    assert await stateful_set.read() == ("u", 0)
    path = "/apis/apps/v1/namespaces/ns/statefulsets/w/scale"
    assert api.asked[:2] == [
        ("GET", path, "Bearer one", None),
        ("PATCH", path, "Bearer two", "application/merge-patch+json"),
    ]


async def test_what_the_api_server_refuses_is_told_in_a_line(api: ApiServer, stateful_set: StatefulSetPods) -> None:
    api.status = 403
    with pytest.raises(Unreachable, match='StatefulSet w: 403 statefulsets "w" is forbidden'):
        await stateful_set.scale(5)


@pytest.mark.parametrize("answer", [{"spec": {"replicas": 3}}, {"metadata": {"uid": "u"}}, {"metadata": []}])
async def test_an_answer_that_is_no_scale_is_told(
    api: ApiServer, stateful_set: StatefulSetPods, answer: dict[str, Any]
) -> None:
    api.scale = answer
    with pytest.raises(Unreachable, match="StatefulSet w: the answer is no Scale with a uid"):
        await stateful_set.read()


async def test_an_api_server_that_is_away_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"StatefulSet w: .*No such file"):
        await StatefulSetPods("w", "http://127.0.0.1:1", tmp_path).read()
