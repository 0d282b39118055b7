"""Passings of a time, for groupings that do something every so many seconds."""


class Ticks:
    """Counts how often an interval of seconds has passed since it was last asked; it begins when it is first asked."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self.began: float | None = None
        """When the present interval began; None before the first time."""

    def passed(self, now: float) -> int:
        """How many intervals have ended since the last call."""
        if self.began is None:
            self.began = now
        count = int((now - self.began) / self._interval)
        self.began += count * self._interval
        if now - self.began >= self._interval:  # rounding kept back the last one: the next call would find it
            count += 1
            self.began += self._interval
        return count

    def part(self, now: float) -> float:
        """How much of the present interval has passed, 0 to 1; changes nothing."""
        return 0.0 if self.began is None else min(1.0, max(0.0, (now - self.began) / self._interval))

    @staticmethod
    def checked(began: object, shift: float) -> float | None:
        """`began` out of a snapshot, moved by `shift` seconds; a TypeError or ValueError if it is no time."""
        return None if began is None else float(began) + shift  # type: ignore[arg-type]
