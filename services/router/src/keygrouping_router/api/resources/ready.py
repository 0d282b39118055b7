"""`GET /readyz`: whether this router does its work, and what it lacks."""

from __future__ import annotations

from fastapi import APIRouter, Response
from keygrouping_service.http.openapi import Responses, problems

from keygrouping_router.api.answers import gives
from keygrouping_router.api.plane import Plane
from keygrouping_router.api.shapes import Readiness


def readiness_routes(plane: Plane, *, closed: bool) -> APIRouter:
    """Readiness, for the platform and for people; where reads are `closed` it does not tell where the store is."""
    routes = APIRouter(tags=["health"])
    answers = gives(Readiness)
    not_yet: Responses = {503: {**answers[200], "description": "It starts, or waits for its partitions."}}

    @routes.get("/readyz", responses=answers | not_yet | problems(422))
    async def get_readyz(response: Response) -> Readiness:
        """Whether the router has its partitions and routes them.

        A store that is away makes it degraded, not unready: it goes on with the plan that it has.
        """
        readiness = plane.readiness()
        response.status_code = 200 if readiness.status == "ready" else 503
        return _discreet(readiness) if closed else readiness

    return routes


def _discreet(readiness: Readiness) -> Readiness:
    if readiness.store.detail is None:
        return readiness
    store = readiness.store.model_copy(update={"detail": "the router's log says why"})
    return readiness.model_copy(update={"store": store})
