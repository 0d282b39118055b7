"""Sends events through a running pipeline and compares what comes out: `python -m keygrouping_producer.probe`.

It ends with 0 if worker stage and aggregator stage have each counted every event once, else with 1 and one line that
says what is missing. The events have keys that nobody else uses, so they may go through a pipeline that is in use.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from aiokafka import TopicPartition
from keygrouping.job import JobSpec, parse_path
from keygrouping.partial import Partial, Result
from keygrouping_service.arguments import take_no_arguments
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import partitions_of
from keygrouping_service.records.aiokafka_adapter import PartitionsSource
from keygrouping_service.run import run
from keygrouping_service.settings import JobSettings, load
from pydantic import Field

log = logging.getLogger(__name__)

_KEYS = 10
_RECORDS = 10_000
_POLL_SECONDS = 0.5
_TICK_SECONDS = 2.0
_HTTP_SECONDS = 15.0
_REACH_SECONDS = 30.0


class ProbeSettings(JobSettings):
    """Where the pipeline is, and how long its events may take."""

    section: ClassVar[str] = "PROBE"

    producer_url: str = Field(pattern=r"^https?://", description="base URL of the producer")
    router_url: str | None = Field(
        default=None, pattern=r"^https?://", description="base URL of the router; unset: there is none"
    )
    token_file: Path | None = Field(default=None, description="a bearer token, for a producer that asks for one")
    events: int = Field(default=200, ge=1, le=100_000, description="events to send")
    timeout: float = Field(default=240, gt=0, description="seconds until all must have come out")


def event(job: JobSpec, key: str, time_ms: int) -> dict[str, Any]:
    """An event that the job can use, as the producer's interface takes it: this key and time, weight and fields 1."""
    value: dict[str, Any] = {}
    for field in job.fields:
        _put(value, field.path, "1" if field.kind == "text" else 1)
    if job.weight.kind == "field":
        _put(value, parse_path(job.weight.name), 1)
    if job.time.kind == "field":
        _put(value, parse_path(job.time.name), _time(job, time_ms))
    if job.key.kind == "field":
        _put(value, parse_path(job.key.name), key)
    headers = {job.key.name: key} if job.key.kind == "header" else {}
    return {"key": key, "value": value, "headers": headers, "timestamp": time_ms}


def _put(value: dict[str, Any], path: tuple[str, ...], content: object) -> None:
    for name in path[:-1]:
        value = value.setdefault(name, {})
    value[path[-1]] = content


def _time(job: JobSpec, time_ms: int) -> int | str:
    if job.time.unit == "iso":
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ms // 1000))
    return time_ms // 1000 if job.time.unit == "s" else time_ms


