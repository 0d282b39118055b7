"""`/shadow`: other groupings on a sample of the same traffic, side by side with the one in force."""

from __future__ import annotations

from fastapi import APIRouter, Response

from keygrouping_router.api.answers import By, DryRunFlag, gives
from keygrouping_router.api.conditions import ETAG_HEADER, Expected, tag
from keygrouping_router.api.guard import Guard
from keygrouping_router.api.plane import Plane
from keygrouping_router.api.shapes import ShadowChange, ShadowDryRun, ShadowReport


def shadow_routes(plane: Plane, guard: Guard) -> APIRouter:
    """The comparison of groupings."""
    routes = APIRouter(tags=["shadow"])

    @routes.get("/shadow", responses=gives(ShadowReport, headers=ETAG_HEADER))
    async def get_shadow(response: Response) -> ShadowReport:
        """λ, STD_DEV and replication factor that each grouping gives, or would give, to the same traffic."""
        report = await plane.shadow()
        return tag(response, report, report.version)

    @routes.put(
        "/shadow",
        dependencies=guard.writing,
        responses=gives(ShadowReport, ShadowDryRun, headers=ETAG_HEADER) | guard.refused_writes,
    )
    async def put_shadow(
        change: ShadowChange, expected: Expected, by: By, response: Response, dry_run: DryRunFlag = False
    ) -> ShadowReport | ShadowDryRun:
        """Compares these groupings from now on; where events go does not change."""
        if dry_run:
            return await plane.try_shadow(change)
        report = await plane.set_shadow(change, expected=expected, by=by)
        return tag(response, report, report.version)

    return routes
