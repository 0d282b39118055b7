"""The OpenAPI document: what FastAPI makes of the routes, and what it can't know."""

from __future__ import annotations

from fastapi import FastAPI

_DESCRIPTION = """What the router knows of its keys and workers, and what can be changed while it runs.

Reads are open unless the operator has closed them; writes need a bearer token where one is set. Errors are problem
details (RFC 9457). All replicas that share a store give the same answers, but for what each has sampled and sends by
itself (`/shadow`, `/events`, `/readyz`), and follow a change within about a second.
"""

_TAGS = [
    {"name": "keys", "description": "The KeySpace: which keys there are, how heavy, and where they go."},
    {"name": "thresholds", "description": "Settings of the grouping in force."},
    {"name": "workers", "description": "How many workers, how loaded, how far behind."},
    {"name": "grouping", "description": "How keys are spread over the workers."},
    {"name": "overrides", "description": "Keys that go where people say, each until its end."},
    {"name": "plan", "description": "The decisions made from what was seen."},
    {"name": "shadow", "description": "Other groupings on the same traffic."},
    {"name": "events", "description": "All of it as it happens."},
    {"name": "health", "description": "For the platform."},
]


def describe_api(app: FastAPI) -> None:
    """Says in the document that the app gives at `/openapi.json` what holds for all routes."""
    app.description = _DESCRIPTION
    app.openapi_tags = _TAGS
