"""What Spark reports of finished batches, as the progress loops need it: how far each query has read and closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from keygrouping.instants import ms_of
from keygrouping_service.kafka.progress import MIN_TIME

from keygrouping_spark.kafka import read_offsets


@dataclass(frozen=True)
class Report:
    """A finished batch: its number, where it ended in each source, and the watermark (ms) it worked with."""

    batch: int
    ends: tuple[object, ...]
    watermark: int


def read_report(progress: Mapping[str, Any]) -> Report | None:
    """The batch of one of Spark's progress reports; None if that trigger found nothing to do."""
    if "addBatch" not in progress.get("durationMs", {}):
        return None
    ends = tuple(source.get("endOffset") for source in progress.get("sources", []))
    watermark = progress.get("eventTime", {}).get("watermark")
    return Report(int(progress["batchId"]), ends, _millis(watermark) if watermark else MIN_TIME)


def _millis(text: str) -> int:
    return ms_of(datetime.fromisoformat(text))


class StoppingError(Exception):
    """The query is about to be stopped; the batch is left to the next start."""


class Reading:
    """How far one query has come in the topic that it reads. Belongs to one event loop, but for `begin`."""

    def __init__(self, topic: str, positions: Mapping[int, int]) -> None:
        self._topic = topic
        self._changed = asyncio.Event()
        self.positions = dict(positions)
        self.watermark = MIN_TIME
        self._under_way = self._finished = -1
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether a batch has begun to write and has not been reported as finished."""
        return self._under_way > self._finished

    def begin(self, batch: int) -> None:
        """A batch begins to write; told by Spark's thread. Raises StoppingError after `close`."""
        self._under_way = batch
        if self._closed:
            raise StoppingError

    def close(self) -> None:
        """Lets no further batch begin."""
        self._closed = True

    def update(self, report: Report) -> None:
        """Takes in a finished batch."""
        for offsets in report.ends:
            self.positions.update(read_offsets(offsets, self._topic))
        self.watermark = max(self.watermark, report.watermark)
        self._finished = report.batch
        self._changed.set()

    async def changed(self, timeout: float) -> None:
        """Returns after the next batch since it last did, or after `timeout` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        self._changed.clear()
