"""Laws of what is done about calls that fail."""

import asyncio
from itertools import islice
from types import SimpleNamespace

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, KafkaConnectionError, NodeNotReadyError
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_kafka.calls import backoff, given_up_calls, start
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