class Probe:
    """One round of events through the pipeline."""

    def __init__(self, settings: ProbeSettings) -> None:
        self._settings = settings
        self._prefix = f"probe-{uuid.uuid4().hex[:12]}-"
        self._sent: Counter[bytes] = Counter()
        self._partials: dict[tuple[object, ...], int] = {}
        self._results: dict[tuple[bytes, int], int] = {}

    async def run(self) -> None:
        """Raises `Fatal` in one line if something is amiss."""
        settings = self._settings
        if settings.router_url is not None:
            for path in ("/readyz", "/keyspace"):
                url = f"{settings.router_url.rstrip('/')}{path}"
                await _answered(urllib.request.Request(url), url, well=(401,))
        source = clients.source(settings)
        async with (
            clients.started(clients.admin(settings)) as admin,
            clients.started(source.consumer) as reader,
        ):
            topics = (settings.partials_topic, settings.results_topic)
            tps = [TopicPartition(topic, p) for topic in topics for p in await partitions_of(admin, topic)]
            reader.assign(tps)
            await reader.seek_to_end(*tps)
            for tp in tps:
                await reader.position(tp)
            await self._send([f"{self._prefix}{n % _KEYS}" for n in range(settings.events)], counted=True)
            deadline = time.monotonic() + settings.timeout
            await self._until(source, self._worked, deadline, "worker stage", self._partials)
            if settings.job.window_ms + settings.job.lateness_ms > settings.timeout * 500:
                log.info("%d events are in partials; their windows are too long to wait for results", settings.events)
                return
            await self._until(source, self._finished, deadline, "aggregator stage", self._results)
        log.info("%d events came out of both stages, each once", settings.events)

    async def _until(
        self,
        source: PartitionsSource,
        done: Callable[[], bool],
        deadline: float,
        stage: str,
        found: dict[Any, int],
    ) -> None:
        tick = 0.0
        while not done():
            if time.monotonic() > deadline:
                total = sum(found.values())
                raise Fatal(f"{stage}: {total} of {self._settings.events} events after {self._settings.timeout:.0f} s")
            if time.monotonic() > tick:
                # Windows become final when later events come.
                await self._send([f"{self._prefix}later-{n}" for n in range(4 * _KEYS)], counted=False)
                tick = time.monotonic() + _TICK_SECONDS
            for tp, records in (await source.poll(most=_RECORDS, timeout=_POLL_SECONDS)).items():
                for record in records:
                    self._take(tp.topic, record.key, record.value)
            for letter in source.left_out():
                log.warning("%s: %s", letter.record.topic, letter.detail)

    def _take(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        if topic == self._settings.partials_topic:
            partial = Partial.decode(value)
            if key in self._sent:
                self._partials[(key, *partial.identity)] = partial.events
        else:
            result = Result.decode(value)
            if result.key in self._sent and result.final:
                self._results[result.key, result.start] = result.events

    def _worked(self) -> bool:
        return self._complete(self._partials)

    def _finished(self) -> bool:
        return self._complete(self._results)

    def _complete(self, found: dict[Any, int]) -> bool:
        """Whether every key's events are there; `Fatal` if there are more than were sent."""
        counts: Counter[bytes] = Counter()
        for (key, *_), events in found.items():
            counts[key] += events
        for key, events in counts.items():
            if events > self._sent[key]:
                raise Fatal(f"key {key.decode()}: {events} events came out, {self._sent[key]} were sent")
        return counts == self._sent

    async def _send(self, keys: list[str], *, counted: bool) -> None:
        now = int(time.time() * 1000)
        lines = [json.dumps(event(self._settings.job, key, now)) for key in keys]
        if counted:
            self._sent.update(key.encode() for key in keys)
        url = f"{self._settings.producer_url.rstrip('/')}/events"
        headers = {"Content-Type": "application/x-ndjson"}
        if self._settings.token_file is not None:
            headers["Authorization"] = f"Bearer {self._settings.token_file.read_text().strip()}"
        request = urllib.request.Request(url, "\n".join(lines).encode(), headers, method="POST")
        await _answered(request, url)


async def _answered(request: urllib.request.Request, url: str, well: tuple[int, ...] = ()) -> None:
    """`Fatal` unless there is an answer of success or one of the statuses `well` (401: reads are closed).

    Who is not reached is asked again, for half a minute: a busy cluster's DNS may fail to tell a name.
    """

    def ask() -> None:
        with urllib.request.urlopen(request, timeout=_HTTP_SECONDS):
            pass

    end = time.monotonic() + _REACH_SECONDS
    while True:
        try:
            return await asyncio.to_thread(ask)
        except urllib.error.HTTPError as error:
            if error.code in well:
                return
            raise Fatal(f"{url} answers {error.code}: {error.read(300).decode(errors='replace')}") from None
        except OSError as error:
            if not _nothing_sent(error) or time.monotonic() > end:
                raise Fatal(f"{url} does not answer: {error}") from None
        await asyncio.sleep(1)


def _nothing_sent(error: OSError) -> bool:
    """Whether there was no connection, so that no event can come twice."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return isinstance(reason, socket.gaierror | ConnectionRefusedError)


def main() -> int:
    """Runs the probe; gives the exit code."""
    take_no_arguments("python -m keygrouping_producer.probe", about=__doc__)
    settings = load(ProbeSettings)

    async def work(stop: asyncio.Event) -> None:
        del stop
        await Probe(settings).run()

    return run(work, settings)


if __name__ == "__main__":
    sys.exit(main())
