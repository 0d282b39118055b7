"""The request for stable offsets, against bytes made by hand from Kafka's protocol guide (OffsetFetch, version 7)."""

from __future__ import annotations

import io

from keygrouping_kafka.stable_offsets import StableOffsetsRequest, _OffsetFetchRequestV7, _OffsetFetchResponseV7

# Lengths of compact strings and arrays are one more than what they hold; each structure ends with its number of tags.
REQUEST = (
    b"\x06group"
    b"\x02"  # one topic
    b"\x07orders"
    b"\x03\x00\x00\x00\x00\x00\x00\x00\x02\x00"  # partitions 0 and 2, no tags
    b"\x01"  # stable ones
    b"\x00"
)
ANSWER = (
    b"\x00\x00\x00\x07"  # throttled for 7 ms
    b"\x02"
    b"\x07orders"
    b"\x02\x00\x00\x00\x02"  # one partition: 2
    b"\x00\x00\x00\x00\x00\x00\x00\x29\x00\x00\x00\x03"  # offset 41, leader's epoch 3
    b"\x05kg1:\x00\x58\x00"  # metadata, error 88
    b"\x00"
    b"\x00\x00"
    b"\x00"
)


def test_it_asks_for_stable_offsets() -> None:
    request = StableOffsetsRequest("group", {"orders": [0, 2]}).build(_OffsetFetchRequestV7)
    assert (request.API_KEY, request.API_VERSION, request.encode()) == (9, 7, REQUEST)


def test_an_offset_that_a_transaction_holds_is_read() -> None:
    answer = _OffsetFetchResponseV7.SCHEMA.decode(io.BytesIO(ANSWER))
    assert answer == (7, [("orders", [(2, 41, 3, "kg1:", StableOffsetsRequest.UNSTABLE, {})], {})], 0, {})
