"""Bad input stops nothing and never vanishes: everything that was written is in a result, late, or a dead letter."""

import time
from collections import Counter
from typing import Any

import orjson
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.records import read_all, read_results, reasons

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

DAY = 86_400_000
NOW = int(time.time() * 1000)
JOB = orjson.dumps(
    {
        "window": "1h",
        "lateness": "1h",
        "confirmations": 1,  # so that few events move time
        "aggregates": [
            {"name": "events", "op": "count"},
            {"name": "total", "op": "sum", "field": "/n"},
            {"name": "kinds", "op": "distinct", "field": "kind"},
        ],
    }
).decode()
GOOD = b'{"n": 1.5, "kind": "a"}'
BAD: dict[str, tuple[Event, str]] = {
    "no key": (Event(0, None, GOOD, NOW), "no-key"),
    "a key of 100 kB": (Event(0, b"k" * 100_000, GOOD, NOW), "key-too-large"),
    "invalid JSON": (Event(0, b"k", b'{"n": 1', NOW), "invalid-json"),
    "an empty value": (Event(0, b"k", b"", NOW), "invalid-json"),
    "a tombstone": (Event(0, b"k", None, NOW), "no-value"),
    "NaN": (Event(0, b"k", b'{"n": NaN}', NOW), "invalid-json"),
    "invalid UTF-8 in a field": (Event(0, b"k", b'{"kind": "\xff\xfe"}', NOW), "invalid-json"),
    "no object": (Event(0, b"k", b"[1, 2]", NOW), "not-an-object"),
    "a time in the far future": (Event(0, b"k", GOOD, NOW + 10_000 * DAY), "timestamp-in-the-future"),
}
ODD: dict[str, Event] = {
    "an empty key": Event(0, b"", GOOD, NOW),
    "a key that is not UTF-8": Event(0, b"\xff\x00\n|", GOOD, NOW),
    "a value of 1 MB": Event(0, b"big", b'{"n": 2, "pad": "%s"}' % (b"x" * 1_000_000), NOW),
    "the longest key": Event(0, b"\x01" * 65_536, GOOD, NOW),
    "unknown headers": Event(0, b"k", GOOD, NOW, (("", b""), ("trace", b"\x00\xff"), ("trace", b"2"))),
    "missing fields": Event(0, b"k", b"{}", NOW),
    "null fields": Event(0, b"k", b'{"n": null, "kind": null}', NOW),
    "a number as wide as it gets": Event(0, b"k", b'{"n": 1e308}', NOW),
    "an integer as text": Event(0, b"k", b'{"kind": -7}', NOW),
    "a number as text": Event(0, b"k", b'{"n": "1.5"}', NOW),
    "a list as text": Event(0, b"k", b'{"n": true, "kind": ["a"]}', NOW),
    "a fraction as text": Event(0, b"k", b'{"n": [1], "kind": 1.5}', NOW),
    "an integer of 64 bits as text": Event(0, b"k", b'{"kind": 18446744073709551615}', NOW),
    "an integer of more bits as text": Event(0, b"k", b'{"kind": 18446744073709551616}', NOW),
    "escapes": Event(0, b"k", rb'{"kind": "\u0000\ud83d\ude00\"\\"}', NOW),
}
FAR_PAST = Event(0, b"k", GOOD, 1)
RUNNERS = {"native": ["worker-0", "aggregator-0"], "spark": ["spark-0"]}


async def deployment_of(deploy: Deploy, runner: str) -> Deployment:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=4))
    for name in RUNNERS[runner]:
        deployment.start(name)
    deployment.start("router-0", workers=4, grouping="key")
    return deployment


async def test_a_dead_letter_is_the_record_as_it_came_and_says_why(deploy: Deploy) -> None:
    deployment = await deployment_of(deploy, "native")
    await deployment.write([Event(1, b"k", b"no json", NOW, (("trace", b"\x00"),))])
    await deployment.until(lambda: has_dead_letter(deployment))
    async for (record,) in read_all(deployment.settings, deployment.settings.dead_letters_topic):
        assert (record.key, record.value, record.timestamp) == (b"k", b"no json", NOW)
        headers = {name: value or b"" for name, value in record.headers}
        assert headers["trace"] == b"\x00"
        assert headers["keygrouping-topic"].decode() == deployment.settings.events_topic
        assert (headers["keygrouping-partition"], headers["keygrouping-offset"]) == (b"1", b"0")
        assert headers["keygrouping-reason"] == b"invalid-json"
        assert b"not JSON" in headers["keygrouping-detail"]


async def has_dead_letter(deployment: Deployment) -> bool:
    return bool(await reasons(deployment.settings, deployment.settings.dead_letters_topic))


async def assert_nothing_vanished(deployment: Deployment, written: int) -> None:
    names = deployment.settings
    results = await read_results(names)
    aside: Counter[str] = Counter()
    for topic in (names.late_topic, names.dead_letters_topic):
        aside[topic] = len(await reasons(names, topic))
    assert sum(result.events for result in results.values()) + sum(aside.values()) == written


noise = st.one_of(
    st.binary(max_size=60),
    st.none(),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(), st.text(max_size=8)),
        lambda inner: st.dictionaries(st.sampled_from(["n", "kind", "x"]), inner, max_size=3),
        max_leaves=5,
    ).map(lambda data: orjson.dumps(data)),
)
times = st.one_of(st.integers(0, 2**42), st.integers(NOW - 2 * DAY, NOW + DAY))
headers = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=2).map(tuple)
# The client of the tests writes no record without key and value; everything else goes.
rubbish = st.builds(
    Event, st.integers(0, 1), st.one_of(st.none(), st.binary(max_size=9)), noise, times, headers
).filter(lambda event: event.key is not None or event.value is not None)


def drawn() -> list[Event]:
    """What hypothesis draws, all of it for one pipeline: that is too slow for one example each."""
    kept: list[Event] = []

    @settings(max_examples=400, phases=[Phase.generate], database=None, deadline=None)
    @given(rubbish)
    def draw(event: Event) -> None:
        kept.append(event)

    run: Any = draw
    run()
    return kept


@pytest.mark.parametrize("runner", RUNNERS)
async def test_bad_input_is_found_where_it_belongs_and_random_bytes_stop_nothing(deploy: Deploy, runner: str) -> None:
    deployment = await deployment_of(deploy, runner)
    known = [Event(0, b"k", GOOD, NOW), *(event for event, _ in BAD.values()), *ODD.values(), FAR_PAST]
    random = drawn()
    await deployment.write([*known, *random])
    comparison = await deployment.check()
    assert comparison.equal, (comparison, random)
    await assert_nothing_vanished(deployment, len(known) + len(random))
    dead = await reasons(deployment.settings, deployment.settings.dead_letters_topic)
    found = {name: dead.get((0, 1 + n)) for n, name in enumerate(BAD)}
    assert found == {name: why for name, (_, why) in BAD.items()}
    assert not [name for n, name in enumerate(ODD) if (0, 1 + len(BAD) + n) in dead]
    late = await reasons(deployment.settings, deployment.settings.late_topic)
    assert {place: why for place, why in late.items() if place <= (0, len(known) - 1)} == {(0, len(known) - 1): "late"}
