"""Which workers are in use, and what each can do: the router knows, and says so by its API."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 1.0


class WorkersInUse:
    """Asks the router at `url` every `pause` seconds; `workers` is what it said last, before that what was given.

    `capacities` are those of the workers in use as the router said last, none before that. `token_file` holds a bearer
    token, which may be rotated.
    """

    def __init__(self, url: str | None, token_file: Path | None, *, pause: float, workers: int = 0) -> None:
        self.workers = workers
        self.capacities: tuple[float, ...] = ()
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
            told = answer.raise_for_status().json()
            workers = told["workers"]
            if not isinstance(workers, int) or workers < 1:
                raise ValueError(f"{workers!r} is no number of workers")
            self.workers, self.capacities = workers, _capacities(told, workers)
        except (httpx.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
            log.info("cannot read the number of workers in use from the router at %s: %r", self._url, error)

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        return {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}


def _capacities(told: Mapping[str, Any], workers: int) -> tuple[float, ...]:
    """What each of the workers in use can do."""
    capacities = {int(item["worker"]): float(item["capacity"]) for item in told["items"]}
    if not all(0 < capacity < math.inf for capacity in capacities.values()):
        raise ValueError(f"{sorted(set(capacities.values()))} are no capacities")
    return tuple(capacities[worker] for worker in range(workers))
