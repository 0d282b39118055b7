"""The watermark of each partition of a stage's input: as a metric, and as a table that names what holds results back.

`python -m keygrouping_service.kafka.watermarks` prints the table.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from keygrouping_service.arguments import take_no_arguments
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import END, MIN_TIME, Committed, Progress, partitions_of, read_progress
from keygrouping_service.observability import metrics
from keygrouping_service.settings import StagesSettings, load

_SHOWN = 5
_LEAST_BEHIND = 1000
"""Milliseconds that no partition counts as behind: all of them write at moments of their own."""
_LEAST_AHEAD = 60_000
"""Milliseconds that event time may be ahead of the clock: clocks of machines differ."""


def show_watermark(group: str, partition: int, progress: Progress) -> None:
    """Shows how far a partition is that this process works on; not at all if it holds nothing back."""
    if _holds_nothing_back(progress):
        hide_watermark(group, partition)
    else:
        metrics.WATERMARK.labels(group, str(partition)).set(max(0, progress.time) / 1000)


def hide_watermark(group: str, partition: int) -> None:
    """Another process works on the partition from now on, or none."""
    metrics.WATERMARK.remove(group, str(partition))


def _holds_nothing_back(progress: Progress) -> bool:
    return progress.idle or progress.time == END


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a partition of a stage's input is, and how many offsets of it are not committed."""

    topic: str
    partition: int
    progress: Progress
    unread: int

    @property
    def name(self) -> str:
        """As it is printed: `events[3]`."""
        return f"{self.topic}[{self.partition}]"


async def read_standings(admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer, group: str, topic: str) -> list[Standing]:
    """All partitions of a stage's input, those that hold back the most first. Raises Kafka errors."""
    partitions = await partitions_of(admin, topic)
    committed = await read_progress(admin, group, topic, partitions)
    tps = [TopicPartition(topic, partition) for partition in partitions]
    ends = await probe.end_offsets(tps) if tps else {}
    firsts = await probe.beginning_offsets(tps) if tps else {}
    found = [
        Standing(topic, tp.partition, entry.progress, max(0, ends[tp] - _next(entry, firsts[tp])))
        for tp in tps
        for entry in (committed[tp.partition],)
    ]
    return sorted(found, key=lambda each: (_holds_nothing_back(each.progress), each.progress.time, each.partition))


def _next(entry: Committed, first: int) -> int:
    return first if entry.offset is None else entry.offset


def report(standings: Mapping[str, list[Standing]], now: float) -> str:
    """The table of each stage, and a sentence that names the partition that holds it back.

    `now` is in ms since 1970; what is ahead of it comes of clocks that are fast, and is told.
    """
    return "\n".join(line for stage, found in standings.items() for line in (*_lines(stage, found, now), ""))


def _lines(stage: str, found: list[Standing], now: float) -> Iterable[str]:
    yield f"{stage}: {_verdict(stage, found)}"
    if stage == "router":
        yield from _ahead(found, now)
    furthest = max((each.progress.time for each in found if each.progress.time != END), default=MIN_TIME)
    for each in found[:_SHOWN]:
        state = "idle" if each.progress.idle else "active"
        behind = _span(furthest - each.progress.time) if each.progress.time not in (END, MIN_TIME) else "-"
        when = _instant(each.progress.time)
        yield f"  {each.name:<32} {when:<24} behind {behind:<12} unread {each.unread:<12,} {state}"
    if len(found) > _SHOWN:
        yield f"  and {len(found) - _SHOWN} more that are further"


def _ahead(found: list[Standing], now: float) -> Iterable[str]:
    ahead = [
        each for each in found if not _holds_nothing_back(each.progress) and each.progress.time > now + _LEAST_AHEAD
    ]
    if ahead:
        span = _span(max(each.progress.time for each in ahead) - now)
        names = ", ".join(each.name for each in ahead[:_SHOWN]) + (", ..." if len(ahead) > _SHOWN else "")
        yield f"  ahead of the clock by up to {span}: {names}"
        yield "  clocks of whoever writes there are fast: what has the right time is late until then"


def _verdict(stage: str, found: list[Standing]) -> str:
    active = [each for each in found if not _holds_nothing_back(each.progress)]
    if not found:
        return "its input does not exist"
    if not active:
        return "nothing is held back, as all partitions are idle or finished"
    last = active[0]
    if last.progress.time == MIN_TIME:
        return f"{last.name} holds results back: nothing of it is known yet, with {last.unread:,} offsets unread"
    furthest = max(each.progress.time for each in active)
    if furthest - last.progress.time < _LEAST_BEHIND:
        return f"no partition is behind another: event time is {_instant(furthest)}"
    why = f"{last.unread:,} offsets of it are unread" if last.unread else "all of it is read"
    who = f"the {stage} stage has yet to read them" if last.unread else "whoever writes to it is behind"
    if not last.unread and stage != "router":
        who = "it follows the stage before"
    return f"{last.name} holds results back, {_span(furthest - last.progress.time)} behind: {why}, so {who}"


def _instant(time_ms: int) -> str:
    if time_ms == MIN_TIME:
        return "nothing known"
    if time_ms == END:
        return "finished"
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _span(milliseconds: float) -> str:
    hours, seconds = divmod(round(milliseconds / 1000), 3600)
    minutes, seconds = divmod(seconds, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


async def _read(settings: StagesSettings) -> dict[str, list[Standing]]:
    topics = {"router": settings.events_topic, "worker": settings.routed_topic, "aggregator": settings.partials_topic}
    if settings.stages == "combine":
        del topics["worker"]
    async with (
        clients.started(clients.admin(settings)) as admin,
        clients.started(clients.reader(settings, committed=False)) as probe,
    ):
        return {
            stage: await read_standings(admin, probe, settings.group(stage), topic) for stage, topic in topics.items()
        }


def main() -> int:
    """Prints the watermarks of all stages; gives the exit code."""
    take_no_arguments("python -m keygrouping_service.kafka.watermarks", about=__doc__)
    sys.stdout.write(report(asyncio.run(_read(load(StagesSettings))), time.time() * 1000))
    return 0


if __name__ == "__main__":
    sys.exit(main())
