"""What docs/security.md says of the chart, told by its renders: each line there is true of the defaults."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import chart_files
import pytest
import yaml
from chart_files import CHART
from keygrouping_local.ports import free_ports
from keygrouping_service.tokens import parse

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]
Helm = Callable[..., subprocess.CompletedProcess[str]]

CASES = sorted(CHART.glob("ci/*-values.yaml"))
each_case = pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)

GENERATED = {"r-keygrouping-redis", "r-keygrouping-router-tokens", "r-keygrouping-producer-tokens"}
PROMETHEUS = {
    "namespaceSelector": {},
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
}
COMPONENT = "app.kubernetes.io/component"
PAGE = " ".join((CHART.parents[1] / "docs" / "security.md").read_text().split())


def of_kind(objects: Objects, kind: str) -> dict[str, dict[str, Any]]:
    return {item["metadata"]["name"]: item for item in objects if item["kind"] == kind}


def pods(objects: Objects) -> dict[str, dict[str, Any]]:
    """The specs of all pods that the objects make, by the name of their first container."""
    found = []
    for item in objects:
        if item["kind"] == "Pod":
            found.append(item["spec"])
        elif item["kind"] == "SparkApplication":
            found += [item["spec"][role]["template"]["spec"] for role in ("driver", "executor")]
        elif item["kind"] == "ConfigMap" and "executor.yaml" in item["data"]:
            found.append(yaml.safe_load(item["data"]["executor.yaml"])["spec"])
        elif "template" in item.get("spec", {}):
            found.append(item["spec"]["template"]["spec"])
    return {pod["containers"][0]["name"]: pod for pod in found}


def mounted(pod: dict[str, Any]) -> dict[str, set[str]]:
    """The Secrets that a pod mounts, and the keys that it sees of each."""
    volumes = (volume["secret"] for volume in pod.get("volumes", []) if "secret" in volume)
    return {volume["secretName"]: {item["key"] for item in volume["items"]} for volume in volumes}


def content(secret: dict[str, Any]) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}


# passwords and tokens


def test_passwords_and_tokens_are_there_by_default_and_differ_at_each_installation(helm: str) -> None:
    del helm
    made = [of_kind(chart_files.objects(chart_files.render("r", "ns")), "Secret") for _ in range(2)]
    assert set(made[0]) == {*GENERATED, "r-keygrouping-spark-auth"}
    for name, secret in made[0].items():
        for key, value in content(secret).items():
            assert value != content(made[1][name])[key]
            assert all(len(word) == 40 for word in value.split() if not word.startswith(("r-", "read", "write")))
    for part in ("router", "producer"):
        kept = content(made[0][f"r-keygrouping-{part}-tokens"])
        tokens, faults = parse(kept["tokens"])
        assert [(token.name, token.role) for token in tokens] == [("r-read", "read"), ("r-write", "write")]
        assert faults == []
        assert kept["tokens"].split()[2::3] == [kept["read"], kept["write"]]


@each_case
def test_secrets_are_files_and_never_in_the_environment(render: Render, case: Path) -> None:
    for item in render(case):
        if item["kind"] == "Secret":
            continue
        text = json.dumps(item)
        # A user name may be in a Secret, too; it is none.
        assert re.findall(r'"secretKeyRef": \{"name": "([^"]+)", "key": "(?!username)', text) == []
        assert '"secretRef"' not in text


@each_case
def test_each_part_sees_only_the_keys_of_secrets_that_it_needs(render: Render, case: Path) -> None:
    for name, pod in pods(render(case)).items():
        for secret, keys in mounted(pod).items():
            files = [f"/{key}" for key in keys]
            told = " ".join(
                json.dumps(container.get(field, "")) for container in pod["containers"] for field in ("env", "command")
            )
            if not secret.endswith("-spark-auth"):
                assert all(file in told for file in files), (name, secret, keys)


def test_by_default_nobody_but_router_and_redis_sees_the_password_of_redis(render: Render) -> None:
    seen = {name: set(mounted(pod)) for name, pod in pods(render()).items()}
    assert {name for name, secrets in seen.items() if "r-keygrouping-redis" in secrets} == {"redis", "router"}
    assert {name for name, secrets in seen.items() if "r-keygrouping-spark-auth" in secrets} == {
        "spark-driver",
        "worker",
    }
    keys = {name: mounted(pod).get("r-keygrouping-router-tokens", set()) for name, pod in pods(render()).items()}
    assert {name: held for name, held in keys.items() if held} == {"router": {"tokens"}}
    keys = {name: mounted(pod).get("r-keygrouping-producer-tokens", set()) for name, pod in pods(render()).items()}
    assert {name: held for name, held in keys.items() if held} == {"producer": {"tokens"}, "probe": {"write"}}


def env(pod: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in pod["containers"][0]["env"]}


def test_changes_and_events_need_a_token_by_default(render: Render) -> None:
    found = pods(render())
    assert env(found["router"])["KEYGROUPING_API_TOKEN_FILE"] == "/etc/keygrouping/api/tokens"
    assert env(found["producer"])["KEYGROUPING_API_TOKEN_FILE"] == "/etc/keygrouping/producer-api/tokens"
    assert env(found["probe"])["KEYGROUPING_PROBE_TOKEN_FILE"] == "/etc/keygrouping/producer-api/write"
    assert env(found["router"])["KEYGROUPING_STORE_PASSWORD_FILE"] == "/etc/keygrouping/redis/password"


def test_one_value_closes_the_reads_and_the_release_reads_on(render: Render) -> None:
    closed = pods(render(None, "router.settings.apiReads=closed", "load.http.enabled=true"))
    assert env(closed["router"])["KEYGROUPING_ROUTER_API_READS"] == "closed"
    readers = {"observer": "OBSERVER_ROUTER", "spark-driver": "SPARK_ROUTER", "load-http": "HTTPLOAD"}
    for name, prefix in readers.items():
        assert env(closed[name])[f"KEYGROUPING_{prefix}_TOKEN_FILE"] == "/etc/keygrouping/api/read"
        assert mounted(closed[name])["r-keygrouping-router-tokens"] == {"read"}, "and nobody gets a token that writes"


def test_an_observer_with_closed_reads_has_its_tokens_without_routers_too(render: Render) -> None:
    for more in ([], ["router.settings.apiReads=closed"]):
        objects = render(None, "runner=native", "stages=combine", "observer.settings.apiReads=closed", *more)
        observer = pods(objects)["observer"]
        assert mounted(observer)["r-keygrouping-router-tokens"] == {"tokens"}
        assert "r-keygrouping-router-tokens" in of_kind(objects, "Secret")


def test_tokens_can_be_left_out(render: Render) -> None:
    objects = render(None, "router.auth.enabled=false", "producer.auth.enabled=false")
    assert set(of_kind(objects, "Secret")) == {"r-keygrouping-redis", "r-keygrouping-spark-auth"}
    assert not any("TOKEN_FILE" in name for pod in pods(objects).values() for name in env_names(pod))


def env_names(pod: dict[str, Any]) -> list[str]:
    return [entry["name"] for container in pod["containers"] for entry in container.get("env", [])]


def test_with_secrets_of_ones_own_a_render_is_the_same_each_time(helm: str) -> None:
    del helm
    own = (
        "secrets.generate=false,redis.auth.existingSecret=a,router.auth.existingSecret=b,"
        "producer.auth.existingSecret=c,spark.auth.existingSecret=d"
    )
    once, again = (chart_files.render("r", "ns", "--set", own) for _ in range(2))
    assert once == again
    objects = chart_files.objects(once)
    assert of_kind(objects, "Secret") == {}
    assert {secret for pod in pods(objects).values() for secret in mounted(pod)} == {"a", "b", "c", "d"}


def test_the_pages_commands_make_what_its_values_name(render: Render, tmp_path: Path) -> None:
    text = (chart_files.ROOT / "docs" / "security.md").read_text()
    (values,) = re.findall(r"^```yaml\n(.*?)^```", text, re.S | re.M)
    (shell,) = (block for block in re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M) if "create secret" in block)
    (tmp_path / "values.yaml").write_text(values)
    objects = render(tmp_path / "values.yaml")
    assert of_kind(objects, "Secret") == {}
    made = made_by(shell, tmp_path)
    asked = {secret: keys for pod in pods(objects).values() for secret, keys in mounted(pod).items()}
    assert set(asked) == set(made)
    assert all(keys <= set(made[secret]) for secret, keys in asked.items())


@pytest.mark.usefixtures("render")
def test_plain_manifests_find_what_the_readme_makes(tmp_path: Path) -> None:
    text = (chart_files.MANIFESTS / "README.md").read_text()
    made = made_by("\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M)), tmp_path)
    for folder in ("base", "overlays/laptop", "overlays/combine", "overlays/production", "load-generators"):
        for pod in pods([*chart_files.plain(folder).values()]).values():
            own = {secret: keys for secret, keys in mounted(pod).items() if secret.startswith("keygrouping-")}
            assert set(own) <= set(made), folder
            assert all(keys <= set(made[secret]) for secret, keys in own.items())


KUBECTL = """#!/bin/sh
for word; do printf '%s\\0' "$word"; done >>"$TOLD"
printf '\\n\\0' >>"$TOLD"
"""


def made_by(shell: str, folder: Path) -> dict[str, dict[str, str]]:
    """The Secrets that these commands make, by name; their tokens are such."""
    program = folder / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    told = folder / "told"
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TOLD": str(told)}
    subprocess.run(["bash", "-euc", shell], env=environment, check=True)
    made = {}
    for call in told.read_text().split("\0\n\0"):
        words = call.split("\0")
        if "secret" in words:
            literals = [word.removeprefix("--from-literal=") for word in words if word.startswith("--from-literal=")]
            made[words[words.index("generic") + 1]] = dict(literal.split("=", 1) for literal in literals)
    for secret in made.values():
        assert all(len(value) >= 64 for value in secret.values())
        if "tokens" in secret:
            tokens, faults = parse(secret["tokens"])
            assert ([token.role for token in tokens], faults) == (["read", "write"], [])
            assert all(secret[role] in secret["tokens"] for role in ("read", "write"))
    return made


# upgrades: what the cluster holds is kept


class _Cluster(BaseHTTPRequestHandler):
    """As much of an API server as Helm asks when it renders."""

    secrets: ClassVar[dict[str, dict[str, Any]]]
    resources: ClassVar[list[dict[str, Any]]] = [
        {"name": "secrets", "namespaced": True, "kind": "Secret", "verbs": ["get", "list"]}
    ]
    workloads: ClassVar[list[dict[str, Any]]] = [
        {"name": "statefulsets", "namespaced": True, "kind": "StatefulSet", "verbs": ["get", "list"]}
    ]
    told: ClassVar[dict[str, dict[str, Any]]] = {
        "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": resources},
        "/apis/apps/v1": {"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": workloads},
        "/openapi/v3": {"paths": {}},
    }

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        name = path.removeprefix("/api/v1/namespaces/ns/secrets/")
        answer = self.told.get(path) or self.secrets.get(name)
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        body = json.dumps(answer or missing).encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@contextlib.contextmanager
def cluster_with(secrets: dict[str, dict[str, str]], folder: Path) -> Iterator[Path]:
    """A cluster whose namespace `ns` holds these Secrets; gives the file that leads to it."""
    held = {
        name: {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": "ns"},
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
        }
        for name, data in secrets.items()
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Cluster", (_Cluster,), {"secrets": held}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    file = folder / "kubeconfig"
    address = f"http://127.0.0.1:{server.server_address[1]}"
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": {"server": address}}],
                "contexts": [{"name": "c", "context": {"cluster": "c"}}],
                "current-context": "c",
            }
        )
    )
    try:
        yield file
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def upgraded(secrets: dict[str, dict[str, str]], folder: Path) -> dict[str, dict[str, str]]:
    """The Secrets after an upgrade of a release whose namespace holds these."""
    with cluster_with(secrets, folder) as kubeconfig:
        text = chart_files.render(
            *("r", "ns", "--dry-run=server", "--is-upgrade", "--disable-openapi-validation"),
            *("--kubeconfig", str(kubeconfig)),
        )
    return {name: content(secret) for name, secret in of_kind(chart_files.objects(text), "Secret").items()}


def test_an_upgrade_keeps_what_was_made(helm: str, tmp_path: Path) -> None:
    del helm
    made = upgraded({}, tmp_path)
    assert set(made) == {*GENERATED, "r-keygrouping-spark-auth"}, "of a release that had none"
    assert upgraded(made, tmp_path) == made


def test_an_upgrade_keeps_what_a_user_has_changed(helm: str, tmp_path: Path) -> None:
    del helm
    made = upgraded({}, tmp_path)
    name = "r-keygrouping-router-tokens"
    changed = {"tokens": "alice write a-token\n", "read": "no-more", "write": "no-more", "more": "of the user"}
    assert upgraded(made | {name: changed}, tmp_path)[name] == changed, "a revoked token does not come back"
    half = {"tokens": "alice write a-token\n", "read": "a-reader"}
    fixed = upgraded(made | {name: half}, tmp_path)[name]
    assert fixed["tokens"] == f"alice write a-token\nr-write write {fixed['write']}\n"


@pytest.mark.parametrize("own", ["", "router.auth.existingSecret=own,producer.auth.existingSecret=own"])
def test_the_notes_say_where_the_tokens_are(run_helm: Helm, tmp_path: Path, own: str) -> None:
    chart = shutil.copytree(CHART, tmp_path / "chart")
    templates = chart / "templates"
    # `helm template` leaves the notes out, and `helm install` asks for a cluster.
    text = f'{{{{ define "notes" }}}}{(templates / "NOTES.txt").read_text()}{{{{ end }}}}'
    (templates / "notes.yaml").write_text(f'{text}\nkind: Notes\nnotes: {{{{ include "notes" . | toJson }}}}\n')
    given = ("--namespace", "ns", "--kube-version", chart_files.KUBERNETES, "--set", own)
    done = run_helm("template", "r", str(chart), *given, "--show-only", "templates/notes.yaml")
    assert done.returncode == 0, done.stderr
    notes = yaml.safe_load(done.stdout)["notes"]
    named = re.findall(r"(\w+)=\$\(kubectl -n ns get secret (\S+) -o jsonpath='\{\.data\.(\w+)\}'", notes)
    made = [
        ("PRODUCER_TOKEN", "r-keygrouping-producer-tokens", "write"),
        ("TOKEN", "r-keygrouping-router-tokens", "write"),
    ]
    assert named == (made if not own else [("PRODUCER_TOKEN", "own", "write"), ("TOKEN", "own", "tokens")])
    calls = [line for line in notes.splitlines() if "-X PUT" in line or "/events" in line]
    assert len(calls) == 2 and all('-H "Authorization: Bearer $' in call for call in calls)
    assert "secrets.generate=false" in notes
    assert "networkPolicy.apiFrom" in notes


# Redis, as it is started


def test_redis_takes_the_password_of_its_file_whatever_is_in_it(render: Render, tmp_path: Path) -> None:
    program, client = shutil.which("redis-server"), shutil.which("redis-cli")
    if program is None or client is None:
        pytest.skip("redis-server is not installed")
    container = pods(render())["redis"]["containers"][0]
    password = "a\"b\\c 'd' $HOME `id` #e"
    (tmp_path / "password").write_text(f"{password}\n")
    (port,) = free_ports(1)

    def here(command: list[str], extra: str = "") -> list[str]:
        text = command[2].replace("/etc/keygrouping/redis", str(tmp_path))
        return [*command[:2], text.replace("redis-cli", f"redis-cli -p {port}").replace("END\nprotected", extra)]

    started = here(container["command"], f"END\nport {port}\ndir {tmp_path}\nprotected")
    with subprocess.Popen(started, stdout=subprocess.DEVNULL) as redis:
        try:
            assert ponged(here(container["readinessProbe"]["exec"]["command"]))
            refused = subprocess.run([client, "-p", str(port), "ping"], capture_output=True, text=True, check=False)
            assert "NOAUTH" in refused.stdout
            arguments = Path(f"/proc/{redis.pid}/cmdline").read_text()
            environment = Path(f"/proc/{redis.pid}/environ").read_text()
            assert 'a"b' not in arguments + environment
        finally:
            redis.terminate()


def ponged(probe: list[str], seconds: float = 60) -> bool:
    """Whether the probe succeeds in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return True
        time.sleep(0.1)
    return False


