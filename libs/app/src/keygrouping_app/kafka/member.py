"""A member of the group: it knows which partitions it has, and gives them up when all that runs of them has ended.

The consumer that is the group's member reads nothing: a rebalance resets positions and drops what was fetched under the
feet of whoever reads. It commits, as the broker knows only members' generations.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import IllegalStateError
from aiokafka.structs import OffsetAndMetadata
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.kafka.assignor import CooperativeAssignor, Copies, places_of
from keygrouping_app.kafka.clients import Settings, started
from keygrouping_app.kafka.session import Session

log = logging.getLogger(__name__)

_NEVER_MS = 2**31 - 1
_METADATA_MS = 30_000
_REBALANCE_SECONDS = 30.0
"""How long a rebalance waits for members at least, that is for an answer to who joins."""
_REJOIN_SECONDS = 0.1
"""Partitions that are given up within this time cost one rebalance."""


class NotNowError(Exception):
    """The group is rebalancing, or this member has left it; a commit may work later."""


class Owner(Protocol):
    """Who works on the partitions."""

    def gain(self, tp: TopicPartition) -> None:
        """The partition is ours from now on, and nobody else works on it."""

    async def give_up(self, tp: TopicPartition) -> None:
        """Ends and commits what runs of the partition; returns when somebody else may have it."""

    def lose(self, tp: TopicPartition) -> None:
        """The partition is or may be somebody else's already: nothing of it may be committed."""

    def may_start(self, until: float) -> None:
        """What is ours is ours until this moment of the event loop's clock: no event may start from then on."""


