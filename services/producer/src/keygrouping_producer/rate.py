"""How many events may go now: a smooth token bucket that knows time only from its caller's clock."""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], float]

_BURST_SECONDS = 0.5


class TokenBucket:
    """Allows `rate` events per second, in bursts of at most half a second's worth (and at least one event).

    clock: monotonic seconds. A rate of 0 sets no limit. Time spent idle is not made up for beyond one burst.
    """

    def __init__(self, rate: float, clock: Clock) -> None:
        self._clock = clock
        self._rate = rate
        self._tokens = 0.0
        self._filled_at = clock()

    @property
    def rate(self) -> float:
        """Events per second, 0 without limit."""
        return self._rate

    def set_rate(self, rate: float) -> None:
        """Changes the rate from now on; what was saved up stays, within the new burst."""
        self._fill()
        self._rate = rate
        self._tokens = min(self._tokens, self._burst)

    def take(self, most: int) -> int:
        """Takes up to `most` events that may go at once; 0 if none may yet."""
        if self._rate == 0:
            return most
        self._fill()
        granted = min(most, int(self._tokens))
        self._tokens -= granted
        return granted

    def give_back(self, unused: int) -> None:
        """Returns events that were taken but not there."""
        self._tokens = min(self._burst, self._tokens + unused)

    def wait(self) -> float:
        """Seconds until at least one event may go."""
        if self._rate == 0:
            return 0.0
        self._fill()
        return max(0.0, (1 - self._tokens) / self._rate)

    @property
    def _burst(self) -> float:
        return max(1.0, self._rate * _BURST_SECONDS)

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
