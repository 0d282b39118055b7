"""Keys in paths, which may be any bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

from fastapi import Depends, Path, Request
from keygrouping_service.http.problems import Problem
from starlette.convertors import StringConvertor, register_url_convertor

from keygrouping_router.naming import BadKey, key_of


class Anything(StringConvertor):
    """The rest of a path, whatever is in it: Starlette's `path` ends at a newline."""

    regex = "(?s:.*)"


register_url_convertor("anything", Anything())

_Given: TypeAlias = Annotated[
    str,
    Path(
        alias="key",
        description="the key, percent-encoded, or `base64url:` and its bytes; the `id` of an answer as it is",
        examples=["DE"],
    ),
]


def _key_behind(prefix: str) -> Callable[[Request, str], bytes]:
    """Reads the key behind this; it raises Problem.

    It is taken from the path as it was sent, for in the decoded one whatever is no UTF-8 is lost.
    """
    before = prefix.encode()

    def key_in_path(request: Request, _: _Given) -> bytes:
        path: bytes = request.scope["raw_path"]
        if before not in path:
            raise Problem(404, f"write {prefix} as it is: only the key may be percent-encoded")
        return checked(key_of, path.split(before, 1)[1].split(b"?", 1)[0])

    return key_in_path


KeyOfKeyspace = Annotated[bytes, Depends(_key_behind("/keyspace/"))]
KeyOfOverrides = Annotated[bytes, Depends(_key_behind("/overrides/"))]


def checked(read: Callable[[bytes], bytes], quoted: bytes) -> bytes:
    """What it reads; raises Problem."""
    try:
        return read(quoted)
    except BadKey as error:
        raise Problem(422, f"key: {error}") from None
