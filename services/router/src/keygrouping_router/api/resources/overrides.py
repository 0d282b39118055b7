"""`/overrides`: keys that go where people say, each until its end."""

from __future__ import annotations

from fastapi import APIRouter, Response

from keygrouping_router.api.answers import By, DryRunFlag, gives
from keygrouping_router.api.conditions import ETAG_HEADER, Expected, tag
from keygrouping_router.api.guard import Guard
from keygrouping_router.api.paths import KeyOfOverrides
from keygrouping_router.api.plane import Plane
from keygrouping_router.api.shapes import DryRun, OverrideChange, OverridesReport


def overrides_routes(plane: Plane, guard: Guard) -> APIRouter:
    """The overrides of keys."""
    routes = APIRouter(tags=["overrides"])
    changed = gives(OverridesReport, DryRun, headers=ETAG_HEADER) | guard.refused_writes

    @routes.get("/overrides", responses=gives(OverridesReport, headers=ETAG_HEADER))
    async def get_overrides(response: Response) -> OverridesReport:
        """All keys that go where people say rather than where the grouping would send them, and until when."""
        report = await plane.overrides()
        return tag(response, report, report.version)

    @routes.put("/overrides/{key:anything}", dependencies=guard.writing, responses=changed)
    async def put_override(
        key: KeyOfOverrides,
        change: OverrideChange,
        expected: Expected,
        by: By,
        response: Response,
        dry_run: DryRunFlag = False,
    ) -> OverridesReport | DryRun:
        """Pins a key to a worker, splits it, keeps it whole, or quarantines it, until its end; results stay exact.

        It takes the place of what was said of the key before. Events that go to the quarantine topic are in no result.
        """
        if dry_run:
            return await plane.try_override(key, change)
        report = await plane.set_override(key, change, expected=expected, by=by)
        return tag(response, report, report.version)

    @routes.delete("/overrides/{key:anything}", dependencies=guard.writing, responses=changed)
    async def delete_override(
        key: KeyOfOverrides, expected: Expected, by: By, response: Response, dry_run: DryRunFlag = False
    ) -> OverridesReport | DryRun:
        """Leaves a key to the grouping again, before its override has come to its end."""
        if dry_run:
            return await plane.try_ending_override(key)
        report = await plane.end_override(key, expected=expected, by=by)
        return tag(response, report, report.version)

    return routes
