"""What retention deletes while a transaction is gathered."""

from types import SimpleNamespace
from typing import Any, cast

from keygrouping_router.data.pipeline import Pipeline
from keygrouping_service.records.columns import Columns


class Owned:
    """A partition of which offsets 3 to 9 are deleted after 0 to 2 were read."""

    careful = stopping = False
    busy = False
    skipped_to = position = 0

    def __init__(self) -> None:
        self._polls = iter([(3, 0, 3), (10, 10, 0), (12, 10, 2)])

    async def poll(self, *_: float) -> Columns:
        self.position, self.skipped_to, count = next(self._polls)
        return Columns.of("e", 0, [(self.position - count + n, 0, b"", b"", ()) for n in range(count)])


async def test_no_transaction_reaches_over_a_gap() -> None:
    pipeline = Pipeline.__new__(Pipeline)
    pipeline._settings = cast(Any, SimpleNamespace(max_batch=100, linger=10.0))
    owned = cast(Any, Owned())
    assert (await pipeline._next_batch(owned)).offsets.tolist() == [0, 1, 2]


class Busy(Owned):
    """Its transaction ends at the third poll."""

    def __init__(self) -> None:
        self._polls = iter([(3, 0, 3), (5, 0, 2), (6, 0, 1), (7, 0, 1)])

    async def poll(self, *_: float) -> Columns:
        batch = await super().poll()
        self.busy = self.position < 6
        return batch


async def test_records_are_gathered_while_the_transaction_before_is_under_way() -> None:
    pipeline = Pipeline.__new__(Pipeline)
    pipeline._settings = cast(Any, SimpleNamespace(max_batch=100, linger=0.0))
    assert (await pipeline._next_batch(cast(Any, Busy()))).offsets.tolist() == [0, 1, 2, 3, 4, 5]


class Heavy(Busy):
    """Its records are small but for their headers."""

    async def poll(self, *_: float) -> Columns:
        offsets = (await super().poll()).offsets.tolist()
        return Columns.of("e", 0, [(offset, 0, b"", b"", (("trace", bytes(6 << 20)),)) for offset in offsets])


async def test_no_more_than_a_transaction_s_bytes_are_gathered_headers_included() -> None:
    pipeline = Pipeline.__new__(Pipeline)
    pipeline._settings = cast(Any, SimpleNamespace(max_batch=100, linger=0.0))
    assert (await pipeline._next_batch(cast(Any, Heavy()))).offsets.tolist() == [0, 1, 2]