# Spark


@pytest.mark.parametrize("mode", ["client", "operator"])
def test_spark_knows_its_executors_by_a_secret(render: Render, mode: str) -> None:
    objects = render(None, f"spark.mode={mode}")
    if mode == "client":
        conf = of_kind(objects, "ConfigMap")["r-keygrouping-spark-driver"]["data"]["spark-defaults.conf"]
        settings = dict(line.split(maxsplit=1) for line in conf.splitlines())
    else:
        (application,) = of_kind(objects, "SparkApplication").values()
        settings = application["spec"]["sparkConf"]
    assert settings["spark.authenticate"] == "true"
    file = settings["spark.authenticate.secret.file"]
    for name in ("spark-driver", "worker"):
        mounts = {mount["mountPath"] for mount in pods(objects)[name]["containers"][0]["volumeMounts"]}
        assert any(file.startswith(f"{mount}/") for mount in mounts), name
    assert not any(name.startswith("spark.authenticate.secret") and not name.endswith("file") for name in settings)


def test_the_driver_may_do_with_pods_what_it_does_and_nothing_else(render: Render) -> None:
    (role,) = of_kind(render(), "Role").values()
    verbs = ["get", "list", "watch", "create", "patch", "delete", "deletecollection"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]
    assert f"with Spark the driver, with rights on pods only ({', '.join(verbs)})" in PAGE


