"""The cluster of kubectl's context as the tests see it: kubectl, Helm, a release, and a pod to work from."""

from __future__ import annotations

import base64
import io
import json
import os
import shlex
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "keygrouping"
JOB = {"window": "10s", "lateness": "2s", "aggregates": [{"name": "events", "op": "count"}]}
TOOLBOX = "toolbox"
_TOOLS = "/tmp/tools"
_ORACLE = ("__init__", "comparison", "errors", "oracle", "records")


class ClusterError(Exception):
    """A command has failed; its own words."""


def ready(pods: list[dict[str, Any]]) -> bool:
    """Whether there are pods, and each is ready, has ended well, or is about to go."""
    return bool(pods) and all(map(_is_ready, pods))


def _is_ready(pod: Mapping[str, Any]) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    status = pod.get("status", {})
    conditions = {entry["type"]: entry["status"] for entry in status.get("conditions", [])}
    return bool(status.get("phase") == "Succeeded" or conditions.get("Ready") == "True")


def longest_gap(samples: list[tuple[float, int | None]]) -> float:
    """The longest time, in seconds, in which the count of events stood still or could not be asked for."""
    longest, last, since = 0.0, None, samples[0][0] if samples else 0.0
    for seconds, events in samples:
        longest = max(longest, seconds - since)
        if events is not None and events != last:
            last, since = events, seconds
    return longest


