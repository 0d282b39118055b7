"""`/thresholds`: the settings of the grouping in force; to try them, to change them, and who changed them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Response
from keygrouping_service.http.openapi import problems
from pydantic import JsonValue

from keygrouping_router.api.answers import By, DryRunFlag, gives
from keygrouping_router.api.conditions import ETAG_HEADER, Expected, tag
from keygrouping_router.api.guard import Guard
from keygrouping_router.api.plane import Plane
from keygrouping_router.api.shapes import DryRun, History, Thresholds

MAX_HISTORY = 1000

Values = Annotated[
    dict[str, JsonValue],
    Body(max_length=100, description="settings by name, see `GET /thresholds`", examples=[{"check_interval": 30.0}]),
]


def thresholds_routes(plane: Plane, guard: Guard) -> APIRouter:
    """The settings of the grouping in force."""
    routes = APIRouter(tags=["thresholds"])
    changed = gives(Thresholds, DryRun, headers=ETAG_HEADER) | guard.refused_writes

    async def change(
        values: dict[str, JsonValue], dry_run: bool, expected: int | None, by: str, response: Response, partial: bool
    ) -> Thresholds | DryRun:
        if dry_run:
            return await plane.try_thresholds(values, partial=partial)
        thresholds = await plane.set_thresholds(values, partial=partial, expected=expected, by=by)
        return tag(response, thresholds, thresholds.version)

    @routes.get("/thresholds", responses=gives(Thresholds, headers=ETAG_HEADER))
    async def get_thresholds(response: Response) -> Thresholds:
        """All settings of the grouping in force that can be changed while it runs, with what they mean."""
        thresholds = await plane.thresholds()
        return tag(response, thresholds, thresholds.version)

    @routes.put("/thresholds", dependencies=guard.writing, responses=changed)
    async def put_thresholds(
        values: Values, expected: Expected, by: By, response: Response, dry_run: DryRunFlag = False
    ) -> Thresholds | DryRun:
        """Sets all settings; those that are not named get their defaults. They are kept over restarts."""
        return await change(values, dry_run, expected, by, response, partial=False)

    @routes.patch("/thresholds", dependencies=guard.writing, responses=changed)
    async def patch_thresholds(
        values: Values, expected: Expected, by: By, response: Response, dry_run: DryRunFlag = False
    ) -> Thresholds | DryRun:
        """Sets the settings that are named; the others stay as they are. They are kept over restarts."""
        return await change(values, dry_run, expected, by, response, partial=True)

    @routes.get("/thresholds/history", responses=gives(History) | problems(422, 503))
    async def get_history(
        limit: Annotated[int, Query(ge=1, le=MAX_HISTORY, description="most entries of the answer")] = 50,
    ) -> History:
        """The last changes of thresholds, grouping, workers and shadow: when, by whom, from what to what."""
        return await plane.history(limit)

    return routes
