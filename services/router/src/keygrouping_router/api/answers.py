"""What the routes say of their answers in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query, Request
from keygrouping_service.http.audit import caller_of
from keygrouping_service.http.openapi import Responses

from keygrouping_router.api.examples import EXAMPLES
from keygrouping_router.api.shapes import Model

JSON = "application/json"


def gives(*models: type[Model], headers: dict[str, Any] | None = None) -> Responses:
    """The answer with status 200: one of these shapes, with an example of each."""
    schemas = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    examples = {model.__name__: {"value": EXAMPLES[model]} for model in models}
    content = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}, "examples": examples}
    return {200: {"content": {JSON: content}, "headers": headers or {}}}


def caller(request: Request) -> str:
    """Who changes something, for the history: the token's name, if tokens are asked for, and the address."""
    known = [caller_of(request), request.client.host if request.client else None]
    told = ", ".join(each for each in known if each is not None)
    return f"api ({told})" if told else "api"


By = Annotated[str, Depends(caller)]
DryRunFlag = Annotated[bool, Query(alias="dry_run", description="only say what would change for the present traffic")]
