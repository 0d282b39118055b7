"""What one task of a member waits for and others tell it."""

from __future__ import annotations

import asyncio


class Signal(asyncio.Event):
    """One that is taken back by who has waited for it."""

    async def take(self, seconds: float) -> None:
        """Until it is set or so many seconds are over; of several who wait, the first takes it back."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self.wait()
            self.clear()
        except TimeoutError:
            return
