"""Measures how late the event loop is: whatever holds it up holds up heartbeats and requests too."""

from __future__ import annotations

import asyncio

from keygrouping_service.observability import metrics

_INTERVAL = 0.5


async def measure_loop_lag(interval: float = _INTERVAL) -> None:
    """Keeps sleeping `interval` seconds, and records by how much each sleep was too long; until cancelled."""
    clock = asyncio.get_running_loop().time
    while True:
        due = clock() + interval
        await asyncio.sleep(interval)
        metrics.EVENT_LOOP_LAG.observe(max(0.0, clock() - due))
