import gc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.grouped import Runs
from keygrouping.identity import Routed, Sums, _xxh64, partition_seeds, tally
from keygrouping.partial import RecordError
from keygrouping.receipt import MODULUS, MOST, NOTHING, SHARES, WINDOWS, Receipt, Tally
from numpy.typing import NDArray

TOPIC = "gAAAAAAAAAAAAAAAAAAwOQ"
OTHER = "AAAAAAAAAAAAAAAAAAAAAQ"
offsets = st.lists(st.integers(0, 2**63 - 1), max_size=40)
counts = st.builds(Tally, st.integers(0, MOST), st.integers(0, MODULUS - 1))


def summed(values: list[int], partition: int = 3) -> Tally:
    return tally(np.array(values, np.int64), partition_seeds(TOPIC, partition))


def test_it_is_the_xxh64_of_its_specification() -> None:
    assert _xxh64(0, 0) == 0x34C96ACDCADB1BBB


@given(offsets)
def test_an_event_s_hash_is_two_times_xxh64_of_its_offset(values: list[int]) -> None:
    first, second = partition_seeds(TOPIC, 3)
    expected = sum((_xxh64(value, first) << 64) + _xxh64(value, second) for value in values)
    assert summed(values) == (len(values), expected % MODULUS)


def runs_of(numbers: list[int]) -> Runs:
    """Events by these numbers of their sums."""
    by_number = {number: [row for row, its in enumerate(numbers) if its == number] for number in numbers}
    rows = [row for its in by_number.values() for row in its]
    sizes = [len(its) for its in by_number.values()]
    return Runs(*(np.array(column, np.int64) for column in (rows, sizes, list(by_number))))


@given(st.lists(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 5)), min_size=1, max_size=40), max_size=3))
def test_however_events_are_split_their_sums_add_up(batches: list[list[tuple[int, int]]]) -> None:
    split, table, expected = Sums(partition_seeds(TOPIC, 3)), np.zeros((9, 3), np.int64), [0] * 9
    for batch in batches:
        numbers = [number for _, number in batch]
        split.add(np.array([offset for offset, _ in batch], np.int64), runs_of(numbers), table[:, 1:])
        for offset, number in batch:
            expected[number] += summed([offset]).hashes
    assert split.encoded(table[:, 1:]) == [f"{total % MODULUS:032x}" for total in expected]
    assert not table[:, 0].any()


def test_runs_of_any_length_add_up() -> None:
    numbers = [2] * 255 + [0] + [1] + [2] * 600 + [1] * 143
    split, sums = Sums(partition_seeds(TOPIC, 3)), np.zeros((3, 2), np.int64)
    split.add(np.arange(1000), runs_of(numbers), sums)
    expected = [summed([row for row in range(1000) if numbers[row] == number]).hashes for number in range(3)]
    assert split.encoded(sums) == [f"{total:032x}" for total in expected]


def test_sums_are_given_without_calling_the_cycle_collector() -> None:
    split, sums, called = Sums(partition_seeds(TOPIC, 3)), np.zeros((5000, 2), np.int64), []
    split.add(np.arange(5000), runs_of(list(range(5000))), sums)
    gc.collect()
    gc.callbacks.append(lambda phase, _: called.append(phase))
    try:
        split.encoded(sums)
    finally:
        gc.callbacks.pop()
    assert called == []


