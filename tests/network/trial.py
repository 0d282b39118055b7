"""One schedule on a running pipeline or app: events flow, faults strike, everything heals, and the account is made."""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from keygrouping_kafka.errors import can_be_retried
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import Committed
from keygrouping_service.testing import fetch

from .app_checker import AppChecker
from .checker import Checker, Finding, Place
from .faults import strike
from .load import WINDOW_MS, Load
from .moved_checker import MovedChecker
from .schedule import Schedule
from .shared_checker import OVERFLOW, PUBLISHED, STATES, SharedChecker
from .world import MEMBERS, PARTITIONS, SLOTS, WORKERS, World

_LOOK_SECONDS = 0.5
_READ_SECONDS = 30
_MOVED = 20
"""Keys that are ordered about, those that come most."""
_STAGES = ("router", "worker", "aggregator")
Take = Callable[[Iterable[Any]], None]


@dataclass
class Outcome:
    """What a schedule has brought."""

    schedule: Schedule
    runner: str
    findings: list[Finding]
    not_done: list[str]
    died: list[str]
    seconds: float
    right_seconds: float
    """How long it took after the last fault until everything was right."""
    events: int
    counts: dict[str, int] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """As a line of the record."""
        return {
            "seed": self.schedule.seed,
            "runner": self.runner,
            "faults": self.schedule.data(),
            "findings": [str(finding) for finding in self.findings],
            "not_done": self.not_done,
            "died": self.died,
            "seconds": round(self.seconds, 1),
            "right_seconds": round(self.right_seconds, 1),
            "events": self.events,
            "counts": self.counts,
        }

    def __str__(self) -> str:
        verdict = f"{len(self.findings)} FINDINGS" if self.findings else "exact"
        lines = [
            f"schedule {self.schedule.seed} ({self.runner}): {verdict}, {self.seconds:.0f} s,"
            f" right {self.right_seconds:.0f} s after the last fault"
        ]
        if OVERFLOW in self.counts:
            lines.append(f"  {self.counts[OVERFLOW]} of {self.counts['events']} events were shared")
        lines += [f"  {finding}" for finding in self.findings[:50]]
        lines += [f"  not done: {each}" for each in self.not_done]
        return "\n".join([*lines, *(f"  ended by itself: {each}" for each in self.died)])


