"""What one partition's handlers return, its offset and its gaps, in transactions.

Each input partition has a transactional id of its own. Who begins to own it starts a producer of that id before it asks
what is committed: that ends a transaction that a former owner has left open, and fences the owner, which may only have
slept. (aiokafka commits offsets in transactions without the group's generation, so the group does not fence it.)

A transactional request whose answer does not come may arrive later, inside of the next transaction of the same epoch
(KAFKA-17754). So the first one without an answer is the producer's last: nothing is sent in its epoch any more, and the
next producer's fences what is still under way. Whether the transaction was committed is told by what is committed then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, NodeNotReadyError, ProducerFenced
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.structs import OffsetAndMetadata
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.events import Outgoing
from keygrouping_app.kafka.clients import Settings, started
from keygrouping_app.kafka.ranges import split_states, with_states
from keygrouping_app.kafka.session import end_sending, hear_failures, transaction_end
from keygrouping_app.kafka.stable import until_stable
from keygrouping_app.kafka.topics import Topics
from keygrouping_app.kafka.writing import AT_ONCE, write_all

log = logging.getLogger(__name__)

_ONCE = (AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest)
_TIMEOUT = 60.0
"""Seconds that a transaction may take; the broker aborts one that is open for longer."""


class UnansweredError(KafkaError):  # type: ignore[misc]
    """It is not known whether a transactional request was done, and it may still be."""


class Transactions:
    """Of one partition, one after another. `find` gives what is committed; `largest`: bytes of a record at most.

    `topics`: what the app has found of topics.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        tp: TopicPartition,
        find: Callable[[], Awaitable[OffsetAndMetadata]],
        largest: int = 0,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._largest = largest
        self._attempted = OffsetAndMetadata(-1, "")
        self._tp = tp
        self._find = find
        self._committed = OffsetAndMetadata(-1, "")
        self._clients = AsyncExitStack()
        self._producer: OnceProducer | None = None

    async def begin(self) -> OffsetAndMetadata:
        """Fences whoever had the partition before, and gives what is committed, which nobody else changes from now on.

        Tries again while the broker is away; it may be called again, to go on with a new producer.
        """
        for pause in backoff():
            try:
                with given_up_calls():
                    self._committed = await self._begin()
                return self._committed
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("%s[%d]: cannot begin a transaction, trying again: %r", *self._tp, error)
            await asyncio.sleep(pause)
        raise AssertionError

    async def _begin(self) -> OffsetAndMetadata:
        await self.close()
        connection = self._settings.connection
        if self._largest:
            connection["max_request_size"] = max(self._largest, connection.get("max_request_size", 0))
        producer = OnceProducer(
            **connection,
            transactional_id=id_of(self._settings.group, self._tp),
            transaction_timeout_ms=int(_TIMEOUT * 1000),
            acks="all",
        )
        await self._clients.enter_async_context(started(producer))
        self._producer = producer
        await until_stable(producer.client, self._settings.group, [self._tp])
        return await self._find()

    async def commit(
        self,
        what: OffsetAndMetadata,
        outgoing: Sequence[Outgoing],
        states: Sequence[Outgoing] = (),
        pieces: Mapping[str, int] = AT_ONCE,
    ) -> OffsetAndMetadata:
        """Writes records and commits as one; gives what was committed: with the last offset of `states`, if any.

        ProducerFenced if another member has the partition. After any other error nothing of it was done: RefusedError
        if a broker refuses records. `pieces`: see `write_all`.
        """
        self._attempted = what
        await self._do(partial(self._write, what=what, outgoing=outgoing, states=states, pieces=pieces))
        self._committed = self._attempted
        return self._committed

    async def try_out(self, records: Sequence[Outgoing], pieces: Mapping[str, int]) -> None:
        """Has a broker say whether it takes records: nothing of them is kept. Errors and `pieces` as with `commit`."""
        self._attempted = self._committed
        await self._do(partial(self._write_in_vain, records=records, pieces=pieces))

    async def _do(self, work: Callable[[OnceProducer], Coroutine[Any, Any, None]]) -> None:
        try:
            await self._try(work)
        except (KafkaError, TimeoutError, OSError) as error:
            if isinstance(error, ProducerFenced) or not can_be_retried(error):
                raise
            before = self._committed
            found = await self.begin()
            if found == before:
                raise
            if found != self._attempted:
                raise ProducerFenced("another member has committed meanwhile") from error
            log.warning("%s[%d]: a transaction was committed, although its answer was lost: %r", *self._tp, error)

    async def close(self) -> None:
        """Ends the producer; a transaction that is open is aborted by the next one, or by the broker in time."""
        clients, self._clients, self._producer = self._clients, AsyncExitStack(), None
        await clients.aclose()

    async def _try(self, work: Callable[[OnceProducer], Coroutine[Any, Any, None]]) -> None:
        if self._producer is None:
            raise UnansweredError("the producer of the transaction before is gone")
        writing = asyncio.create_task(work(self._producer))
        try:
            async with asyncio.timeout(_TIMEOUT):
                await asyncio.wait([writing, self._producer.unanswered], return_when=asyncio.FIRST_COMPLETED)
        finally:
            writing.cancel()
        if not writing.done():
            self._producer.unanswered.result()
        try:
            with given_up_calls():
                await writing
        except AssertionError as error:  # so aiokafka tells of its own end
            raise UnansweredError("the producer has ended") from error

    async def _write(
        self,
        producer: OnceProducer,
        what: OffsetAndMetadata,
        outgoing: Sequence[Outgoing],
        states: Sequence[Outgoing],
        pieces: Mapping[str, int],
    ) -> None:
        await producer.begin_transaction()
        offsets = await write_all(producer, [*outgoing, *states], self._topics, pieces)
        if states:
            what = OffsetAndMetadata(what.offset, with_states(split_states(what.metadata)[0], _last(offsets, states)))
            self._attempted = what
        await producer.send_offsets_to_transaction({self._tp: what}, self._settings.group)
        await producer.commit_transaction()

    async def _write_in_vain(
        self, producer: OnceProducer, records: Sequence[Outgoing], pieces: Mapping[str, int]
    ) -> None:
        await producer.begin_transaction()
        await write_all(producer, records, self._topics, pieces)
        await producer.abort_transaction()


