"""Fetched buffers with header names that are not UTF-8."""

import pytest
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchBuilderPy
from aiokafka.record.memory_records import MemoryRecords
from keygrouping_service.records.aiokafka_adapter import read_with_surrogateescape

GZIP, NONE = DefaultRecordBatch.CODEC_GZIP, DefaultRecordBatch.CODEC_NONE


class Raw(str):
    """A header name that is written as the bytes that it stands for."""

    def encode(self, *_: str) -> bytes:
        return super().encode(errors="surrogateescape")


def batch(compression: int, *names: str) -> bytes:
    """A batch with a record per header name."""
    builder = _DefaultRecordBatchBuilderPy(2, compression, 0, -1, -1, 0, 1 << 20)
    for offset, name in enumerate(names):
        builder.append(offset, 5, b"k%d" % offset, None, [(Raw(name), b"1")])
    return bytes(builder.build())


@pytest.fixture(autouse=True)
def strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests of this process have asked for, and undone after each test."""
    monkeypatch.setattr(fetcher, "MemoryRecords", MemoryRecords)


def read(buffer: bytes) -> list[tuple[bytes | None, str]]:
    records, found = fetcher.MemoryRecords(buffer), []
    while records.has_next():
        one = records.next_batch()
        assert one.validate_crc() and not one.is_control_batch
        found += [(record.key, record.headers[0][0]) for record in one]
    return found


def test_the_strict_reader_fails() -> None:
    with pytest.raises(UnicodeDecodeError):
        read(batch(NONE, "caf\udce9"))


@pytest.mark.parametrize("compression", [NONE, GZIP])
def test_records_around_a_bad_name_and_the_bad_one_itself_are_read(compression: int) -> None:
    read_with_surrogateescape()
    buffer = batch(compression, "a", "caf\udce9", "café") + batch(compression, "next")
    assert read(buffer) == [(b"k0", "a"), (b"k1", "caf\udce9"), (b"k2", "café"), (b"k0", "next")]
