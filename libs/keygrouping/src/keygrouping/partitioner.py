"""Any grouping as the partitioner of a Kafka producer, where there is no router between."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from keygrouping.grouping import Grouping, create


class Partitioner:
    """Chooses a record's partition: `AIOKafkaProducer(partitioner=Partitioner("pkg"), ...)`.

    For clients that call a partitioner with the key's bytes, all partitions and the available ones (aiokafka,
    kafka-python). With others ask for each record, `produce(topic, value, key, partition=choose(key, range(count)))`.
    Records without a key go round robin over the available partitions. Hot keys are in several partitions: who reads
    them merges what it finds of a key, and Kafka's order within a key holds in each partition only.

    Each producer estimates the loads from its own records. It may be called by several threads. Where topics have
    different numbers of partitions each number has a grouping of its own. `clock` gives seconds and never goes back.
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
        self._groupings: dict[int, Grouping] = {}
        self._turns = itertools.count()
        self._lock = threading.Lock()
        create(grouping, 2, settings).route(b"")  # Compiles: the first record must not wait for that.

    def __call__(
        self, key: bytes | str | None, all_partitions: Sequence[int], available: Sequence[int] | None = None
    ) -> int:
        """The partition of one record, out of `all_partitions`."""
        with self._lock:
            if key is None:
                usable = available or all_partitions
                return usable[next(self._turns) % len(usable)]
            grouping = self._grouping(len(all_partitions))
            return all_partitions[grouping.route(key, now=self._clock())]

    def _grouping(self, partitions: int) -> Grouping:
        if partitions not in self._groupings:
            self._groupings[partitions] = create(self._name, partitions, self._settings)
        return self._groupings[partitions]
