"""What every HTTP interface says of its refusals in its OpenAPI document."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field

Responses = dict[int | str, dict[str, Any]]

_REASONS = {
    400: "What was sent can't be read: no JSON, or no ETag.",
    401: "The bearer token is missing or wrong.",
    403: "A page of another site, or an address from which it isn't taken without a token.",
    404: "There is nothing of this name.",
    408: "The body has not come in time.",
    412: "Somebody else changed it since: read it again, and try with its ETag.",
    413: "The body is too large.",
    415: "The header Content-Type doesn't say that the body is JSON.",
    421: "The request is for a host that this server is not.",
    422: "What was sent can't be used; the detail says why.",
    429: "Too many requests; `Retry-After` says when to try again.",
    503: "Not now; `Retry-After` says when to try again.",
}


class ProblemDetails(BaseModel):
    """Why a request was not served (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="a URI that says which kind of problem; `about:blank`: what the status says")
    title: str = Field(description="the status in words")
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="what is wrong, and what to do")


def problems(*statuses: int) -> Responses:
    """The problem details (RFC 9457) that a route may answer with."""
    return {status: _problem(status) for status in statuses}


def complete(app: FastAPI) -> None:
    """Adds the shape of problem details to the document that the app gives at `/openapi.json`."""
    generated = app.openapi

    def completed() -> dict[str, Any]:
        document = generated()
        schema = ProblemDetails.model_json_schema(mode="serialization")
        document["components"]["schemas"]["Problem"] = schema | {"title": "Problem"}
        return document

    app.openapi = completed  # type: ignore[method-assign]


def operations_at(request: Request) -> dict[str, Any]:
    """What the document says of the path of a request, by method in lower case; empty if it isn't in there."""
    path = getattr(request.scope.get("route"), "path_format", None)
    found: dict[str, Any] = request.app.openapi()["paths"].get(path, {})
    return found


def _problem(status: int) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    example = {"type": "about:blank", "title": title, "status": status, "detail": _REASONS[status]}
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        "description": _REASONS[status],
        "content": {"application/problem+json": {"schema": schema, "example": example}},
    }