class Cluster:
    """Runs kubectl and Helm in one namespace.

    KUBECTL and HELM are commands that may have words of their own, such as a wrapper's.
    """

    def __init__(self, namespace: str, environment: Mapping[str, str] = os.environ) -> None:
        self.namespace = namespace
        self.kubectl_command = [*shlex.split(environment.get("KUBECTL", "kubectl")), "--namespace", namespace]
        self.helm_command = [*shlex.split(environment.get("HELM", "helm")), "--namespace", namespace]
        self.registry = environment.get("REGISTRY", "")
        self.exec = shlex.split(environment.get("CLUSTER_EXEC", ""))

    def kubectl(self, *arguments: str, data: bytes | None = None) -> str:
        """What kubectl prints; ClusterError if it fails."""
        return _run([*self.kubectl_command, *arguments], data)

    def helm(self, *arguments: str) -> str:
        """What Helm prints; ClusterError if it fails."""
        return _run([*self.helm_command, *arguments])

    def get(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        """The objects of a kind, by kubectl's selectors."""
        return list(json.loads(self.kubectl("get", kind, "--output", "json", *arguments))["items"])

    def until(self, condition: Callable[[], Any], seconds: float, what: str) -> float:
        """Waits until the condition is true; gives the seconds that it took."""
        begin = time.monotonic()
        while not _true(condition):
            if time.monotonic() - begin > seconds:
                raise ClusterError(f"not so after {seconds:.0f} s: {what}\n{self.kubectl('get', 'pods', '-o', 'wide')}")
            time.sleep(1)
        return time.monotonic() - begin


class Release:
    """An installed chart, and a pod in its namespace to work from."""

    def __init__(self, cluster: Cluster, name: str = "kg") -> None:
        self.cluster = cluster
        self.name = name
        self.full_name = f"{name}-keygrouping"
        self.router = f"http://{self.full_name}-router"
        self.producer = f"http://{self.full_name}-producer"

    # installing

    def install(self, values: Mapping[str, Any], *, chart: Path = CHART, wait: bool = True) -> float:
        """Installs or upgrades with these values; gives the seconds until all pods were ready."""
        own = {"image": {"registry": self.cluster.registry} if self.cluster.registry else {"pullPolicy": "Never"}}
        begin = time.monotonic()
        command = ["upgrade", "--install", self.name, str(chart), "--create-namespace", "--set-json"]
        self.cluster.helm(*command, assignments({**own, **values}))
        if wait:
            self.wait(420)
        return time.monotonic() - begin

    def wait(self, seconds: float) -> float:
        """Waits until all pods of the release are ready, and as many workers as W says."""
        return self.cluster.until(lambda: ready(self.pods()), seconds, "all pods are ready")

    def uninstall(self) -> list[str]:
        """Uninstalls and waits until all pods are gone; gives what is left of it, as `kind/name`.

        Pods of tests, such as the toolbox, stay.
        """
        self.cluster.helm("uninstall", self.name, "--wait", "--timeout", "5m")
        self.cluster.until(lambda: not self.pods(), 180, "all pods are gone")
        kinds = "all,configmaps,secrets,serviceaccounts,roles,rolebindings,networkpolicies,pvc"
        found = self.cluster.get(kinds, "--selector", self._selector())
        return sorted(f"{item['kind']}/{item['metadata']['name']}" for item in found)

    # pods

    def pods(self, component: str = "") -> list[dict[str, Any]]:
        """The release's pods, but for those of tests; of one component, or all."""
        return self.cluster.get("pods", "--selector", self._selector(component))

    def _selector(self, component: str = "") -> str:
        part = f"={component}" if component else "!=test"
        return f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component{part}"

    def delete_pod(self, name: str) -> float:
        """Deletes a pod; gives the seconds until there were as many again, and all of them ready."""
        before = len(self.pods())
        self.cluster.kubectl("delete", "pod", name, "--wait=false")

        def back() -> bool:
            pods = self.pods()
            return len(pods) >= before and ready(pods)

        return self.cluster.until(back, 300, f"another pod is there for {name}")

    def restart(self) -> float:
        """Restarts everything at once; gives the seconds until it was done and all pods were ready."""
        begin = time.monotonic()
        kinds, selector = ("deployments", "statefulsets"), f"app.kubernetes.io/instance={self.name}"
        for kind in kinds:
            self.cluster.kubectl("rollout", "restart", kind, "--selector", selector)
        for kind in kinds:
            self.cluster.kubectl("rollout", "status", kind, "--selector", selector, "--timeout=420s")
        self.wait(420)
        return time.monotonic() - begin

    # working from inside

    def open_toolbox(self, job: Mapping[str, Any] = JOB, **settings: str) -> None:
        """Starts the pod to work from, and puts the oracle into it."""
        self.cluster.kubectl("delete", "pod", TOOLBOX, "--ignore-not-found", "--wait=true")
        self.cluster.kubectl("apply", "--filename", "-", data=yaml.safe_dump(self.toolbox(job, settings)).encode())
        self.cluster.kubectl("wait", "--for=condition=Ready", f"pod/{TOOLBOX}", "--timeout=180s")
        self.cluster.kubectl("exec", "-i", TOOLBOX, "--", "tar", "-x", "-C", "/tmp", data=tools())

    def toolbox(self, job: Mapping[str, Any], settings: Mapping[str, str]) -> dict[str, Any]:
        """The pod to work from."""
        version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
        image = "/".join(part for part in (self.cluster.registry, f"keygrouping-load:{version}") if part)
        environment = {
            "KEYGROUPING_BOOTSTRAP_SERVERS": f"{self.full_name}-kafka:9092",
            "KEYGROUPING_JOB": json.dumps(job),
            "PYTHONPATH": _TOOLS,
            **settings,
        }
        labels = {"app.kubernetes.io/instance": self.name, "app.kubernetes.io/component": "test"}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": TOOLBOX, "labels": {"app.kubernetes.io/name": "keygrouping", **labels}},
            "spec": {
                "restartPolicy": "Never",
                "enableServiceLinks": False,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [
                    {
                        "name": TOOLBOX,
                        "image": image,
                        "command": ["sleep", "infinity"],
                        "env": [{"name": name, "value": value} for name, value in environment.items()],
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            },
        }

    def inside(self, *arguments: str) -> Any:
        """What a command of `inside.py` says."""
        command = ("env", *self._tokens(), "python", f"{_TOOLS}/inside.py", *arguments)
        return json.loads(self.cluster.kubectl("exec", TOOLBOX, "--", *command))

    def _tokens(self) -> Iterator[str]:
        """What allows changes, as assignments of variables; nothing of a chart that makes no tokens."""
        for secret in self.cluster.get("secrets", "--selector", f"app.kubernetes.io/instance={self.name}"):
            part, _, rest = secret["metadata"]["name"].removeprefix(f"{self.full_name}-").partition("-")
            if rest == "tokens":
                yield f"{part.upper()}_TOKEN={base64.b64decode(secret['data']['write']).decode()}"

    def started(self, *command: str) -> subprocess.Popen[str]:
        """A command in the toolbox, going on while the test does something else."""
        words = [*self.cluster.kubectl_command, "exec", TOOLBOX, "--", *command]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def load(self, rate: float, seconds: float, *options: str) -> subprocess.Popen[str]:
        """Events at a held rate; its outcome is JSON."""
        held = ("--rate", str(rate), "--seconds", str(seconds), "--delivery-timeout", "120", "--log-format", "json")
        return self.started("keygrouping-load", "events", *held, *options)

    def flowing_load(self, rate: float, seconds: float, *options: str) -> subprocess.Popen[str]:
        """As `load`, when the first of its events have been routed."""
        load = self.load(rate, seconds, *options)
        self.cluster.until(lambda: self.get("/keyspace?limit=0")["events"], 120, "events are routed")
        return load

    def stop_load(self, load: subprocess.Popen[str]) -> None:
        """Ends load before its time; what was sent until then stays."""
        self.inside("stop")
        load.communicate(timeout=60)

    def get(self, path: str) -> Any:
        """A GET of the router's."""
        return self._asked("GET", path)

    def put(self, path: str, body: Any) -> Any:
        """A PUT of the router's."""
        return self._asked("PUT", path, json.dumps(body))

    def _asked(self, method: str, path: str, body: str = "") -> Any:
        answer = self.inside("ask", method, f"{self.router}{path}", body)
        if answer["status"] != 200:
            raise ClusterError(f"{method} {path}: {answer}")
        return answer["body"]

    def check(self, seconds: float) -> Any:
        """Compares the results with the oracle's; see `inside.check`."""
        return self.inside("check", self.producer, str(seconds))

    def workers(self) -> tuple[int, int]:
        """W, and the worker pods that are ready: executors or pods of the native runner."""
        pods = self.pods("worker")
        return self.get("/workers")["workers"], len(pods) if ready(pods) else -1

    def wait_for_workers(self, count: int) -> float:
        """Waits until the router, and pods or executors, are at this number."""
        return self.cluster.until(lambda: self.workers() == (count, count), 240, f"W and worker pods are {count}")


def assignments(values: Mapping[str, Any]) -> str:
    """Values for Helm's `--set-json`: whole maps, name by name."""
    return ",".join(f"{name}={json.dumps(value)}" for name, value in values.items())


def tools() -> bytes:
    """What goes into the toolbox, as a tar."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(Path(__file__).with_name("inside.py"), "tools/inside.py")
        for name in _ORACLE:
            source = ROOT / "libs" / "local" / "src" / "keygrouping_local" / f"{name}.py"
            archive.add(source, f"tools/keygrouping_local/{name}.py")
    return content.getvalue()


def _run(command: list[str], data: bytes | None = None) -> str:
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    if done.returncode:
        raise ClusterError(
            f"{' '.join(command[:8])} ...: {done.stderr.decode().strip() or done.stdout.decode().strip()}"
        )
    return done.stdout.decode()


def _true(condition: Callable[[], Any]) -> bool:
    """A cluster that does not answer for a moment is one where it is not so yet."""
    try:
        return bool(condition())
    except (ClusterError, ValueError):
        return False
