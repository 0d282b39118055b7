"""Until when the group counts on a member, by the member's own clock.

A broker that hears nothing of a member for the session's timeout gives its partitions to others, and can't tell it. So
the member counts from when it sent what was answered last: by its clock the session ends no later than by the broker's.

aiokafka tells nobody of its heartbeats, nor that a group has thrown it out. So this looks at what its client sends:
with `fetched` the one place of the package that knows aiokafka from within. So what ends a producer stands here, too.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import chain
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import IllegalGenerationError, NoError, RebalanceInProgressError, UnknownMemberIdError
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest

_RENEWS = {
    HeartbeatRequest: {NoError.errno, RebalanceInProgressError.errno},
    JoinGroupRequest: {NoError.errno},
    SyncGroupRequest: {NoError.errno},
}
"""The answers with which a broker counts the session from its start again."""
_STRANGER = {UnknownMemberIdError.errno, IllegalGenerationError.errno}


def transaction_end(producer: AIOKafkaProducer) -> asyncio.Future[None]:
    """Ends with the transaction that has begun."""
    found: asyncio.Future[None] = producer._txn_manager.wait_for_transaction_end()
    return found


def hear_failures(producer: AIOKafkaProducer) -> None:
    """Has asyncio not tell of what the client itself waits for, and nobody hears, when it can't send any more.

    Before it is started. Whoever writes by it hears the error by what is written.
    """
    sender, transaction = producer._sender, producer._txn_manager
    fail_all = sender._fail_all

    def heard(ended: asyncio.Task[None]) -> None:
        accumulator = producer._message_accumulator
        batches = [*chain(*accumulator._batches.values()), *accumulator._pending_batches]
        futures = [each for batch in batches for each in (batch.future, batch._drain_waiter)]
        futures += [each for *_, each in transaction._pending_txn_offsets]
        fail_all(ended)
        for each in (*futures, transaction._transaction_waiter):
            if each is not None and each.done() and not each.cancelled():
                each.exception()

    sender._fail_all = heard


async def end_sending(producer: AIOKafkaProducer, error: BaseException) -> None:
    """Ends what a producer sends, and fails what it has not sent, so that its `stop` waits for nothing.

    While its requests fail, what sends tries them again for ever.
    """
    if producer._sender is not None:
        await producer._sender.close()
    producer._message_accumulator.fail_all(error)


class Session:
    """Of one consumer. `changed` is told whenever `until` is another, `thrown_out` when the group has gone on without
    this member."""

    def __init__(self, seconds: float, changed: Callable[[], None], thrown_out: Callable[[], None]) -> None:
        self.until = -math.inf
        """In seconds of the event loop's clock."""
        self.generation = -1
        """The group's last that this member has joined."""
        self._seconds = seconds
        self._changed = changed
        self._thrown_out = thrown_out
        self._out = False

    def watch(self, consumer: AIOKafkaConsumer) -> None:
        """Looks at what a consumer sends and is answered; before it is started."""
        client = consumer._client
        send, now = client.send, asyncio.get_running_loop().time

        async def seen(node: int, request: Any, **options: Any) -> Any:
            if self._out and isinstance(request, OffsetCommitRequest):
                # It would go as if from nobody, which a group that has no members by now takes.
                raise UnknownMemberIdError
            sent = now()
            answer = await send(node, request, **options)
            self.answered(request, answer, sent)
            return answer

        client.send = seen

    def assigned(self) -> None:
        """The group has given it partitions: it is a member again."""
        self._out = False

    def answered(self, request: object, answer: Any, sent: float) -> None:
        """Takes note of an answer to what was sent at this moment."""
        kind = type(request)
        if kind is OffsetCommitRequest:
            codes = {code for _, partitions in answer.topics for _, code in partitions}
        elif kind in _RENEWS:
            codes = {answer.error_code}
        else:
            return
        if codes & _STRANGER:
            self._end()
        elif codes <= _RENEWS.get(kind, set()):
            if kind is JoinGroupRequest:
                self.generation = answer.generation_id
            self._renew(sent)

    def _renew(self, sent: float) -> None:
        if sent + self._seconds > self.until:
            self.until = sent + self._seconds
            self._changed()

    def _end(self) -> None:
        if not self._out:
            self._out = True
            self.until = -math.inf
            self._thrown_out()
