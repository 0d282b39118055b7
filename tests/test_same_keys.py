"""`keygrouping inspect` and the pipeline take the same keys from the same file."""

from collections import Counter
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keygrouping.inspection import Extraction, open_file
from keygrouping_producer.sources.files import File

KEYS = [1.5, 1.0, -0.0, 1e300, 7, -7, 2**63, 2**64 - 1, "x", "", "1.5", None, True, [], {}]
NUMBERS = [b"18446744073709551616", b"123456789012345678901234567890", b"1E2", b"-0", b"0.1"]


def keys_of_pipeline(path: Path) -> Counter[bytes]:
    block = File(path, "id").read(0, 10_000)
    return Counter(key for i, key in enumerate(block.keys) if i not in block.faults and key is not None)


def keys_of_inspect(path: Path) -> Counter[bytes]:
    format = "csv" if path.suffix == ".csv" else "ndjson"
    reading = open_file(path, format, Extraction.parsed("field=id", "1"), {}, lambda done, total: None)  # noqa: ARG005
    return Counter(key for batch in reading.batches() for key in batch.keys)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.sampled_from(KEYS), st.floats(allow_nan=False, allow_infinity=False), st.integers())))
def test_of_json_lines(tmp_path: Path, keys: list[object]) -> None:
    path = tmp_path / "a.jsonl"
    texts = [orjson.dumps(key) if not isinstance(key, int) else b"%d" % key for key in keys] + NUMBERS
    path.write_bytes(b"\xef\xbb\xbf" + b"".join(b'{"id":%b}\n' % text for text in texts))
    assert keys_of_pipeline(path) == keys_of_inspect(path)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_of_csv(tmp_path: Path, mark: bytes) -> None:
    path = tmp_path / "a.csv"
    rows = [*(str(key) for key in KEYS if isinstance(key, int | float | str) and key != ""), "1.50", "y" * 200_000]
    path.write_bytes(mark + b"id,n\n" + "".join(f'"{row}",1\n' for row in rows).encode())
    assert keys_of_pipeline(path) == keys_of_inspect(path) == Counter(row.encode() for row in rows)
