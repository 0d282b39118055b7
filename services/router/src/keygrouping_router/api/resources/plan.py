"""`/plan`: the decision in force, and those before it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from keygrouping_service.http.openapi import problems

from keygrouping_router.api.answers import gives
from keygrouping_router.api.plane import Plane
from keygrouping_router.api.shapes import PlanHistory, PlanInForce
from keygrouping_router.limits import MAX_KEYS, TOP

MAX_PLANS = 1000


def plan_routes(plane: Plane) -> APIRouter:
    """The plans."""
    routes = APIRouter(tags=["plan"])

    @routes.get("/plan", responses=gives(PlanInForce) | problems(422))
    async def get_plan(
        keys: Annotated[int, Query(ge=0, le=MAX_KEYS, description="most keys of the answer")] = TOP,
    ) -> PlanInForce:
        """The plan in force: since when, made by whom, what it changed and cost, and how it fills the workers."""
        return await plane.plan(keys)

    @routes.get("/plan/history", responses=gives(PlanHistory) | problems(422, 503))
    async def get_plans(
        limit: Annotated[int, Query(ge=1, le=MAX_PLANS, description="most plans of the answer")] = 20,
    ) -> PlanHistory:
        """The last plans, newest first."""
        return await plane.plans(limit)

    return routes
