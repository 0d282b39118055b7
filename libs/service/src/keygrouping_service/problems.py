"""Errors of the HTTP interfaces as problem details (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from keygrouping_service import metrics

MEDIA_TYPE = "application/problem+json"


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

    async def on_http_error(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return problem_response(error.status_code, str(error.detail), headers=error.headers)

    async def on_invalid_request(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        faults = [f"{'.'.join(map(str, fault['loc']))}: {_plain(fault['msg'])}" for fault in error.errors()]
        return problem_response(422, "; ".join(faults))

    async def on_defect(_: Request, __: Exception) -> JSONResponse:
        return problem_response(500, "the service has a defect here: its log says more")

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(Exception, on_defect)


def _encodable(detail: str) -> str:
    """What came as an escape of half a character in JSON goes back as one."""
    return detail.encode(errors="backslashreplace").decode()


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ")