def test_routers_may_do_nothing_but_scale_their_own_workers(render: Render) -> None:
    (role,) = of_kind(render(CHART / "ci" / "native-values.yaml"), "Role").values()
    scale = {"apiGroups": ["apps"], "resources": ["statefulsets/scale"], "resourceNames": ["r-keygrouping-worker"]}
    verbs = ["get", "patch"]
    assert role["rules"] == [{**scale, "verbs": verbs}]
    assert f"the routers, with {' and '.join(verbs)} of the scale of the one StatefulSet of workers" in PAGE


# policies


def peers(policy: dict[str, Any], port: int | str) -> list[dict[str, Any]]:
    """From where the policy lets in what comes to that port."""
    rules = policy["spec"].get("ingress", [])
    return [peer for rule in rules if {"port": port} in rule["ports"] for peer in rule["from"]]


def own_parts(found: list[dict[str, Any]]) -> set[str]:
    """The components of this release among the peers."""
    selectors = [peer["podSelector"]["matchLabels"] for peer in found if set(peer) == {"podSelector"}]
    ours = [selector for selector in selectors if selector.get("app.kubernetes.io/instance") == "r"]
    return {selector[COMPONENT] for selector in ours}


def test_policies_are_on_and_let_in_the_release_and_prometheus_alone(render: Render) -> None:
    policies = of_kind(render(), "NetworkPolicy")
    called_by = {
        "router": {"observer", "spark-driver", "load-http", "test"},
        "producer": {"load-http", "test"},
        "observer": {"test"},
        "spark-driver": {"test"},
    }
    for part, callers in called_by.items():
        found = peers(policies[f"r-keygrouping-{part}"], 8080)
        assert own_parts(found) == callers
        assert [peer for peer in found if "namespaceSelector" in peer] == [PROMETHEUS]
    assert own_parts(peers(policies["r-keygrouping-redis"], "redis")) == {"router"}
    assert peers(policies["r-keygrouping-worker"], 8080) == [], "an executor has no HTTP"
    assert own_parts(peers(policies["r-keygrouping-kafka"], "kafka")) == {
        *("kafka", "producer", "router", "observer", "worker", "aggregator", "spark-driver", "load-events", "test")
    }


