"""How many workers are in use: the router knows, and says so by its API."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import httpx

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 1.0


class WorkersInUse:
    """Asks the router at `url` every `pause` seconds; `workers` is what it said last, before that what was given.

    `token_file` holds a bearer token, which may be rotated.
    """

    def __init__(self, url: str | None, token_file: Path | None, *, pause: float, workers: int = 0) -> None:
        self.workers = workers
        self._url = url
        self._token_file = token_file
        self._pause = pause

    async def keep_asking(self) -> None:
        """Asks for ever; returns at once without an address."""
        if self._url is None:
            return
        async with httpx.AsyncClient(base_url=self._url, timeout=_TIMEOUT_SECONDS) as client:
            while True:
                await self._ask(client)
                await asyncio.sleep(self._pause)

    async def _ask(self, client: httpx.AsyncClient) -> None:
        try:
            answer = await client.get("/workers", headers=self._headers())
            workers = answer.raise_for_status().json()["workers"]
            if not isinstance(workers, int) or workers < 1:
                raise ValueError(f"{workers!r} is no number of workers")
            self.workers = workers
        except (httpx.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
            log.info("the router at %s does not say how many workers are in use: %r", self._url, error)

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        return {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}
