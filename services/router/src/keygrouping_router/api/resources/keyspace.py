"""`GET /keyspace` and `GET /keyspace/{key}`: what the router knows of its keys, and where one of them goes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from keygrouping_service.http.openapi import problems
from pydantic import BaseModel, ConfigDict, Field

from keygrouping_router.api.answers import JSON, gives
from keygrouping_router.api.paths import KeyOfKeyspace, checked
from keygrouping_router.api.plane import Plane
from keygrouping_router.api.shapes import KeyReport, KeySpaceReport
from keygrouping_router.knowledge.keyspace import KeyQuery, Sort
from keygrouping_router.limits import MAX_KEYS
from keygrouping_router.naming import unquoted_key

MAX_OFFSET = 10_000_000

Replica = Annotated[
    str | None, Query(max_length=200, description="what this router alone knows; left out: all of them merged")
]


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
        prefix = checked(unquoted_key, self.prefix.encode(errors="surrogatepass"))
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
    async def get_key(key: KeyOfKeyspace, replica: Replica = None) -> KeyReport:
        """Where a key goes and why, whether it was ever seen or not."""
        return await plane.key(key, replica)

    return routes
