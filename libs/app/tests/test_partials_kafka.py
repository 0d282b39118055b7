"""States that merge on Kafka: what a group of members makes of hot keys, and what is refused."""

from __future__ import annotations

import asyncio
import json
import random
import urllib.request
from collections import Counter
from http import HTTPStatus
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewPartitions, NewTopic
from keygrouping_app import App, AppError, Event, Output, State
from keygrouping_local.ports import free_ports
from keygrouping_service.kafka.progress import partitions_of
from keygrouping_service.testing import Cluster, until
from merging_handlers import Visits, merge, visit

from .served import serving, until_left

pytestmark = pytest.mark.kafka

PARTITIONS = 4


class Site:
    """An app with states that merge, and its topics."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster, self.group = cluster, f"{prefix}-group"
        self.topic, self.out, self.dead = f"{prefix}-in", f"{prefix}-out", f"{prefix}-dead"
        self.partials = f"{self.group}.{self.topic}.partials"
        self.changelog = f"{self.group}.{self.partials}.states"

    async def create(self) -> None:
        await self.cluster.create(**{self.topic: PARTITIONS, self.out: 1, self.dead: 1})

    def app(self, function: Any = visit, *, port: int | None = None, **options: Any) -> App:
        app = App(self.group, brokers=self.cluster.bootstrap_servers, dead_letters=self.dead, port=port)
        given = {"split": True, "key": "/page", "state": State(Visits, merge=merge), "retries": 0}
        app.on(self.topic, **{**given, **options})(function)
        return app

    async def write(self, *events: dict[str, Any], partition: int = 0) -> None:
        await self.cluster.write(self.topic, [(b"-", json.dumps(each).encode()) for each in events], partition)

    async def states(self) -> dict[str, Any]:
        found = {json.loads(each.key or b""): each.value for each in await self.cluster.read(self.changelog)}
        return {key: json.loads(value) for key, value in found.items() if value is not None}

    async def counts(self) -> dict[str, int]:
        return {key: state["count"] for key, state in (await self.states()).items()}

    async def reach(self, counts: dict[str, int]) -> None:
        async def reached() -> bool:
            return await self.counts() == counts

        await until(reached)

    async def letters(self) -> list[str]:
        found = [dict(each.headers) for each in await self.cluster.read(self.dead)]
        return [(each["keygrouping-reason"] or b"").decode() for each in found]


async def abort(site: Site, partition: int, topic: str, key: bytes) -> None:
    """As a member that has died in a transaction of an input partition leaves it, once it is ended."""
    name = f"{site.group}/{site.topic}/{partition}"
    async with AIOKafkaProducer(bootstrap_servers=site.cluster.bootstrap_servers, transactional_id=name) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"{}", key, partition)
        await producer.abort_transaction()


@pytest.fixture
async def site(cluster: Cluster, topic_prefix: str) -> Site:
    site = Site(cluster, topic_prefix)
    await site.create()
    return site


def asked(port: int, path: str, body: bytes | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, method="GET" if body is None else "PUT")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("options", [{}, {"processes": 2}], ids=["threads", "processes"])
async def test_each_key_has_one_state_of_what_all_members_did(site: Site, options: dict[str, Any]) -> None:
    chance, expected = random.Random(3), Counter[str]()
    for partition in range(PARTITIONS):
        events = [{"page": chance.choice("aaaaaaaabcde"), "by": "x"} for _ in range(1000)]
        expected += Counter(each["page"] for each in events)
        await site.write(*events, partition=partition)
    ports = free_ports(2)
    async with serving(site.app(port=ports[0], **options)), serving(site.app(port=ports[1], **options)):
        await site.reach(dict(expected))

        async def is_told() -> bool:
            """By one of them, once partitions have come to rest."""
            answers = [await asyncio.to_thread(asked, port, "/state/a") for port in ports]
            found = [body["states"][0] for status, body in answers if status == 200]
            wanted = {"count": expected["a"], "latest": {"x": 0}}
            return [(each["key"], each["state"]) for each in found] == [("a", wanted)]

        await until(is_told)
    # Those of a key go together, so what is written is little where a key has many events.
    assert len(await site.cluster.read(site.partials)) < 4 * PARTITIONS * 1000 / 5
    assert await site.letters() == []


async def test_an_event_whose_output_is_refused_is_in_no_state(site: Site) -> None:
    small = f"{site.topic}-small"
    await site.cluster.create_small(small, 2000)
    events = [{"page": "a", "by": "x", "to": small, "text": "t" * (5000 if n % 10 == 3 else 5)} for n in range(100)]
    await site.write(*events)
    async with serving(site.app()):
        await site.reach({"a": 90})
    assert await site.letters() == ["refused_output"] * 10
    assert len(await site.cluster.read(small)) == 90


async def test_a_record_that_is_no_state_is_a_dead_letter_and_others_are_merged(site: Site) -> None:
    async with serving(site.app()):
        await site.write({"page": "a", "by": "x"})
        await site.reach({"a": 1})
        await site.cluster.write(site.partials, [(b'"a"', b"what?"), (b"what?", b"{}"), (None, b"{}"), (b'"a"', None)])
        await site.write({"page": "a", "by": "y"})
        await site.reach({"a": 2})

        async def are_dead() -> bool:
            return len(await site.letters()) == 4

        await until(are_dead)
    assert sorted(await site.letters()) == ["undecodable"] * 4


async def test_a_state_ends_by_the_times_of_events_and_not_of_when_they_were_merged(site: Site) -> None:
    counts: list[int] = []

    def publish(_: str, visits: Visits) -> None:
        counts.append(visits.count)

    app = site.app(state=State(Visits, merge=merge, publish=publish, ttl=60))
    async with serving(app):
        for second in (0, 50, 100, 200, 230):
            row = [(b"-", json.dumps({"page": "a", "by": "x"}).encode())]
            await site.cluster.write(site.topic, row, 0, 1_600_000_000_000 + second * 1000)
            done = len(counts)
            await until(lambda done=done: len(counts) > done)  # type: ignore[misc]
    assert counts == [1, 2, 3, 1, 2]


async def test_an_app_with_an_end_has_merged_everything_when_it_ends(site: Site) -> None:
    await site.write(*[{"page": "ab"[number % 2], "by": "x"} for number in range(500)])
    app = site.app()
    app.override({"until": "latest"}, {})
    await asyncio.wait_for(app.serve(asyncio.Event()), 120)
    assert await site.counts() == {"a": 250, "b": 250}


async def test_what_is_published_is_written_with_the_state_it_is_of(site: Site) -> None:
    def publish(key: str, visits: Visits) -> Output:
        return Output(site.out, visits.count, key=key)

    async with serving(site.app(state=State(Visits, merge=merge, publish=publish))):
        for number in range(1, 6):
            await site.write({"page": "a", "by": "x"})
            await site.reach({"a": number})
    published = [int(each.value or b"0") for each in await site.cluster.read(site.out)]
    assert published == [1, 2, 3, 4, 5]


async def test_a_key_of_merged_states_goes_where_it_is_ordered(site: Site) -> None:
    (port,), published = free_ports(1), set[str]()

    def publish(key: str, visits: Visits) -> Output:
        published.add(key)
        return Output(site.out, visits.count, key=key)

    state = State(Visits, merge=merge, publish=publish, moves="ordered")
    async with serving(site.app(state=state, port=port)):
        await site.write(*[{"page": "a", "by": "x"}] * 20)
        await site.reach({"a": 20})

        async def is_ordered() -> bool:
            """Once its event loop has a moment."""
            status, told = await asyncio.to_thread(asked, port, "/keys/a/slot", b'{"slot": 1}')
            assert status in (HTTPStatus.ACCEPTED, HTTPStatus.SERVICE_UNAVAILABLE), told
            return bool(status == HTTPStatus.ACCEPTED)

        await until(is_ordered)

        async def is_there() -> bool:
            return len(await site.cluster.read(f"{site.group}.{site.group}.{site.partials}.moved.states")) > 0

        await until(is_there)
        await site.write(*[{"page": "a", "by": "y"}] * 10)

        async def is_merged() -> bool:
            status, body = await asyncio.to_thread(asked, port, "/state/a")
            return status == 200 and [each["state"]["count"] for each in body["states"]] == [30]

        await until(is_merged)
    assert published == {"a"}
    assert {each.key for each in await site.cluster.read(site.out)} == {b"a"}
    assert await site.letters() == []


async def test_merged_states_stop_a_start_without_merge(site: Site) -> None:
    async with serving(site.app()):
        await site.write({"page": "a", "by": "x"})
        await site.reach({"a": 1})
    with pytest.raises(AppError, match="has the states that visit has merged, which it would not go on with"):
        await site.app(state=Visits, split=False).serve(asyncio.Event())


async def test_states_of_before_a_split_stop_the_start(site: Site) -> None:
    async def keep(_: Event, visits: Visits) -> None:
        visits.count += 1

    async with serving(site.app(keep, state=Visits, split=False)):
        await site.write({"page": "a", "by": "x"})
        await until(lambda: site.cluster.read(f"{site.group}.{site.topic}.states"))
    with pytest.raises(AppError, match=r"has the states that visit has kept without split"):
        await site.app().serve(asyncio.Event())


async def test_what_is_not_merged_yet_stops_an_app_that_would_not_merge_it(site: Site) -> None:
    await site.cluster.admin.create_topics([NewTopic(site.partials, PARTITIONS, 1)])
    await site.cluster.write(site.partials, [(b'"a"', b"{}")], 1)

    async def see(event: Event) -> None: ...

    with pytest.raises(AppError, match="holds states that are not merged yet"):
        await site.app(see, state=None, split=True).serve(asyncio.Event())


async def test_a_state_of_an_aborted_transaction_stops_no_app_that_would_not_merge_it(site: Site) -> None:
    await site.cluster.admin.create_topics([NewTopic(site.partials, PARTITIONS, 1)])
    await abort(site, 1, site.partials, b'"a"')
    seen = asyncio.Event()

    async def see(_: Event) -> None:
        seen.set()

    async with serving(site.app(see, state=None, split=True)):
        await site.write({"page": "a", "by": "x"})
        await asyncio.wait_for(seen.wait(), 300)


async def test_a_first_transaction_that_was_aborted_has_begun_nothing(site: Site) -> None:
    async with serving(site.app()):
        await site.write({"page": "a", "by": "x"}, partition=1)
        await site.reach({"a": 1})
    await abort(site, 0, f"{site.partials}.inputs", b"begun")
    async with serving(site.app()):
        await site.write({"page": "a", "by": "y"}, partition=0)
        await site.reach({"a": 2})


async def test_offsets_that_were_reset_stop_the_app_as_their_events_would_be_merged_twice(site: Site) -> None:
    async with serving(site.app()):
        await site.write({"page": "a", "by": "x"}, partition=1)
        await site.reach({"a": 1})
    await until_left(site.cluster, site.group)
    # As the tools do it, which leave no metadata.
    reset = AIOKafkaConsumer(bootstrap_servers=site.cluster.bootstrap_servers, group_id=site.group)
    await reset.start()
    reset.assign([TopicPartition(site.topic, 1)])
    await reset.commit({TopicPartition(site.topic, 1): 0})
    await reset.stop()
    with pytest.raises(AppError, match=r"would be once more\. To begin again without states, end all members"):
        await asyncio.wait_for(site.app().serve(asyncio.Event()), 300)


async def test_partitions_that_are_new_or_have_no_events_yet_begin_when_some_come(site: Site) -> None:
    async with serving(site.app()):
        await site.write({"page": "a", "by": "x"}, partition=1)
        await site.reach({"a": 1})
    await site.cluster.admin.create_partitions({site.topic: NewPartitions(PARTITIONS + 1)})

    async def are_there() -> bool:
        return len(await partitions_of(site.cluster.admin, site.topic)) == PARTITIONS + 1

    await until(are_there)
    await site.cluster.producer.client.force_metadata_update()
    async with serving(site.app()):
        for number, partition in enumerate([0, 1, PARTITIONS], 2):
            await site.write({"page": "a", "by": "x"}, partition=partition)
            await site.reach({"a": number})
