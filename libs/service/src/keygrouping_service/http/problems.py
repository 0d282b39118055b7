"""Errors of the HTTP interfaces as problem details (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from keygrouping_service.http.media import JSON, media_type, wrong_media
from keygrouping_service.http.openapi import operations_at
from keygrouping_service.observability import metrics

MEDIA_TYPE = "application/problem+json"

_NO_JSON = "the body is no JSON"
_UNPARSED = "There was an error parsing the body"
"""What FastAPI says of bodies that are no text, or nested too deep."""


class Problem(Exception):
    """An answer that says what is wrong; `members` are further members of the problem object."""

    def __init__(self, status: int, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.members = members


def describe(error: ValueError) -> str:
    """One line: what is wrong, and in which field."""
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        ": ".join([*([".".join(map(str, fault["loc"]))] if fault["loc"] else []), _plain(fault["msg"])])
        for fault in error.errors(include_url=False, include_input=False)
    )


def problem_response(
    status: int, detail: str, members: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The answer to a request that can't be served; counts it."""
    metrics.HTTP_PROBLEMS.labels(str(status)).inc()
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": _encodable(detail)}
    retry = {"Retry-After": "1"} if status == 503 else {}
    return JSONResponse(body | dict(members or {}), status, retry | dict(headers or {}), media_type=MEDIA_TYPE)


def answer_with_problems(app: FastAPI) -> None:
    """Makes every error answer of the app a problem object."""

    async def on_problem(_: Request, problem: Exception) -> JSONResponse:
        assert isinstance(problem, Problem)
        return problem_response(problem.status, problem.detail, problem.members)

    async def on_http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            return _wrong_method(request, error)
        detail = _NO_JSON if error.status_code == 400 and error.detail == _UNPARSED else str(error.detail)
        return problem_response(error.status_code, detail, headers=error.headers)

    async def on_invalid_request(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return _invalid(request, error.errors())

    async def on_defect(_: Request, __: Exception) -> JSONResponse:
        return problem_response(500, "the service has a defect here: its log says more")

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(Exception, on_defect)


def _wrong_method(request: Request, error: HTTPException) -> JSONResponse:
    """Starlette names the methods of the first route of this path alone."""
    documented = sorted(method.upper() for method in operations_at(request))
    allowed = ", ".join(documented) or (error.headers or {}).get("Allow", "")
    return problem_response(405, f"this path takes {allowed}, not {request.method}", headers={"Allow": allowed})


def _invalid(request: Request, faults: Sequence[Any]) -> JSONResponse:
    """400 for a body that is no JSON, 415 for one that is said to be something else, 422 for all other faults."""
    whole = [fault for fault in faults if fault["loc"][:1] == ("body",)]
    for fault in whole:
        if fault["type"] == "json_invalid":
            return problem_response(400, f"{_NO_JSON}, at character {fault['loc'][-1]}: {fault['ctx']['error']}")
    if any(fault["loc"] == ("body",) and fault["type"] == "missing" for fault in whole):
        return problem_response(400, f"{_NO_JSON}: there is none")
    media = media_type(request.headers)
    if any(fault["loc"] == ("body",) for fault in whole) and media != JSON:
        return problem_response(415, wrong_media(media, JSON))
    return problem_response(422, "; ".join(f"{'.'.join(map(str, f['loc']))}: {_plain(f['msg'])}" for f in faults))


def _encodable(detail: str) -> str:
    """What came as an escape of half a character in JSON goes back as one."""
    return detail.encode(errors="backslashreplace").decode()


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ")
