"""CPU time and memory of a process with all that it starts, over time."""

from __future__ import annotations

import bisect
import contextlib
import threading
import time
from dataclasses import dataclass

import psutil

_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Sample:
    """CPU seconds so far, of the contestant and of the broker."""

    at: float
    cpu: float
    broker: float


class Meter(threading.Thread):
    """Takes a sample ten times a second until `end`; a process that ended keeps what it took."""

    def __init__(self, pid: int, broker: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._root, self._broker = psutil.Process(pid), psutil.Process(broker)
        self._cpu: dict[psutil.Process, float] = {}
        self._samples: list[Sample] = []
        self._over = threading.Event()

    def run(self) -> None:
        """Until `end` is called."""
        while not self._over.wait(_PAUSE_SECONDS):
            self._look()

    def end(self) -> None:
        """No more samples."""
        self._over.set()
        self.join()

    def at(self, moment: float) -> Sample:
        """The first sample that is not older."""
        index = bisect.bisect_left(self._samples, moment, key=lambda sample: sample.at)
        return self._samples[min(index, len(self._samples) - 1)]

    def _look(self) -> None:
        memory = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in [self._root, *self._root.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._cpu[process] = sum(process.cpu_times()[:2])
                    memory += process.memory_info().rss
        self.peak_bytes = max(self.peak_bytes, memory)
        self._samples.append(Sample(time.time(), sum(self._cpu.values()), sum(self._broker.cpu_times()[:2])))
