"""`/grouping`: how keys are spread over the workers, and a switch to another way."""

from __future__ import annotations

from fastapi import APIRouter, Response

from keygrouping_router.api.answers import By, DryRunFlag, gives
from keygrouping_router.api.conditions import ETAG_HEADER, Expected, tag
from keygrouping_router.api.guard import Guard
from keygrouping_router.api.plane import Plane
from keygrouping_router.api.shapes import DryRun, GroupingChange, GroupingReport


def grouping_routes(plane: Plane, guard: Guard) -> APIRouter:
    """The grouping in force."""
    routes = APIRouter(tags=["grouping"])

    @routes.get("/grouping", responses=gives(GroupingReport, headers=ETAG_HEADER))
    async def get_grouping(response: Response) -> GroupingReport:
        """The grouping in force with its settings, and all others with theirs."""
        report = await plane.grouping()
        return tag(response, report, report.version)

    @routes.put(
        "/grouping",
        dependencies=guard.writing,
        responses=gives(GroupingReport, DryRun, headers=ETAG_HEADER) | guard.refused_writes,
    )
    async def put_grouping(
        change: GroupingChange, expected: Expected, by: By, response: Response, dry_run: DryRunFlag = False
    ) -> GroupingReport | DryRun:
        """Routes by another grouping from now on, without a restart; results stay exact.

        With `observe_only` the router goes by key hash, and reports what the grouping would bring.
        """
        if dry_run:
            return await plane.try_grouping(change)
        report = await plane.set_grouping(change, expected=expected, by=by)
        return tag(response, report, report.version)

    return routes
