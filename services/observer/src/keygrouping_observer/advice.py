"""How many workers are in use: the router knows, the records show only those that have events."""

from __future__ import annotations

import asyncio
import logging

import httpx

from keygrouping_observer.settings import ObserverSettings

log = logging.getLogger(__name__)
logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells of every request

_TIMEOUT_SECONDS = 1.0


class Advice:
    """Asks the router's API now and then; `workers` is what it said last, 0 as long as it has not."""

    def __init__(self, settings: ObserverSettings, workers: int) -> None:
        self.workers = workers
        self._url = settings.router_url
        self._token_file = settings.router_token_file
        self._pause = settings.look_interval

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
        """Read anew each time, so that the token may be rotated."""
        if self._token_file is None:
            return {}
        return {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}
