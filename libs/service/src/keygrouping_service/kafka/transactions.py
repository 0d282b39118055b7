"""Transactional producers that never go on while a request of theirs may still be under way.

A request whose answer does not come may arrive later, inside the next transaction of the same producer epoch, and no
broker can tell it from a request of that transaction: EndTxn commits or aborts the half of it that is there
(KAFKA-17754), TxnOffsetCommit puts an older offset over the newer one. aiokafka sends all of them again and goes on.
Here the first transactional request without an answer is the producer's last: nothing is sent in its epoch any more,
and the InitProducerId of the next producer bumps the epoch, which fences whatever is still under way.

What has been answered is under way no more, so it may be sent again if the answer asks for that (NOT_COORDINATOR,
COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS): whatever the broker did append before
it gave up lies in its log before all that comes later, and ends the same transaction the same way. Records need none of
this, as brokers know them by their sequence numbers, nor does InitProducerId: if it comes late, it fences its sender.

Transactions of version 2 (KIP-890) have an epoch each and would need none of this either. Brokers offer them to clients
that speak Produce 12, EndTxn 5, TxnOffsetCommit 5; aiokafka 0.14 speaks Produce 7 and version 0 of the others.

`tests/kafka/test_transactions.py` says what of aiokafka's producer this relies on.
"""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)

from keygrouping_service.records.aiokafka_adapter import ProducerInside

_NAMES = {
    AddPartitionsToTxnRequest: "an AddPartitionsToTxn",
    AddOffsetsToTxnRequest: "an AddOffsetsToTxn",
    TxnOffsetCommitRequest: "a TxnOffsetCommit",
}


class AnswerUnknown(KafkaError):  # type: ignore[misc]
    """A transactional request may or may not have been done, and may still be: only a new producer can go on.

    Its start ends the transaction one way or the other; the offsets that are committed then say which.
    """


class TransactionalProducer(AIOKafkaProducer):  # type: ignore[misc]
    """aiokafka's producer, which fails for good with `AnswerUnknown` where that would repeat a request blindly.

    What is pending then fails with the same error, and no abort is sent: the next producer with the same transactional
    id aborts what is open, under its own epoch.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._inside = ProducerInside(self)
        self._inside.send_through(_AnsweredClient(self))
        self.failure: KafkaError | None = None
        """Why nothing is sent any more, and all that is under way fails."""

    async def begin_transaction(self) -> None:
        """As aiokafka's, see `_raise_if_failed`."""
        self._raise_if_failed()
        await super().begin_transaction()

    async def send_batch(self, batch: Any, topic: str, *, partition: int) -> Any:
        """As aiokafka's, see `_raise_if_failed`."""
        self._raise_if_failed()
        return await super().send_batch(batch, topic, partition=partition)

    async def send_offsets_to_transaction(self, offsets: Any, group_id: str) -> None:
        """As aiokafka's, see `_raise_if_failed`."""
        self._raise_if_failed()
        await super().send_offsets_to_transaction(offsets, group_id)

    async def commit_transaction(self) -> None:
        """As aiokafka's, see `_raise_if_failed`."""
        self._raise_if_failed()
        await super().commit_transaction()

    def _raise_if_failed(self) -> None:
        """aiokafka tells of its own end by an AssertionError or IllegalOperation, as if the caller were wrong: no
        KafkaErrors, so records would be taken for poison."""
        if self.failure is not None:
            raise self.failure
        if self._inside.failed:
            raise KafkaError("the producer has failed")

    async def stop(self) -> None:
        """Flushes and closes, see `kafka.close`."""
        try:
            await super().stop()
        finally:
            self._forget_failures()

    def _forget_failures(self) -> None:
        """Takes note of failures for which nobody may have waited, of which asyncio would complain with tracebacks."""
        for waiter in self._inside.waiters():
            if waiter.done() and not waiter.cancelled():
                waiter.exception()

    def give_up(self, request: object, cause: KafkaError) -> None:
        """Ends the producer because the answer to `request` will not come."""
        error = AnswerUnknown(f"the answer to {self._name(request)} is unknown ({type(cause).__name__})")
        self.failure = error
        self._inside.fail(error)

    def _name(self, request: object) -> str:
        if isinstance(request, EndTxnRequest):
            return "a commit" if self._inside.committing else "an abort"
        return _NAMES[type(request)]


class _AnsweredClient:
    """The producer's client as its sender sees it."""

    def __init__(self, producer: TransactionalProducer) -> None:
        self._producer = producer
        self._client: AIOKafkaClient = producer.client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node_id: int, request: object, *, group: int = ConnectionGroup.DEFAULT) -> Any:
        self._raise_failure()
        try:
            return await self._client.send(node_id, request, group=group)
        except NodeNotReadyError:
            raise  # Nothing was sent.
        except KafkaError as error:
            self._raise_failure(error)
            if isinstance(request, (EndTxnRequest, *_NAMES)):
                self._producer.give_up(request, error)
            raise

    def _raise_failure(self, cause: KafkaError | None = None) -> None:
        # Not an error that asks for a retry: the sender would queue a batch again that has been given up.
        if self._producer.failure is not None:
            raise self._producer.failure from cause
