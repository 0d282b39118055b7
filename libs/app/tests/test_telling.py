"""What an app tells over HTTP, and that it is so."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from keygrouping_app import App, Breaker, Event, Reject, Retries, State
from keygrouping_app import serving as module
from keygrouping_app.kafka import planner
from keygrouping_app.kafka.changelog import Restoring
from keygrouping_app.kafka.moved import NotHereError, Slots
from keygrouping_app.kafka.moving import Moving
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.planner import Planning
from keygrouping_app.lanes import LoopLanes
from keygrouping_app.leveling import Plan
from keygrouping_app.metrics import DEFINITIONS, PREFIX, SEEN
from keygrouping_app.moves import Done
from keygrouping_app.partials import with_mergers
from keygrouping_app.planning import Balance, NotPlannedError, Promise
from keygrouping_app.serving import Answer, serving, text
from keygrouping_app.states import States
from keygrouping_app.telling import told
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.testing import Cluster, until
from merging_handlers import Visits, merge, visit
from prometheus_client.parser import text_string_to_metric_families

from .boards import MemoryBoard, Wire
from .fake_runner import running


def fetched(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


async def get(port: int, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(fetched, port, path)


async def told_port(caplog: pytest.LogCaptureFixture) -> int:
    """The port that a serving app has logged."""

    def told() -> list[str]:
        return [message for message in caplog.messages if "on port" in message]

    await until(told)
    return int(told()[0].rsplit(maxsplit=1)[1])


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("localhost", 200),
        ("billing:8080", 200),
        ("billing.streams.svc.cluster.local", 200),
        ("evil.example:8080", 421),
        ("EVIL.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("[::1", 421),
    ],
)
async def test_a_page_of_another_site_can_not_read_it_under_its_own_name(host: str, status: int) -> None:
    def ask(port: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/keys", headers={"Host": host})
        return connection.getresponse().status

    with serving(0, {"/keys": lambda: text(HTTPStatus.OK, "{}")}) as port:
        assert await asyncio.to_thread(ask, port) == status


async def test_a_query_is_refused_as_nothing_takes_one() -> None:
    def ask(port: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/keys?limit=3")
        return connection.getresponse().status

    with serving(0, {"/keys": lambda: text(HTTPStatus.OK, "{}")}) as port:
        assert await asyncio.to_thread(ask, port) == HTTPStatus.UNPROCESSABLE_ENTITY


def samples(body: str) -> dict[tuple[str, ...], float]:
    """Values by name and labels, but for the buckets."""
    return {
        (sample.name.removeprefix(PREFIX), sample.labels["topic"], *_others(sample.labels)): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
        if not sample.name.endswith("_bucket") and "topic" in sample.labels
    }


def _others(labels: dict[str, str]) -> list[str]:
    return [value for name, value in labels.items() if name not in ("group", "topic")]


def an_app(release: asyncio.Event) -> App:
    app = App("billing")

    @app.on("orders", concurrency=2, retries=0, breaker=Breaker(calls=3))
    async def charge(event: Event) -> None:
        if event.raw.key == b"h":
            await release.wait()
        if event.raw.key == b"r":
            raise Reject("closed")

    return app


async def test_metrics_say_what_is_so() -> None:
    release = asyncio.Event()
    with running(an_app(release), "hrbbhh", age=100) as runner, told(0, runner) as port:
        (lanes,) = runner.lanes
        await until(lambda: len(runner.partitions[TopicPartition("orders", 3)].gaps) == 3)
        runner.partitions[TopicPartition("orders", 3)].log_end = 46
        status, body = await get(port, "/metrics")
        assert status == 200
        shown = samples(body)
        expected = {
            ("handler_seconds_count", "orders", "handled"): 2,
            ("handler_seconds_count", "orders", "rejected"): 1,
            ("handler_seconds_count", "orders", "timeout"): 0,
            ("lanes", "orders"): 2,
            ("busy_lanes", "orders"): 1,
            ("held_events", "orders"): 3,
            ("held_bytes", "orders"): 6,
            ("gap_offsets", "orders", "3"): 6,
            ("gap_room_offsets", "orders", "3"): 8 * 3068 - 6,
            ("events_total", "orders"): 3,
            ("lag_records", "orders"): 3 + 40,
            ("paused_partitions", "orders"): 0,
            ("retries_total", "orders"): 0,
            ("dead_letters_total", "orders", "rejected"): 1,
            ("dead_letters_total", "orders", "failed"): 0,
            ("breaker_state", "orders", "closed"): 1,
            ("breaker_state", "orders", "open"): 0,
        }
        assert {name: shown[name] for name in expected} == expected
        assert 100 <= shown["oldest_event_age_seconds", "orders"] < 160
        assert 0 <= shown["key_wait_seconds", "orders", "1"] < 60
        assert ("key_wait_seconds", "orders", "2") not in shown
        assert 0 < shown["key_load_ratio", "orders", "1"] < 60
        assert ("key_load_ratio", "orders", "3") in shown and ("key_load_ratio", "orders", "4") not in shown
        assert 'keygrouping_app_ready{group="billing",until=""} 1.0' in body
        assert 'keygrouping_input_seen_timestamp_seconds{group="billing"} 1.7e+09' in body
        assert "process_start_time_seconds " in body
        release.set()
        await until(lambda: lanes.scheduler.idle)
        assert samples((await get(port, "/metrics"))[1])["oldest_event_age_seconds", "orders"] == 0


async def test_outcomes_and_further_tries_are_counted() -> None:
    app = App("billing")

    @app.on("orders", concurrency=4, retries=Retries(2, first=0.0), timeout=0.2, breaker=None)
    async def charge(event: Event) -> None:
        match event.raw.key:
            case b"f":
                raise RuntimeError("no money")
            case b"t" if not event.tries:
                await asyncio.Event().wait()

    with running(app, "ft") as runner, told(0, runner) as port:
        (lanes,) = runner.lanes
        await until(lambda: lanes.scheduler.idle)
        shown = samples((await get(port, "/metrics"))[1])
        expected = {
            ("handler_seconds_count", "orders", "handled"): 1,
            ("handler_seconds_count", "orders", "failed"): 3,
            ("handler_seconds_count", "orders", "timeout"): 1,
            ("retries_total", "orders"): 2 + 1,
            ("dead_letters_total", "orders", "failed"): 1,
            ("dead_letters_total", "orders", "timeout"): 0,
            ("events_total", "orders"): 2,
        }
        assert {name: shown[name] for name in expected} == expected
        assert shown["handler_seconds_sum", "orders", "timeout"] >= 0.2


async def test_the_key_that_waits_longest_is_the_first_rank() -> None:
    release, app = asyncio.Event(), App("billing")

    @app.on("orders", concurrency=4)
    async def charge(_: Event) -> None:
        await release.wait()

    with running(app, "xxyy") as runner, told(0, runner) as port:
        (lanes,) = runner.lanes
        await until(lambda: len(lanes.scheduler.running) == 2)
        for waiting in lanes.scheduler.waiting():
            waiting.first.since -= {b"x": 100, b"y": 1000}[waiting.key]
        shown = samples((await get(port, "/metrics"))[1])
        assert 1000 <= shown["key_wait_seconds", "orders", "1"] < 1060
        assert 100 <= shown["key_wait_seconds", "orders", "2"] < 160
        release.set()
        await until(lambda: lanes.scheduler.idle)


def complaints(body: str) -> str:
    """What promtool says against it, where there is one."""
    if (promtool := shutil.which("promtool")) is None:
        return ""
    command = [promtool, "check", "metrics"]
    checked = subprocess.run(command, input=body, capture_output=True, text=True, check=False)
    return checked.stdout + checked.stderr


async def test_every_metric_is_there_from_the_start_by_the_conventions() -> None:
    with running(an_app(asyncio.Event())) as runner, told(0, runner) as port:
        _, body = await get(port, "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(body)}
    ours = {name for name in families if not name.startswith("process_")}
    assert ours == {SEEN, *(PREFIX + name.removesuffix("_total") for name in DEFINITIONS)}
    of_some = ("key_wait_seconds", "key_load_ratio", "imbalance_ratio")
    assert all(family.samples for name, family in families.items() if not name.endswith(of_some))
    for name, (_, meaning, labels) in DEFINITIONS.items():
        family = families[PREFIX + name.removesuffix("_total")]
        assert family.documentation == meaning
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == {"group", *labels}
    assert complaints(body) == ""


async def test_keys_are_told_with_what_they_wait_for() -> None:
    with running(an_app(asyncio.Event()), "hhhb") as runner, told(0, runner) as port:
        (lanes,) = runner.lanes
        await until(lambda: len(lanes.scheduler.running) == 1)
        status, body = await get(port, "/keys")
    (found,) = json.loads(body)["handlers"]
    assert status == 200
    assert (found["topic"], found["lanes"], found["busy"], found["breaker"]) == ("orders", 2, 1, "closed")
    assert found["handler"].endswith("charge")
    (call,) = found["running"]
    (waiting,) = found["waiting"]
    assert (call["key"], call["event"]) == ("h", "orders/3/0")
    assert (waiting["key"], waiting["events"], waiting["for"], waiting["tries"]) == ("h", 2, "key", 0)


async def test_readiness_is_membership_and_other_paths_are_told() -> None:
    with running(an_app(asyncio.Event())) as runner, told(0, runner) as port:
        assert (await get(port, "/readyz"))[0] == 200
        runner.joined = False
        assert (await get(port, "/readyz"))[0] == 503
        assert await get(port, "/healthz") == (200, "ok\n")
        status, body = await get(port, "/metric")
        there = (
            "/healthz, /readyz, /metrics, /keys, /grouping, /, /page.css, /page.js, /state/KEY; "
            "by PUT /grouping, /keys/KEY/slot"
        )
        assert (status, body) == (404, f"no /metric: there are {there}\n")


async def test_a_client_that_goes_away_is_nothing_to_tell(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    asked = threading.Event()

    def answer() -> Answer:
        asked.set()
        return text(HTTPStatus.OK, "x" * 50_000_000)

    with serving(0, {"/large": answer}) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await asyncio.to_thread(asked.wait, 60)
        await until(lambda: not any("process_request" in each.name for each in threading.enumerate()))
    assert capfd.readouterr().err == ""
    assert caplog.records == []


async def test_what_is_wrong_with_the_server_itself_is_logged(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "is_ours", lambda _: 1 / 0)
    with serving(0, {"/": lambda: text(HTTPStatus.OK, "ok")}) as port:
        with pytest.raises((OSError, http.client.HTTPException)):
            await get(port, "/")
        await until(lambda: "a request can't be answered" in caplog.text)
    assert "ZeroDivisionError" in caplog.text
    assert "Traceback" not in capfd.readouterr().err


async def test_an_event_loop_that_is_stuck_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.2)
    with serving(0, {"/healthz": lambda: text(HTTPStatus.OK, "ok")}) as port, ThreadPoolExecutor(1) as threads:
        assert threads.submit(fetched, port, "/healthz").result(60)[0] == 503, "the event loop stands still here"


@pytest.fixture
async def cluster(broker: EmbeddedBroker) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers) as running:
        yield running


@pytest.mark.kafka
async def test_a_running_app_tells_of_itself(
    cluster: Cluster, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="keygrouping_app.serving")
    await cluster.create(**{f"{topic_prefix}-in": 1, f"{topic_prefix}-dead": 1})
    app = App(topic_prefix, brokers=cluster.bootstrap_servers, dead_letters=f"{topic_prefix}-dead", port=0)

    release = asyncio.Event()

    @app.on(f"{topic_prefix}-in")
    async def work(event: Event) -> None:
        if event.offset == 0:
            await release.wait()

    await cluster.write(f"{topic_prefix}-in", [(b"a", b"1"), (b"b", b"1"), (b"a", b"1")])
    stop = asyncio.Event()
    serving_task = asyncio.create_task(app.serve(stop))
    try:
        port = await told_port(caplog)

        async def is_ready() -> bool:
            return (await get(port, "/readyz"))[0] == 200

        await until(is_ready)

        async def tells() -> bool:
            shown = samples((await get(port, "/metrics"))[1])
            topic = f"{topic_prefix}-in"
            wanted = {("handler_seconds_count", topic, "handled"): 1, ("gap_offsets", topic, "0"): 3}
            return {name: shown.get(name) for name in wanted} == wanted

        await until(tells)
        (found,) = json.loads((await get(port, "/keys"))[1])["handlers"]
        assert [each["key"] for each in found["running"]] == ["a"]
    finally:
        release.set()
        stop.set()
        await serving_task


@pytest.mark.kafka
async def test_what_is_not_read_yet_counts_as_lag(
    cluster: Cluster, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="keygrouping_app.serving")
    topic = f"{topic_prefix}-in"
    await cluster.create(**{topic: 1, f"{topic_prefix}-dead": 1})
    dead = f"{topic_prefix}-dead"
    app = App(topic_prefix, brokers=cluster.bootstrap_servers, dead_letters=dead, port=0, max_events=5)
    release = asyncio.Event()

    @app.on(topic)
    async def work(_: Event) -> None:
        await release.wait()

    await cluster.write(topic, [(b"%d" % number, b"1") for number in range(50)])
    stop, began = asyncio.Event(), time.time()
    serving_task = asyncio.create_task(app.serve(stop))
    try:
        port = await told_port(caplog)

        async def shows(lag: float, paused: float) -> bool:
            shown = samples((await get(port, "/metrics"))[1])
            return (shown.get(("lag_records", topic)), shown.get(("paused_partitions", topic))) == (lag, paused)

        await until(lambda: shows(50, 1))
        release.set()
        await until(lambda: shows(0, 0))
        _, body = await get(port, "/metrics")
        (line,) = (line for line in body.splitlines() if line.startswith(SEEN + "{"))
        assert began < float(line.split()[1]) <= time.time()
    finally:
        release.set()
        stop.set()
        await serving_task


@dataclass
class Account:
    balance: int = 0


class Raw:
    """A codec of bytes that are no JSON."""

    def decode(self, data: bytes) -> Any:
        return list(data)

    def encode(self, value: Any) -> bytes:
        return bytes(value)


def with_state(state: Any = Account, **options: Any) -> App:
    app = App("billing")

    @app.on("orders", state=state, **options)
    async def charge(_: Event, __: Any) -> None: ...

    return app


async def state_of(path: str, state: Any = Account, group: Any = None, data: bytes = b'{"balance":3}') -> Any:
    """What is told of a path while one key has a state: that of its group, by field unless it is bytes."""
    by_field = not isinstance(group, bytes)
    app = with_state(state, key="/of" if by_field else None)
    with running(app) as runner, told(0, runner) as port:
        states = States(app.handlers[0].state or State(Account), by_field=by_field)
        states.keep(group, None, data, 1_700_000_000_000)
        runner.held[0].states = states
        status, body = await get(port, f"/state/{path}")
        return json.loads(body) if status == HTTPStatus.OK else (status, body)


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("alice", b"alice"),
        ("a%2Fb%20%C3%A9", "a/b é".encode()),
        ("%00%FF", b"\x00\xff"),
        ("alice", "alice"),
        ("7", 7),
        ("7", "7"),
        ("2.5", 2.5),
        ("%3Cscript%3E", "<script>"),
    ],
)
async def test_the_state_of_a_key_is_told(path: str, group: Any) -> None:
    (found,) = (await state_of(path, group=group))["states"]
    assert found["key"] == (group.decode(errors="backslashreplace") if isinstance(group, bytes) else str(group))
    assert found["state"] == {"balance": 3}
    assert (found["topic"], found["partition"], found["version"], found["bytes"]) == ("orders", 3, 1, 13)
    assert found["changed"] == 1_700_000_000_000


async def test_a_state_that_is_no_json_is_told_as_base64() -> None:
    (found,) = (await state_of("k", State(list, codec=Raw()), b"k", b"\xff\x00"))["states"]
    assert found["base64"] == "/wA="


@pytest.mark.parametrize(("data", "says"), [(b'{"balance":3}', None), (b'{"balance":"text"}', "can't be read as")])
async def test_it_is_told_whether_a_state_can_be_read(data: bytes, says: str | None) -> None:
    (found,) = (await state_of("alice", group=b"alice", data=data))["states"]
    assert found["unreadable"] is None if says is None else says in found["unreadable"]
    assert found["state"] == json.loads(data)


async def test_a_key_without_a_state_is_not_found() -> None:
    status, body = await state_of("bob", group=b"alice")
    assert status == 404
    assert "another one may have it" in body


async def test_states_are_for_those_who_know_the_server_by_its_name() -> None:
    with running(with_state()) as runner, told(0, runner) as port:

        def asked() -> int:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/state/alice", headers={"Host": "evil.example"})
            return connection.getresponse().status

        assert await asyncio.to_thread(asked) == HTTPStatus.MISDIRECTED_REQUEST


async def test_metrics_tell_of_states_and_of_restoring() -> None:
    with running(with_state()) as runner, told(0, runner) as port:
        states = States(State(Account))
        states.keep(b"a", None, b'{"balance":3}', 0)
        states.keep(b"bc", None, b'{"balance":10}', 0)
        runner.held[0].states = states
        runner.restoring = {
            TopicPartition("orders", 4): Restoring("orders", 1, 6),
            TopicPartition("billing.orders.moved", 5): Restoring("orders"),
            TopicPartition("others", 5): Restoring("others", 1, 9),
        }
        runner.standbys.left_of = {"orders": [7]}.__getitem__
        _, body = await get(port, "/metrics")
    found = {
        sample.name.removeprefix(PREFIX): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }
    assert found["states"] == 2
    assert found["state_bytes"] == 30
    assert found["largest_state_bytes"] == 14
    assert found["restoring_partitions"] == 2
    assert found["restore_left_offsets"] == 6
    assert found["standby_partitions"] == 1
    assert found["standby_left_offsets"] == 7


async def test_how_far_states_are_restored_is_told_and_that_nothing_is_known_of_keys_meanwhile() -> None:
    with running(with_state()) as runner, told(0, runner) as port:
        assert (await keys_of(port))["restoring"] is None
        assert (await get(port, "/state/alice"))[0] == HTTPStatus.NOT_FOUND
        runner.restoring = {
            TopicPartition("orders", 4): Restoring("orders", 30, 70),
            TopicPartition("billing.orders.moved", 1): Restoring("orders", 10, 0),
            TopicPartition("others", 5): Restoring("others", 1, 9),
        }
        assert (await keys_of(port))["restoring"] == {"partitions": 2, "done": 40, "left": 70}
        status, body = await get(port, "/state/alice")
        assert status == HTTPStatus.SERVICE_UNAVAILABLE
        assert "3 partitions of this member wait for their states" in body


async def test_a_partition_of_which_nothing_is_committed_is_told_of_once_a_minute_until_something_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running(with_state()) as runner, told(0, runner) as port:
        (held,) = runner.held
        assert (await keys_of(port))["refused"] == {}
        for _ in range(3):
            held.refuse("records for states are refused")
        assert [each for each in caplog.messages if each.startswith("orders[3]: nothing of it is committed")] != []
        assert sum("records for states are refused" in each for each in caplog.messages) == 1
        assert (await keys_of(port))["refused"] == {"3": "records for states are refused"}
        assert 'refused_partitions{group="billing",topic="orders"} 1.0' in (await get(port, "/metrics"))[1]
        held._told_at = {line: at - 60 for line, at in held._told_at.items()}
        held.refuse("records for states are refused")
        assert sum("records for states are refused" in each for each in caplog.messages) == 2
        held.committed(OffsetAndMetadata(1, ""))
        assert (await keys_of(port))["refused"] == {}
        held.refuse("again")
        assert "again" in caplog.text


async def keys_of(port: int) -> dict[str, Any]:
    """What is told of its only handler."""
    _, body = await get(port, "/keys")
    (found,) = json.loads(body)["handlers"]
    return dict(found)


async def test_what_is_shared_is_told_of_the_handler_that_shares() -> None:
    app = App("billing")

    @app.on("orders", split=True)
    async def work(event: Event) -> None:
        await asyncio.sleep(0 if event.key == "x" else 3600)

    with running(app, "xxy") as runner:
        runner.sharing = SimpleNamespace(
            topic="orders", written=7, slots=2, waiting_seconds=1.25, plan=Plan((), before=5.4, after=1.02)
        )
        with told(0, runner) as port:
            (lanes,) = runner.lanes
            await until(lambda: len(lanes.scheduler.running) == 1)
            shown = samples((await get(port, "/metrics"))[1])
            (handler,) = json.loads((await get(port, "/keys"))[1])["handlers"]
    assert shown["surplus_events_total", "orders"] == 7
    assert shown["slot_load_seconds", "orders"] == 1.25
    assert shown["imbalance_ratio", "orders", "whole"] == 5.4
    assert shown["imbalance_ratio", "orders", "shared"] == 1.02
    imbalance = {"before": 5.4, "after": 1.02}
    assert handler["sharing"] == {"written": 7, "slots": 2, "slot_seconds": 1.25, "imbalance": imbalance}
    assert {key["key"]: (key["ordered"], key["ended"]) for key in handler["keys"]} == {
        "x": (False, 2),
        None: (False, 0),
    }
    assert handler["load"]["hottest"] == 0


@pytest.mark.parametrize(
    ("balance", "plan", "imbalance"),
    [
        (Balance(), None, (None, None, None)),
        (Balance(now=1.23456), None, (None, None, 1.235)),
        (Balance(Promise(2, "m", 0.0, 3, 1.9, 1.05), 1.1), {"keys": 3, "age": 0.0}, (1.9, 1.05, 1.1)),
    ],
    ids=["nothing is known", "nothing was planned", "planned"],
)
async def test_what_was_planned_and_what_is_are_told_as_far_as_they_are_known(
    balance: Balance, plan: dict[str, float] | None, imbalance: tuple[float | None, float | None, float | None]
) -> None:
    with running(with_state(State(Account, moves="mixed"))) as runner:
        at = time.time() - 100
        balance = msgspec.structs.replace(balance, promise=msgspec.structs.replace(balance.promise, at=at))
        runner.moving = SimpleNamespace(
            done={"orders": Done()}, groupings={"orders": "mixed"}, balances={"orders": balance}
        )
        with told(0, runner) as port:
            shown = samples((await get(port, "/metrics"))[1])
            found = (await keys_of(port))["moves"]
    labels, names = ("before", "planned", "now"), ("before", "after", "now")
    told_of = {name: shown.get(("imbalance_ratio", "orders", name)) for name in labels}
    exact = (balance.promise.before, balance.promise.after) if plan else (None, None)
    assert told_of == dict(zip(labels, (*exact, balance.now), strict=True))
    assert found["imbalance"] == dict(zip(names, imbalance, strict=True))
    if plan is None:
        assert found["plan"] is None
    else:
        assert (found["plan"]["keys"], 100 <= found["plan"]["age"] < 400) == (plan["keys"], True)


NO_BODY = "give a body of at most 10000 bytes, and its length by Content-Length\n"


def put(port: int, path: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("PUT", path, body, headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.mark.parametrize(
    ("path", "body", "headers", "answer"),
    [
        ("/all", b"x", {}, (200, "all: x\n")),
        ("/of/a%2Fb/it", b"x", {}, (200, "a/b: x\n")),
        ("/of//it", b"x", {}, (404, "no /of//it: there are /all, /of/KEY/it; by GET /got\n")),
        ("/all/", b"x", {}, (404, "no /all/: there are /all, /of/KEY/it; by GET /got\n")),
        ("/got", b"x", {}, (404, "no /got: there are /all, /of/KEY/it; by GET /got\n")),
        ("/all?to=1", b"x", {}, (422, "no query is taken here: leave it out\n")),
        ("/all", b"x", {"Host": "evil.example"}, (421, "this server has no such name: ask for it by its address\n")),
        ("/all", b"x" * 10_001, {}, (411, NO_BODY)),
        ("/all", b"", {"Content-Length": "-1"}, (411, NO_BODY)),
    ],
)
async def test_what_is_put_is_given_by_path_with_or_without_a_key(
    path: str, body: bytes, headers: dict[str, str], answer: tuple[int, str]
) -> None:
    puts = {"/all": lambda body: text(HTTPStatus.OK, f"all: {body.decode()}")}
    of_key = {("/of/", "/it"): lambda key, body: text(HTTPStatus.OK, f"{key.decode()}: {body.decode()}")}
    with serving(0, {"/got": lambda: text(HTTPStatus.OK, "got")}, {}, puts, of_key) as port:
        assert await asyncio.to_thread(put, port, path, body, headers) == answer


@asynccontextmanager
async def planning(moves: Any, monkeypatch: pytest.MonkeyPatch, turns: int = 2) -> AsyncIterator[int]:
    """The port of a member whose keys move so, and which has taken so many turns of telling and listening; 0: it has
    not begun to."""
    monkeypatch.setattr(planner, "_PERIOD", 0.01)
    app = with_state(State(Account, moves=moves))
    with running(app) as runner:
        handlers = {"orders": app.handlers[0]}
        runner.moving = Moving(app.settings(), handlers, runner.partitions, lambda *_: None, lambda *_: None)
        if turns:
            board = MemoryBoard(Wire())
            found = runner.moving.plannings["orders"] = Planning(moves, runner.lanes[0], runner.partitions, board)
            for _ in range(turns):
                await found._take_turn()
        with told(0, runner) as port:
            yield port


def groupings(grouping: str, declared: str) -> dict[str, Any]:
    return {"app": "billing", "groupings": [{"topic": "orders", "grouping": grouping, "declared": declared}]}


async def test_the_grouping_is_told_and_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with planning("mixed", monkeypatch) as port:
        for grouping, body in [
            ("mixed", None),
            ("llfd", {"grouping": "llfd"}),
            ("ordered", {"grouping": "ordered", "topic": "orders"}),
            ("minmig", {"grouping": "minmig", "topic": None}),
        ]:
            if body is not None:
                status, answer = await asyncio.to_thread(put, port, "/grouping", json.dumps(body).encode())
                assert (status, json.loads(answer)) == (202, groupings(grouping, "mixed"))
            status, answer = await get(port, "/grouping")
            assert (status, json.loads(answer)) == (200, groupings(grouping, "mixed"))
            (handler,) = json.loads((await get(port, "/keys"))[1])["handlers"]
            assert handler["moves"]["grouping"] == grouping


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b'{"grouping": "level-fill"}', 422, "there are the groupings llfd, mintable, minmig, mixed; by ordered"),
        (b'{"grouping": null}', 422, 'give {"grouping": "NAME"}'),
        (b'{"grouping": "llfd", "topic": 1}', 422, 'give {"grouping": "NAME"}'),
        (b'{"topic": "orders"}', 422, 'give {"grouping": "NAME"}'),
        (b'["llfd"]', 422, 'give {"grouping": "NAME"}'),
        (b'"llfd"', 422, 'give {"grouping": "NAME"}'),
        (b"llfd", 422, 'give {"grouping": "NAME"}'),
        (b'{"grouping": "llfd", "x": ' + 4000 * b"[", 422, 'give {"grouping": "NAME"}'),
        (b'{"grouping": "llfd", "topic": "payments"}', 404, "declare State(moves='mixed')"),
    ],
)
async def test_a_grouping_that_can_t_be_had_is_told(
    body: bytes, status: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with planning("mixed", monkeypatch) as port:
        found, answer = await asyncio.to_thread(put, port, "/grouping", body)
        assert (found, says in answer) == (status, True), answer
        assert json.loads((await get(port, "/grouping"))[1]) == groupings("mixed", "mixed")


async def test_a_handler_that_was_declared_without_a_plan_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async with planning("ordered", monkeypatch, turns=0) as port:
        status, answer = await asyncio.to_thread(put, port, "/grouping", b'{"grouping": "llfd"}')
        assert (status, "declare State(moves='mixed')" in answer) == (404, True)
        assert json.loads((await get(port, "/grouping"))[1]) == groupings("ordered", "ordered")
    async with planning(None, monkeypatch, turns=0) as port:
        assert (await asyncio.to_thread(put, port, "/grouping", b'{"grouping": "llfd"}'))[0] == 404
        assert json.loads((await get(port, "/grouping"))[1]) == {"app": "billing", "groupings": []}


async def test_a_handler_whose_states_merge_is_meant_by_its_own_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "_PERIOD", 0.01)
    app, partials = App("billing"), "billing.views.partials"
    app.on("views", split=True, state=State(Visits, merge=merge, moves="mixed"))(visit)
    (handler,) = map(app._named, app.handlers)
    handlers = with_mergers({"views": handler})
    tp, found = TopicPartition(partials, 0), OffsetAndMetadata(0, "")
    partition = Partition(tp, handlers[partials].topic, found, asyncio.Event())
    asked: list[tuple[Hashable, int]] = []
    partition.movable = lambda key: [key]  # type: ignore[method-assign]
    partition.ask = lambda *order: asked.append(order)  # type: ignore[method-assign]
    moving = Moving(app.settings(), handlers, {partition.tp: partition}, lambda *_: None, lambda *_: None)
    moving.slots[partials] = Slots(8, 1_000_000)
    lanes = LoopLanes(handlers[partials], handlers[partials].function, lambda *_: None)
    planning = moving.plannings[partials] = Planning("mixed", lanes, {}, MemoryBoard(Wire()))
    for _ in range(2):
        await planning._take_turn()
    for topic in ("views", partials, None):
        moving.choose("llfd", topic)
        assert moving.groupings == {partials: "llfd"}
        moving.choose("mixed", topic)
        assert moving.move(b"a", 1, topic) == [f"{partials}[0]"]
    assert asked == [(b"a", 1)] * 3
    with pytest.raises(NotPlannedError):
        moving.choose("llfd", "others")
    with pytest.raises(NotHereError):
        moving.move(b"a", 1, "others")


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_member_that_has_not_heard_the_others_does_not_choose(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with planning("mixed", monkeypatch, turns=turns) as port:
        status, answer = await asyncio.to_thread(put, port, "/grouping", b'{"grouping": "llfd"}')
        assert (status, "ask again in some seconds" in answer) == (409, True)
