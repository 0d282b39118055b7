"""Cooperative scheduling: partitions work in short stretches, one at a time, so that the API needn't wait for all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

_END: Final = object()


class Scheduler:
    """Of all the work that is ready, one stretch is done in each round of the event loop.

    Else each round would do one of every partition, and a request takes several rounds.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, stretches: Iterator[None]) -> None:
        """Does the work, which yields after each stretch; others who wait run in between."""
        while True:
            async with self._turn:
                # It is held until the next round, so that nobody else works in this one.
                await asyncio.sleep(0)
                if next(stretches, _END) is _END:
                    return
