import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.identity import _xxh64, hashes_of, partition_seeds, tallies, tally, tally_of
from keygrouping.partial import RecordError
from keygrouping.receipt import MODULUS, MOST, NOTHING, Receipt, Tally

TOPIC = "gAAAAAAAAAAAAAAAAAAwOQ"
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


@given(offsets, st.lists(st.integers(1, 9), max_size=9))
def test_however_events_are_split_their_sums_add_up(values: list[int], sizes: list[int]) -> None:
    hashes = hashes_of(np.array(values, np.int64), partition_seeds(TOPIC, 0))
    while sum(sizes) > len(values):
        sizes.pop()
    sizes += [len(values) - sum(sizes)] if sum(sizes) < len(values) else []
    total = NOTHING
    for part in tallies(hashes, sizes):
        total = total.plus(part)
    assert total == tally_of(hashes)
    assert total.minus(total) == NOTHING


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
    receipt = Receipt(TOPIC, partition, first, after, *sums, workers=workers, windows=windows, more=more)
    assert Receipt.decode(receipt.encode()) == receipt


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"[]", b"{}", b'{"v":2}', b'{"v":1}'),
        Receipt(TOPIC, 0, 0, 1, *(NOTHING,) * 4).encode().replace(b'"first":0', b'"first":-1'),
        Receipt(TOPIC, 0, 0, 1, *(NOTHING,) * 4).encode().replace(b'"windows":[]', b'"windows":[[1]]'),
        Receipt(TOPIC, 0, 0, 1, *(NOTHING,) * 4).encode().replace(b'"late":[0', b'"late":[true'),
        Receipt(TOPIC, 0, 0, 1, *(NOTHING,) * 4).encode().replace(b'"after":1', b'"after":18446744073709551615'),
        Receipt(TOPIC, 0, 0, 1, *(NOTHING,) * 4, workers={0: 7}).encode().replace(b'{"0":7}', b'{"0":"7"}'),
        *(
            Receipt(TOPIC, 0, 0, 1, *(NOTHING,) * 4, windows={7: NOTHING}).encode().replace(b"[[7", b"[[" + start)
            for start in (b"1e30", b"253402214400001", b'"7"')
        ),
    ],
)
def test_what_is_no_receipt_is_refused(value: bytes | None) -> None:
    with pytest.raises(RecordError):
        Receipt.decode(value)
