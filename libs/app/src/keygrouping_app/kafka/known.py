"""What changelogs have refused of late, as all partitions of their topic know it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from aiokafka import TopicPartition

from keygrouping_app.events import Outgoing
from keygrouping_app.kafka.changelog import records_of
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.refusals import Known
from keygrouping_app.states import States


class KnownRefusals:
    """Of one member. `partitions`: what it has."""

    def __init__(self, group: str, partitions: Mapping[TopicPartition, Partition]) -> None:
        self._group = group
        self._partitions = partitions
        self._known: defaultdict[str, Known] = defaultdict(Known)
        """By the topic that a changelog is of."""

    def learn(self, topic: str, error: BaseException, records: Sequence[Outgoing]) -> None:
        """A transaction's records of states have ended so: what is refused is known to all partitions of the topic."""
        self._known[topic].learn(error, records)
        for each in self._partitions.values():
            if each.tp.topic == topic and each.states is not None:
                self.tell(each.tp, each.states)

    def tell(self, tp: TopicPartition, states: States) -> None:
        """Has the states of a partition refuse what is known to be refused."""
        known, group = self._known[tp.topic], self._group
        if known:
            states.why_refused = lambda changed: known.why(records_of(changed, states, group, tp)) if known else ""