class Trial:
    """Schedules one after the other on one world, whose stream of events goes on."""

    def __init__(self, world: World, seed: int, events: int = 6000, rate: float = 200, timeout: float = 120) -> None:
        self._world = world
        self._load = Load(seed)
        self._checker = self._new_checker()
        self._events = events
        self._rate = rate
        self._timeout = timeout
        self._positions: dict[TopicPartition, int] = {}

    async def run(self, schedule: Schedule) -> Outcome:
        """Runs a schedule while events flow, and judges everything read so far once it has had time to recover."""
        world, began = self._world, time.monotonic()
        world.died.clear()
        file = world.folder / f"events-{schedule.seed}.jsonl"
        self._checker.sent(self._load.write(file, self._events))
        world.produce(file, self._rate)
        watching = asyncio.create_task(self._revive())
        try:
            await self._flowing()
            not_done = await strike(world, schedule)
            healed = time.monotonic()
            findings = await self._judge_all(world.produced)
        finally:
            watching.cancel()
        if world.produced():
            world.deployment.stop("producer-0")
        now = time.monotonic()
        counts = dict(self._checker.counts)
        return Outcome(
            schedule,
            world.runner,
            findings,
            not_done,
            list(world.died),
            now - began,
            now - healed,
            self._events,
            counts,
        )

    async def finish(self) -> list[Finding]:
        """Ends the input, so that all windows close, and judges them, too."""
        await self._world.deployment.finish()
        return await self._judge_all(lambda: True, ended=True)

    async def _flowing(self) -> None:
        """Returns when the first of the new events is there: before that nothing could be disturbed."""
        before, deadline = self._checker.counts["events"], time.monotonic() + self._timeout
        while self._checker.counts["events"] == before and time.monotonic() < deadline:
            await self._read()

    async def _revive(self) -> None:
        while True:
            await asyncio.sleep(1)
            await self._world.revive()

    async def _judge_all(self, produced: Callable[[], bool], ended: bool = False) -> list[Finding]:
        """Reads on until nothing is missing, or nothing has moved within the timeout."""
        moved, standing = time.monotonic(), ""
        found: list[Finding] = []
        while True:
            whole = produced()
            problem = await self._read()
            wrong, missing = self._checker.judge(ended)
            found += wrong
            if whole and not problem and not missing:
                return found
            if standing != (standing := await self._standing(standing)):
                moved = time.monotonic()
            if time.monotonic() > moved + self._timeout:
                self._checker.write_off(missing)
                lost = await self._lost(missing)
                still = f"{len(missing) - len(lost)} things are not done yet. {problem} {standing}"
                return [*found, *lost, Finding("pipeline", "stands still", (), still)]
            await asyncio.sleep(_LOOK_SECONDS)

    def _new_checker(self) -> Checker | AppChecker:
        return Checker()

    async def _lost(self, missing: list[Finding]) -> list[Finding]:
        """Of what is missing, that which the stages have left behind them, so that it will never come."""
        try:
            routed = await self._world.deployment.committed("router")
            final = await self._world.deployment.committed("aggregator")
        except Exception as error:
            if not can_be_retried(error):
                raise
            return missing
        time_ms = min(entry.progress.time for entry in final.values())
        return [
            finding
            for finding in missing
            if (finding.place and finding.place.offset < (routed[finding.place.partition].offset or 0))
            or (finding.window and finding.window.start + WINDOW_MS <= time_ms)
        ]

    async def _standing(self, before: str) -> str:
        """How far each stage has come; as before if it can't be read now."""
        try:
            stages = [f"{stage} {_short(await self._world.deployment.committed(stage))}" for stage in _STAGES]
        except Exception as error:
            if not can_be_retried(error):
                raise
            return before
        return f"{', '.join(stages)}, read: {self._checker.counts}"

    async def _read(self) -> str:
        """Gives all that is new to the checker, in the events' order; returns what was in the way, if anything."""
        settings, topic = self._world.deployment.settings, ""
        takers = self._takers()
        try:
            async with clients.started(clients.reader(settings, wait_ms=200)) as consumer:
                for topic, (partitions, take) in takers.items():
                    async with asyncio.timeout(_READ_SECONDS):
                        await self._read_topic(consumer, topic, partitions, take)
        except Exception as error:
            if not can_be_retried(error):
                raise
            return f"{topic or 'Kafka'} can't be read: {error!r}"
        return ""

    def _takers(self) -> dict[str, tuple[int, Take]]:
        """Partitions of each topic, and who takes its records."""
        settings, checker = self._world.deployment.settings, self._checker
        assert isinstance(checker, Checker)
        return {
            settings.events_topic: (PARTITIONS, checker.take_events),
            settings.routed_topic: (WORKERS, checker.take_routed),
            settings.late_topic: (1, checker.take_late),
            settings.dead_letters_topic: (1, checker.take_dead_letters),
            settings.results_topic: (PARTITIONS, checker.take_results),
        }

    async def _read_topic(self, consumer: AIOKafkaConsumer, topic: str, partitions: int, take: Take) -> None:
        tps = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(tps)
        for tp in tps:
            consumer.seek(tp, self._positions.get(tp, 0))
        ends = await consumer.end_offsets(tps)
        while behind := [tp for tp in tps if self._positions.get(tp, 0) < ends[tp]]:
            for tp, records in (await fetch(consumer, *behind, timeout_ms=200)).items():
                take(records)
                self._positions[tp] = records.record(-1).offset + 1
            # What follows the last record may be the marks of transactions.
            self._positions |= {tp: max(self._positions.get(tp, 0), await consumer.position(tp)) for tp in behind}


class CombineTrial(Trial):
    """The same on workers that read `events` themselves."""

    async def _read(self) -> str:
        settings = self._world.deployment.settings
        excluded = [TopicPartition(topic, 0) for topic in (settings.late_topic, settings.dead_letters_topic)]
        try:
            passed = await self._world.deployment.committed("router")
            async with clients.started(clients.reader(settings, committed=False)) as consumer:
                written = await consumer.end_offsets(excluded)
        except Exception as error:
            if not can_be_retried(error):
                raise
            return f"how far workers have come can't be read: {error!r}"
        if problem := await super()._read():
            return problem
        # Behind an open transaction of another worker, letters of those that have ended can't be read yet.
        if any(self._positions.get(tp, 0) < end for tp, end in written.items()):
            return "not all of what was left out can be read yet"
        assert isinstance(self._checker, Checker)
        self._checker.take_passed({number: entry.offset or 0 for number, entry in passed.items()})
        return ""

    def _takers(self) -> dict[str, tuple[int, Take]]:
        takers = super()._takers()
        del takers[self._world.deployment.settings.routed_topic]
        return takers


