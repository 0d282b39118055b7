"""Following the stage before: what a stage's partitions may vouch for, and when."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

from keygrouping_service.errors import can_be_retried
from keygrouping_service.kafka.clients import given_up_calls
from keygrouping_service.kafka.progress import MIN_TIME, Horizon, Progress, Upstream

log = logging.getLogger(__name__)

_CALMEST = 4
_MOST_AHEAD = 240


class SharedHorizon:
    """The newest horizon, read once for all partitions of a process.

    A horizon is at most `pause` seconds old when it is handed out: `interval`, and while nothing changes up to four
    times that, so that an idle service rests. `read` asks one of the callers' `Upstream`.
    """

    def __init__(
        self,
        read: Callable[[Upstream], Awaitable[Horizon]],
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._interval = interval
        self._clock = clock
        self._lock = asyncio.Lock()
        self.pause = interval
        self._read_at: float | None = None
        self.newest: Horizon | None = None

    async def latest(self, upstream: Upstream) -> Horizon | None:
        """The newest horizon; while it can't be read, the one before (a promise once given stays true), or None."""
        async with self._lock:
            now = self._clock()
            if self._read_at is None or now - self._read_at >= self.pause:
                await self._refresh(upstream)
                self._read_at = now
        return self.newest

    async def _refresh(self, upstream: Upstream) -> None:
        try:
            with given_up_calls():
                found = await self._read(upstream)
        except Exception as error:
            if not can_be_retried(error):
                raise
            log.warning("the progress of the stage before can't be read now: %s", error or type(error).__name__)
            return
        self.pause = min(_CALMEST * self._interval, 1.5 * self.pause) if found == self.newest else self._interval
        self.newest = found


class Follower:
    """What the reader of one partition may vouch for: its progress follows the horizons that it has reached.

    One horizon is followed at a time. A reader that lags would otherwise run after ends that move on before it
    reaches them, and never vouch for anything.
    """

    def __init__(self, partition: int, start: Progress) -> None:
        self._partition = partition
        self._ahead: Horizon | None = None
        self.progress = Progress(start.time, start.epoch)

    def reached(self, position: int, newest: Horizon | None) -> Progress:
        """The progress once everything before `position` is in the stage's output.

        `position` is the offset of the next record to read, `newest` the newest horizon known.
        """
        for horizon in (self._ahead, newest):
            if horizon is not None and horizon.covered(self._partition, position):
                self._ahead = None
                self.progress = Progress(max(self.progress.time, horizon.time), self.progress.epoch)
        if newest is not None:
            self._ahead = self._ahead or newest
            self.progress = Progress(self.progress.time, max(self.progress.epoch, newest.epoch))
        return self.progress


class Horizons:
    """Horizons that a reader of all partitions has seen and not reached yet, oldest first.

    All are kept (up to a limit, beyond which newer ones wait), so that a reader in large steps can vouch after each
    step for the newest one within it.
    """

    def __init__(self) -> None:
        self._ahead: deque[Horizon] = deque()
        self.newest = Horizon(MIN_TIME, 0, {})

    def add(self, horizon: Horizon) -> None:
        """Takes in the horizon of now; one that promises no more than the newest is of no use."""
        if (horizon.time, horizon.epoch) != (self.newest.time, self.newest.epoch) and len(self._ahead) < _MOST_AHEAD:
            self._ahead.append(horizon)
            self.newest = horizon

    def reached(self, positions: Mapping[int, int]) -> Horizon | None:
        """Removes the horizons within `positions` (next offset per partition) and gives the newest of them, if any."""
        found = None
        while self._ahead and self._ahead[0].reached(positions):
            found = self._ahead.popleft()
        return found
