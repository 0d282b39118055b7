"""Apps and services ask for stable offsets by the same request: an app has no services, so each has its own schema."""

from __future__ import annotations

import io
from typing import Any

from keygrouping_app.kafka import stable
from keygrouping_service.kafka import requests

WANTED = {"orders": [0, 2], "events": [1]}
ANSWER: Any = (7, [("orders", [(2, 41, 3, "kg1:", 88, {})], {})], 0, {})


def test_both_send_the_same_bytes() -> None:
    ours = requests.StableOffsetsRequest("group", WANTED).build(requests._OffsetFetchRequestV7)
    apps = stable._StableOffsetsRequest("group", WANTED).build(stable._OffsetFetchRequestV7)
    assert ours.encode() == apps.encode()
    assert (ours.API_KEY, ours.API_VERSION) == (apps.API_KEY, apps.API_VERSION)


def test_both_read_the_same_answer() -> None:
    answer = requests._OffsetFetchResponseV7.SCHEMA.encode(ANSWER)
    for schema in (requests._OffsetFetchResponseV7.SCHEMA, stable._OffsetFetchResponseV7.SCHEMA):
        assert schema.decode(io.BytesIO(answer)) == ANSWER
