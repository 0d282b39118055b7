"""One stretch of work in each round of the event loop."""

import asyncio
from collections.abc import Iterator

import pytest
from keygrouping_router.data.scheduling import Scheduler


async def test_one_stretch_of_all_is_done_in_a_round_and_each_gets_its_turn() -> None:
    turns, rounds, done = Scheduler(), 0, []

    def work(name: str) -> Iterator[None]:
        for _ in range(5):
            done.append((name, rounds))
            yield

    workers = [asyncio.create_task(turns.run(work(name))) for name in "abc"]
    while not all(worker.done() for worker in workers):
        await asyncio.sleep(0)
        rounds += 1
    assert sorted(name for name, _ in done) == sorted("abc" * 5)
    assert len({number for _, number in done}) == len(done)
    assert {name for name, _ in done[:3]} == {name for name, _ in done[3:6]} == set("abc")


async def test_work_that_fails_gives_its_turn_back() -> None:
    turns = Scheduler()

    def failing() -> Iterator[None]:
        yield
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await turns.run(failing())
    await asyncio.wait_for(turns.run(iter([None, None])), 1)