@given(
    st.lists(
        st.tuples(st.integers(0, 2**40), st.integers(-(10**6), 10**6), st.integers(0, 3)), min_size=1, max_size=40
    ),
    st.data(),
)
def test_routed_events_are_summed_by_both_their_places_and_by_window(
    events: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    window_ms, shift = data.draw(st.integers(1, 10**5)), data.draw(st.integers(0, 10**5))
    by_worker = [[row for row, event in enumerate(events) if event[2] == worker] for worker in range(4)]
    cuts = [data.draw(st.integers(0, len(rows))) for rows in by_worker]
    firsts = [data.draw(st.integers(0, 2**40)) for _ in range(8)]
    runs, written = [], []
    for worker, rows in enumerate(by_worker):
        for part, first in zip((rows[: cuts[worker]], rows[cuts[worker] :]), firsts[2 * worker :], strict=False):
            runs.append((worker, first, len(part)))
            written += [(row, worker, first + position) for position, row in enumerate(part)]
    offsets, times, workers = (np.array(column, np.int64) for column in zip(*events, strict=True))
    routed = Routed(partition_seeds(OTHER, 7), TOPIC, window_ms, shift)
    found = routed.account(offsets, times, workers.astype(np.int32), np.array(runs))
    assert found is not None
    receipt = Receipt(OTHER, 7, 0, 0, *(NOTHING,) * 4, found.shares.tobytes(), found.windows.tobytes())
    assert found.total == tally(offsets, partition_seeds(OTHER, 7))
    assert receipt.by_worker() == {worker: len(rows) for worker, rows in enumerate(by_worker) if rows}
    expected: dict[int, Tally] = {}
    for row, worker, offset in written:
        start = (events[row][1] - shift) // window_ms * window_ms + shift
        expected[start] = expected.get(start, NOTHING).plus(summed([offset], worker))
    assert receipt.by_window() == expected


@pytest.mark.parametrize(
    "runs",
    [
        *([], [(0, 5, 2)], [(0, 5, 2), (1, -1, 1)], [(0, 5, 2), (1, 5, 2)], [(0, 5, 3), (1, 5, 1)]),
        *([(0, 5, 2), (1, 5, 1), (2, 5, 1)], [(1, 5, 2), (0, 5, 1)], [(0, 5, 1), (1, 5, 1), (0, 6, 2)]),
    ],
)
def test_there_are_no_sums_where_it_is_not_known_where_each_event_is(runs: list[tuple[int, int, int]]) -> None:
    routed = Routed(partition_seeds(OTHER, 7), TOPIC, 1000, 0)
    three, workers = np.arange(3), np.array([0, 1, 0], np.int32)
    assert routed.account(three, three, workers, np.array(runs, np.int64).reshape(-1, 3)) is None
    known = routed.account(three, three, workers, np.array([(0, 5, 1), (1, 5, 1), (0, 9, 1), (2, 0, 0)]))
    assert known is not None and known.total.events == 3


@pytest.mark.parametrize(
    "change", [lambda column: column[::2][:3], lambda column: np.frombuffer(column[:3].tobytes(), np.int64)]
)
def test_columns_of_any_layout_are_summed(change: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> None:
    column = change(np.arange(9))
    assert tally(column, partition_seeds(TOPIC, 3)) == summed(column.tolist())


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=20, unique=True), st.data())
def test_an_event_twice_or_missing_or_another_one_is_seen(values: list[int], data: st.DataObject) -> None:
    one, other = data.draw(st.sampled_from(values)), data.draw(st.integers(2**41, 2**42))
    rest = [value for value in values if value != one]
    assert len({summed(values), summed([*values, one]), summed(rest), summed([*rest, other])}) == 4


def test_the_same_offset_elsewhere_is_another_event() -> None:
    others = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAEAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAA")
    places = [(TOPIC, 0), (TOPIC, 1), *((other, 0) for other in others)]
    sums = {tally(np.array([5], np.int64), partition_seeds(*place)).hashes for place in places}
    assert len(sums) == len(places)
    assert len({half for total in sums for half in divmod(total, 2**64)}) == 2 * len(places)


def packed(windows: dict[int, Tally]) -> bytes:
    rows = [(start, tally.events, *divmod(tally.hashes, 2**64)) for start, tally in windows.items()]
    return np.array(rows, WINDOWS).tobytes()


@given(
    *(st.integers(0, 2**47),) * 3,
    st.tuples(counts, counts, counts, counts),
    st.dictionaries(st.integers(0, 99), st.integers(1, 99)),
    st.dictionaries(st.integers(-5, 2**47), counts),
    st.booleans(),
)
def test_a_receipt_survives_its_encoding(
    partition: int,
    first: int,
    after: int,
    sums: tuple[Tally, Tally, Tally, Tally],
    workers: dict[int, int],
    windows: dict[int, Tally],
    more: bool,
) -> None:
    shares = np.array(list(workers.items()), SHARES).tobytes()
    receipt = Receipt(TOPIC, partition, first, after, *sums, shares=shares, windows=packed(windows), more=more)
    read = Receipt.decode(receipt.encode())
    assert read == receipt
    assert (read.by_worker(), read.by_window()) == (workers, windows)


EMPTY = Receipt(TOPIC, 0, 0, 1, *(NOTHING,) * 4)


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"[]", b"{}", b'{"v":1}', b'{"v":2}', b'{"v":3}'),
        EMPTY.encode().replace(b'"first":0', b'"first":-1'),
        *(EMPTY.encode().replace(b'"windows":0', b'"windows":' + wrong) for wrong in (b"1", b"null", b"-1", b'""')),
        EMPTY.encode().replace(b'"shares":0', b'"shares":1'),
        *(EMPTY.encode() + more for more in (b"\0", bytes(8), bytes(32))),
        EMPTY.encode()[:-1] + bytes(32),
        EMPTY.encode().replace(b'"late":[0', b'"late":[true'),
        EMPTY.encode().replace(b'"after":1', b'"after":18446744073709551615'),
        *(replace(EMPTY, shares=np.array([row], SHARES).tobytes()).encode() for row in ((0, -1), (-1, 0))),
        *(
            replace(EMPTY, windows=packed({start: Tally(events)})).encode()
            for start, events in ((253402214400001, 1), (-253402214400001, 1), (-(2**63), 1), (0, -1), (0, MOST + 1))
        ),
    ],
)
def test_what_is_no_receipt_is_refused(value: bytes | None) -> None:
    with pytest.raises(RecordError):
        Receipt.decode(value)
