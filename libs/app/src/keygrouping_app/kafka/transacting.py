"""What handlers return of a partition, its states and its offsets, in one transaction after another.

A transaction has everything that is there when it begins, and what handlers return meanwhile waits for the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiokafka.errors import ProducerFenced
from keygrouping_kafka.calls import backoff
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.events import Outgoing
from keygrouping_app.gaps import GapsError
from keygrouping_app.kafka.changelog import records_of
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.known import KnownRefusals
from keygrouping_app.kafka.leaving_out import LeavingOut
from keygrouping_app.kafka.overflow import overflow_of
from keygrouping_app.kafka.partition import Given, Partition, Returned
from keygrouping_app.kafka.refusals import spoils_of
from keygrouping_app.kafka.replacing import commit_without_refused
from keygrouping_app.kafka.sharing import Sharing
from keygrouping_app.kafka.signals import Signal
from keygrouping_app.kafka.transactions import Transactions
from keygrouping_app.kafka.writing import RefusedError
from keygrouping_app.kept import Kept
from keygrouping_app.moves import Step
from keygrouping_app.scheduler import Failure

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class _Content:
    """What a transaction has taken from its partition. `told`: the states of `changed` that are written as states;
    `records`: all that goes to the partition's own changelog."""

    given: list[Given]
    step: Step
    returned: list[Returned]
    changed: dict[bytes, Kept | None]
    told: Mapping[bytes, Kept | None]
    records: list[Outgoing]

    @property
    def surplus(self) -> list[Outgoing]:
        """What goes to slots, and to changelogs of others."""
        return [*(each.record for each in self.given), *self.step.records]


class Transacting:
    """Of one member's partitions.

    `sharing`: None if no handler has `split`. `follow` has answers of slots read from an offset of a partition's
    changelog on, if it waits for some; `committed` is set whenever something is; `lose_all` is called when a partition
    turns out to be another member's, and so may all be.
    """

    def __init__(
        self,
        settings: Settings,
        handling: Handling,
        sharing: Sharing | None,
        known: KnownRefusals,
        follow: Callable[[Partition, int], None],
        committed: Signal,
        lose_all: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._handling = handling
        self._sharing = sharing
        self._known = known
        self._follow = follow
        self._committed = committed
        self._lose_all = lose_all
        self._leaving_out = LeavingOut(handling, sharing)

    async def keep(self, partition: Partition, transactions: Transactions) -> Mapping[int, Failure]:
        """Goes on until the partition has to begin again from what is committed, see `transact`.

        Or until it turns out to be another member's: then it gives nothing. Raises what can't be retried.
        """
        pauses = backoff()
        while True:
            await partition.dirty.wait()
            partition.dirty.clear()
            pause = self._settings.commit_interval
            try:
                if spoils := await self.transact(partition, transactions):
                    return spoils
                pauses = backoff()
            except ProducerFenced as error:
                log.warning("%s[%d] belongs to another member: %r", *partition.tp, error)
                asyncio.get_running_loop().call_soon(self._lose_all)
                return {}
            except RefusedError as error:
                pause = next(pauses)
                partition.dirty.set()
                # What slots of shared keys refuse stays here, which is told where it does.
                if error.topics != {overflow_of(self._settings.group)}:
                    partition.refuse(error.args[0])
            except Exception as error:
                if not can_be_retried(error):
                    raise
                pause = next(pauses)
                partition.dirty.set()
                log.warning("%s[%d]: trying again in %.1f s: %r", *partition.tp, pause, error)
            await partition.rest(pause)

    async def transact(self, partition: Partition, transactions: Transactions) -> Mapping[int, Failure]:
        """One transaction, if there is anything to commit.

        Gives events of which outputs or states are refused, by offset, if others have met their states since: then
        nothing is committed, and the partition is to begin again without them. Empty: it goes on. After an error
        nothing is committed, and what it had is tried again.
        """
        # Taken in one go: a transaction speaks of nothing whose outputs and states are not in it.
        given = partition.take_given()
        self._end_old(partition)
        step = partition.step(self._handling.of(partition).scheduler)
        what = partition.due(given, step)
        if what is None:
            error = GapsError("the commit's metadata has no room for them")
            self._leaving_out.keep_given(partition, given, error)
            _look_again(partition)
            return {}
        content = self._content(partition, given, step)
        partials = self._handling.of(partition).partials
        try:
            committed, refused = await commit_without_refused(
                transactions, what, content.returned, content.surplus, content.records, partials, self._settings
            )
        except BaseException as failed:
            self._known.learn(partition.tp.topic, failed, content.records)
            if spoils := spoils_of(failed, content.records, partition.states, step.keys):
                return spoils
            if not self._take_back(partition, content, failed):
                raise
            return {}
        if committed is None:
            return {event.raw.offset: why for each, why in refused for event in each.events}
        partition.wrote(content.returned)
        self._gave(partition, given)
        partition.committed(committed)
        self._stepped(partition, content)
        self._handling.wrote(refused)
        self._committed.set()
        return {}

    def _content(self, partition: Partition, given: list[Given], step: Step) -> _Content:
        returned, states = partition.take_returned(), partition.states
        changed = {} if states is None else states.take()
        told = {key: kept for key, kept in changed.items() if key not in step.keys}
        written = [] if states is None else records_of(told, states, self._settings.group, partition.tp)
        return _Content(given, step, returned, changed, told, [*written, *step.marks, *partition.marks])

    def _end_old(self, partition: Partition) -> None:
        """What has become too old is to be written as well, and what was refused long enough ago."""
        if (states := partition.states) is None:
            return
        partition.write_withheld()
        if not partition.closed:  # or events that its next owner handles have gone from memory
            has = self._handling.of(partition).scheduler.has
            states.end_old(lambda group: has(group) or partition.is_held(group))

    def _take_back(self, partition: Partition, content: _Content, error: BaseException) -> bool:
        """Has all of it in the next transaction, but for what this one has failed by; False if nothing is left out."""
        partition.keep(content.returned)
        if partition.states is not None:
            partition.states.give_back(content.changed)
        return self._leaving_out.leave_out(partition, content.given, content.step, content.records, error)

    def _gave(self, partition: Partition, given: list[Given]) -> None:
        """These are in their slots."""
        if given and partition.moves is not None:
            partition.gave(given)
        elif given and self._sharing is not None:
            self._sharing.gave(partition, given)

    def _stepped(self, partition: Partition, content: _Content) -> None:
        """A transaction is committed that has told states, and what keys do that move."""
        step = content.step
        if partition.states is not None:
            partition.states.written(content.told)
        partition.stepped(step)
        if step and partition.moves is not None:
            self._handling.resume(partition, partition.moves.answered_early(partition.changelog_end))
        self._follow(partition, partition.changelog_end)
        if step:
            partition.hurry()  # what was held is sent on
        _look_again(partition)


def _look_again(partition: Partition) -> None:
    """Until what runs of a key that is to go has ended, or is to be tried again; not at once, if nothing rests."""
    if partition.waits_to_move and not partition.closed:
        partition.look_again(_AGAIN_SECONDS)