class OnceProducer(AIOKafkaProducer):  # type: ignore[misc]
    """A transactional producer that sends nothing any more once a transactional request was not answered."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.unanswered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails when nothing is sent any more."""
        self.unanswered.add_done_callback(_seen)
        hear_failures(self)
        self._send_on = self.client.send
        self.client.send = self._answered

    async def begin_transaction(self) -> None:
        """As the client's; asyncio is not to tell of each transaction that has failed, as who writes in it does."""
        await super().begin_transaction()
        transaction_end(self).add_done_callback(_seen)

    async def stop(self) -> None:
        """Ends it; what it has not sent by then is not sent any more if nothing is sent."""
        if self.unanswered.done() and (error := self.unanswered.exception()) is not None:
            await end_sending(self, error)
        await super().stop()

    async def _answered(self, node: int, request: object, **options: Any) -> Any:
        if self.unanswered.done():
            raise UnansweredError("a transactional request of this producer was not answered")
        try:
            return await self._send_on(node, request, **options)
        except NodeNotReadyError:
            raise  # nothing was sent
        except KafkaError as error:
            if isinstance(request, _ONCE) and not self.unanswered.done():
                told = UnansweredError(f"the answer to {type(request).__name__} is unknown ({error!r})")
                self.unanswered.set_exception(told)
            raise


def id_of(app: str, tp: TopicPartition) -> str:
    """The transactional id of an app's partition, and of no other one's: names of apps and topics have no slash."""
    return f"{app}/{tp.topic}/{tp.partition}"


def _last(offsets: Sequence[int], states: Sequence[Outgoing]) -> int:
    last = max(offsets[-len(states) :])
    if last < 0:  # a broker that has forgotten where it wrote what it was sent twice
        raise UnansweredError("it is not known where states were written")
    return last


def _seen(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()
