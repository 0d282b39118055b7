"""Errors of the HTTP interface as problem details (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from keygrouping_producer import metrics


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


def answer_with_problems(app: FastAPI) -> None:
    """Makes every error answer of the app a problem object."""

    async def on_problem(_: Request, problem: Exception) -> JSONResponse:
        assert isinstance(problem, Problem)
        return _answer(problem.status, problem.detail, problem.members)

    async def on_http_error(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return _answer(error.status_code, str(error.detail), {}, dict(error.headers or {}))

    async def on_invalid_request(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        faults = [f"{'.'.join(map(str, fault['loc']))}: {_plain(fault['msg'])}" for fault in error.errors()]
        return _answer(422, "; ".join(faults), {})

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)


def _answer(status: int, detail: str, members: dict[str, Any], headers: dict[str, str] | None = None) -> JSONResponse:
    metrics.REFUSED.labels(str(status)).inc()
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **members}
    retry = {"Retry-After": "1"} if status == 503 else {}
    return JSONResponse(body, status, {**(headers or {}), **retry}, media_type="application/problem+json")


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ")
