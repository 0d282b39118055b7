"""`/workers`: how many there are, how they are loaded, how far they are behind."""

from __future__ import annotations

from fastapi import APIRouter, Response

from keygrouping_router.api.answers import By, DryRunFlag, gives
from keygrouping_router.api.conditions import ETAG_HEADER, Expected, tag
from keygrouping_router.api.guard import Guard
from keygrouping_router.api.plane import Plane
from keygrouping_router.api.shapes import DryRun, WorkersChange, WorkersReport


def workers_routes(plane: Plane, guard: Guard) -> APIRouter:
    """The workers, and their number."""
    routes = APIRouter(tags=["workers"])

    @routes.get("/workers", responses=gives(WorkersReport, headers=ETAG_HEADER))
    async def get_workers(response: Response) -> WorkersReport:
        """W, and for each worker its load, capacity, lag and state."""
        report = await plane.workers()
        return tag(response, report, report.version)

    @routes.put(
        "/workers",
        dependencies=guard.writing,
        responses=gives(WorkersReport, DryRun, headers=ETAG_HEADER) | guard.refused_writes,
    )
    async def put_workers(
        change: WorkersChange, expected: Expected, by: By, response: Response, dry_run: DryRunFlag = False
    ) -> WorkersReport | DryRun:
        """Routes to another number of workers from now on, in mid-stream; results stay exact.

        At most as many as the routed topic has partitions. `auto` follows the workers that are running.
        """
        if dry_run:
            return await plane.try_workers(change)
        report = await plane.set_workers(change, expected=expected, by=by)
        return tag(response, report, report.version)

    return routes