class Member:
    """Keeps up a membership. `holds` are the partitions that nobody else has; `apart`: see `CooperativeAssignor`.

    `topics` are those that there are when it joins; `copies`: of the states of others' partitions, if there are any.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Iterable[str],
        owner: Owner,
        apart: Iterable[str] = (),
        copies: Copies | None = None,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._owner = owner
        self._copies = copies
        self._assignor = CooperativeAssignor(apart, copies)
        self._consumer: AIOKafkaConsumer | None = None
        self._session = self._new_session()
        self._silence: asyncio.TimerHandle | None = None
        self._leaving: dict[TopicPartition, asyncio.Task[None]] = {}
        self._rejoining: asyncio.TimerHandle | None = None
        self._commits = asyncio.Lock()
        self._rebalancing = False
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._joined = False

    @property
    def joined(self) -> bool:
        """Whether the group has given it its partitions, be it none, and its session lasts."""
        return self._joined and asyncio.get_running_loop().time() < self._session.until

    @property
    def is_cut_off(self) -> bool:
        """Whether its session has been over for longer than a rebalance lasts: it may never commit again."""
        rebalance = max(self._settings.session_timeout, _REBALANCE_SECONDS)
        return asyncio.get_running_loop().time() > self._session.until + rebalance

    @property
    def holds(self) -> set[TopicPartition]:
        """The partitions that are ours, those that are being given up included."""
        return {TopicPartition(*place) for place in self._assignor.holds}

    async def keep(self) -> None:
        """Joins, and joins again whenever the membership is lost; raises what can't be retried."""
        pauses = backoff()
        while True:
            try:
                with given_up_calls():
                    await self._be_member()
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("membership of group %s is lost, joining again: %r", self._settings.group, error)
            await asyncio.sleep(next(pauses))

    async def _be_member(self) -> None:
        consumer, self._session = self._new_consumer(), self._new_session()
        self._session.watch(consumer)
        async with started(consumer):
            self._consumer, self._rebalancing = consumer, False
            try:
                self.join()
                while True:
                    # Nothing is fetched: it raises what the membership has failed with.
                    await consumer.getmany(timeout_ms=1000)
            finally:
                # Before it leaves the group: others have its partitions at once.
                self._consumer = None
                self._lose()
                self._hush()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commits for partitions that are ours; NotNowError while there is no assignment, or it is about to change."""
        async with self._commits:
            if self._consumer is None or self._rebalancing:
                raise NotNowError
            try:
                with given_up_calls():
                    await self._consumer.commit(dict(offsets))
            except IllegalStateError as error:
                raise NotNowError from error

    async def pause_commits(self) -> None:
        """Lets the commit under way end, and none begin before the next assignment.

        A commit that crosses the start of the group's next generation is refused, and aiokafka then joins as a new
        member, while the broker waits for the old one: a rebalance of seconds, and often the next such commit.
        """
        self._rebalancing = True
        async with self._commits:
            return

    def join(self) -> None:
        """Joins with the topics that there are now; a second subscription is aiokafka's public way to join again."""
        if self._rejoining is not None:
            self._rejoining.cancel()
            self._rejoining = None
        if self._consumer is not None:
            self._consumer.subscribe(topics=sorted(self._topics), listener=_Listener(self))

    def lose_all(self) -> None:
        """Takes everything for lost, and asks for an assignment again."""
        self._lose()
        self.join()

    def _lose(self) -> None:
        self._joined = False
        for task in self._leaving.values():
            task.cancel()
        self._leaving.clear()
        for tp in self.holds:
            self._owner.lose(tp)
        self._assignor.holds.clear()
        self._assignor.leaving.clear()

    def _thrown_out(self) -> None:
        log.warning(
            "group %s has gone on without this member since generation %d: it stops what it can, and joins again",
            *(self._settings.group, self._session.generation),
        )
        self._hush()
        self._owner.may_start(self._session.until)
        # What others have not been given by now could be kept; but nobody can tell which it is.
        self._lose()

    def _heard(self) -> None:
        """The coordinator has answered: the session goes on.

        Who is leaving may be answered still, to what was asked before; then nobody waits for the next answer.
        """
        if self._consumer is None:
            return
        self._hush()
        until, loop = self._session.until, asyncio.get_running_loop()
        self._silence = loop.call_at(until, self._is_silent)
        self._owner.may_start(until)

    def _hush(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _is_silent(self) -> None:
        log.warning(
            "the coordinator of group %s has answered nothing for session_timeout (%g s), so others may have this "
            "member's partitions: no event starts until it answers",
            *(self._settings.group, self._settings.session_timeout),
        )

    def assigned(self, assigned: set[TopicPartition]) -> None:
        """Takes note of an assignment; called by the listener, so it waits for nothing."""
        if self._consumer is None:
            return
        self._consumer.pause(*assigned)
        self._session.assigned()
        self._joined, self._rebalancing = True, False
        for tp in self.holds - assigned:
            if (task := self._leaving.pop(tp, None)) is not None:
                task.cancel()
            self._owner.lose(tp)
        fresh = assigned - self.holds
        self._assignor.holds = places_of(assigned)
        self._assignor.leaving &= self._assignor.holds
        for tp in sorted(fresh):
            self._owner.gain(tp)
        if self._copies is not None:
            self._copies.follow(self._assignor.follows)
        for place in sorted(self._assignor.gives_up - self._assignor.leaving):
            tp = TopicPartition(*place)
            self._assignor.leaving.add(place)
            self._leaving[tp] = asyncio.create_task(self._give_up(tp))

    async def _give_up(self, tp: TopicPartition) -> None:
        try:
            await self._owner.give_up(tp)
        except Exception as error:
            if not self.failure.done():
                self.failure.set_exception(error)
            return
        if self._leaving.get(tp) is not asyncio.current_task():
            return  # Lost meanwhile: a cancellation that comes as a call ends may be lost itself.
        del self._leaving[tp]
        self._assignor.holds.discard((tp.topic, tp.partition))
        self._assignor.leaving.discard((tp.topic, tp.partition))
        if self._rejoining is None:
            self._rejoining = asyncio.get_running_loop().call_later(_REJOIN_SECONDS, self.join)

    def _new_session(self) -> Session:
        return Session(self._settings.session_timeout, self._heard, self._thrown_out)

    def _new_consumer(self) -> AIOKafkaConsumer:
        session_ms = int(self._settings.session_timeout * 1000)
        rebalance_ms = max(session_ms, int(_REBALANCE_SECONDS * 1000))
        # Who joins is answered when all have joined.
        options = self._settings.connection | {"request_timeout_ms": rebalance_ms + 5000}
        return AIOKafkaConsumer(
            **options,
            group_id=self._settings.group,
            group_instance_id=self._settings.instance_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=min(3000, session_ms // 3),
            rebalance_timeout_ms=rebalance_ms,
            max_poll_interval_ms=_NEVER_MS,
            metadata_max_age_ms=_METADATA_MS,
            max_partition_fetch_bytes=1,
            partition_assignment_strategy=(self._assignor,),
        )


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: Member) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:  # noqa: ARG002
        """Called before the member joins again. Nothing is given up before an assignment says so."""
        await self._member.pause_commits()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._member.assigned(assigned)
