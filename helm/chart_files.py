"""Writes what follows from the chart: its schema and README, the renders of its examples, and the plain manifests.

`python helm/chart_files.py` writes all of it. Schema and README come from `values.yaml` and the programs' settings; the
rest needs `helm` (on the path, or named by HELM).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from keygrouping import grouping, job
from keygrouping.aggregate import OPS
from keygrouping.aggregate.registry import PLACE
from keygrouping_aggregator.settings import AggregatorSettings
from keygrouping_load.settings import EventLoadSettings, HttpLoadSettings
from keygrouping_observer.settings import ObserverSettings
from keygrouping_producer.settings import ProducerSettings
from keygrouping_router.settings import RouterSettings
from keygrouping_service.settings import ServiceSettings
from keygrouping_spark.settings import SparkSettings
from keygrouping_worker.settings import WorkerSettings

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "helm" / "keygrouping"
MANIFESTS = ROOT / "k8s"

SETTINGS: dict[str, type[ServiceSettings]] = {
    "settings": ServiceSettings,
    "producer.settings": ProducerSettings,
    "router.settings": RouterSettings,
    "worker.settings": WorkerSettings,
    "aggregator.settings": AggregatorSettings,
    "observer.settings": ObserverSettings,
    "spark.settings": SparkSettings,
    "load.events.settings": EventLoadSettings,
    "load.http.settings": HttpLoadSettings,
}
"""Where in the values a program's settings stand, and the class that knows their types, ranges and defaults."""

PARTS = (
    "producer",
    "router",
    "worker",
    "aggregator",
    "observer",
    "app",
    "inspect",
    "spark.driver",
    "spark.executor",
    "kafka.bundled",
    "redis.bundled",
    "load.events",
    "load.http",
)
"""Where in the values the names of `defaults` are known too."""

OPERATORS = (
    "monitoring.coreos.com/v1/ServiceMonitor",
    "monitoring.coreos.com/v1/PodMonitor",
    "monitoring.coreos.com/v1/PrometheusRule",
    "keda.sh/v1alpha1/ScaledObject",
    "sparkoperator.k8s.io/v1beta2/SparkApplication",
)
KUBERNETES = "1.28.0"
"""The oldest version that the chart is for."""

LOAD = "load-generators"
"""Folder of the plain manifests that put load on what the other folders deploy."""

_BADGES = "https://img.shields.io/badge"
_MADE = "# Made by helm/chart_files.py of values.yaml: change that.\n"
_KEY = re.compile(r"^( *)([A-Za-z_]\w*):")
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_COUNT = {"type": "integer", "minimum": 1}


def _object(required: Iterable[str] = (), /, **properties: Any) -> dict[str, Any]:
    needs = {"required": list(required)} if required else {}
    return {"type": "object", **needs, "properties": properties, "additionalProperties": False}


