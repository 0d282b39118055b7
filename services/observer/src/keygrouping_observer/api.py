"""The observer's own HTTP route."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from keygrouping_observer.snapshots import KEPT, Board


def distribution_routes(board: Board) -> APIRouter:
    """`GET /distribution`: λ, STD_DEV, DIST_COST, throughput, lag and latency of the last intervals and the run."""
    routes = APIRouter()

    @routes.get("/distribution")
    async def distribution(limit: Annotated[int, Query(ge=0, le=KEPT)] = 10) -> dict[str, Any]:
        return board.as_json(limit)

    return routes