def test_exporters_reach_the_bundled_kafka(render: Render) -> None:
    policies = of_kind(render(None, "inspect.topics[0].topic=orders"), "NetworkPolicy")
    assert "inspect-orders" in own_parts(peers(policies["r-keygrouping-kafka"], "kafka"))


@each_case
def test_no_policy_lets_in_all_pods_of_other_namespaces(render: Render, case: Path) -> None:
    for name, policy in of_kind(render(case), "NetworkPolicy").items():
        for rule in policy["spec"].get("ingress", []):
            assert rule["ports"] and rule["from"], name
            for peer in rule["from"]:
                assert peer.get("podSelector") or peer.get("namespaceSelector") or "ipBlock" in peer, name


def test_only_who_asks_the_api_server_gets_out_of_the_cluster(render: Render) -> None:
    for values, asking in ((None, {"spark-driver"}), (CHART / "ci" / "native-values.yaml", {"router"})):
        policies = of_kind(render(values), "NetworkPolicy")
        out = {
            policy["spec"]["podSelector"]["matchLabels"][COMPONENT]
            for policy in policies.values()
            for rule in policy["spec"]["egress"]
            if "to" not in rule and {port["port"] for port in rule["ports"]} != {53}
        }
        assert out == asking


OUTSIDE = "kafka.bundled.enabled=false,redis.bundled.enabled=false,kafka.external.bootstrapServers="


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        ("a:9098\\,b:19098,redis.external.url=redis://u:p%40@r/0", {9098, 19098, 6379}),
        ("a:9098\\, b:9098,redis.external.url=rediss://r.example.com:6390", {9098, 6390}),
        (
            "a:9098,kafka.external.ports={9198},redis.external.url=redis://r:1,redis.external.ports={2}",
            {9098, 9198, 1, 2},
        ),
        ("a:9098,redis.external.url=redis+sentinel://:p@r:26380\\,s/main/0", {9098, 26380, 26379, 6379}),
        ("a:9098,redis.external.url=rediss+cluster://r:7000\\,s:7001", {9098, 7000, 7001}),
        ("a:9098,router.replicas=1", {9098}),
    ],
)
def test_policies_let_the_routers_call_the_ports_of_the_servers_outside(
    render: Render, values: str, ports: set[int]
) -> None:
    policy = of_kind(render(None, OUTSIDE + values), "NetworkPolicy")["r-keygrouping-router"]
    assert {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]} - {53} == ports