_QUANTITY = {
    "type": ["string", "number"],
    "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$",
    "exclusiveMinimum": 0,
}
_QUANTITIES = {"type": "object", "additionalProperties": _QUANTITY}
# Names of objects, of hosts, and of what is not empty, as the API server takes them.
_OBJECT_NAME = {"type": "string", "maxLength": 253, "pattern": r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"}
_HOST = {"type": "string", "maxLength": 253, "pattern": r"^(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"}
_LABEL = {"type": "string", "maxLength": 63, "pattern": r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$"}
_LABEL_NAME = r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
# Spark's settings that the chart makes of other values.
_SPARK_OWN = (
    r"^spark\.(master|submit\.deployMode|app\.name|driver\.(host|port|bindAddress|memory|extraJavaOptions|blockManager\.port)"
    r"|executor\.(instances|cores|memory|memoryOverhead)|blockManager\.port|sql\.(shuffle\.partitions|caseSensitive)"
    r"|sql\.session\.timeZone|kubernetes\.(namespace|driver\.pod\.name|container\.image(\.pullPolicy|\.pullSecrets)?)"
    r"|kubernetes\.executor\.(podNamePrefix|podTemplateFile|podTemplateContainerName|request\.cores|limit\.cores))$"
)


def _alike(schema: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Several properties of one kind."""
    return {name: {**schema} for name in names}


_YES_OR_NO = {"type": "boolean"}
_NOT_NEGATIVE = {"type": "integer", "minimum": 0}
_PROFILES = _alike({"type": "object"}, "seccompProfile", "appArmorProfile", "seLinuxOptions", "windowsOptions")

_KEDA = {
    "enabled": _YES_OR_NO,
    "minReplicas": _NOT_NEGATIVE,
    "maxReplicas": _COUNT,
    "lagThreshold": _COUNT,
    "pollingInterval": _COUNT,
    "cooldownPeriod": _NOT_NEGATIVE,
    "labels": {"$ref": "#/$defs/labels"},
}

DEFINITIONS = {
    "ingress": _object(
        ("enabled",),
        enabled={"type": "boolean"},
        className={"type": "string"},
        annotations=_TEXTS,
        hosts={
            "type": "array",
            "items": _object(("host",), host=_HOST, path={"type": "string", "pattern": "^/"}),
        },
        tls={
            "type": "array",
            "items": _object(secretName=_OBJECT_NAME, hosts={"type": "array", "items": _HOST}),
        },
    ),
    "httpRoute": _object(
        ("enabled",),
        enabled={"type": "boolean"},
        parentRefs={"type": "array", "items": {"type": "object", "required": ["name"]}},
        hostnames={"type": "array", "items": _HOST},
    ),
    "pdb": _object(
        ("enabled",),
        enabled={"type": "boolean"},
        maxUnavailable={"type": ["integer", "string"], "minimum": 1, "pattern": "^([1-9][0-9]?|100)%$"},
    ),
    "inspectedTopic": {
        **_object(
            ("topic",),
            topic={"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"},
            name={"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$"},
            key={"type": "string", "pattern": "^(record|header=.+|field=.+)$"},
            weight={"type": "string", "pattern": "^(1|size|field=.+)$"},
            workers={"type": "array", "minItems": 1, "items": _COUNT},
            window=_COUNT,
            every=_COUNT,
            top=_COUNT,
            hashKeys={"type": "boolean"},
            keyLabels={"type": "boolean"},
        ),
    },
    "hpa": _object(
        ("enabled",),
        enabled={"type": "boolean"},
        minReplicas=_COUNT,
        maxReplicas=_COUNT,
        targetCPUUtilizationPercentage=_COUNT,
    ),
    "keda": _object(("enabled",), **_KEDA),
    "kedaOfAnApp": _object(("enabled",), **_KEDA, allowIdleConsumers=_YES_OR_NO),
    "labels": {"type": "object", "patternProperties": {_LABEL_NAME: _LABEL}, "additionalProperties": False},
    "resources": _object(
        requests=_QUANTITIES, limits=_QUANTITIES, claims={"type": "array", "items": {"type": "object"}}
    ),
    "probe": _object(
        periodSeconds=_COUNT,
        failureThreshold=_COUNT,
        timeoutSeconds=_COUNT,
        successThreshold=_COUNT,
        initialDelaySeconds={"type": "integer", "minimum": 0},
        terminationGracePeriodSeconds=_COUNT,
    ),
    "podSecurityContext": _object(
        **_alike(_NOT_NEGATIVE, "runAsUser", "runAsGroup", "fsGroup"),
        runAsNonRoot=_YES_OR_NO,
        supplementalGroups={"type": "array", "items": _NOT_NEGATIVE},
        fsGroupChangePolicy={"enum": ["Always", "OnRootMismatch"]},
        **_PROFILES,
        **_alike({"type": "string"}, "supplementalGroupsPolicy", "seLinuxChangePolicy"),
        sysctls={"type": "array", "items": {"type": "object", "required": ["name", "value"]}},
    ),
    "securityContext": _object(
        **_alike(_NOT_NEGATIVE, "runAsUser", "runAsGroup"),
        **_alike(_YES_OR_NO, "runAsNonRoot", "allowPrivilegeEscalation", "readOnlyRootFilesystem", "privileged"),
        capabilities=_object(**_alike({"type": "array", "items": {"type": "string", "minLength": 1}}, "add", "drop")),
        procMount={"type": "string"},
        **_PROFILES,
    ),
    "affinity": _object(**_alike({"type": "object"}, "nodeAffinity", "podAffinity", "podAntiAffinity")),
    "objectName": _OBJECT_NAME,
    "objectNameOrNone": {**_OBJECT_NAME, "pattern": f"^$|{_OBJECT_NAME['pattern']}"},
    "quantity": _QUANTITY,
    "digest": {"type": "string", "pattern": "^(|sha256:[0-9a-f]{64})$"},
    "tag": {"type": "string", "pattern": "^(|[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})$"},
    "repository": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9._:/-]*[a-z0-9])?$"},
    "seconds": {"type": "string", "pattern": "^(|([0-9]+(ms|s|m|h))+)$"},
    "sparkConf": {
        "type": "object",
        "patternProperties": {r"^spark\.": {"type": "string"}, _SPARK_OWN: False},
        "additionalProperties": False,
    },
}


def _groupings() -> list[str]:
    """Those that can route a stream."""
    return [name for name in grouping.names() if not isinstance(grouping.create(name, 2), grouping.Offline)]


def _between() -> list[dict[str, Any]]:
    """What values far from each other ask of each other."""
    router = {"image": {"properties": {"repository": {"const": load_values()["router"]["image"]["repository"]}}}}
    ours = {"if": {"properties": {"router": {"properties": router}}}}
    named = [
        {
            "if": {"properties": {"name": {"const": name}}, "required": ["name"]},
            "then": {"properties": {"settings": _object(**grouping.schema(name))}},
        }
        for name in _groupings()
    ]
    known = {"properties": {"name": {"enum": _groupings()}}, "allOf": named}
    return [
        # Other images may know further groupings and operations.
        {**ours, "then": {"properties": {"router": {"properties": {"grouping": known}}, "job": _known_ops()}}},
    ]


def _known_ops() -> dict[str, Any]:
    """The schema of a job that has no other operations than the library's and classes by their places."""
    op = {"anyOf": [{"enum": list(OPS)}, {"pattern": f"^{PLACE.pattern}$"}]}
    return {"properties": {"aggregates": {"items": {"properties": {"op": op}}}}}


@dataclass(frozen=True)
class Entry:
    """A documented value: its path with dots, its default, what the README says, and what adds to its schema."""

    path: str
    default: Any
    description: str
    schema: Mapping[str, Any]


class ChartError(Exception):
    """Something in the chart doesn't fit; one line that says what and where."""


# values.yaml


def load_values() -> dict[str, Any]:
    """The chart's default values."""
    return dict(yaml.safe_load((CHART / "values.yaml").read_text()))


def over_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """All values, as Helm makes them of those given: maps go over maps, and null takes a value out."""
    return dict(_merged(load_values(), given))


def _merged(defaults: Any, given: Any) -> Any:
    if not (isinstance(given, dict) and isinstance(defaults, dict)):
        return given
    merged = {**defaults, **{name: _merged(defaults.get(name), item) for name, item in given.items()}}
    return {name: item for name, item in merged.items() if item is not None or name not in given}


def entries(text: str) -> list[Entry]:
    """The documented values of a values.yaml, in its order."""
    values = yaml.safe_load(text)
    found: list[Entry] = []
    place: list[tuple[int, str]] = []
    said: list[str] = []
    schema: dict[str, Any] = {}
    for line in text.splitlines():
        comment = line.strip()
        if comment.startswith("# @schema "):
            schema |= yaml.safe_load(comment.removeprefix("# @schema "))
        elif comment.startswith("# -- "):
            said = [comment.removeprefix("# -- ")]
        elif match := _KEY.match(line):
            indent = len(match[1])
            place = [*(step for step in place if step[0] < indent), (indent, match[2])]
            path = ".".join(name for _, name in place)
            if said:
                found.append(Entry(path, look_up(values, path), said[0], schema))
            said, schema = [], {}
    return found


def look_up(values: Mapping[str, Any], path: str) -> Any:
    """The value at a path with dots."""
    found: Any = values
    for name in path.split("."):
        found = found[name]
    return found


def snake(name: str) -> str:
    """`maxBatch` as a field of a settings class: `max_batch`."""
    return re.sub(r"(?=[A-Z])", "_", name).lower()


# The schema


def schema() -> dict[str, Any]:
    """JSON schema (draft 7) of the values: what is not in values.yaml is a mistake."""
    documented = {entry.path: entry for entry in entries((CHART / "values.yaml").read_text())}
    root = _describe("", load_values(), documented)
    # What Helm itself adds where the chart is part of another one.
    root["properties"]["global"] = {"type": "object"}
    shared = root["properties"]["defaults"]["properties"]
    for part in PARTS:
        properties = look_up({"properties": root["properties"]}, f"properties.{part.replace('.', '.properties.')}")
        for name in shared:
            properties["properties"].setdefault(name, {"$ref": f"#/properties/defaults/properties/{name}"})
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "keygrouping",
        **root,
        "allOf": _between(),
        "$defs": DEFINITIONS | job.schema()["$defs"],
    }


def _describe(path: str, value: Any, documented: Mapping[str, Entry]) -> dict[str, Any]:
    if path not in documented:
        if not isinstance(value, dict):
            raise ChartError(f"values.yaml: {path} has no description: write '# -- ...' above it")
        properties = {name: _describe(f"{path}.{name}".lstrip("."), item, documented) for name, item in value.items()}
        if path in SETTINGS:
            properties = {name: _setting(path, name, value[name], item) for name, item in properties.items()}
        if path == "job":
            properties = {name: _of_job(name, value[name], item) for name, item in properties.items()}
        # Helm takes out what somebody sets to null.
        return _object(
            [name for name, item in value.items() if not _may_be_missing(item, properties[name])], **properties
        )
    entry = documented[path]
    if "$ref" in entry.schema:
        return {**entry.schema}
    described = {"description": entry.description, **_type_of(path, value, entry), **entry.schema}
    if described["type"] == "object":
        described.setdefault("additionalProperties", False)
    return described


def _may_be_missing(value: Any, schema: Mapping[str, Any]) -> bool:
    return value is None or "null" in schema.get("type", ())


def _type_of(path: str, value: Any, entry: Entry) -> dict[str, Any]:
    kinds: list[tuple[type, str]] = [
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (dict, "object"),
    ]
    for kind, name in kinds:
        if isinstance(value, kind):
            return {"type": name}
    if "type" in entry.schema or path.rpartition(".")[0] in (*SETTINGS, "job"):
        return {"type": "null"}
    raise ChartError(f"values.yaml: {path} is null: write its type as '# @schema {{type: ...}}' above it")


def _setting(path: str, name: str, value: Any, described: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a program's setting, as its class has it; what is null in values.yaml may stay unset."""
    known = SETTINGS[path].model_json_schema()["properties"]
    if snake(name) not in known:
        raise ChartError(f"values.yaml: {path}.{name}: {SETTINGS[path].__name__} has no {snake(name)}")
    own = {key: item for key, item in known[snake(name)].items() if key not in ("title", "default", "description")}
    if "anyOf" in own:
        own["anyOf"] = [{k: v for k, v in choice.items() if k != "format"} for choice in own["anyOf"]]
    own.pop("format", None)
    if value is None and "anyOf" not in own:
        own = {"anyOf": [own, {"type": "null"}]}
    return {"description": described["description"], **own}


def _of_job(name: str, value: Any, described: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a member of the job, as the library has it; unset, it is not in the job."""
    own = {key: item for key, item in job.schema()["properties"][name].items() if key not in ("default", "description")}
    choices = own.get("anyOf", [own])
    said = {"description": described["description"]}
    if value is None:
        return {**said, "anyOf": [{"type": "null"}, *choices]}
    return {**described, **said, **own}


# The README


def readme() -> str:
    """README.md: README.md.gotmpl with the parts that helm-docs would put in."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    figures = {"Version": chart["version"], "AppVersion": chart["appVersion"]}
    badges = " ".join(f"![{name}: {value}]({_BADGES}/{name}-{value}-informational)" for name, value in figures.items())
    rows = [
        f"| {entry.path} | {_type_name(entry.default)} | {_shown(entry.default)} | {_cell(entry.description)} |"
        for entry in sorted(entries((CHART / "values.yaml").read_text()), key=lambda entry: entry.path)
    ]
    table = "\n".join(["| Key | Type | Default | Description |", "|-----|------|---------|-------------|", *rows])
    parts = {
        "chart.header": f"# {chart['name']}",
        "chart.badgesSection": badges,
        "chart.description": chart["description"],
        "chart.valuesSection": f"## Values\n\n{table}",
    }
    text = (CHART / "README.md.gotmpl").read_text()
    for name, content in parts.items():
        text = text.replace(f'{{{{ template "{name}" . }}}}', content)
    return text


def _type_name(default: Any) -> str:
    names = {bool: "bool", int: "int", float: "float", str: "string", list: "list", dict: "object"}
    return names.get(type(default), "string")


def _shown(default: Any) -> str:
    return "`nil`" if default is None else f"`{json.dumps(default, separators=(',', ':'), ensure_ascii=False)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# Renders


def find_helm() -> str | None:
    """Helm's program, if there is one."""
    return os.environ.get("HELM") or shutil.which("helm")


def render(release: str, namespace: str, *arguments: str) -> str:
    """All manifests of a release as YAML; ChartError with Helm's own words if it refuses the values."""
    command = [find_helm() or "helm", "template", release, str(CHART), "--namespace", namespace]
    known = [f"--api-versions={kind}" for kind in OPERATORS]
    done = subprocess.run(
        [*command, "--kube-version", KUBERNETES, *known, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ChartError(done.stderr.strip())
    # Helm 3 and 4 leave different numbers of empty lines between objects.
    return re.sub(r"\n+(---\n|\Z)", r"\n\1", done.stdout)


def objects(manifests: str) -> list[dict[str, Any]]:
    """The objects in a render."""
    return [item for item in yaml.safe_load_all(manifests) if item]


def examples() -> dict[Path, str]:
    """What each example renders to, by file."""
    return {
        values.parent / "rendered.yaml": _normalized(render("keygrouping", "keygrouping", "--values", str(values)))
        for values in sorted((CHART / "examples").glob("*/values.yaml"))
    }


_DASHBOARD = re.compile(r'(?m)^(  ([\w.-]+\.json): )"\{\\n  \\"annotations\\".*$')


def _normalized(manifests: str) -> str:
    """The manifests with a word in place of what is random, the content of Secrets, or stands in a file: dashboards."""
    manifests = _DASHBOARD.sub(r"\1<files/dashboards/\2>", manifests)
    documents = manifests.split("---\n")
    for index, document in enumerate(documents):
        if "\nkind: Secret\n" in document:
            head, _, content = document.partition("\ndata:\n")
            documents[index] = f"{head}\ndata:\n" + re.sub(r'(?m)^(  [\w.-]+): ".*"$', r"\1: <random>", content)
    return "---\n".join(documents)


# Plain manifests


def manifests() -> dict[Path, str]:
    """The kustomize base and overlays, by file: each overlay's files turn the base into what its values render to."""
    base = plain("base")
    files = _folder_files("base", base)
    load = {key: item for key, item in plain(LOAD).items() if _component(item).startswith("load-")}
    files |= _folder_files(LOAD, load)
    for overlay in sorted((MANIFESTS / "overlays").glob("*/values.yaml")):
        files |= _overlay_files(overlay.parent, base, plain(f"overlays/{overlay.parent.name}"))
    return files


Objects = dict[tuple[str, str], dict[str, Any]]


def plain(folder: str) -> Objects:
    """What the values of `k8s/<folder>` render to, as plain objects by kind and name."""
    found: Objects = {}
    for item in objects(render("keygrouping", "keygrouping", "--values", str(MANIFESTS / folder / "values.yaml"))):
        if _component(item) != "test":
            found[item["kind"], item["metadata"]["name"]] = without_helm(item)
    return found


def without_helm(item: Mapping[str, Any]) -> dict[str, Any]:
    """An object without the marks that only Helm reads; its namespace is kustomize's to set."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "namespace"}
    dropped = ("helm.sh/chart", "app.kubernetes.io/managed-by")
    metadata["labels"] = {key: value for key, value in metadata["labels"].items() if key not in dropped}
    annotations = {k: v for k, v in metadata.get("annotations", {}).items() if not k.startswith("helm.sh/")}
    metadata.pop("annotations", None)
    return {**item, "metadata": metadata | ({"annotations": annotations} if annotations else {})}


def _component(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["labels"]["app.kubernetes.io/component"])


def _folder_files(folder: str, items: Objects) -> dict[Path, str]:
    files = {MANIFESTS / folder / _file_name(key): _yaml(item) for key, item in items.items()}
    files[MANIFESTS / folder / "kustomization.yaml"] = _kustomization(sorted(path.name for path in files), [])
    return files


def _overlay_files(folder: Path, base: Objects, wanted: Objects) -> dict[Path, str]:
    files: dict[Path, str] = {}
    patches: list[dict[str, Any]] = []
    for key in sorted(base):
        kind, name = key
        patch = _removal(base[key]) if key not in wanted else list(difference(base[key], wanted[key]))
        if patch:
            file = folder / "patches" / _file_name(key)
            files[file] = _yaml(patch)
            target = {} if key not in wanted else {"target": {"kind": kind, "name": name}}
            patches.append({"path": f"patches/{file.name}", **target})
    added = sorted(set(wanted) - set(base))
    files |= {folder / "resources" / _file_name(key): _yaml(wanted[key]) for key in added}
    own = sorted(path.name for path in folder.glob("*.yaml") if path.name not in ("values.yaml", "kustomization.yaml"))
    resources = ["../../base", *own, *(f"resources/{_file_name(key)}" for key in added)]
    files[folder / "kustomization.yaml"] = _kustomization(resources, patches)
    return files


def _removal(item: Mapping[str, Any]) -> dict[str, Any]:
    identity = {key: item[key] for key in ("apiVersion", "kind")}
    return {**identity, "metadata": {"name": item["metadata"]["name"]}, "$patch": "delete"}


def difference(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """JSON patch (RFC 6902) that turns one document into another; lists of other lengths are replaced whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            here = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in after:
                yield {"op": "remove", "path": here}
            elif name not in before:
                yield {"op": "add", "path": here, "value": after[name]}
            else:
                yield from difference(before[name], after[name], here)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from difference(old, new, f"{path}/{index}")
    elif before != after:
        yield {"op": "replace", "path": path, "value": after}


def _kustomization(resources: list[str], patches: list[dict[str, Any]]) -> str:
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": "keygrouping"}
    return _yaml({**head, "resources": resources, **({"patches": patches} if patches else {})})


def _file_name(key: tuple[str, str]) -> str:
    kind, name = key
    return f"{name.removeprefix('keygrouping-')}-{kind.lower()}.yaml"


def _yaml(content: object) -> str:
    return _MADE + yaml.safe_dump(content, sort_keys=False, width=120)


# All of it


def documents() -> dict[Path, str]:
    """Schema and README, by file."""
    return {
        CHART / "values.schema.json": json.dumps(schema(), indent=2, ensure_ascii=False) + "\n",
        CHART / "README.md": readme(),
    }


def _write(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def stale_manifests(files: Iterable[Path]) -> list[Path]:
    """Files below k8s/ that were made once and are no more."""
    found = (path for path in MANIFESTS.rglob("*.yaml") if path.read_text().startswith(_MADE))
    return sorted(set(found) - set(files))


def main() -> int:
    """Writes all files; gives the exit code."""
    try:
        _write(documents())
        if find_helm() is None:
            sys.stderr.write("helm is not installed: examples and plain manifests stay as they are\n")
            return 1
        _write(examples())
        plain = manifests()
    except ChartError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _write(plain)
    for path in stale_manifests(plain):
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
