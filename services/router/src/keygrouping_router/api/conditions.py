"""The version of all that can be set, as ETag in answers and as If-Match in requests."""

from __future__ import annotations

import re
from typing import Annotated, TypeVar

from fastapi import Depends, Header, Response
from keygrouping_service.http.problems import Problem

Answer = TypeVar("Answer")

_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_NUMBER = re.compile(r"[0-9]{1,18}")

ETAG_HEADER = {
    "ETag": {
        "description": "version of all that can be set, for `If-Match`",
        "schema": {"type": "string", "examples": ['"7"']},
    }
}


def tag(response: Response, answer: Answer, version: int) -> Answer:
    """The answer, with its ETag in the header."""
    response.headers["ETag"] = f'"{version}"'
    return answer


def expected_version(
    if_match: Annotated[
        str | None,
        Header(
            description="change it only if this is the present version, else 412; `*` or left out: whatever it is",
            examples=['"7"'],
            json_schema_extra={"pattern": r'^(\*|"[0-9]{1,18}")$'},
        ),
    ] = None,
) -> int | None:
    """The version that a request is meant for; None if any will do. Raises Problem for what is no ETag of ours."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = _TAG.fullmatch(if_match.strip())
    if not found:
        raise Problem(400, 'If-Match: give one ETag as it came, such as "7", or *')
    weak, value = found.groups()
    if weak or not _NUMBER.fullmatch(value):
        raise Problem(412, f"If-Match: {if_match.strip()} is no version of this: read it again for its ETag")
    return int(value)


Expected = Annotated[int | None, Depends(expected_version)]
