"""Members killed, asleep, coming and going at random, judged by what their handlers wrote down.

The oracle knows nothing of the app: it reads lines of `what time process key partition offset`, of when which commits
began that were answered, of which partitions who had when, and whom the test killed or stopped when. A member whose
session ends as the machine is busy may still be at work on an event while another member begins it: each such case has
to be one of a member that the group has gone on without, and of an event that it began before its session's end, or was
about to begin then.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from keygrouping_service.testing import Cluster, notes, until

pytestmark = pytest.mark.kafka

log_it = logging.getLogger(__name__)

PARTITIONS = 8
LANES = 16
STUCK_SECONDS = 240.0
"""Without a single event that ends; how long a whole run takes is the machine's affair."""
Member = asyncio.subprocess.Process
Place = tuple[int, int]
Nap = tuple[int, int, int]
"""A process that was stopped, from when and until when, in ns."""


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """Of what a process has: of a partition, in a generation of the group. Times in ns."""

    at: int
    what: str
    generation: int
    session_end: int


@dataclass
class Story:
    """What the logs tell."""

    ended: set[Place] = field(default_factory=set)
    done: Counter[int] = field(default_factory=Counter)
    """By partition: how many of its events have ended."""
    starts: dict[str, list[tuple[int, int, Place]]] = field(default_factory=lambda: defaultdict(list))
    """By key: time, process, place."""
    ends: dict[tuple[int, Place], list[int]] = field(default_factory=lambda: defaultdict(list))
    """By process and place: times."""
    workers: set[int] = field(default_factory=set)
    """Processes that have begun events."""
    commits: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    """By process and partition: when the commits began that were answered."""
    changes: dict[tuple[int, int], list[Change]] = field(default_factory=lambda: defaultdict(list))
    """By process and partition."""

    session_ends: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """By process: from when on it knew until when its session lasts."""

    def end(self, process: int, place: Place, began: int) -> int | None:
        """When the run of an event ended that had begun then."""
        return next((at for at in self.ends.get((process, place), ()) if at >= began), None)

    def session_end(self, process: int, at: int) -> float:
        """Until when a process knew at this moment that its session lasts."""
        known = self.session_ends[process]
        place = bisect_right(known, at, key=lambda each: each[0])
        return known[place - 1][1] if place else float("inf")

    def fate(self, process: int, partition: int, at: int) -> Change | None:
        """How a process came to have the partition no more that it had at this moment."""
        changes = self.changes.get((process, partition), [])
        later = changes[bisect_right(changes, at, key=lambda change: change.at) :]
        return next((change for change in later if change.what != "gain"), None)

    def is_late(self, process: int, partition: int, at: int) -> bool:
        """Whether a process began something at this moment although its session had ended: it was about to, and got no
        CPU. Of each partition that it lost so it may do that once, see `look_at_losses`."""
        fate = self.fate(process, partition, at)
        return fate is not None and fate.what == "lost" and fate.session_end < at


class Lines:
    """A file that others append lines to, read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._rest = b""

    def new(self) -> Iterator[list[str]]:
        """The words of the lines that are whole since this was asked last."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        self._read += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        yield from notes(line.decode() for line in lines)


class Log:
    """The members' logs."""

    def __init__(self, path: Path) -> None:
        self._events = Lines(path)
        self._commits = Lines(path.with_suffix(".commits"))
        self._ownership = Lines(path.with_suffix(".ownership"))
        self.story = Story()

    def read(self) -> Story:
        """All that is told until now."""
        for what, at, process, key, partition, offset in self._events.new():
            place = (int(partition), int(offset))
            if what == "start":
                self.story.starts[key].append((int(at), int(process), place))
                self.story.workers.add(int(process))
            else:
                self.story.done[place[0]] += place not in self.story.ended
                self.story.ended.add(place)
                self.story.ends[int(process), place].append(int(at))
        for at, process, partition in self._commits.new():
            self.story.commits[int(process), int(partition)].append(int(at))
        for what, at, process, partition, generation, end in self._ownership.new():
            change = Change(int(at), what, int(generation), int(end))
            if what == "session":
                self.story.session_ends[int(process)].append((change.at, change.session_end))
            else:
                self.story.changes[int(process), int(partition)].append(change)
        return self.story


@dataclass
class Verdict:
    """What ran again of each killed process: what it had begun, and what had ended in it; and of each that the group
    went on without. Which events of a key were at work at the same time, and why."""

    running: Counter[int] = field(default_factory=Counter)
    ended: Counter[int] = field(default_factory=Counter)
    of_others: Counter[int] = field(default_factory=Counter)
    explained: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = [f"{len(self.faults)} faults:", *self.faults, f"{len(self.explained)} explained:", *self.explained]
        return "\n".join(told)


