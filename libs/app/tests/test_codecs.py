"""Codecs give bytes that take no more memory than they are."""

from __future__ import annotations

import tracemalloc

from keygrouping_app.codecs import JSON


def test_what_is_encoded_takes_about_as_much_memory_as_it_is_long() -> None:
    tracemalloc.start()
    kept = [JSON.encode({"n": number}) for number in range(1000)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 1000
    assert size < 200 * len(kept)
