"""What the next transaction of a partition leaves out, as the one before has failed by it."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence

from aiokafka.errors import ProducerFenced

from keygrouping_app.events import Outgoing
from keygrouping_app.kafka import refusals
from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.moved import MovedPartition
from keygrouping_app.kafka.partition import ANSWER_WITHHELD, Given, Partition
from keygrouping_app.kafka.refusals import RefusedMovesError, keys_refused, refuse_events, unwritten_of
from keygrouping_app.kafka.sharing import Sharing
from keygrouping_app.kafka.writing import RefusedError
from keygrouping_app.moves import Step

log = logging.getLogger(__name__)


class LeavingOut:
    """For the partitions of one member. `sharing`: None if no handler has `split`."""

    def __init__(self, handling: Handling, sharing: Sharing | None) -> None:
        self._handling = handling
        self._sharing = sharing

    def leave_out(
        self,
        partition: Partition,
        given: list[Given],
        step: Step,
        records: Sequence[Outgoing],
        error: BaseException,
    ) -> bool:
        """Leaves out what a transaction has failed by; False if it is to be tried again as it is.

        It had events for slots (`given`), a step of keys that move, and these records for the partition's changelog.
        """
        # Fenced or cancelled, the partition is another's, and so are its events.
        if not isinstance(error, Exception) or isinstance(error, ProducerFenced):
            return False
        refused = refuse_events(given, error)
        self.keep_given(partition, [each for place, each in enumerate(given) if place not in refused], error)
        for place, failure in refused.items():
            partition.drop_given([given[place]])
            self._handling.refuse(given[place].event, failure)
        if not refused and not _withhold(partition, error, records, step):
            keys = keys_refused(error, step, len(given), records, partition.states) if partition.states else set()
            if not self._give_up_moves(partition, step, error, keys):
                return False
        partition.hurry()
        return True

    def keep_given(self, partition: Partition, given: list[Given], error: Exception) -> None:
        """These are not in their slots."""
        if partition.moves is not None:
            partition.give_again(given)
        elif given and self._sharing is not None:
            self._sharing.keep_here(partition, given, error)

    def _give_up_moves(self, partition: Partition, step: Step, error: Exception, keys: set[Hashable]) -> bool:
        """Of keys of which the states are refused where they are to go: they stay where they are. False: none is."""
        if not step or not isinstance(error, RefusedError):
            return False
        if isinstance(partition, MovedPartition):
            refused = partition.visits.refuse(step, keys, own=not isinstance(error, RefusedMovesError))
            if refused.unanswered:
                partition.withhold(error.args[0], refusals.KNOWN_SECONDS, ANSWER_WITHHELD)
            if not refused.staying:
                return any(refused)
        log.warning("%s[%d]: %d keys stay where they are: %r", *partition.tp, len(keys) or len(step.done), error)
        if partition.moves is not None:
            self._handling.resume(partition, partition.moves.forget(keys))
        return True


def _withhold(partition: Partition, error: BaseException, records: Sequence[Outgoing], step: Step) -> bool:
    """Has states not written that are refused, and that no event has made: all else goes on; False: none is."""
    unwritten = {key: why for key, why in unwritten_of(error, records).items() if key not in step.keys}
    if (states := partition.states) is None:
        return False
    if states.withhold(unwritten):
        partition.withhold(next(iter(unwritten.values())), refusals.KNOWN_SECONDS)
        return True
    return any(map(states.will_write, unwritten))  # as events have changed them meanwhile
