"""Time that jumps over waiting: a test of retries and deadlines needs none of it."""

from __future__ import annotations

import asyncio
import threading
import time
from types import TracebackType
from typing import Any

_WAIT = 0.01


class VirtualTime:
    """Lets the running event loop's clock jump to the next timer whenever everything waits for timers only.

    As soon as anything could come from outside (a socket is open or a thread runs that were not there before), waiting
    takes its real time. RuntimeError on an event loop that is not asyncio's own.
    """

    def __init__(self) -> None:
        self._loop: Any = asyncio.get_running_loop()
        selector = getattr(self._loop, "_selector", None)
        if selector is None:
            raise RuntimeError(f"virtual time needs asyncio's own event loop, not {type(self._loop).__module__}'s")
        self._selector = selector
        self._skipped = 0.0

    def __enter__(self) -> VirtualTime:
        self._sockets = len(self._selector.get_map())
        self._threads = threading.active_count()
        self._loop.time = self.now
        self._loop._selector = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Timers that are left are of this clock: they only come later than they should.
        del self._loop.time
        self._loop._selector = self._selector

    def now(self) -> float:
        """Seconds, those included that were jumped over."""
        return time.monotonic() + self._skipped

    def select(self, timeout: float | None) -> Any:
        """The selector's, in no time if nothing but a timer can end the waiting."""
        if timeout is None or timeout <= 0:
            return self._selector.select(timeout)
        if len(self._selector.get_map()) > self._sockets or threading.active_count() > self._threads:
            return self._selector.select(min(timeout, _WAIT))
        if not (ready := self._selector.select(0)):
            self._skipped += timeout
        return ready

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)
