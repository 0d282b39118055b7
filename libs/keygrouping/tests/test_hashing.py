"""The hash is a fixed function of the bytes, whichever way it is computed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.grouping import create
from keygrouping.hashing import (
    SECOND_SEED,
    SEED,
    fingerprint_of,
    hash_key,
    hash_keys,
    kafka_hashes,
    kafka_partitions,
    worker_of,
)
from keygrouping.workload.table import NumberedKeys

GOLDEN = {
    "Turkey": (-427684801386502345, 7979424307051361886, 5, 6),
    "key1": (-7181174809767792892, 8336732113958081839, 2, 9),
    "": (-6841345300810786470, -4666168469225958328, 0, 8),
    "a": (-1386432361844448426, 7079672679099236332, 6, 2),
    "Afghanistan": (5846224766063328213, -5462568596507215696, 3, 6),
    "çığ": (8933876112606838027, 7073738119793764974, 7, 4),
}


@pytest.mark.parametrize(("key", "golden"), GOLDEN.items())
def test_golden_hashes_and_workers(key: str, golden: tuple[int, int, int, int]) -> None:
    hashes = [hash_key(key, seed) for seed in (SEED, SECOND_SEED)]
    assert (*hashes, *(worker_of(hashed, 10) for hashed in hashes)) == golden
    assert hash_key(key.encode()) == hashes[0]


@given(st.lists(st.binary(max_size=70), max_size=20), st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple))
def test_many_keys_hash_as_each_alone(keys: list[bytes], seeds: tuple[int, ...]) -> None:
    hashes = hash_keys(keys, seeds)
    assert hashes.shape == (len(keys), len(seeds)) and hashes.dtype == np.int64
    assert hashes.tolist() == [[hash_key(key, seed) for seed in seeds] for key in keys]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 1000))
def test_every_hash_has_a_worker(hashed: int, workers: int) -> None:
    assert 0 <= worker_of(hashed, workers) < workers


def murmur2(data: bytes) -> int:
    """Kafka's `Utils.murmur2`, one byte and one step at a time."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    hashed = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        mixed = int.from_bytes(data[at : at + 4], "little") * factor & mask
        hashed = (hashed * factor & mask) ^ ((mixed ^ mixed >> 24) * factor & mask)
    if data[whole:]:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * factor & mask
    hashed = (hashed ^ hashed >> 13) * factor & mask
    return hashed ^ hashed >> 15


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_partitions_are_those_of_kafka_s_own_clients(key: bytes, hashed: int) -> None:
    """The values are those of Kafka's own unit test of its murmur2."""
    hashes = kafka_hashes([key])
    assert hashes.tolist() == [hashed % 2**32] == [murmur2(key)]
    for count in (1, 4, 6, 1000):
        assert kafka_partitions(hashes, count).tolist() == [(hashed & 0x7FFFFFFF) % count]


@given(st.lists(st.binary(max_size=70), max_size=20))
def test_many_keys_hash_for_kafka_as_each_alone(keys: list[bytes]) -> None:
    assert kafka_hashes(keys).tolist() == [murmur2(key) for key in keys]


def test_a_table_hashes_each_key_once_for_kafka() -> None:
    table = NumberedKeys(b"key-")
    table.positions(np.arange(3))
    assert table.kafka_hashes().tolist() == kafka_hashes([b"key-0", b"key-1", b"key-2"]).tolist()
    table.positions(np.array([9]))
    assert table.kafka_hashes().tolist() == kafka_hashes([b"key-0", b"key-1", b"key-2", b"key-9"]).tolist()


@given(st.integers(1, 2**53 - 1))
def test_a_fingerprint_tells_sixteen_bits_of_a_secret(secret: int) -> None:
    assert 0 <= fingerprint_of(secret) < 1 << 16


def test_two_secrets_seldom_have_one_fingerprint_and_none_has_zero() -> None:
    assert fingerprint_of(0) == 0
    prints = {fingerprint_of(secret) for secret in range(1, 2001)}
    assert len(prints) > 1950, "2,000 of 65,536: about 30 coincide by chance"


def test_a_text_that_is_none_in_utf8_is_refused() -> None:
    """As json.loads and os.fsdecode give it; the library that hashes would end the process."""
    with pytest.raises(UnicodeEncodeError):
        hash_key("\ud800")
    with pytest.raises(UnicodeEncodeError):
        create("level-fill", 4).route("a\ud800")
    assert hash_key("é") == hash_key("é".encode())
