"""Any grouping as the partitioner of a Kafka producer, where there is no router between."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from keygrouping.grouping import Grouping, create

_STEP = 0.001


class _Choice(NamedTuple):
    """Among a number of partitions."""

    grouping: Grouping
    choose: Callable[[bytes | str], int]
    until: float
    """When the grouping is to be told the time."""


class Partitioner:
    """Chooses a record's partition: `AIOKafkaProducer(partitioner=Partitioner("pkg"), ...)`.

    For clients that call a partitioner with the key's bytes, all partitions and the available ones (aiokafka,
    kafka-python). With others ask for each record, `produce(topic, value, key, partition=choose(key, range(count)))`.
    Records without a key go round robin over the available partitions. Hot keys are in several partitions: who reads
    them merges what it finds of a key, and Kafka's order within a key holds in each partition only.

    Each producer estimates the loads from its own records. It may be called by several threads. Where topics have
    different numbers of partitions each number has a grouping of its own. `clock` gives seconds and never goes back;
    groupings are told the time every millisecond. A thread compiles what isn't compiled yet, and a record that comes
    before that is done waits for it; `python -m keygrouping.precompile` does it beforehand.
    Raises GroupingError (a ValueError) for an unknown name or setting.
    """

    def __init__(
        self,
        grouping: str = "level-fill",
        settings: Mapping[str, object] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = grouping
        self._settings = settings
        self._clock = clock
        self._choices: dict[int, _Choice] = {}
        self._turns = itertools.count()
        self._lock = threading.Lock()
        first = create(grouping, 2, settings)
        threading.Thread(target=lambda: first.one_by_one(0.0)(b""), name="keygrouping-partitioner").start()

    def __call__(
        self, key: bytes | str | None, all_partitions: Sequence[int], available: Sequence[int] | None = None
    ) -> int:
        """The partition of one record, out of `all_partitions`."""
        with self._lock:
            if key is None:
                usable = available or all_partitions
                return usable[next(self._turns) % len(usable)]
            choice, now = self._choices.get(len(all_partitions)), self._clock()
            if choice is None or now >= choice.until:
                choice = self._renewed(choice, len(all_partitions), now)
            return all_partitions[choice.choose(key)]

    def _renewed(self, choice: _Choice | None, partitions: int, now: float) -> _Choice:
        grouping = create(self._name, partitions, self._settings) if choice is None else choice.grouping
        renewed = self._choices[partitions] = _Choice(grouping, grouping.one_by_one(now), now + _STEP)
        return renewed
