"""Event time of one input partition: what is late, and when the partition holds the others back no longer.

Lateness is decided once, here, by the offset order of one partition alone, so that replays and replicas agree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping_service.events.lateness_kernel import advance
from keygrouping_service.kafka.progress import END, MIN_TIME, Progress

Times = NDArray[np.int64]

ACCEPTED, LATE, WAS_IDLE, FINISHED = range(4)

REASONS: tuple[tuple[str, str], ...] = (
    ("", ""),
    ("late", "further behind the confirmed time of its partition than the allowed lateness"),
    (
        "partition-was-idle",
        "its partition was silent so long that the others went on without it: see idle_timeout",
    ),
    ("input-was-finished", "the input was declared finished, and all results are final"),
)
"""Code and explanation of each verdict."""

LATE_REASONS = tuple(reason for reason, _ in REASONS[LATE:])
"""Why an event goes to the late topic."""


class Judgement(NamedTuple):
    """Of each event: an index into `REASONS`, and by how many ms it is too late.

    With an allowed lateness larger by that it would have been accepted; once the input is finished no lateness is, and
    the number says nothing.
    """

    verdict: NDArray[np.int8]
    late_by: Times


def warm_up() -> None:
    """Compiles the kernel."""
    PartitionClock(Progress(), 0, 1, 0, 0).judge(np.zeros(1, np.int64))


class PartitionClock:
    """Progress of one input partition. Times are ms of event time; `now` is seconds of any steady clock.

    An event is late if it is more than `lateness_ms` behind the confirmed time. That never goes back, and is the latest
    time that `confirmations` of the last 2 x `confirmations` usable events, late ones included, have reached: while
    fewer of them have fast clocks, it is not ahead of the newest of the others.

    A partition without events would hold back the results of all others, so after `idle_timeout` seconds at its end it
    is committed as idle, and downstream goes on without it. To come back it must not believe its own old time:

    1. `resuming()` is committed before any new event: from now on nobody derives anything without this partition.
    2. Then the progress of all partitions is read. What anybody may have derived in the meantime is the watermark of
       the others: `resume(floor)`. Events older than that are late.

    An idle partition will not confirm anything soon. So with idleness its newest event that is not ahead of the wall
    clock is believed; what is ahead of it still waits for others.

    If the process dies between the two, the committed progress still says "resuming" and the next owner does step 2.
    """

    def __init__(
        self, committed: Progress, lateness_ms: int, confirmations: int, idle_timeout: float, now: float
    ) -> None:
        self.time = committed.time
        self._last = np.full(2 * confirmations, committed.time, np.int64)
        self._oldest = 0
        self._lateness_ms = lateness_ms
        self._idle_timeout = idle_timeout
        self._last_event = now
        self._floor_time = MIN_TIME
        self.idle = committed.idle
        self.must_resume = committed.idle or committed.resuming
        if ahead := committed.ahead[-len(self._last) :]:
            self._last[-len(ahead) :] += ahead

    def judge(self, times: Times) -> Judgement:
        """Accepts these events, in offset order, or says why not."""
        before = np.empty(len(times), np.int64)
        self.time, self._oldest = advance(times, self._last, self._oldest, self.time, before)
        late_by = np.maximum(before - self._lateness_ms - times, 0)
        late = late_by > 0
        verdict = np.where(late, LATE, ACCEPTED).astype(np.int8)
        if self._floor_time != MIN_TIME:
            verdict[late & (before == self._floor_time)] = WAS_IDLE
        verdict[late & (before == END)] = FINISHED
        return Judgement(verdict, late_by)

    def saw_records(self, now: float) -> None:
        """Records came, whether of use or not: the partition is not idle."""
        self._last_event = now

    def is_due(self, now: float) -> bool:
        """Whether the partition, at its end, has been silent for long enough to be committed as idle."""
        silent = now - self._last_event >= self._idle_timeout
        return silent and not self.idle and not self.must_resume and self.time != END

    def go_idle(self, wall_ms: int) -> None:
        """The partition is to be committed as idle; `wall_ms` is the wall clock in ms since the epoch."""
        self.idle = self.must_resume = True
        self.time = max(self.time, int(self._last[self._last <= wall_ms].max(initial=MIN_TIME)))

    def finish(self) -> None:
        """No more events will come."""
        self.idle = self.must_resume = False
        self.time = END

    def resuming(self, epoch: int) -> Progress:
        """What to commit before the first event after an idle time is touched."""
        self.idle = False
        return Progress(self.time, epoch, resuming=True, ahead=self._ahead())

    def resume(self, floor: int) -> None:
        """Ends the idle time; `floor` is the watermark of all partitions with this one taken as idle."""
        self.must_resume = False
        bound = min(END, floor + self._lateness_ms) if floor > MIN_TIME else MIN_TIME
        self.time = self._floor_time = max(self.time, bound)

    def progress(self, epoch: int) -> Progress:
        """What to commit with the records judged so far."""
        resuming = self.must_resume and not self.idle
        return Progress(self.time, epoch, idle=self.idle, resuming=resuming, ahead=self._ahead())

    def _ahead(self) -> tuple[int, ...]:
        """How far each of the last events is ahead, from the oldest that is."""
        ahead = np.maximum(np.roll(self._last, -self._oldest) - self.time, 0)
        return tuple(ahead[int(np.argmax(ahead > 0)) :].tolist()) if ahead.any() else ()
