"""Lanes of each kind hold to one contract, and processes to what only they can do: to end late calls, and to die."""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import lane_handlers
import orjson
import pytest
from keygrouping_app import App, AppError, Event, Outgoing, Retries, Topic
from keygrouping_app.events import Record, Source, event_of
from keygrouping_app.lanes import Lanes
from keygrouping_app.process_lanes import ProcessLanes
from keygrouping_app.scheduler import Failure
from keygrouping_service.testing import notes

KINDS: dict[str, tuple[Any, dict[str, int]]] = {
    "event loop": (lane_handlers.work_async, {"concurrency": 3}),
    "threads": (lane_handlers.work, {"concurrency": 3}),
    "processes": (lane_handlers.work, {"processes": 2}),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


class Ends:
    """What lanes tell."""

    def __init__(self) -> None:
        self.events: Counter[int] = Counter()
        self.outputs: list[Outgoing] = []
        self.failures: dict[int, Failure] = {}

    def __call__(self, ended: list[Event], outputs: list[Outgoing], failure: Failure | None) -> None:
        self.events.update(event.offset for event in ended)
        self.outputs += outputs
        if failure is not None:
            self.failures |= {event.offset: failure for event in ended}

    def reach(self, count: int) -> bool:
        """Whether so many events have ended."""
        return len(self.events) >= count


@asynccontextmanager
async def lanes_of(app: App, ends: Ends) -> AsyncIterator[Any]:
    (handler,) = app.handlers
    app.check()
    lanes = app._lanes(handler, {})(ends)
    try:
        await lanes.begin()
        yield lanes
    finally:
        await lanes.end()


async def until(met: Callable[[], object], lanes: Lanes | None = None) -> None:
    deadline = time.monotonic() + 60
    while not met():
        if lanes is not None and lanes.failure.done():
            lanes.failure.result()
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def reached(met: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Making:
    """Events of one source, numbered."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.source = Source(Topic("t"))
        self.count = 0

    def __call__(self, keys: str | list[str], do: str = "work", **more: int) -> list[Event]:
        value = orjson.dumps({"log": str(self.log), "do": do, **more})
        made = [
            event_of(Record("t", 0, self.count + number, 0, key.encode(), value), self.source)
            for number, key in enumerate(keys)
        ]
        self.count += len(made)
        return made

    def runs(self) -> dict[str, list[tuple[int, str, int, int]]]:
        """Time, `start` or `end`, process and offset of all runs, by key."""
        found: defaultdict[str, list[tuple[int, str, int, int]]] = defaultdict(list)
        for what, at, process, key, offset in notes(self.log.read_text().splitlines()):
            found[key].append((int(at), what, int(process), int(offset)))
        return {key: sorted(each) for key, each in found.items()}


@pytest.fixture
def making(tmp_path: Path) -> Making:
    """Its log is the test's."""
    return Making(tmp_path / "log")


def pids(lanes: ProcessLanes) -> list[int]:
    """Of the processes that there are now."""
    return [each._process.pid for each in lanes._processes if each._process and each._process.pid]


def lives(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


# The contract.


@each_kind
async def test_a_keys_events_run_in_order_and_never_two_at_once(kind: str, making: Making) -> None:
    """Whatever fails, takes long or is tried again."""
    function, settings = KINDS[kind]
    chance = random.Random(5)
    app = lane_handlers.app_of(function, retries=Retries(3, first=0.001, most=0.01), breaker=None, **settings)
    wanted = [f"k{int(chance.random() ** 3 * 40)}" for _ in range(600)]
    ends = Ends()
    async with lanes_of(app, ends) as lanes:
        for key in wanted:
            do = chance.choices(["work", "slow", "raise"], [6, 3, 1])[0]
            lanes.offer(making([key], do, times=chance.randint(1, 2)))
            if chance.random() < 0.02:
                await asyncio.sleep(0)
        await until(lambda: len(ends.events) == 600, lanes)
    assert set(ends.events.values()) == {1}
    assert not ends.failures
    for key, runs in making.runs().items():
        order = list(dict.fromkeys(offset for _, _, _, offset in runs))
        assert order == [number for number, each in enumerate(wanted) if each == key]
        assert [what for _, what, _, _ in runs] == ["start", "end"] * (len(runs) // 2)
        assert all(run[2:] == end[2:] for run, end in zip(runs[::2], runs[1::2], strict=True))


@each_kind
async def test_calls_end_alike(kind: str, making: Making) -> None:
    function, settings = KINDS[kind]
    app = lane_handlers.app_of(function, retries=Retries(2, first=0.001, most=0.01), breaker=None, **settings)
    ends = Ends()
    async with lanes_of(app, ends) as lanes:
        for key, do in [("a", "raise"), ("b", "reject"), ("c", "wrong"), ("d", "output"), ("e", "work")]:
            lanes.offer(making(key, do))
        if kind != "event loop":
            lanes.offer(making("f", "leave"))
        lanes.offer(making("g", "raise", times=2))
        await until(lambda: len(ends.events) == making.count, lanes)
        assert lanes.scheduler.idle
    told = {offset: (failure.reason, failure.detail) for offset, failure in ends.failures.items()}
    wanted = {0: ("failed", "RuntimeError: no money for a"), 1: ("rejected", "the shop is closed")}
    if kind != "event loop":
        wanted[5] = ("failed", "SystemExit: 3")
    assert told.pop(2)[0] == "invalid_output"
    assert told == wanted
    assert len(ends.failures[0].digest) == 12
    (output,) = ends.outputs
    assert output == Outgoing("receipts", None, 0, b"d", b'{"of":3}', (("who", b"me"),))
    assert sum(sum(calls) for calls in lanes.tally.calls.values()) == making.count + 4 + 2 * (kind != "event loop")
    assert lanes.tally.dead["failed"] == (1 if kind == "event loop" else 2)


@each_kind
async def test_a_try_that_came_due_between_two_looks_at_the_clock_is_made(kind: str, making: Making) -> None:
    function, settings = KINDS[kind]
    ends = Ends()
    app = lane_handlers.app_of(function, retries=Retries(2, first=0.001, most=0.001), **settings)
    async with lanes_of(app, ends) as lanes:
        now = asyncio.get_running_loop().time()
        lanes.scheduler.offer(making("a"))
        lanes.scheduler.finish(lanes.scheduler.start(now), now - 1, Failure("failed", ""))
        lanes._watch()
        await until(lambda: len(ends.events) == 1, lanes)


@each_kind
async def test_a_rate_that_nothing_waits_for_any_more_rings_no_bell(
    kind: str, making: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, settings = KINDS[kind]
    ends = Ends()
    async with lanes_of(lane_handlers.app_of(function, rate=20, **settings), ends) as lanes:
        lanes.offer(making([f"k{n}" for n in range(60)]))
        await until(lambda: lanes.scheduler.held, lanes)
        lanes.withdraw(making.source)
        await until(lambda: lanes.scheduler.idle, lanes)
        rings, ring = Counter[bool](), lanes._ring
        monkeypatch.setattr(lanes, "_ring", lambda: (rings.update([True]), ring()))
        until_open = asyncio.get_running_loop().time() + 0.3
        await until(lambda: asyncio.get_running_loop().time() > until_open)
        assert rings.total() < 10


@each_kind
async def test_nothing_of_a_withdrawn_source_begins_and_what_runs_may_end(kind: str, making: Making) -> None:
    function, settings = KINDS[kind]
    ends = Ends()
    async with lanes_of(lane_handlers.app_of(function, **settings), ends) as lanes:
        lanes.offer(making([f"k{n}" for n in range(3000)], "slow"))
        await until(lambda: len(ends.events) >= 20, lanes)
        lanes.withdraw(making.source)
        other = Making(making.log)
        lanes.offer(other("x", "work"))
        await until(lambda: lanes.scheduler.idle, lanes)
    began = [offset for runs in making.runs().values() for _, what, _, offset in runs if what == "start"]
    assert len(began) < 3000
    assert making.source.running == making.source.events == making.source.bytes == 0
    assert set(ends.events) == set(began)


@each_kind
async def test_nothing_begins_while_the_partitions_may_be_another_members(kind: str, making: Making) -> None:
    function, settings = KINDS[kind]
    ends = Ends()
    async with lanes_of(lane_handlers.app_of(function, **settings), ends) as lanes:
        lanes.offer(making([f"k{n}" for n in range(300)], "slow"))
        await until(lambda: len(ends.events) >= 20, lanes)
        lanes.may_start(-math.inf)
        lanes.offer(making(["x"] * 10))
        # What begins no more has not been handed over, or waits to be: it counts as running, but does not run.
        await until(lambda: len(lanes.scheduler.running) == len(getattr(lanes, "_calls", ())), lanes)
        begun = sum(map(len, making.runs().values()))
        lanes.may_start(math.inf)
        await until(lambda: ends.reach(310), lanes)
        assert begun < sum(map(len, making.runs().values()))
        assert lanes.scheduler.idle


@each_kind
async def test_what_may_not_begin_goes_with_its_source(kind: str, making: Making) -> None:
    function, settings = KINDS[kind]
    ends = Ends()
    async with lanes_of(lane_handlers.app_of(function, **settings), ends) as lanes:
        lanes.offer(making([f"k{n}" for n in range(300)], "slow"))
        await until(lambda: len(ends.events) >= 20, lanes)
        lanes.may_start(-math.inf)
        lanes.withdraw(making.source)
        await until(lambda: lanes.scheduler.idle, lanes)
        assert making.source.events == 0


@pytest.mark.parametrize("settings", [{"concurrency": 2}, {"processes": 2}])
async def test_a_batch_that_fails_comes_again_one_by_one(settings: dict[str, int], making: Making) -> None:
    app = lane_handlers.app_of(lane_handlers.batch, batch=True, retries=0, breaker=None, **settings)
    ends = Ends()
    async with lanes_of(app, ends) as lanes:
        lanes.offer([*making("aaaa"), *making("bb"), *making("b", "raise"), *making("bb")])
        await until(lambda: len(ends.events) == 9, lanes)
    assert set(ends.failures) == {6}
    assert sorted(output.value or b"" for output in ends.outputs) == [b"[0,1,2,3]", b"[4]", b"[5]", b"[7]", b"[8]"]


# What only processes can do.


async def test_a_late_call_ends_with_its_process_and_everything_else_goes_on(making: Making) -> None:
    app = lane_handlers.app_of(lane_handlers.work, processes=2, timeout=5, retries=0)
    ends = Ends()
    async with lanes_of(app, ends) as lanes:
        before = pids(lanes)
        lanes.offer([*making("a", "sleep"), *making("a" + "bcd" * 30)])
        await until(lambda: len(ends.events) == 92, lanes)
        assert {offset: failure.reason for offset, failure in ends.failures.items()} == {0: "timeout"}
        assert " 5 s" in ends.failures[0].detail
        lanes.offer(making("ab" * 20, "slow"))
        await until(lambda: len(ends.events) == 132, lanes)
        assert lanes.tally.replaced == {"late": 1, "died": 0}
        assert len(set(before) & set(pids(lanes))) == 1
    assert set(ends.events.values()) == {1}


async def test_calls_behind_one_that_hangs_go_to_another_process(making: Making) -> None:
    """Also those that were handed over together with it, long before it is late."""
    app = lane_handlers.app_of(lane_handlers.quiet, processes=2, timeout=3600, retries=0)
    ends = Ends()
    async with lanes_of(app, ends) as lanes:
        lanes.offer(making([f"k{n}" for n in range(5000)]))
        await until(lambda: len(ends.events) == 5000, lanes)
        assert lanes._together > 20
        lanes.offer([*making("h", "sleep"), *making([f"k{n}" for n in range(500)])])
        await until(lambda: len(ends.events) == 5500, lanes)
        assert ends.events.keys().isdisjoint({5000})
    assert set(ends.events.values()) == {1}


async def test_events_that_kill_their_process_become_dead_letters_and_nothing_else_fails(making: Making) -> None:
    app = lane_handlers.app_of(lane_handlers.quiet, processes=1, retries=Retries(1, 0.001, 0.001), breaker=None)
    ends = Ends()
    async with lanes_of(app, ends) as lanes:
        lanes.offer(making([f"k{n}" for n in range(5000)]))
        await until(lambda: len(ends.events) == 5000, lanes)
        assert lanes._together > 20
        lanes.offer([*making("abc"), *making("p", "die"), *making([f"k{n}" for n in range(100)]), *making("p")])
        await until(lambda: len(ends.events) == 5105, lanes)
        assert lanes.tally.replaced["died"] >= 2
    ((offset, failure),) = ends.failures.items()
    assert offset == 5003
    assert (failure.reason, failure.dependency) == ("crashed", True)
    assert "signal 9 (Killed)" in failure.detail
    assert set(ends.events.values()) == {1}


@pytest.mark.timeout(120)
async def test_processes_killed_at_random_lose_no_event_and_no_order(making: Making) -> None:
    app = lane_handlers.app_of(lane_handlers.work, processes=2, retries=Retries(50, 0.001, 0.001), breaker=None)
    chance, ends, keys = random.Random(7), Ends(), [f"k{n}" for n in range(12)]
    async with lanes_of(app, ends) as lanes:
        for kills in range(2):
            lanes.offer(making(keys * 20, "slow"))
            await until(partial(ends.reach, 240 * kills + 100), lanes)
            os.kill(chance.choice(pids(lanes)), signal.SIGKILL)
        await until(lambda: len(ends.events) == making.count, lanes)
        assert lanes.tally.replaced["died"] == 2
    assert not ends.failures
    assert set(ends.events.values()) == {1}
    for runs in making.runs().values():
        order = list(dict.fromkeys(offset for _, _, _, offset in runs))
        assert order == sorted(order)
        for (_, what, process, _), (_, then, other, _) in pairwise(runs):
            assert (what, then) != ("start", "start") or process != other


async def test_a_call_that_lets_nobody_else_run_is_ended_and_what_was_handed_over_with_it_runs(making: Making) -> None:
    """It can't give back what is behind it, and doesn't say which call it is."""
    app = lane_handlers.app_of(lane_handlers.quiet, processes=1, timeout=5, retries=0, breaker=None)
    ends = Ends()
    async with lanes_of(app, ends) as lanes:
        lanes.offer(making([f"k{n}" for n in range(3000)]))
        await until(lambda: len(ends.events) == 3000, lanes)
        lanes.offer([*making("ab"), *making("h", "hold"), *making("cd")])
        await until(lambda: len(ends.events) == 3005, lanes)
    assert {offset: failure.reason for offset, failure in ends.failures.items()} == {3002: "timeout"}
    assert set(ends.events.values()) == {1}


async def test_what_went_to_another_member_is_ended_and_the_rest_runs_again(making: Making) -> None:
    other = Making(making.log)
    app = lane_handlers.app_of(lane_handlers.work, processes=1, timeout=3600, retries=0)
    ends = Ends()
    async with lanes_of(app, ends) as lanes:
        lanes.offer(making("a", "sleep"))
        await until(lambda: making.log.exists(), lanes)
        lanes.offer(other("b" * 3, "slow"))
        lanes.abandon(making.source)
        await until(lambda: lanes.scheduler.idle, lanes)
    assert len(other.runs()["b"]) == 6
    assert not ends.failures
    assert making.source.running == 0


async def test_nothing_is_left_when_lanes_have_ended(making: Making) -> None:
    app = lane_handlers.app_of(lane_handlers.work, processes=2, timeout=3600)
    ends = Ends()
    async with lanes_of(app, ends) as lanes:
        started = pids(lanes)
        lanes.offer(making("a", "sleep"))
        await until(lambda: making.log.exists(), lanes)
        assert all(map(lives, started))
    assert not any(map(lives, started))


async def test_a_process_that_hangs_at_its_start_delays_the_end_for_seconds_only(
    making: Making, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "hang"
    monkeypatch.setenv("LANES_HANG", str(file))
    app = App("a")
    app.lifespan(lane_handlers.hanging)
    app.on("t", processes=1)(lane_handlers.needs_hanging)
    async with asyncio.timeout(120), lanes_of(app, Ends()) as lanes:
        file.touch()
        (first,) = pids(lanes)
        os.kill(first, signal.SIGKILL)
        await until(lambda: not lives(first))
        lanes.offer(making("a"))
        await until(lambda: pids(lanes) != [first])
        (left,) = pids(lanes)
    assert not lives(left)


PROGRAM = """
import asyncio, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/importable"]
import lane_handlers, test_process_lanes
from pathlib import Path

async def main():
    making, ends = test_process_lanes.Making(Path(sys.argv[2])), test_process_lanes.Ends()
    app = lane_handlers.app_of(lane_handlers.work, processes=2, timeout=3600)
    async with test_process_lanes.lanes_of(app, ends) as lanes:
        print(*test_process_lanes.pids(lanes), flush=True)
        lanes.offer(making("a", "sleep"))
        await asyncio.Event().wait()

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_their_member_however_it_ends(number: int, tmp_path: Path) -> None:
    program, log = tmp_path / "program.py", tmp_path / "log"
    program.write_text(PROGRAM)
    arguments = [sys.executable, str(program), str(Path(__file__).parent), str(log)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as member:
        try:
            assert member.stdout is not None
            started = list(map(int, member.stdout.readline().split()))
            reached(log.exists)
            assert len(started) == 2
            assert all(map(lives, started))
            member.send_signal(number)
            reached(lambda: not any(map(lives, started)))
            assert member.wait(60)
        finally:
            member.kill()


async def test_a_signal_to_all_processes_ends_none_of_them(making: Making) -> None:
    """A terminal's and a service manager's go to all: the member ends them in order."""
    ends = Ends()
    async with lanes_of(lane_handlers.app_of(lane_handlers.work, processes=1), ends) as lanes:
        (pid,) = pids(lanes)
        for each in (signal.SIGTERM, signal.SIGINT):
            os.kill(pid, each)
        lanes.offer(making("aab", "slow"))
        await until(lambda: len(ends.events) == 3, lanes)
        assert pids(lanes) == [pid]
        assert not lanes.tally.replaced["died"]


async def test_lifespans_that_it_needs_run_in_each_process() -> None:
    app, ends = App("a"), Ends()
    for lifespan in (lane_handlers.base, lane_handlers.unused, lane_handlers.where):
        app.lifespan(lifespan)
    app.on("t", processes=2)(lane_handlers.tell)
    app.on("u")(lane_handlers.batch)
    assert list(app._of_member()) == ["unused"]
    del app.handlers[1]
    async with lanes_of(app, ends) as lanes:
        for number in range(20):
            lanes.offer([event_of(Record("t", 0, number, 0, b"%d" % number, b"1"), Source(Topic("t")))])
        await until(lambda: len(ends.events) == 20, lanes)
        there = pids(lanes)
    for output in ends.outputs:
        first, second, handler = orjson.loads(output.value or b"").split()
        assert first == second == handler
        assert int(handler) in there


async def test_a_process_that_can_not_start_says_why() -> None:
    app = App("a")
    app.lifespan(lane_handlers.broken)
    app.on("t", processes=2)(lane_handlers.needs_broken)
    with pytest.raises(AppError, match=r"needs_broken-1: a lifespan fails in its process: .*no such host"):
        async with lanes_of(app, Ends()):
            pass


def test_what_other_processes_can_not_find_is_told_with_what_to_do() -> None:
    app = App("a")

    @app.on("one", processes=2)
    def inner(event: Event) -> None: ...

    app.on("two", processes=2)(lane_handlers.work_async)
    app.on("three", processes=2, concurrency=4)(lane_handlers.work)
    app.on("four", processes=0)(lane_handlers.quiet)
    with pytest.raises(AppError) as told:
        app.check()
    first, second, third, fourth = told.value.faults
    assert "inner on 'one': processes=2, and another process can't find it" in first
    assert "at the top level of a module" in first
    assert second == "work_async on 'two': processes is 2: give it to plain functions only"
    assert third == "work on 'three': concurrency is 4: give it or processes: each process is one lane"
    assert fourth == "quiet on 'four': processes is 0: give 1 to 256, or None"


async def test_a_test_runs_them_here() -> None:
    app = App("a")
    app.lifespan(lane_handlers.base)
    app.lifespan(lane_handlers.where)
    app.on("t", processes=2)(lane_handlers.tell)
    tested = await app.test([Event.of("t", 1, key="a")], where=lambda: "here")
    assert [output.value for output in tested.outputs] == [f'"here {os.getpid()}"'.encode()]


def test_a_module_that_runs_its_app_wherever_it_is_imported_is_told_what_to_do(tmp_path: Path) -> None:
    program = tmp_path / "unguarded.py"
    program.write_text(
        "from keygrouping_app import App, Event\n"
        "app = App('a', brokers='127.0.0.1:1')\n"
        "@app.on('t', processes=1)\n"
        "def work(event: Event) -> None: ...\n"
        "app.run()\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "put it under if __name__ == '__main__':" in done.stderr
    assert "keygrouping app: work-1: its process ended at its start, with exit code 2" in done.stderr


async def test_a_batch_may_be_taken_apart_in_a_process(making: Making) -> None:
    app, ends = App("a"), Ends()
    app.on("t", processes=1, batch=True)(lane_handlers.take_apart)
    async with lanes_of(app, ends) as lanes:
        lanes.offer(making("aabb"))
        await until(lambda: ends.reach(4), lanes)
    assert not ends.failures
    assert sorted(offset for runs in making.runs().values() for *_, offset in runs) == [0, 1, 2, 3]


async def test_a_coroutine_that_a_process_would_have_to_await_ends_the_app(making: Making) -> None:
    app, ends = App("a"), Ends()
    app.on("t", processes=1)(lane_handlers.forgets_to_await)
    async with lanes_of(app, ends) as lanes:
        lanes.offer(making("a"))
        with pytest.raises(AppError, match="returns a coroutine, which nobody awaits"):
            await asyncio.wait_for(lanes.failure, 60)
