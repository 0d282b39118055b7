"""What a request, and all of them together, may take of the producer: time, memory, rights."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from fastapi import FastAPI
from keygrouping_producer.api import NDJSON, event_routes, replay_routes
from keygrouping_producer.ingest import Ingest, Intake, Unavailable, parse
from keygrouping_producer.replay import Replayer
from keygrouping_producer.settings import ProducerSettings
from keygrouping_service.http.app import create_app, serving
from keygrouping_service.http.limits import limit_requests
from keygrouping_service.records.batches import Outbox

from .test_api import FakeReplay, check_problem

TIMEOUT = 120.0
LINE = b'{"value":1}\n'


class Away:
    """A broker that answers when it is told to; batches are those of a real client."""

    def __init__(self, settings: ProducerSettings) -> None:
        self.client = AIOKafkaProducer(bootstrap_servers="none:1", max_batch_size=settings.batch_bytes)
        self.answers = asyncio.Event()

    async def partitions_for(self, topic: str) -> set[int]:
        del topic
        return {0, 1, 2, 3}

    def create_batch(self) -> Any:
        return self.client.create_batch()


class Held(Ingest):
    """The real ingest on such a broker."""

    def __init__(self, settings: ProducerSettings, wanted: int = 1) -> None:
        super().__init__(settings)
        self.broker = Away(settings)
        self._producer = cast(AIOKafkaProducer, self.broker)
        self.writing, self.wanted = 0, wanted
        self.written = asyncio.Event()
        self.events = 0

    async def write(self, intake: Intake) -> None:
        self.writing += 1
        if self.writing == self.wanted:
            self.written.set()
        await self.broker.answers.wait()
        self.events += intake.events

    @property
    def pending(self) -> int:
        return self._pending


def settings_of(**given: Any) -> ProducerSettings:
    return ProducerSettings(bootstrap_servers="none:1", **given)


def app_of(settings: ProducerSettings, ingest: Ingest, replay: FakeReplay | None = None) -> FastAPI:
    routes = replay_routes(settings, cast(Replayer, replay or FakeReplay()))
    app = create_app("test", lambda: True, event_routes(settings, ingest), routes)
    limit_requests(app, body_bytes=settings.max_body_bytes, rate=settings.api_rate)
    return app


@contextlib.asynccontextmanager
async def site(ingest: Held, settings: ProducerSettings) -> AsyncIterator[str]:
    async with serving(app_of(settings, ingest), "127.0.0.1", 0, **settings.http_bounds) as port:
        yield f"http://127.0.0.1:{port}"


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Watch(threading.Thread):
    """Keeps asking for /healthz, and notes how long the answers take, and the memory."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._over = threading.Event()
        self.slowest = 0.0
        self.answers = 0
        self.most = resident()
        self.before = self.most

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=TIMEOUT) as client:
            while not self._over.is_set():
                began = time.monotonic()
                assert client.get("/healthz").status_code == 200
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.answers += 1
                self.most = max(self.most, resident())
                self._over.wait(0.02)

    def end(self) -> None:
        self._over.set()
        self.join(TIMEOUT)


def post(url: str, body: bytes) -> httpx.Response:
    with httpx.Client(base_url=url, timeout=TIMEOUT) as client:
        return client.post("/events", content=body, headers={"Content-Type": NDJSON})


async def test_a_large_body_of_tiny_events_holds_up_nobody_and_takes_little_memory() -> None:
    settings = settings_of(http_body_timeout=TIMEOUT)
    ingest = Held(settings)
    ingest.broker.answers.set()
    count = 2_000_000 // len(LINE)
    body = LINE * count
    async with site(ingest, settings) as url:
        watch = Watch(url)
        watch.start()
        began = time.monotonic()
        answer = await asyncio.to_thread(post, url, body)
        took = time.monotonic() - began
        await asyncio.to_thread(watch.end)
    assert (answer.status_code, answer.json()) == (202, {"accepted": count})
    assert ingest.events == count and ingest.pending == 0
    assert watch.answers > 3
    assert watch.slowest < took / 2, "the body was parsed at one stretch"
    assert watch.most - watch.before < 120 << 20, "its events were all in memory as objects"


