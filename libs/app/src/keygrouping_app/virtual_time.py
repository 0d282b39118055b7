"""Time that jumps over waiting: a test of retries and deadlines needs none of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

_WAIT = 0.01
_POOL = "keygrouping-virtual-time"


class _Pool(ThreadPoolExecutor):
    """The event loop's threads, of `asyncio.to_thread` and the like, which stay when they have nothing to do."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix=_POOL)
        self._at_work = 0
        self._changed = -_WAIT
        self._lock = threading.Lock()

    @property
    def is_at_work(self) -> bool:
        """Whether one of them works, or has just ended: the event loop may not have heard of that."""
        return self._at_work > 0 or time.monotonic() - self._changed < _WAIT

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._count(1)
        future = super().submit(function, *args, **kwargs)
        future.add_done_callback(lambda _: self._count(-1))
        return future

    def _count(self, more: int) -> None:
        with self._lock:
            self._at_work += more
            self._changed = time.monotonic()


class VirtualTime:
    """Lets the running event loop's clock jump to the next timer whenever everything waits for timers only.

    As long as anything could come from outside (a socket is open or a thread runs that were not there before), waiting
    takes its real time; threads of the event loop's own pool count while they work. RuntimeError on an event loop that
    is not asyncio's own.
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
        self._threads = _others()
        self._before = getattr(self._loop, "_default_executor", None)
        self._pool = _Pool()
        self._loop.set_default_executor(self._pool)
        self._loop.time = self.now
        self._loop._selector = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Timers that are left are of this clock: they only come later than they should.
        del self._loop.time
        self._loop._selector = self._selector
        self._loop._default_executor = self._before
        self._pool.shutdown(wait=False)

    def now(self) -> float:
        """Seconds, those included that were jumped over."""
        return time.monotonic() + self._skipped

    def select(self, timeout: float | None) -> Any:
        """The selector's, in no time if nothing but a timer can end the waiting."""
        if timeout is None or timeout <= 0:
            return self._selector.select(timeout)
        is_open = len(self._selector.get_map()) > self._sockets
        if is_open or self._pool.is_at_work or _others() > self._threads:
            return self._selector.select(min(timeout, _WAIT))
        if not (ready := self._selector.select(0)):
            self._skipped += timeout
        return ready

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


def _others() -> int:
    """Threads that are not of a pool of virtual time."""
    return sum(not each.name.startswith(_POOL) for each in threading.enumerate())
