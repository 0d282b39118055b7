"""Laws of what is done about calls that fail."""

import asyncio
import contextlib
from itertools import islice
from types import SimpleNamespace

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, KafkaConnectionError, NodeNotReadyError
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_kafka.calls import backoff, cancel, given_up_calls, start, together
from keygrouping_kafka.errors import can_be_retried


@given(st.floats(0.01, 1), st.floats(1, 10))
def test_pauses_grow_to_a_limit(first: float, most: float) -> None:
    pauses = list(islice(backoff(first, most), 20))
    assert pauses[0] <= 1.3 * first
    assert all(pause <= 1.3 * most for pause in pauses)
    assert pauses[-1] >= 0.7 * most


async def test_a_call_that_a_client_gave_up_is_an_error_and_a_cancellation_stays_one() -> None:
    async def call(given_up: asyncio.Future[None]) -> None:
        with given_up_calls():
            await given_up

    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    calling = asyncio.create_task(call(future))
    await asyncio.sleep(0)
    future.cancel()
    with pytest.raises(KafkaConnectionError, match="given up"):
        await calling

    cancelled = asyncio.create_task(call(asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await call(asyncio.get_running_loop().create_future())


async def test_a_cluster_that_names_no_broker_is_one_that_may_come_back() -> None:
    async def first_start() -> None:
        raise AssertionError

    with pytest.raises(KafkaConnectionError, match="names no broker") as caught:
        await start(SimpleNamespace(start=first_start))
    assert can_be_retried(caught.value)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (NodeNotReadyError(), True),
        (GroupAuthorizationFailedError("g"), False),
        (ValueError(), False),
    ],
)
def test_what_may_pass_by_itself(error: Exception, passes: bool) -> None:
    assert can_be_retried(error) is passes


@pytest.mark.parametrize("ends", ["well", "with an error"])
async def test_a_cancellation_that_a_call_has_lost_is_one_all_the_same(ends: str) -> None:
    """As `asyncio.wait_for` of Python 3.11 loses it, if what it waits for ends at that moment."""
    tries = 0

    async def call() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        if ends == "with an error":
            raise KafkaConnectionError("away")

    async def keep_calling() -> None:
        nonlocal tries
        while True:
            tries += 1
            try:
                with given_up_calls():
                    await call()
            except KafkaConnectionError:
                await asyncio.sleep(0)

    working = asyncio.create_task(keep_calling())
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await cancel([working])
    assert working.cancelled() and tries == 1


async def test_a_deadline_that_has_passed_is_no_cancellation() -> None:
    with pytest.raises(TimeoutError), given_up_calls():
        async with asyncio.timeout(0):
            await asyncio.sleep(3600)


async def test_who_has_lost_a_cancellation_gets_one_more() -> None:
    lost = 0

    async def work() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                lost += 1
                if lost == 3:
                    raise

    tasks = [asyncio.create_task(work()), asyncio.create_task(asyncio.sleep(3600))]
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await cancel(tasks, again=0.01)
    assert lost == 3 and all(task.cancelled() for task in tasks)
    await cancel([])


async def test_the_first_of_several_calls_that_fails_ends_the_others_and_is_told_as_it_is() -> None:
    """Also where all of them fail, and no sooner than while they are waited for, as in an outage."""
    ended: list[str] = []

    async def fails(after: float) -> None:
        await asyncio.sleep(after)
        raise KafkaConnectionError("no broker")

    async def works() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("works")

    task = asyncio.current_task()
    assert task is not None
    for calls in ([fails(0.01), works()], [fails(0.01), fails(0.01)], [fails(0.0)]):
        with pytest.raises(KafkaConnectionError, match="no broker"), given_up_calls():
            await together(calls)
        assert not task.cancelling()
    assert ended == ["works"]
    await together([])


async def test_several_calls_end_with_the_task_that_waits_for_them() -> None:
    ended = 0

    async def works() -> None:
        nonlocal ended
        try:
            await asyncio.sleep(3600)
        finally:
            ended += 1

    waiting = asyncio.create_task(together([works(), works()]))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled() and ended == 2
