"""`GET /keyspace` and `GET /keyspace/{key}`: what the router knows of its keys, and where one of them goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from keygrouping_service.openapi import problems
from keygrouping_service.problems import Problem
from pydantic import BaseModel, ConfigDict, Field
from starlette.convertors import StringConvertor, register_url_convertor

from keygrouping_router.api.answers import JSON, gives
from keygrouping_router.models import MAX_KEYS, KeyQuery, KeyReport, KeySpaceReport, Sort
from keygrouping_router.naming import BadKey, key_of, unquoted_key
from keygrouping_router.plane import Plane

MAX_OFFSET = 10_000_000

Replica = Annotated[
    str | None, Query(max_length=200, description="what this router alone knows; left out: all of them merged")
]


class Anything(StringConvertor):
    """The rest of a path, whatever is in it: Starlette's `path` ends at a newline."""

    regex = "(?s:.*)"


register_url_convertor("anything", Anything())


class KeySpaceParameters(BaseModel):
    """The query of `GET /keyspace`."""

    model_config = ConfigDict(extra="forbid")

    space: str | None = Field(default=None, max_length=100, description="only keys in the space of this name")
    limit: int = Field(default=20, ge=0, le=MAX_KEYS, description="most keys of the answer")
    offset: int = Field(default=0, ge=0, le=MAX_OFFSET, description="keys to pass over first")
    sort: Sort = Field(default="share", description="largest or newest first; `key`: in the order of their bytes")
    prefix: str = Field(
        default="", max_length=1000, description="only keys that begin with this text, or these bytes: `base64url:...`"
    )
    replica: str | None = Field(
        default=None, max_length=200, description="what this router alone knows; left out: all of them merged"
    )

    def query(self) -> KeyQuery:
        """What is asked of the plane; raises Problem."""
        prefix = _checked(unquoted_key, self.prefix.encode(errors="surrogatepass"))
        return KeyQuery(self.space, self.limit, self.offset, self.sort, prefix, self.replica)


def keyspace_routes(plane: Plane) -> APIRouter:
    """The KeySpace as a whole, and one key."""
    routes = APIRouter(tags=["keys"])

    @routes.get("/keyspace", response_model=KeySpaceReport, responses=gives(KeySpaceReport) | problems(404, 422))
    async def get_keyspace(parameters: Annotated[KeySpaceParameters, Query()]) -> Response:
        """What the router knows now: spaces, loads, and its keys with count, share, width and workers.

        All of it is merged over all routers that share a store. What this router has seen itself is at most two
        seconds old; what the others have seen is of the last whole interval.
        """
        report = await plane.keyspace(parameters.query())
        return Response(report.model_dump_json(), media_type=JSON)

    @routes.get("/keyspace/{key:anything}", responses=gives(KeyReport) | problems(404, 422))
    async def get_key(key: KeyInPath, replica: Replica = None) -> KeyReport:
        """Where a key goes and why, whether it was ever seen or not."""
        return await plane.key(key, replica)

    return routes


def key_in_path(
    request: Request,
    _: Annotated[
        str,
        Path(
            alias="key",
            description="the key, percent-encoded, or `base64url:` and its bytes; the `id` of an answer as it is",
            examples=["DE"],
        ),
    ],
) -> bytes:
    """The key's bytes; raises Problem.

    They are taken from the path as it was sent, for in the decoded one whatever is no UTF-8 is lost.
    """
    path: bytes = request.scope["raw_path"]
    if b"/keyspace/" not in path:
        raise Problem(404, "write /keyspace/ as it is: only the key may be percent-encoded")
    return _checked(key_of, path.split(b"/keyspace/", 1)[1].split(b"?", 1)[0])


KeyInPath = Annotated[bytes, Depends(key_in_path)]


def _checked(read: Callable[[bytes], bytes], quoted: bytes) -> bytes:
    try:
        return read(quoted)
    except BadKey as error:
        raise Problem(422, f"key: {error}") from None
