"""What a request must pass before a route carries it out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import Depends
from keygrouping_service.http.auth import Auth
from keygrouping_service.http.openapi import Responses, problems

from keygrouping_router.api.renderings import Renderings


class Guard:
    """Dependencies of routes, and the problems that they may answer with.

    A write that was carried out makes all renderings stale, before it is answered.
    """

    def __init__(self, auth: Auth, renderings: Renderings) -> None:
        async def forgetting() -> AsyncIterator[None]:
            yield
            renderings.forget()

        self.reading: list[Any] = list(auth.reading)
        self.writing: list[Any] = [*auth.writing, Depends(forgetting, scope="function")]
        self.refused_reads: Responses = problems(421, 422, 429, *([401] if auth.reading else []))
        self.refused_writes: Responses = problems(
            400, 403, 408, 412, 413, 415, 422, 503, *([401] if auth.writing else [])
        )
