"""The memory of processes over time, and how steeply it rises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

WARM_SECONDS = 60.0
"""A process of this age has loaded its code and filled its buffers; before that its memory says nothing."""
_KILOBYTE = 1024


class Sample(NamedTuple):
    """Resident memory of a process: seconds since the begin, age of the process in seconds, bytes."""

    at: float
    age: float
    size: int


@dataclass(frozen=True)
class Trend:
    """How the memory of a process has gone: samples, first and last megabytes, and megabytes per hour."""

    name: str
    samples: int
    first: float
    last: float
    per_hour: float

    def __str__(self) -> str:
        return (
            f"{self.name:14} {self.samples:5} samples  {self.first:7.1f} MB -> {self.last:7.1f} MB"
            f"  {self.per_hour:+8.2f} MB/h"
        )


class Memory:
    """Samples by the processes' names; one that was killed goes on under its name."""

    def __init__(self) -> None:
        self._samples: dict[str, list[Sample]] = defaultdict(list)

    def add(self, name: str, at: float, age: float, size: int) -> None:
        """Adds a sample."""
        self._samples[name].append(Sample(at, age, size))

    def trends(self, since: float) -> list[Trend]:
        """The trend of each process from `since` seconds on, by least squares over warm samples."""
        found = []
        for name, samples in sorted(self._samples.items()):
            warm = [sample for sample in samples if sample.at >= since and sample.age >= WARM_SECONDS]
            if len(warm) > 1:
                found.append(_trend(name, warm))
        return found


def resident(pid: int) -> int:
    """Bytes of a process that are in memory; 0 if there is no such process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * _KILOBYTE for line in lines if line.startswith("VmRSS")), 0)


def _trend(name: str, samples: list[Sample]) -> Trend:
    megabytes = [sample.size / 1e6 for sample in samples]
    hours = [sample.at / 3600 for sample in samples]
    return Trend(name, len(samples), megabytes[0], megabytes[-1], _slope(hours, megabytes))


def _slope(x: list[float], y: list[float]) -> float:
    middle, level = _mean(x), _mean(y)
    spread = sum((each - middle) ** 2 for each in x)
    return sum((a - middle) * (b - level) for a, b in zip(x, y, strict=True)) / spread if spread else 0.0


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