async def test_one_event_that_is_too_large_as_text_is_refused_before_it_is_parsed() -> None:
    settings = settings_of(max_event_bytes=1000)
    ingest = Held(settings)
    ingest.broker.answers.set()
    async with site(ingest, settings) as url:
        body = LINE + b'{"value":"' + b"x" * 1_000_000 + b'"}\n' + LINE
        problem = check_problem(await asyncio.to_thread(post, url, body), 413, "more than 8 times 1000 bytes")
        assert problem["line"] == 2
        long_but_small = b'{"value":"' + b"\\u0061" * 900 + b'"}\n'
        assert (await asyncio.to_thread(post, url, long_but_small)).json() == {"accepted": 1}
    assert ingest.events == 1


async def test_all_requests_together_hold_no_more_than_the_setting_says() -> None:
    settings = settings_of(max_pending_bytes=100_000, max_requests=10)
    ingest = Held(settings)
    async with site(ingest, settings) as url, httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as client:
        headers = {"Content-Type": NDJSON}

        async def send() -> httpx.Response:
            return await client.post("/events", content=LINE * 4000, headers=headers)

        sending = [asyncio.create_task(send()) for _ in range(2)]
        await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED, timeout=TIMEOUT)
        await asyncio.wait_for(ingest.written.wait(), TIMEOUT)
        assert ingest.pending <= 160_000
        refused = await send()
        check_problem(refused, 503, "too many events are waiting for the broker: send the events again")
        assert refused.headers["retry-after"] == "1"

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(40):
                yield LINE * 100

        check_problem(await client.post("/events", content=chunks(), headers=headers), 503, "too many events")
        ingest.broker.answers.set()
        codes = sorted([(await task).status_code for task in sending])
        assert codes == [202, 503]
        assert ingest.pending == 0
        assert (await send()).status_code == 202


async def test_so_many_requests_at_once_and_no_more() -> None:
    settings = settings_of(max_requests=2)
    ingest = Held(settings, wanted=2)
    async with site(ingest, settings) as url, httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as client:
        sending = [asyncio.create_task(client.post("/events", json={"value": 1})) for _ in range(2)]
        await asyncio.wait_for(ingest.written.wait(), TIMEOUT)
        check_problem(await client.post("/events", json={"value": 1}), 503, "2 requests with events are under way")
        ingest.broker.answers.set()
        assert [(await task).status_code for task in sending] == [202, 202]


async def test_a_request_that_is_given_up_leaves_its_place() -> None:
    settings = settings_of(max_requests=1, http_body_timeout=0.5)
    ingest = Held(settings)
    ingest.broker.answers.set()
    async with site(ingest, settings) as url, httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as client:

        async def halting() -> AsyncIterator[bytes]:
            yield LINE * 10
            await asyncio.sleep(1.5)

        check_problem(await client.post("/events", content=halting(), headers={"Content-Type": NDJSON}), 408, "0.5 s")
        assert ingest.pending == 0
        assert (await client.post("/events", json={"value": 1})).status_code == 202


async def test_what_events_take_in_memory_is_counted_at_least_as_it_is() -> None:
    outbox = Outbox(cast(AIOKafkaProducer, Away(settings_of())))
    intake = Intake(outbox, "events", 4, itertools.count())
    for number in range(2000):
        intake.add(parse(b'{"key":"k%d","value":%d,"headers":{"h":"x"}}' % (number % 9, number)))
    encoded = sum(batch._builder.size() for batches in outbox._batches.values() for batch in batches)
    assert encoded <= intake.bytes + 4 * 100
    assert intake.events == 2000


async def test_what_was_reserved_is_given_back() -> None:
    ingest = Held(settings_of(max_pending_bytes=100))
    with ingest.place() as first:
        first.hold(1000)
        with ingest.place() as second, pytest.raises(Unavailable):
            second.hold(1)
        first.hold(10)
        assert ingest.pending == 1000, "a single one may be larger"
    assert ingest.pending == 0