def judge(story: Story, events: int, killed: dict[int, int], naps: Sequence[Nap] = ()) -> Verdict:
    """None is lost; a key's events begin in order and run one at a time. What runs again are events that ran in a
    member when it was killed, no more than it has lanes, and such as had ended since its last commit began; and those
    of a member that the group has gone on without, which begins nothing after its session's end but the one event of a
    partition that it was about to begin, and commits nothing.

    `killed`: when the signal was sent, by process: its end may be seen late on a busy machine. `naps`: who was stopped.
    """
    found = Verdict()
    if len(story.ended) != events:
        found.faults.append(f"{events - len(story.ended)} events were lost")
    for key, mine in story.starts.items():
        mine.sort()
        order = list(dict.fromkeys(place for _, _, place in mine))
        if order != sorted(order):
            found.faults.append(f"the events of {key} began in another order")
        for (began, process, place), (start, other, second) in pairwise(mine):
            look_at_overlap(story, found, (key, began, process, place, start, other, second), killed, naps)
        last: dict[Place, tuple[int, int]] = {}
        for began, process, place in mine:
            if story.is_late(process, place[0], began):
                continue
            if place in last:
                look_at_repetition(story, found, last[place], place, killed)
            last[place] = (began, process)
    look_at_losses(story, found)
    found.faults += [
        f"{count} that {process} had begun ran again" for process, count in found.running.items() if count > LANES
    ]
    return found


def look_at_overlap(
    story: Story,
    found: Verdict,
    case: tuple[str, int, int, Place, int, int, Place],
    killed: dict[int, int],
    naps: Sequence[Nap],
) -> None:
    """Whether the second event of a key began when the first one had ended; if not, why."""
    key, began, process, place, start, other, second = case
    killed_at = killed.get(process)
    ended = story.end(process, place, began) or killed_at
    if ended is not None and ended <= start:
        return
    fate = story.fate(process, place[0], began)
    if ended is None and fate is not None and fate.what == "lost" and fate.at <= start:
        return  # cancelled
    told = f"{key}: {place} in {process} from {began / 1e9:.3f} s, {second} in {other} from {start / 1e9:.3f} s"
    session_end = story.session_end(process, killed_at or 0)
    if fate is not None and fate.what == "lost":
        found.explained.append(
            f"{told}: {process} was thrown out of the group in generation {fate.generation} and knew at "
            f"{fate.at / 1e9:.3f} s; its session ended at {fate.session_end / 1e9:.3f} s"
        )
    elif story.is_late(other, second[0], start):
        found.explained.append(f"{told}: {other} began it late, as its session had ended while it was about to")
    elif fate is None and session_end <= start:
        found.explained.append(f"{told}: {process} was killed before it knew that its session had ended")
    elif fate is None and any(who == process and began <= to and since <= start for who, since, to in naps):
        found.explained.append(f"{told}: {process} was stopped meanwhile, and killed before it knew more")
    else:
        found.faults.append(f"{told}: {process} had it, {fate=}, {ended=}, {killed_at=}, {session_end=}")


def look_at_repetition(
    story: Story, found: Verdict, before: tuple[int, int], place: Place, killed: dict[int, int]
) -> None:
    """Whether an event that has begun before may begin again."""
    began, process = before
    fate, ended = story.fate(process, place[0], began), story.end(process, place, began)
    if fate is not None and fate.what == "lost":
        found.of_others[process] += 1
    elif process not in killed:
        found.faults.append(f"{place} ran again after {process}, which was not killed: {fate}")
    elif ended is None:
        found.running[process] += 1
    elif ended < max(story.commits.get((process, place[0]), [0])):
        found.faults.append(f"{place} ran again, although {process} has committed its end")
    else:
        found.ended[process] += 1


def look_at_losses(story: Story, found: Verdict) -> None:
    """Whether a member that the group has gone on without begins nothing after its session's end, and commits nothing
    from when it knows until it has the partition again."""
    starts: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for mine in story.starts.values():
        for at, process, (partition, _) in mine:
            starts[process, partition].append(at)
    for (process, partition), changes in story.changes.items():
        for number, lost in enumerate(changes):
            if lost.what != "lost":
                continue
            again = next((change.at for change in changes[number + 1 :] if change.what == "gain"), 1 << 62)
            told = f"{process}, thrown out at {lost.at / 1e9:.3f} s (session {lost.session_end / 1e9:.3f} s), "
            late = sum(min(lost.at, lost.session_end) < at < again for at in starts[process, partition])
            # The one that it was about to begin may be late if the process gets no CPU.
            if late > 1:
                found.faults.append(f"{told} began {late} events of {partition} after that")
            if any(lost.at < at < again for at in story.commits[process, partition]):
                found.faults.append(f"{told} committed {partition} after that")


