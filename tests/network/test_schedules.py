"""Whatever the network, the brokers and the processes do: no event is lost, doubled or in the wrong window."""

from __future__ import annotations

import itertools
import shutil
import uuid
from pathlib import Path

import pytest
from keygrouping_local.paths import data_dir

from .faults import possible
from .record import Record
from .say import Say
from .schedule import draw
from .trial import Outcome, trial_of
from .world import faketime, world

PER_WORLD = 20
"""Schedules on one cluster before the next one is made, so that disks and memory stay small."""


@pytest.mark.network
@pytest.mark.timeout(0)
async def test_random_schedules_of_faults_change_nothing(pytestconfig: pytest.Config, say: Say) -> None:
    runner, first = pytestconfig.getoption("--runner"), pytestconfig.getoption("--seed")
    record = Record(data_dir() / "network" / "schedules.jsonl")
    count = pytestconfig.getoption("--schedules") or (20 if first is None else 1)
    seeds = iter(range(first if first is not None else record.next_seed(runner), 1 << 31))
    left, bad = count, []
    while left:
        batch = list(itertools.islice(seeds, min(left, PER_WORLD)))
        done = await run_schedules(batch, runner, pytestconfig.getoption("--faults"), record, say)
        bad += [outcome for outcome in done if outcome.findings]
        left -= len(done)
        seeds = itertools.chain(batch[len(done) :], seeds)
    say(record.summary())
    assert not bad, "\n".join(
        f"{outcome}\nagain: make test-network ARGS='--runner {runner} --seed {outcome.schedule.seed}'"
        for outcome in bad
    )


async def run_schedules(seeds: list[int], runner: str, faults: int, record: Record, say: Say) -> list[Outcome]:
    """Runs schedules on one pipeline, up to the first with a finding: the next one begins with a pipeline in order."""
    folder = data_dir() / "network" / uuid.uuid4().hex[:8]
    done: list[Outcome] = []
    async with world(folder, "network", runner) as running:
        if running.disk is None:
            say("SKIPPED: full disks, as only root can mount a small one")
        if faketime() is None:
            say("SKIPPED: clocks that jump, as libfaketime is not installed (Debian: apt-get install libfaketime)")
        trial = trial_of(running, seeds[0])
        for seed in seeds:
            schedule = draw(seed, possible(running), faults)
            say(schedule)
            outcome = await trial.run(schedule)
            if seed == seeds[-1] and not outcome.findings:
                outcome.findings += await trial.finish()
            record.add(outcome)
            done.append(outcome)
            say(outcome)
            if outcome.findings:
                say(f"logs: {folder}")
                break
    clean(folder, logs=bool(done and done[-1].findings))
    return done


def clean(folder: Path, *, logs: bool) -> None:
    """Removes a pipeline's data, and its logs if nobody needs them."""
    if not logs:
        shutil.rmtree(folder)
        return
    for data in folder.glob("broker-*/kafka"):
        shutil.rmtree(data)
