"""The OpenAPI document is complete and true: a real control plane answers whatever it allows as it says."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, cast

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from keygrouping_router.api import router_app
from keygrouping_router.api.examples import EXAMPLES
from keygrouping_router.api.plane import Plane
from keygrouping_router.api.shapes import GroupingChange, Model, OverrideChange, ShadowChange, WorkersChange
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from ..planes import settings_of
from ..real_api import real_app

ENDLESS = "/events"
COMPILING = 120.0
"""Seconds that a switch to a grouping whose kernels were never compiled may take."""
OPERATIONS = [
    (method, path)
    for path, methods in router_app(cast(Plane, None), settings_of()).openapi()["paths"].items()
    for method in methods
    if path != ENDLESS
]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return asyncio.run(real_app()).openapi()


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(f"{m} {path}", found) for path, methods in document["paths"].items() for m, found in methods.items()]


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(ids) == len(set(ids)) > 15
    for name, operation in operations(document):
        assert operation["description"], name
        assert set(operation["tags"]) <= tags, name
        assert all(parameter.get("description") for parameter in operation.get("parameters", [])), name
        for status, response in operation["responses"].items():
            assert response["description"], (name, status)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    referred = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert referred == document["components"]["schemas"].keys()


def test_every_refusal_is_documented_as_a_problem(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        refusals = {status: found for status, found in operation["responses"].items() if status >= "400"}
        for status, found in refusals.items():
            starting = "readyz" in name and status == "503"
            kinds = {"application/json"} if starting else {"application/problem+json"}
            assert found["content"].keys() == kinds, (name, status)
        if operation["tags"] != ["health"]:
            assert "429" in refusals, name
        if name.startswith(("put", "patch", "delete")):
            assert {"400", "412", "413", "422", "503"} <= refusals.keys(), name
        assert "422" in refusals, name


def test_every_answer_and_body_has_an_example(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        bodies = [found["content"] for status, found in operation["responses"].items() if status == "200"]
        bodies += [operation["requestBody"]["content"]] if "requestBody" in operation else []
        for content in bodies:
            for kind, described in content.items():
                schema = described.get("schema", {})
                schema = document["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], schema)
                assert described.keys() | schema.keys() & {"example", "examples"}, (name, kind)


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
def test_every_example_is_what_it_is_an_example_of(model: type[Model]) -> None:
    parsed = model.model_validate(EXAMPLES[model])
    partial = model in (WorkersChange, GroupingChange, ShadowChange, OverrideChange)
    assert parsed.model_dump(mode="json", exclude_unset=partial) == EXAMPLES[model]


def test_tokens_are_in_the_document_where_they_are_needed(document: dict[str, Any], tmp_path: Any) -> None:
    assert "securitySchemes" not in document["components"]
    (tmp_path / "tokens").write_text("alice write secret")
    guarded = asyncio.run(real_app(api_token_file=tmp_path / "tokens")).openapi()
    for name, operation in operations(guarded):
        writes = name.startswith(("put", "patch", "delete"))
        assert ("security" in operation) == ("401" in operation["responses"]) == writes, name


NASTY: list[tuple[str, str, bytes]] = [
    ("PATCH", "/thresholds", b'{"\\ud800": 1}'),
    ("PATCH", "/thresholds", b'{"half_life": "\\ud800"}'),
    ("PATCH", "/thresholds", b'{"half_life": {"\\ud800": ["\\ud800"]}}'),
    ("PATCH", "/thresholds", b'{"half_life": NaN}'),
    ("PATCH", "/thresholds", b'{"half_life": 1e999}'),
    ("PATCH", "/thresholds", b'{"half_life": ' + b"9" * 400 + b"}"),
    ("PATCH", "/thresholds", b'{"half_life": ' + b"9" * 5000 + b"}"),
    ("PATCH", "/thresholds", b'{"half_life": ' + b"9" * 20 + b"}"),
    ("PATCH", "/thresholds?dry_run=true", b'{"half_life": -1e-320}'),
    ("PUT", "/grouping", b'{"name": "\\ud800"}'),
    ("PUT", "/grouping", b'{"name": "pkg", "settings": {"choices": "\\ud800"}}'),
    ("PUT", "/grouping", b'{"name": "pkg", "settings": {"choices": ' + b"9" * 100 + b"}}"),
    ("PUT", "/grouping", b'{"name": "fish", "settings": {"epoch_events": ' + b"9" * 20 + b"}}"),
    ("PUT", "/shadow", b'{"groupings": [{"name": "pkg", "settings": {"\\ud800": 1}}]}'),
    ("PUT", "/workers", b'{"workers": 1e999}'),
    ("PUT", "/workers?dry_run=true", b'{"workers": 65}'),
    ("PUT", "/workers", b'{"workers": 2, "capacities": {"9999": 1}}'),
    ("GET", "/keyspace?replica=%00%0a", b""),
    ("GET", "/%6beyspace/DE", b""),
]


@pytest.mark.parametrize(("method", "path", "body"), NASTY)
async def test_what_no_schema_foresees_is_refused_all_the_same(api: Any, method: str, path: str, body: bytes) -> None:
    transport = httpx.ASGITransport(api.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
        answer = await client.request(method, path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 404, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.fixture(scope="module")
def api() -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", asyncio.run(real_app()))


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_app_answers_as_the_document_says(api: Any, mode: GenerationMode, method: str, path: str) -> None:
    operation = api[path][method.upper()]
    changes = method in ("put", "patch", "delete")
    # Whether a change can be made depends on what is in force, which no schema says.
    unchecked: list[Any] = [positive_data_acceptance] if changes else []
    # Whatever is wrong with a body, a wrong version is told first.
    headers = {"If-Match": "*"} if changes and mode is GenerationMode.NEGATIVE else None
    if mode is GenerationMode.NEGATIVE and not operation.body and not any(operation.iter_parameters()):
        return

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode, headers=headers))
    def is_true(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(excluded_checks=unchecked, timeout=COMPILING)

    is_true()