def test_an_overlap_is_a_fault_unless_its_member_was_thrown_out_and_began_it_before() -> None:
    story, key = Story(), "k"
    story.starts[key] = [(100, 1, (0, 1)), (150, 2, (0, 2))]
    story.ended = {(0, 1), (0, 2)}
    story.ends[1, (0, 1)], story.ends[2, (0, 2)] = [200], [250]
    story.changes[1, 0] = [Change(50, "gain", 1, 140)]
    story.session_ends[1] = [(50, 140)]
    (fault,) = judge(story, 2, {}).faults
    assert fault.startswith("k: (0, 1) in 1 from 0.000 s, (0, 2) in 2")
    assert not judge(story, 2, {1: 210}).faults
    story.changes[1, 0].append(Change(180, "lost", 1, 140))
    found = judge(story, 2, {})
    assert (len(found.explained), found.faults) == (1, [])
    story.commits[1, 0] = [190]
    assert len(judge(story, 2, {}).faults) == 1
    story.commits[1, 0] = [170]
    for other in "ab":
        story.starts[other] = [(145, 1, (0, 3))]
    assert len(judge(story, 2, {}).faults) == 1


def test_a_member_may_begin_one_event_late_that_it_was_about_to_begin_beside_who_has_it_now() -> None:
    story = Story()
    story.starts["k"] = [(150, 2, (0, 1)), (160, 1, (0, 1))]
    story.ended, story.ends[2, (0, 1)], story.ends[1, (0, 1)] = {(0, 1)}, [170], [180]
    story.changes[1, 0] = [Change(50, "gain", 1, 140), Change(190, "lost", 1, 140)]
    story.session_ends[2], story.commits[2, 0] = [(50, 400)], [175]
    found = judge(story, 1, {2: 300})
    assert (len(found.explained), found.faults, found.ended) == (1, [], {})
    story.starts["k"].append((200, 3, (0, 1)))
    assert judge(story, 1, {2: 300}).faults == ["(0, 1) ran again, although 2 has committed its end"]
    story.starts["k"].pop()
    story.starts["l"] = [(165, 1, (0, 2))]
    story.ended.add((0, 2))
    assert len(judge(story, 2, {2: 300}).faults) == 1
    del story.starts["l"]
    story.ended.remove((0, 2))
    story.changes[1, 0] = [Change(50, "gain", 1, 340)]
    assert len(judge(story, 1, {2: 300}).faults) == 2


def test_who_is_killed_is_at_work_until_then_and_a_longer_overlap_needs_a_reason() -> None:
    story = Story()
    story.starts["k"] = [(100, 1, (0, 1)), (150, 2, (0, 1))]
    story.ended, story.ends[2, (0, 1)] = {(0, 1)}, [250]
    story.changes[1, 0] = [Change(50, "gain", 1, 170)]
    story.session_ends[1] = [(50, 170)]
    found = judge(story, 1, {1: 120})
    assert (found.explained, found.faults, found.running) == ([], [], {1: 1})
    assert len(judge(story, 1, {1: 160}).faults) == 1
    found = judge(story, 1, {1: 160}, [(1, 110, 155)])
    assert (len(found.explained), found.faults) == (1, [])
    for other in ((2, 110, 155), (1, 60, 90), (1, 151, 155)):
        assert len(judge(story, 1, {1: 160}, [other]).faults) == 1
    story.session_ends[1] = [(50, 140)]
    assert len(judge(story, 1, {1: 160}).explained) == 1


async def reach(log: Log, events: float) -> None:
    """Waits until so many events have ended, for as long as some do."""
    last, moved = -1, time.monotonic()
    while (ended := len(log.read().ended)) < events:
        if ended != last:
            last, moved = ended, time.monotonic()
        assert time.monotonic() - moved < STUCK_SECONDS, f"none of {events:.0f} events ends beyond {ended}"
        await asyncio.sleep(0.05)


def held_by(member: Member, story: Story) -> set[int]:
    """The partitions that a member has."""
    return {
        partition
        for (process, partition), changes in story.changes.items()
        if process == member.pid and changes[-1].what == "gain"
    }


def can_redo(member: Member, story: Story, each: int) -> bool:
    """Whether a member has begun something, and has something left to do; `each`: the events of a partition."""
    return member.pid in story.workers and any(story.done[held] < each for held in held_by(member, story))


async def oversleep(member: Member, log: Log, each: int) -> Nap:
    """The member sleeps until another one works on a partition that it has, or nothing is left of those to work on.

    `each`: the events of a partition.
    """
    held, asleep = held_by(member, log.read()), time.monotonic_ns()

    def taken() -> bool:
        newest = (mine[-1] for mine in log.read().starts.values())
        return any(at > asleep and process != member.pid and place[0] in held for at, process, place in newest)

    def over() -> bool:
        return taken() or all(log.story.done[partition] == each for partition in held)

    member.send_signal(signal.SIGSTOP)
    try:
        await until(over, timeout=STUCK_SECONDS)
    finally:
        member.send_signal(signal.SIGCONT)
    return member.pid, asleep, time.monotonic_ns()


