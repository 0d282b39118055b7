"""As much of an API server as `helm` and `kubectl` need to install a chart, to test it, and to wait for it.

Objects are kept as they come. Pods of tests succeed at once, and deployments are rolled out, unless they are put there
otherwise.
"""

from __future__ import annotations

import base64
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

KINDS = {
    "v1": ["Pod", "Secret", "ConfigMap", "Service", "ServiceAccount", "PersistentVolumeClaim"],
    "apps/v1": ["Deployment", "StatefulSet"],
    "batch/v1": ["Job"],
    "rbac.authorization.k8s.io/v1": ["Role", "RoleBinding"],
    "networking.k8s.io/v1": ["NetworkPolicy"],
}


def plural(kind: str) -> str:
    return kind.lower()[:-1] + "ies" if kind.endswith("y") else kind.lower() + "s"


class ApiServer(ThreadingHTTPServer):
    """Holds objects by path, such as `/api/v1/namespaces/ns/pods/p`, and all requests that changed something.

    `failing` are names of pods and jobs that fail; `logs` is what pods have said.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, str] = {}
        self.changes: list[str] = []
        self.failing: set[str] = set()
        self.versions = itertools.count(1)

    def put(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        """Keeps an object, as a real server would complete it."""
        version = str(next(self.versions))
        item["metadata"] |= {"resourceVersion": version, "uid": item["metadata"].get("uid", f"u{version}")}
        if item["kind"] in ("Deployment", "StatefulSet"):
            many = item["spec"].setdefault("replicas", 1)
            numbers = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), many)
            item["metadata"]["generation"] = 1
            item["status"] = {"observedGeneration": 1, "currentRevision": "a", "updateRevision": "a", **numbers}
            if item["kind"] == "StatefulSet":
                item["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
        if item["kind"] in ("Pod", "Job"):
            failed = item["metadata"]["name"] in self.failing
            end = {"type": "Failed" if failed else "Complete", "status": "True", "reason": "BackoffLimitExceeded"}
            ended = {"phase": "Failed" if failed else "Succeeded", "conditions": [end]}
            item["status"] = item.get("status") or ended
        if item["kind"] == "Job":
            name = f"{item['metadata']['name']}-abcde"
            pod = {"apiVersion": "v1", "kind": "Pod", **item["spec"]["template"], "status": item["status"]}
            pod["metadata"] |= {"name": name, "namespace": "ns"}
            pod["metadata"]["labels"]["job-name"] = item["metadata"]["name"]
            self.put(f"/api/v1/namespaces/ns/pods/{name}", pod)
        self.objects[path] = item
        return item

    def config(self, folder: Path) -> Path:
        """A kubeconfig that leads here."""
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.server_port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}
        file = folder / "kubeconfig"
        head = {"apiVersion": "v1", "kind": "Config", "current-context": "c"}
        users = [{"name": "u", "user": {}}]
        file.write_text(json.dumps({**head, "clusters": [cluster], "contexts": [context], "users": users}))
        return file


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        path, query = unquote(asked.path).rstrip("/"), parse_qs(asked.query)
        if (known := _discovered(path)) is not None:
            self._answer(known)
        elif path.endswith("/log") and path.removesuffix("/log") in self.server.objects:
            self._answer(self.server.logs.get(path.removesuffix("/log").rpartition("/")[2], "said\n"))
        elif path in self.server.objects:
            self._answer(self.server.objects[path])
        elif _kind(path) is None:
            self._answer(_status(404, f"{path} not found"), 404)
        elif "watch" in query:
            self._watched(path, query)
        else:
            kind = str(_kind(path))
            items = list(self._selected(path, query))
            version = str(next(self.server.versions))
            head = {"kind": f"{kind}List", "apiVersion": _version(path), "metadata": {"resourceVersion": version}}
            self._answer({**head, "items": items})

    def _selected(self, path: str, query: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
        asked = [part.partition("=") for part in query.get("labelSelector", [""])[0].split(",") if "=" in part]
        fields = query.get("fieldSelector", [""])[0].split(",")
        named = [part.partition("=")[2] for part in fields if part.startswith("metadata.name=")]
        for place, item in list(self.server.objects.items()):
            found = item["metadata"].get("labels", {})
            labelled = all((found.get(name.rstrip("!")) == value) is not name.endswith("!") for name, _, value in asked)
            if place.rpartition("/")[0] == path and labelled and (not named or item["metadata"]["name"] in named):
                yield item

    def _watched(self, path: str, query: dict[str, list[str]]) -> None:
        events = [{"type": "ADDED", "object": item} for item in self._selected(path, query)]
        notes = {"k8s.io/initial-events-end": "true"}
        metadata = {"resourceVersion": str(next(self.server.versions)), "annotations": notes}
        end = {"kind": _kind(path), "apiVersion": _version(path), "metadata": metadata}
        events.append({"type": "BOOKMARK", "object": end})
        self._answer("".join(json.dumps(event) + "\n" for event in events), kind="application/json")

    def do_POST(self) -> None:
        item = self._body()
        path = f"{unquote(urlsplit(self.path).path)}/{item['metadata']['name']}"
        self.server.changes.append(f"POST {path}")
        if path in self.server.objects:
            self._answer(_status(409, f"{path} already exists", "AlreadyExists"), 409)
        else:
            self._answer(self.server.put(path, item), 201)

    def do_PUT(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.changes.append(f"PUT {path}")
        self._answer(self.server.put(path, self._body()))

    def do_PATCH(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.changes.append(f"PATCH {path}")
        self._answer(self.server.put(path, {**self.server.objects.get(path, {}), **self._body()}))

    def do_DELETE(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.changes.append(f"DELETE {path}")
        gone = self.server.objects.pop(path, None)
        self._answer(gone or _status(404, f"{path} not found"), 200 if gone else 404)

    def _body(self) -> dict[str, Any]:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if content.startswith(_PROTOBUF):
            return _secret(content)
        return dict(json.loads(content)) if content.startswith(b"{") else {}

    def _answer(self, content: Any, status: int = 200, kind: str = "") -> None:
        text = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind or ("text/plain" if isinstance(content, str) else "application/json"))
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


_PROTOBUF = b"k8s\0"


def _fields(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and bytes of a protobuf message's fields that have a length."""
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        number, place = _varint(content, place)
        if tag & 7 == 2:
            yield tag >> 3, content[place : place + number]
            place += number


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place