def test_ports_of_api_server_and_object_store_are_said(render: Render) -> None:
    given = "networkPolicy.apiServerPorts={8443},networkPolicy.objectStorePorts={9000},spark.checkpoint.uri=s3a://b/f"
    policies = of_kind(render(None, given), "NetworkPolicy")
    rules = {
        part: {port["port"] for rule in policies[f"r-keygrouping-{part}"]["spec"]["egress"] for port in rule["ports"]}
        for part in ("worker", "spark-driver")
    }
    assert {8443, 9000} <= rules["spark-driver"] and not {443, 6443} & rules["spark-driver"]
    assert 9000 in rules["worker"] and 8443 not in rules["worker"]


@each_case
def test_what_one_part_may_call_lets_it_in(render: Render, case: Path) -> None:
    policies = of_kind(render(case), "NetworkPolicy").values()
    by_part = {policy["spec"]["podSelector"]["matchLabels"][COMPONENT]: policy for policy in policies}
    names = {9092: "kafka", 6379: "redis"}
    for caller, policy in by_part.items():
        for rule in policy["spec"]["egress"]:
            for target in own_parts(rule.get("to", [])) & set(by_part):
                for port in (entry["port"] for entry in rule["ports"]):
                    closed = caller == "test" and not peers(by_part[target], 8080)
                    assert closed or caller in own_parts(peers(by_part[target], names.get(port, port))), (
                        f"{caller} calls {target}:{port} and is kept out"
                    )


