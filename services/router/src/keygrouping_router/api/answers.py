"""What the routes say of their answers in the OpenAPI document."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Query, Request

from keygrouping_router.api.examples import EXAMPLES
from keygrouping_router.models import Model

JSON = "application/json"
Responses = dict[int | str, dict[str, Any]]

_REASONS = {
    400: "What was sent can't be read: no JSON, or no ETag.",
    401: "The bearer token is missing or wrong.",
    404: "There is no such key, space or router.",
    412: "Somebody else changed it since: read it again, and try with its ETag.",
    413: "The body is too large.",
    422: "What was sent can't be used; the detail says why.",
    429: "Too many requests; `Retry-After` says when to try again.",
    503: "Not now; `Retry-After` says when to try again.",
}


def gives(*models: type[Model], headers: dict[str, Any] | None = None) -> Responses:
    """The answer with status 200: one of these shapes, with an example of each."""
    schemas = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    examples = {model.__name__: {"value": EXAMPLES[model]} for model in models}
    content = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}, "examples": examples}
    return {200: {"content": {JSON: content}, "headers": headers or {}}}


def problems(*statuses: int) -> Responses:
    """The problem details (RFC 9457) that a route may answer with."""
    return {status: _problem(status) for status in statuses}


def caller(request: Request) -> str:
    """Who changes something, for the history."""
    return f"api ({request.client.host})" if request.client else "api"


By = Annotated[str, Depends(caller)]
DryRunFlag = Annotated[bool, Query(alias="dry_run", description="only say what would change for the present traffic")]


def _problem(status: int) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    example = {"type": "about:blank", "title": title, "status": status, "detail": _REASONS[status]}
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        "description": _REASONS[status],
        "content": {"application/problem+json": {"schema": schema, "example": example}},
    }
