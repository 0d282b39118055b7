"""The observer's own HTTP route."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query
from keygrouping_service.http.app import create_app
from keygrouping_service.http.auth import Auth
from keygrouping_service.http.limits import limit_requests
from keygrouping_service.http.openapi import problems

from keygrouping_observer.audit.report import MOST, AuditReport, LatestAudit
from keygrouping_observer.report import DistributionReport
from keygrouping_observer.settings import ObserverSettings
from keygrouping_observer.snapshots import KEPT, RecentSnapshots


def observer_app(
    settings: ObserverSettings, recent: RecentSnapshots, audit: LatestAudit, ready: Callable[[], bool]
) -> FastAPI:
    """The app that shows these snapshots and this audit."""
    app = create_app("keygrouping observer", ready, _distribution_routes(recent, audit, Auth(settings)))
    limit_requests(app, body_bytes=settings.api_body_bytes, rate=settings.api_rate)
    return app


def _distribution_routes(recent: RecentSnapshots, audit: LatestAudit, auth: Auth) -> APIRouter:
    routes = APIRouter(tags=["distribution"], dependencies=list(auth.reading))
    refusals = problems(422, 429, *([401] if auth.reading else []))

    @routes.get("/distribution", response_model=DistributionReport, responses=refusals)
    async def get_distribution(
        limit: Annotated[int, Query(ge=0, le=KEPT, description="most intervals of the answer")] = 10,
    ) -> dict[str, Any]:
        """λ, STD_DEV, replication factor, throughput, lag and latency of the last intervals and of the run.

        Beside what was routed stands what key hashing would have given.
        """
        return recent.as_json(limit)

    @routes.get("/audit", response_model=AuditReport, responses=refusals, tags=["audit"])
    async def get_audit(
        limit: Annotated[int, Query(ge=0, le=MOST, description="most windows and ranges of the answer")] = 10,
    ) -> dict[str, Any]:
        """Whether every event of the input is in the results, late or a dead letter, once; and what differs."""
        return audit.as_json(limit)

    return routes
