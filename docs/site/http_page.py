"""Writes docs/reference/http.md from the services' OpenAPI documents: `python docs/site/http_page.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI
from keygrouping_observer.api import observer_app
from keygrouping_observer.audit.report import LatestAudit
from keygrouping_observer.settings import ObserverSettings
from keygrouping_observer.snapshots import RecentSnapshots
from keygrouping_producer.api import event_routes, replay_routes
from keygrouping_producer.ingest import Ingest
from keygrouping_producer.replay import Replayer
from keygrouping_producer.settings import ProducerSettings
from keygrouping_router.api import router_app
from keygrouping_router.api.plane import Plane
from keygrouping_router.settings import RouterSettings
from keygrouping_service.http.app import create_app
from keygrouping_service.http.inspect_api import exporter_app
from keygrouping_service.settings import ApiSettings

PAGE = Path(__file__).parents[1] / "reference" / "http.md"
_GIVEN = {"bootstrap_servers": "kafka:9092", "job": '{"aggregates": [{"name": "events", "op": "count"}]}'}
_HEAD = """# HTTP interfaces

Made from the services' OpenAPI documents, which each gives at `/openapi.json`, and for reading and trying at `/docs`.
[The router's page](../api.md) explains its interface by examples; refusals are problem details (RFC 9457) there, too.

"""


def apps() -> dict[str, FastAPI]:
    """The app of each service that has an interface of its own; nothing stands behind them."""
    router = router_app(cast(Plane, None), RouterSettings.model_validate(_GIVEN))
    observer = observer_app(
        ObserverSettings.model_validate(_GIVEN), cast(RecentSnapshots, None), LatestAudit(), lambda: True
    )
    settings = ProducerSettings.model_validate({"bootstrap_servers": _GIVEN["bootstrap_servers"]})
    routes = (event_routes(settings, cast(Ingest, None)), replay_routes(settings, cast(Replayer, None)))
    return {
        "Router": router,
        "Observer": observer,
        "Exporter of `keygrouping inspect`": exporter_app(
            ApiSettings.model_validate({"bootstrap_servers": _GIVEN["bootstrap_servers"]}), lambda: None, lambda: True
        ),
        "Producer": create_app("keygrouping producer", lambda: True, *routes),
    }


def render() -> str:
    """The page."""
    parts = [_HEAD]
    for name, app in apps().items():
        parts.append(f"## {name}\n\n" + "".join(_service(app.openapi())))
    return "".join(parts).rstrip("\n") + "\n"


def _service(document: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _operation(method.upper(), path, operation)
    for name, schema in sorted(document.get("components", {}).get("schemas", {}).items()):
        if "properties" in schema:
            yield from _shape(name, schema)


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### `{method} {path}`\n\n{operation.get('description') or operation.get('summary', '')}\n\n"
    parameters = operation.get("parameters", ())
    if parameters:
        yield "| parameter | in | type | meaning |\n|---|---|---|---|\n"
        for given in parameters:
            meaning = given.get("description") or given["schema"].get("description", "")
            yield f"| `{given['name']}` | {given['in']} | {_type(given['schema'])} | {_cell(meaning)} |\n"
        yield "\n"
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        yield "Body: " + "; ".join(f"`{kind}`: {_type(each.get('schema', {}))}" for kind, each in body.items()) + "\n\n"
    yield "| answer | with |\n|---|---|\n"
    for status, answer in sorted(operation["responses"].items()):
        shapes = [shape for each in answer.get("content", {}).values() if (shape := _type(each.get("schema", {})))]
        yield f"| {status} | {_cell('; '.join([answer['description'], *dict.fromkeys(shapes)]))} |\n"
    yield "\n"


def _shape(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}\n\n{schema.get('description', '')}\n\n| member | type | meaning |\n|---|---|---|\n"
    for member, each in schema["properties"].items():
        needed = "" if member in schema.get("required", ()) else " (optional)"
        yield f"| `{member}` | {_type(each)}{needed} | {_cell(each.get('description', ''))} |\n"
    yield "\n"


def _type(schema: Mapping[str, Any]) -> str:
    """In words, as JSON schema says it."""
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[choice]))
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema.get("enum", [schema.get("const")]))
    kind = str(schema.get("type", ""))
    if kind == "array":
        return f"array of {_type(schema.get('items', {})) or 'anything'}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {_type(schema['additionalProperties']) or 'anything'}"
    return kind


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render())