class AppTrial(Trial):
    """The same on an app."""

    async def finish(self) -> list[Finding]:
        """Ends the members in order, and judges what they have left."""
        deployment = self._world.deployment
        codes = {name: await asyncio.to_thread(deployment.stop, name) for name in MEMBERS}
        wrong = [Finding("app", "not ended in order", (), f"{name}: {code}") for name, code in codes.items() if code]
        return wrong + await self._judge_all(lambda: True, ended=True)

    def _new_checker(self) -> AppChecker:
        return AppChecker(self._world.runner != "app")

    def _takers(self) -> dict[str, tuple[int, Take]]:
        settings, checker = self._world.deployment.settings, self._checker
        assert isinstance(checker, AppChecker)
        return {
            settings.events_topic: (PARTITIONS, checker.take_events),
            settings.dead_letters_topic: (1, checker.take_dead_letters),
            settings.routed_topic: (WORKERS, checker.take_routed),
        }

    async def _lost(self, missing: list[Finding]) -> list[Finding]:
        try:
            done = await self._committed()
        except Exception as error:
            if not can_be_retried(error):
                raise
            return missing
        return [
            each
            for each in missing
            if each.place
            and each.place.offset < done.get(TopicPartition(self._name_of(each.place), each.place.partition), 0)
        ]

    def _name_of(self, _place: Place) -> str:
        """The topic from which what is missing has to come."""
        return self._world.deployment.settings.events_topic

    async def _standing(self, before: str) -> str:
        try:
            done = await self._committed()
        except Exception as error:
            if not can_be_retried(error):
                raise
            return before
        read = {topic: count for topic, count in self._checker.counts.items() if topic != "moves"}
        return f"app {sorted(done.items())}, read: {read}"

    async def _committed(self) -> dict[TopicPartition, int]:
        """The first offset of each partition that has not ended."""
        found = await self._world.deployment.admin.list_consumer_group_offsets(self._world.group)
        return {tp: entry.offset for tp, entry in found.items()}


class MovedTrial(AppTrial):
    """The same on an app whose keys move with their states: they are ordered about at random all the time."""

    async def _revive(self) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(super()._revive())
            both.create_task(self._order())

    async def _order(self) -> None:
        chance, keys = random.Random(1), [f"key-{number}" for number in range(1, _MOVED + 1)]
        while True:
            key, slot = chance.choice(keys), chance.choice([None, *range(SLOTS)])
            for port in self._world.ports.values():
                taken = await asyncio.to_thread(_is_ordered, port, key, slot)
                self._checker.counts["moves"] = self._checker.counts.get("moves", 0) + taken

    def _new_checker(self) -> MovedChecker:
        return MovedChecker()

    def _takers(self) -> dict[str, tuple[int, Take]]:
        """What is counted after what was passed on: of the same transactions, so nothing of it is missing."""
        checker, settings = self._checker, self._world.deployment.settings
        assert isinstance(checker, MovedChecker)
        return super()._takers() | {settings.late_topic: (1, checker.take_counted)}

    async def _committed(self) -> dict[TopicPartition, int]:
        """Of events alone: keys are ordered about for as long as anything is missing, and that is no progress."""
        events = self._world.deployment.settings.events_topic
        return {tp: offset for tp, offset in (await super()._committed()).items() if tp.topic == events}


class SharedTrial(AppTrial):
    """The same on an app whose members share hot keys, and whose states merge."""

    async def finish(self) -> list[Finding]:
        """As of any app; that nothing was shared is a finding, too, as nothing was put to the test then."""
        found = await super().finish()
        shared = self._checker.counts[OVERFLOW]
        return found if shared else [*found, Finding(OVERFLOW, "empty", (), "no event was given away")]

    def _new_checker(self) -> SharedChecker:
        return SharedChecker()

    def _takers(self) -> dict[str, tuple[int, Take]]:
        """States after what they are of: so none has more than is known, if it is right."""
        checker, group, settings = self._checker, self._world.group, self._world.deployment.settings
        assert isinstance(checker, SharedChecker)
        return super()._takers() | {
            self._overflow: (SLOTS, checker.take_overflow),
            f"{group}.{group}.{settings.events_topic}.partials.states": (PARTITIONS, checker.take_states),
            settings.results_topic: (PARTITIONS, checker.take_published),
        }

    @property
    def _overflow(self) -> str:
        return f"{self._world.group}.overflow"

    async def _lost(self, missing: list[Finding]) -> list[Finding]:
        """Where states are missing, all events have ended: nothing but what stands in them tells what is lost."""
        states = [each for each in missing if each.topic in (STATES, PUBLISHED)]
        return states or await super()._lost(missing)

    def _name_of(self, place: Place) -> str:
        return self._overflow if place.topic == OVERFLOW else super()._name_of(place)


def _is_ordered(port: int, key: str, slot: int | None) -> bool:
    """Whether a member has taken an order for a key, if it is there and can."""
    body = json.dumps({"slot": slot}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/keys/{key}/slot", body, method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=10):
            return True
    except OSError:
        return False


def trial_of(world: World, seed: int, events: int = 6000, rate: float = 200) -> Trial:
    """Of what runs in a world."""
    kinds: dict[str, type[Trial]] = {
        "native": Trial,
        "spark": Trial,
        "combine": CombineTrial,
        "app-moves": MovedTrial,
        "app-shared": SharedTrial,
    }
    return kinds.get(world.runner, AppTrial)(world, seed, events, rate)


def _short(committed: Mapping[int, Committed]) -> str:
    """Offset and event time of each partition."""
    return " ".join(f"{number}:{entry.offset}@{entry.progress.time}" for number, entry in sorted(committed.items()))
