"""The router's own HTTP routes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from keygrouping_router.keyspace import TOP, KeySpaceView


def keyspace_routes(view: KeySpaceView) -> APIRouter:
    """`GET /keyspace`: grouping, workers, loads, λ, and the hottest keys with their widths."""
    routes = APIRouter()

    @routes.get("/keyspace")
    async def keyspace(limit: Annotated[int, Query(ge=0, le=TOP)] = 20) -> dict[str, Any]:
        return view.as_json(limit)

    return routes