def _map(fields: list[tuple[int, bytes]], number: int) -> Iterator[tuple[bytes, bytes]]:
    for found, each in fields:
        if found == number:
            pair = dict(_fields(each))
            yield pair[1], pair[2]


def _secret(content: bytes) -> dict[str, Any]:
    """Helm keeps its releases as Secrets, and writes them as protobuf."""
    raw = dict(_fields(content.removeprefix(_PROTOBUF)))[2]
    fields = list(_fields(raw))
    metadata = list(_fields(dict(fields)[1]))
    name = dict(metadata)[1].decode()
    labels = {name.decode(): value.decode() for name, value in _map(metadata, 11)}
    data = {name.decode(): base64.b64encode(value).decode() for name, value in _map(fields, 2)}
    head = {"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1"}
    return {**head, "metadata": {"name": name, "namespace": "ns", "labels": labels}, "data": data}


def _status(code: int, message: str, reason: str = "NotFound") -> dict[str, Any]:
    head = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return {**head, "code": code, "message": message, "reason": reason}


def _kind(path: str) -> str | None:
    last = path.rpartition("/")[2]
    return next((kind for kinds in KINDS.values() for kind in kinds if plural(kind) == last), None)


def _version(path: str) -> str:
    return "v1" if path.startswith("/api/") else "/".join(path.split("/")[2:4])


def _place(version: str) -> str:
    return f"api/{version}" if "/" not in version else f"apis/{version}"


def _discovered(path: str) -> dict[str, Any] | None:
    groups = [version for version in KINDS if "/" in version]
    if path == "/version":
        return {"major": "1", "minor": "32", "gitVersion": "v1.32.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        named = [{"groupVersion": version, "version": version.split("/")[1]} for version in groups]
        listed = [
            {"name": each["groupVersion"].split("/")[0], "versions": [each], "preferredVersion": each} for each in named
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    if path == "/openapi/v3":
        return {
            "paths": {_place(version): {"serverRelativeURL": f"/openapi/v3/{_place(version)}"} for version in KINDS}
        }
    for version, kinds in KINDS.items():
        if path == f"/{_place(version)}":
            verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
            found = [{"name": plural(kind), "kind": kind, "namespaced": True, "verbs": verbs} for kind in kinds]
            return {"kind": "APIResourceList", "groupVersion": version, "resources": found}
        if path == f"/openapi/v3/{_place(version)}":
            return _openapi(version, kinds)
    return None


def _openapi(version: str, kinds: list[str]) -> dict[str, Any]:
    """Says that the server validates fields itself."""
    group, _, number = version.rpartition("/")
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("fieldValidation", "dryRun")]
    paths = {
        f"/{_place(version)}/namespaces/{{namespace}}/{plural(kind)}/{{name}}": {
            "patch": {
                "parameters": parameters,
                "x-kubernetes-group-version-kind": {"group": group, "version": number, "kind": kind},
                "responses": {},
            }
        }
        for kind in kinds
    }
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "1"}, "paths": paths}


@contextmanager
def api_server() -> Iterator[ApiServer]:
    """One on a free port."""
    with ApiServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
