"""Laws of the HTTP interface, with broker and replay replaced: what is taken, what is refused, and how it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_producer.api import NDJSON, event_routes, replay_routes
from keygrouping_producer.ingest import EncodedEvent, Ingest, Place, Refused, Unavailable, parse
from keygrouping_producer.plan import Pace, Plan
from keygrouping_producer.replay import Replayer, Status
from keygrouping_producer.settings import ProducerSettings
from keygrouping_service.http.app import create_app
from keygrouping_service.http.limits import limit_requests


class FakeIntake:
    """Keeps records as they come."""

    def __init__(self) -> None:
        self.records: list[EncodedEvent] = []
        self.bytes = 0

    @property
    def events(self) -> int:
        return len(self.records)

    def add(self, record: EncodedEvent) -> None:
        self.records.append(record)


class FakeIngest:
    """Takes records, or fails as told; `acknowledge` holds answers back until it is set."""

    def __init__(self) -> None:
        self.taken: list[EncodedEvent] = []
        self.error: Exception | None = None
        self.arrived = asyncio.Event()
        self.acknowledge = asyncio.Event()
        self.acknowledge.set()

    @contextlib.contextmanager
    def place(self) -> Iterator[Place]:
        yield Place(cast(Ingest, self))

    def reserve(self, size: int) -> None:
        pass

    async def intake(self) -> FakeIntake:
        return FakeIntake()

    async def write(self, intake: FakeIntake) -> None:
        self.arrived.set()
        await self.acknowledge.wait()
        if self.error:
            raise self.error
        self.taken.extend(intake.records)


class FakeReplay:
    """Remembers its plan; `stuck` stands for a broker that is away."""

    def __init__(self) -> None:
        self.present = Plan.model_validate({"workload": {"workload": "country-skew-80"}, "pace": {"rate": 5}})
        self.runs = 1
        self.stuck = False

    async def switch(self, plan: Plan) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        self.present = plan
        self.runs += 1

    async def set_pace(self, pace: Pace) -> None:
        self.present = self.present.model_copy(update={"pace": pace})

    def plan(self) -> Plan:
        return self.present

    def status(self) -> Status:
        workload, pace = self.present.workload, self.present.pace
        return Status(
            run=self.runs,
            workload=workload.workload,
            skew=workload.skew,
            key=workload.key,
            rate=pace.rate,
            loop=pace.loop,
            sent=0,
            bad_lines=0,
            total=None,
            done=False,
        )


@pytest.fixture
def ingest() -> FakeIngest:
    return FakeIngest()


@pytest.fixture
def replay() -> FakeReplay:
    return FakeReplay()


@pytest.fixture
async def client(ingest: FakeIngest, replay: FakeReplay, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = ProducerSettings(
        bootstrap_servers="none:1",
        max_body_bytes=1000,
        max_event_bytes=100,
        data_folder=tmp_path,
        acknowledge_timeout=0.05,
    )
    app = create_app(
        "test",
        lambda: True,
        event_routes(settings, cast(Ingest, ingest)),
        replay_routes(settings, cast(Replayer, replay)),
    )
    limit_requests(app, body_bytes=settings.max_body_bytes)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://producer") as running:
        yield running


async def post(client: httpx.AsyncClient, *lines: bytes) -> httpx.Response:
    return await client.post("/events", content=b"\n".join(lines), headers={"content-type": NDJSON})


def check_problem(answer: httpx.Response, status: int, said: str) -> dict[str, Any]:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert {"type", "title", "status", "detail"} <= problem.keys()
    assert problem["status"] == status
    assert said in problem["detail"]
    return problem


async def test_one_event_is_taken_as_it_is(client: httpx.AsyncClient, ingest: FakeIngest) -> None:
    event = {"key": "ü", "value": {"a": [1, None]}, "headers": {"h": "1"}, "timestamp": 5}
    answer = await client.post("/events", json=event)
    assert (answer.status_code, answer.json()) == (202, {"accepted": 1})
    assert ingest.taken == [EncodedEvent(key="ü".encode(), value=b'{"a":[1,null]}', headers=[("h", b"1")], timestamp=5)]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/events"),
        ("PUT", "/rate"),
        ("PUT", "/workload"),
        *(("GET", path) for path in ("/status", "/healthz", "/metrics", "/docs", "/openapi.json")),
    ],
)
async def test_a_query_that_means_nothing_is_refused(
    client: httpx.AsyncClient, ingest: FakeIngest, method: str, path: str
) -> None:
    check_problem(await client.request(method, f"{path}?dry-run=true", json={"value": 1}), 422, "dry-run means nothing")
    assert ingest.taken == []


async def test_the_answer_waits_for_the_broker(client: httpx.AsyncClient, ingest: FakeIngest) -> None:
    ingest.acknowledge.clear()
    answer = asyncio.create_task(client.post("/events", json={"value": 1}))
    await ingest.arrived.wait()
    assert not answer.done()
    ingest.acknowledge.set()
    assert (await answer).status_code == 202


async def test_a_batch_is_taken_in_its_order_and_blank_lines_are_nothing(
    client: httpx.AsyncClient, ingest: FakeIngest
) -> None:
    answer = await post(client, b'{"value":1}', b"", b'{"key":"a","value":null}\r', b'{"value":"x"}', b"")
    assert (answer.status_code, answer.json()) == (202, {"accepted": 3})
    assert [(record.key, record.value) for record in ingest.taken] == [(None, b"1"), (b"a", None), (None, b'"x"')]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "EOF"),
        (b'{"value":NaN}', "expected value"),
        (b'{"value":{"x":[1e400]}}', "a number is beyond the floats"),
        (b"[]", "valid dictionary"),
        (b"{}", "value: Field required"),
        (b'{"value":null}', "key and value are both null"),
        (b'{"value":1,"key":2}', "key: Input should be a valid string"),
        (b'{"value":1,"timestamp":-1}', "timestamp"),
        (b'{"value":1,"timestamp":1.5}', "timestamp"),
        (b'{"value":1,"headers":{"a":1}}', "headers.a"),
        (b'{"value":1,"topic":"x"}', "topic"),
        (b'{"value":"\xff"}', ""),
    ],
)
async def test_a_bad_event_is_refused_with_its_line_and_nothing_of_its_batch_is_taken(
    client: httpx.AsyncClient, ingest: FakeIngest, line: bytes, said: str
) -> None:
    problem = check_problem(await post(client, b'{"value":1}', b"", line), 422, said)
    assert problem["line"] == 3
    json_type = {"content-type": "application/json"}
    check_problem(await client.post("/events", content=line, headers=json_type), 422, said)
    assert ingest.taken == []


async def test_what_is_too_large_is_refused(client: httpx.AsyncClient, ingest: FakeIngest) -> None:
    check_problem(await client.post("/events", content=b"x" * 1001), 413, "more than 1000 bytes")
    problem = check_problem(await post(client, b'{"value":1}', orjson.dumps({"value": "x" * 99})), 413, "101 bytes")
    assert problem["line"] == 2
    ingest.error = Refused("the broker refuses an event as too large")
    check_problem(await client.post("/events", json={"value": 1}), 413, "the broker refuses")
    assert ingest.taken == []


async def test_a_broker_that_is_away_is_a_503_that_says_to_come_again(
    client: httpx.AsyncClient, ingest: FakeIngest
) -> None:
    ingest.error = Unavailable("the broker is away")
    answer = await client.post("/events", json={"value": 1})
    check_problem(answer, 503, "send the events again")
    assert answer.headers["retry-after"] == "1"


async def test_other_media_and_other_paths_are_problems_too(client: httpx.AsyncClient) -> None:
    check_problem(await client.post("/events", content=b"<x/>", headers={"content-type": "text/xml"}), 415, "text/xml")
    check_problem(await client.get("/nowhere"), 404, "Not Found")
    answer = await client.get("/events")
    check_problem(answer, 405, "this path takes POST, not GET")
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("change", "workload", "rate", "loop"),
    [
        ({"workload": "flights", "key": "dest"}, {"workload": "flights", "key": "dest"}, 5, False),
        ({"workload": "flights", "rate": 0, "loop": True}, {"workload": "flights"}, 0, True),
        ({"skew": 20}, {"workload": "country-skew-20"}, 5, False),
        ({"workload": "country-skew", "skew": 10, "events": 9}, {"workload": "country-skew-10", "events": 9}, 5, False),
        ({"seed": 7}, {"workload": "country-skew-80", "seed": 7}, 5, False),
        ({}, {"workload": "country-skew-80"}, 5, False),
    ],
)
async def test_a_change_of_workload_begins_a_run_and_keeps_what_is_left_out(
    client: httpx.AsyncClient,
    replay: FakeReplay,
    change: dict[str, Any],
    workload: dict[str, Any],
    rate: float,
    loop: bool,
) -> None:
    answer = await client.put("/workload", json=change)
    assert answer.status_code == 200
    assert answer.json()["run"] == 2
    assert replay.present == Plan.model_validate({"workload": workload, "pace": {"rate": rate, "loop": loop}})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"workload": "fligths"}, "known are"),
        ({"workload": "flights", "key": "pilot"}, "choose one of"),
        ({"workload": "flights", "skew": 3}, "country-skew only"),
        ({"skew": 101}, "known are"),
        ({"rate": -1}, "rate"),
        ({"speed": 1}, "speed"),
        ({"workload": "file", "file": "/etc/passwd", "key": "k"}, "DATA_FOLDER"),
    ],
)
async def test_a_workload_that_does_not_exist_changes_nothing(
    client: httpx.AsyncClient, replay: FakeReplay, change: dict[str, Any], said: str
) -> None:
    check_problem(await client.put("/workload", json=change), 422, said)
    assert replay.runs == 1


async def test_only_files_of_the_data_folder_can_be_chosen(
    client: httpx.AsyncClient, replay: FakeReplay, tmp_path: Path
) -> None:
    inside = tmp_path / "a.jsonl"
    inside.touch()
    for outside in (tmp_path / ".." / "b.jsonl", Path("/etc/hosts")):
        change = {"workload": "file", "file": str(outside), "key": "k"}
        check_problem(await client.put("/workload", json=change), 422, "DATA_FOLDER")
    missing = {"workload": "file", "file": str(tmp_path / "missing"), "key": "k"}
    check_problem(await client.put("/workload", json=missing), 422, "can't read")
    answer = await client.put("/workload", json={"workload": "file", "file": str(inside), "key": "k"})
    assert answer.status_code == 200
    assert replay.present.workload.file == inside


async def test_a_change_that_the_broker_does_not_record_in_time_says_so(
    client: httpx.AsyncClient, replay: FakeReplay
) -> None:
    replay.stuck = True
    check_problem(await client.put("/workload", json={"skew": 1}), 503, "the broker is away")


async def test_the_rate_changes_without_a_new_run(client: httpx.AsyncClient, replay: FakeReplay) -> None:
    answer = await client.put("/rate", json={"rate": 12.5})
    assert (answer.json()["rate"], answer.json()["loop"], answer.json()["run"]) == (12.5, False, 1)
    await client.put("/rate", json={"loop": True})
    assert replay.present.pace == Pace(rate=12.5, loop=True)
    check_problem(await client.put("/rate", json={"rate": "fast"}), 422, "rate")


async def test_the_status_says_what_is_replayed(client: httpx.AsyncClient) -> None:
    status = (await client.get("/status")).json()
    assert {"workload", "skew", "key", "rate", "sent", "total", "done"} <= status.keys()
    assert (status["workload"], status["skew"], status["rate"]) == ("country-skew-80", 80, 5)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=json_values, key=st.none() | st.text())
def test_any_json_value_comes_through(value: Any, key: str | None) -> None:
    if value is None and key is None:
        return
    record = parse(json.dumps({"key": key, "value": value}).encode())
    assert record.key == (None if key is None else key.encode())
    assert (None if record.value is None else json.loads(record.value)) == value


@given(st.binary(max_size=60))
def test_random_bytes_are_events_or_value_errors(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(parse(body), EncodedEvent)