@pytest.mark.parametrize(("method", "path"), [("POST", "/events"), ("PUT", "/workload"), ("PUT", "/rate")])
async def test_writes_need_a_token_where_there_are_tokens(tmp_path: Path, method: str, path: str) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("shop write secret\nviewer read seen\n")
    settings = settings_of(api_token_file=tokens)
    ingest = Held(settings)
    ingest.broker.answers.set()
    body = {"value": 1} if path == "/events" else {"rate": 3}
    transport = httpx.ASGITransport(app_of(settings, ingest), client=("10.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://producer") as client:
        check_problem(await client.request(method, path, json=body), 401, "token")
        wrong = {"Authorization": "Bearer wrong"}
        check_problem(await client.request(method, path, json=body, headers=wrong), 401, "token")
        check_problem(
            await client.request(method, path, json=body, headers={"Authorization": "Bearer seen"}), 403, "only read"
        )
        right = {"Authorization": "Bearer secret"}
        assert (await client.request(method, path, json=body, headers=right)).is_success
        assert (await client.get("/status")).status_code == 200


@pytest.mark.parametrize(
    ("address", "status"), [("127.0.0.1", 200), ("::1", 200), ("10.0.0.1", 403), ("2001:db8::1", 403), ("unix", 403)]
)
async def test_without_tokens_only_this_machine_starts_workloads(address: str, status: int) -> None:
    settings, replay = settings_of(), FakeReplay()
    ingest = Held(settings)
    ingest.broker.answers.set()
    transport = httpx.ASGITransport(app_of(settings, ingest, replay), client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://producer") as client:
        for path in ("/workload", "/rate"):
            answer = await client.put(path, json={"rate": 3})
            assert answer.status_code == status
            if status == 403:
                check_problem(answer, 403, "set KEYGROUPING_API_TOKEN_FILE")
        assert replay.runs == (2 if status == 200 else 1)
        assert (await client.post("/events", json={"value": 1})).status_code == 202


async def test_nobody_starts_more_events_than_the_setting_allows() -> None:
    settings, replay = settings_of(max_workload_events=1000), FakeReplay()
    transport = httpx.ASGITransport(app_of(settings, Held(settings), replay))
    async with httpx.AsyncClient(transport=transport, base_url="http://producer") as client:
        for events in (10**12, 1001):
            answer = await client.put("/workload", json={"events": events})
            check_problem(answer, 422, "at most 1000, as KEYGROUPING_PRODUCER_MAX_WORKLOAD_EVENTS says")
        assert replay.runs == 1
        assert (await client.put("/workload", json={"events": 1000})).status_code == 200


async def test_one_client_may_ask_so_often_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limits.aio.storage.memory.time.time", lambda: 1000.0)
    settings = settings_of(api_rate=5)
    ingest = Held(settings)
    ingest.broker.answers.set()
    transport = httpx.ASGITransport(app_of(settings, ingest))
    async with httpx.AsyncClient(transport=transport, base_url="http://producer") as client:
        answers = [await client.post("/events", json={"value": 1}) for _ in range(8)]
        assert {answer.status_code for answer in answers} == {202, 429}
        assert answers[-1].headers["retry-after"] == "1"


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}])
async def test_what_a_page_of_another_site_sends_is_not_taken(headers: dict[str, str]) -> None:
    settings = settings_of()
    ingest = Held(settings)
    ingest.broker.answers.set()
    async with site(ingest, settings) as url, httpx.AsyncClient(base_url=url) as client:
        foreign = {"Origin": "http://evil.example", **headers}
        check_problem(await client.post("/events", content=b'{"value":1}', headers=foreign), 403, "another site")
        check_problem(await client.post("/events", content=b'{"value":1}', headers=headers), 415, "application/json")
    transport = httpx.ASGITransport(app_of(settings, ingest))
    async with httpx.AsyncClient(transport=transport, base_url="http://producer") as client:
        check_problem(await client.post("/events", content=b'{"value":1}', headers=headers), 415, "application/json")
    assert ingest.events == 0