async def test_a_member_wakes_if_nothing_is_left_of_its_partitions(tmp_path: Path) -> None:
    """Nobody begins an event of them any more."""
    member = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        log = tmp_path / "log"
        log.write_text(f"start 1 {member.pid} k 0 0 .\nend 2 {member.pid} k 0 0 .\n")
        log.with_suffix(".ownership").write_text(f"gain 1 {member.pid} 0 1 9 .\n")
        who, since, to = await asyncio.wait_for(oversleep(member, Log(log), 1), 20)
        assert who == member.pid and since < to
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(oversleep(member, Log(log), 2), 0.5)
    finally:
        member.kill()
        await member.wait()


async def write(cluster: Cluster, prefix: str, events: int) -> None:
    chance = random.Random(3)
    for partition in range(PARTITIONS):
        rows = [(b"p%d-%d" % (partition, int(200 * chance.random() ** 2)), b"1") for _ in range(events // PARTITIONS)]
        for first in range(0, len(rows), 10_000):
            await cluster.write(f"{prefix}-in", rows[first : first + 10_000], partition)


def shuffled(kills: int, rebalances: int, sleeps: int) -> list[str]:
    """In random order. A rebalance is a member that comes or one that leaves."""
    found = ["kill"] * kills + ["join", "leave"] * (rebalances // 2) + ["sleep"] * sleeps
    random.Random(11).shuffle(found)
    return found


@pytest.mark.parametrize(
    ("events", "faults", "interval", "seconds"),
    [
        pytest.param(6_000, shuffled(3, 2, 0), 0.05, 0.03, id="short"),
        pytest.param(20_000, shuffled(20, 6, 3), 0.05, 0.01, marks=pytest.mark.fault, id="part"),
        pytest.param(20_000, shuffled(20, 6, 3), 0.0, 0.01, marks=pytest.mark.fault, id="part-commits-at-once"),
        pytest.param(
            100_000, shuffled(40, 10, 5), 0.05, 0.03, marks=[pytest.mark.fault, pytest.mark.timeout(3600)], id="tenth"
        ),
        pytest.param(
            1_000_000, shuffled(200, 50, 20), 0.05, 0.03, marks=[pytest.mark.fault, pytest.mark.timeout(0)], id="whole"
        ),
    ],
)
async def test_kills_and_rebalances_lose_nothing_and_keep_the_order(
    cluster: Cluster,
    topic_prefix: str,
    tmp_path: Path,
    new_member: Callable[..., Awaitable[Member]],
    events: int,
    faults: list[str],
    interval: float,
    seconds: float,
) -> None:
    """`seconds`: what an event takes on average; slow ones leave the machine time for all else."""
    await cluster.create(**{f"{topic_prefix}-in": PARTITIONS, f"{topic_prefix}-dead": 1})
    log, chance = Log(tmp_path / "log"), random.Random(11)

    async def join() -> Member:
        return await new_member(seconds, LANES, commit_interval=interval)

    members = [await join() for _ in range(3)]
    await write(cluster, topic_prefix, events)  # now, or on a busy machine one member does all before others are there
    killed: dict[int, int] = {}
    naps: list[Nap] = []
    for number, fault in enumerate(faults):
        await reach(log, max(LANES, 0.9 * number / len(faults) * events))
        log_it.info("%d of %d events: fault %d of %d: %s", len(log.story.ended), events, number, len(faults), fault)
        if fault == "join" or len(members) == 1:
            members.append(await join())
            continue
        # One that has only just started, or has done all, has nothing that could be done again.
        story = log.read()
        member = chance.choice([each for each in members if can_redo(each, story, events // PARTITIONS)] or members)
        if fault == "sleep":
            naps.append(await oversleep(member, log, events // PARTITIONS))
            continue
        members.remove(member)
        if fault == "leave":
            member.terminate()
            assert await member.wait() == 0
        else:
            killed[member.pid] = time.monotonic_ns()
            member.kill()
            await member.wait()
            members.append(await join())
    await reach(log, events)
    for member in members:
        member.terminate()
    assert [await member.wait() for member in members] == [0] * len(members)
    found = judge(log.read(), events, killed, naps)
    log_it.warning("%s", found)
    assert not found.faults, str(found)
    assert await cluster.read(f"{topic_prefix}-dead") == []
    assert found.running or found.ended
    for what, each in (("running", found.running), ("ended", found.ended)):
        mean, most = each.total() / len(killed), max(each.values(), default=0)
        log_it.warning("%d events, %d kills: %.1f %s redone by each, %d at most", events, len(killed), mean, what, most)
    log_it.warning("%d redone of members that the group went on without", found.of_others.total())
