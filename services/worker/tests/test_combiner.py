"""Which offsets one transaction of a combining worker speaks for, as retention deletes and records are left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from keygrouping_service.kafka.progress import Progress
from keygrouping_service.records.columns import Columns
from keygrouping_worker.combining import Combiner
from keygrouping_worker.settings import WorkerSettings


class Input:
    """A partition of the input, its ledger and its transactions: `receipts` are [first, after) of each."""

    partition = 0
    topic_id = "t" * 22
    progress = Progress()

    def __init__(self) -> None:
        self.owned = self.ledger = self.clock = self
        self.position = self.skipped_to = 0
        self.receipts: list[tuple[int, int]] = []
        self.records = 0
        self._first = 0

    def outbox(self) -> Input:
        return self

    def end_with(self, *_: Any) -> None: ...

    async def submit(self, _: Any, after: int, *__: Any) -> None:
        assert after == self.receipts[-1][1]

    def entry(self, skipped_to: int) -> Any:
        self._first = max(self._first, skipped_to)
        return SimpleNamespace(leave_out=lambda _: None, records=[], combine=lambda *_: None)

    def left_out(self, _: int) -> None: ...

    def close(self, _: Any, after: int) -> None:
        self.receipts.append((self._first, after))
        self._first = after


class Sorter:
    """Finds nothing to aggregate."""

    async def sort(self, *_: Any) -> Any:
        return SimpleNamespace(times=np.empty(0, np.int64))


@pytest.fixture
def here() -> Input:
    return Input()


@pytest.fixture
def combiner(here: Any, monkeypatch: pytest.MonkeyPatch) -> Combiner:
    monkeypatch.setenv("KEYGROUPING_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("KEYGROUPING_JOB", '{"aggregates": [{"name": "n", "op": "count"}]}')
    sorter: Any = Sorter()
    return Combiner(WorkerSettings(), here, sorter, 1)


async def read(here: Input, combiner: Combiner, position: int, skipped_to: int = 0) -> None:
    """A poll with a record in front of `position`."""
    here.position, here.skipped_to = position, max(here.skipped_to, skipped_to)
    await combiner.take(Columns.of("events", 0, [(position - 1, 0, b"", b"", ())]))


async def test_no_transaction_reaches_over_what_retention_has_deleted(here: Input, combiner: Combiner) -> None:
    await read(here, combiner, 3)
    await read(here, combiner, 12, skipped_to=10)
    await combiner.write()
    assert here.receipts == [(0, 3), (10, 12)]


async def test_what_is_left_out_before_such_a_gap_belongs_to_the_transaction_before_it(
    here: Input, combiner: Combiner
) -> None:
    await read(here, combiner, 3)
    here.position = 5  # two records that were too large to be read
    combiner.pass_over()
    await read(here, combiner, 12, skipped_to=10)
    await combiner.write()
    assert here.receipts == [(0, 5), (10, 12)]


async def test_an_empty_poll_behind_a_gap_does_not_move_the_end_of_what_is_held(
    here: Input, combiner: Combiner
) -> None:
    await read(here, combiner, 3)
    here.position = here.skipped_to = 10
    combiner.pass_over()
    await combiner.write()
    assert here.receipts == [(0, 3)]


async def test_nothing_is_written_if_nothing_is_held(here: Input, combiner: Combiner) -> None:
    assert combiner.holds_nothing
    await combiner.write()
    assert here.receipts == []
