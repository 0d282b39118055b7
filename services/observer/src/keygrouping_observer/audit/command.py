"""The audit for `keygrouping audit`: from the brokers alone, without a running observer, and without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from keygrouping.inspection import InspectionError
from keygrouping_kafka.errors import can_be_retried
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import partitions_of, read_progress
from keygrouping_service.kafka.topic_reading import connection
from keygrouping_service.records.aiokafka_adapter import create_no_topics
from keygrouping_service.records.unpacking import LARGEST_OF_ANY

from keygrouping_observer.audit.books import Books
from keygrouping_observer.audit.reading import WAIT_MS, Reading, read_routed_id
from keygrouping_observer.audit.recounting import Recounting
from keygrouping_observer.audit.report import report_of
from keygrouping_observer.settings import ObserverSettings

log = logging.getLogger(__name__)

Report = dict[str, Any]


def audit(
    *, once: bool, every: float, limit: int, share: float | None, **given: str | None
) -> Generator[Report, None, None]:
    """Reports as `GET /audit` of an observer gives them, and the ranges of the input that are `open`.

    All there is is compared for the first one; unless `once`, again `every` so many seconds. With a `share` of the keys
    these are counted again once, and the only report says as `recount` what came of it. `given` are settings of
    the observer that go before those of the environment, None for those that don't. Raises InspectionError where
    settings can't be used, topics are missing, or Kafka doesn't answer.
    """
    said = {name: value for name, value in given.items() if value is not None}
    settings = connection(ObserverSettings, said.pop("bootstrap_servers", None), **said)
    with _quiet(), asyncio.Runner() as runner:
        reports = _reports(settings, once or share is not None, every, limit, share)
        try:
            while (report := runner.run(_next(reports))) is not None:
                yield report
        except (Fatal, KafkaError, OSError) as error:
            said_of_it = " ".join(str(error).split()) or type(error).__name__
            if can_be_retried(error):
                said_of_it += "; see whether its brokers run and can be reached, then start again"
            raise InspectionError(f"{settings.application} at {settings.bootstrap_servers}: {said_of_it}") from None
        finally:
            runner.run(reports.aclose())


async def _next(reports: AsyncGenerator[Report, None]) -> Report | None:
    return await anext(reports, None)


async def _reports(
    settings: ObserverSettings, once: bool, every: float, limit: int, share: float | None
) -> AsyncGenerator[Report, None]:
    async with contextlib.AsyncExitStack() as stack:
        admin = await stack.enter_async_context(clients.started(clients.admin(settings)))
        await _require_topics(settings, admin)
        source = clients.source(settings, largest=LARGEST_OF_ANY, wait_ms=WAIT_MS)
        probe = clients.reader(settings, wait_ms=WAIT_MS, committed=False)
        for client in (source.consumer, probe):
            create_no_topics(client)
            await stack.enter_async_context(clients.started(client))
        routed_id = await read_routed_id(settings, admin)
        books = Books(settings.events_topic, settings.routed_topic, settings.job, routed_id, _now_ms)
        reading = Reading(settings, admin, source, probe, books, lambda: False)
        await reading.place()
        receipts = TopicPartition(settings.receipts_topic, 0)
        if once and (await probe.end_offsets([receipts]))[receipts] == 0:
            raise Fatal(f"{settings.receipts_topic} holds no receipts: no router has written to it yet")
        while True:
            began = time.monotonic()
            reading.require_all_partitions()
            try:
                target = await reading.look()
                await reading.read_to(target.ends)
                books.judge(target.time)
                still_open = await _open(settings, admin, probe, books)
            except Exception as error:
                if once or not can_be_retried(error):
                    raise
                log.warning("cannot read the topics now: %r", error)
            else:
                report = report_of(books, limit) | {"open": still_open}
                if share is not None:
                    recount = await Recounting(settings, admin, source, target.ends).recount(books, share)
                    report["recount"] = recount.report(limit)
                    report["verdict"] = "differs" if report["recount"]["differing"] else report["verdict"]
                yield report
                if once:
                    return
            await asyncio.sleep(max(0.0, began + every - time.monotonic()))


async def _require_topics(settings: ObserverSettings, admin: AIOKafkaAdminClient) -> None:
    """All topics are asked for: by its name alone a broker might create one."""
    there = await admin.list_topics()
    s = settings
    read = (s.events_topic, s.partials_topic, s.receipts_topic, s.results_topic, s.late_topic, s.dead_letters_topic)
    routed = (s.routed_topic,) if s.stages == "route" else ()
    missing = [topic for topic in (*read, *routed) if topic not in there]
    if missing:
        hint = "; without routers, set KEYGROUPING_STAGES=combine" if missing == list(routed) else ""
        raise Fatal(
            f"no topic {', '.join(missing)}, or it may not be seen: the names are settings, see topics.md{hint}"
        )


async def _open(
    settings: ObserverSettings, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer, books: Books
) -> Sequence[Report]:
    """What of the input no receipt has accounted for yet, of the range that the routers were told to read."""
    events = settings.events_topic
    partitions = await partitions_of(admin, events)
    tps = [TopicPartition(events, partition) for partition in partitions]
    firsts, ends = await probe.beginning_offsets(tps), await probe.end_offsets(tps)
    committed = await read_progress(admin, settings.group("router"), events, partitions)
    proven = {partition: lane.proven for (_, partition), lane in books.lanes.items()}
    found = []
    for tp in tps:
        router = committed[tp.partition]
        # Without receipts nothing was read: what is committed all the same is where the routers were told to begin.
        first = max(firsts[tp], proven.get(tp.partition, router.offset or 0))
        after = min(ends[tp], router.offset or 0) if router.progress.ended else ends[tp]
        if first < after:
            found.append({"partition": tp.partition, "first": first, "after": after})
    return found


@contextlib.contextmanager
def _quiet() -> Generator[None, None, None]:
    """What differs stands in the report, and why nothing can be read in the error that is raised."""
    names = ("aiokafka", clients.__name__, "keygrouping_observer.audit.books")
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _now_ms() -> int:
    return int(time.time() * 1000)