def test_those_who_may_call_the_api_are_named(render: Render) -> None:
    policies = of_kind(render(CHART / "ci" / "all-options-values.yaml"), "NetworkPolicy")
    controller = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}
    for part in ("router", "producer", "observer"):
        assert controller in peers(policies[f"r-keygrouping-{part}"], 8080)
    for part in ("worker", "aggregator"):
        assert controller not in peers(policies[f"r-keygrouping-{part}"], 8080)
    assert {"podSelector": {"matchLabels": {"app": "shop"}}} in peers(policies["r-keygrouping-kafka"], "kafka")


# the first installation


IN_A_CLUSTER = ("--api-versions", "v1/Pod")
"""What makes a render look like an installation."""


def test_an_installation_without_images_says_what_to_build_and_push(helm: str) -> None:
    del helm
    with pytest.raises(chart_files.ChartError) as refused:
        chart_files.render("r", "ns", *IN_A_CLUSTER)
    said = str(refused.value)
    assert "`make images push REGISTRY=registry.example.com/team`" in said
    assert "--set image.registry=registry.example.com/team" in said
    assert "--set image.pullPolicy=Never" in said


@pytest.mark.parametrize(
    "where",
    [
        "image.registry=registry.example.com/team",
        "image.pullPolicy=Never",
        "router.image.repository=registry.example.com/keygrouping-router",
        "router.image.tag=abc",
        f"router.image.digest=sha256:{64 * 'a'}",
    ],
)
def test_an_installation_that_says_where_the_images_are_goes_on(helm: str, where: str) -> None:
    del helm
    assert chart_files.objects(chart_files.render("r", "ns", *IN_A_CLUSTER, "--set", where))


def test_an_upgrade_is_not_stopped_for_images_that_run(helm: str) -> None:
    del helm
    assert chart_files.objects(chart_files.render("r", "ns", *IN_A_CLUSTER, "--is-upgrade"))
