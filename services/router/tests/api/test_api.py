"""Laws of the HTTP interface, with the plane replaced: what is asked and ordered, what is refused, and how."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import example, given, settings
from hypothesis import strategies as st
from keygrouping_router.api import router_app
from keygrouping_router.api.examples import EXAMPLES
from keygrouping_router.api.page import HEADERS
from keygrouping_router.api.plane import Plane
from keygrouping_router.api.resources import events
from keygrouping_router.api.resources.events import events_routes
from keygrouping_router.api.shapes import (
    DryRun,
    GroupingReport,
    History,
    HistoryEntry,
    KeyReport,
    KeySpaceReport,
    Model,
    OverrideChange,
    OverridesReport,
    PlanHistory,
    PlanInForce,
    PlanReport,
    Readiness,
    ServerEvent,
    ShadowDryRun,
    ShadowReport,
    Thresholds,
    WorkersReport,
)
from keygrouping_router.errors import Degraded, Refused, Stale, Unknown
from keygrouping_router.knowledge.keyspace import KeyQuery
from keygrouping_router.naming import id_of
from keygrouping_service.http.app import create_app, serving
from keygrouping_service.observability.metrics import HTTP_PROBLEMS
from keygrouping_service.settings import ApiSettings
from keygrouping_service.testing import until

REPORTS: dict[str, type[Model]] = {
    "/keyspace": KeySpaceReport,
    "/keyspace/DE": KeyReport,
    "/thresholds": Thresholds,
    "/thresholds/history": History,
    "/workers": WorkersReport,
    "/grouping": GroupingReport,
    "/plan": PlanInForce,
    "/plan/history": PlanHistory,
    "/shadow": ShadowReport,
    "/overrides": OverridesReport,
}
"""All that may be closed to readers, and what it answers."""

WRITES: dict[tuple[str, str], Any] = {
    ("PUT", "/thresholds"): {"eps": 0.03},
    ("PATCH", "/thresholds"): {"eps": 0.03},
    ("PUT", "/workers"): {"workers": 6, "capacities": {"0": 2.0}},
    ("PUT", "/grouping"): {"name": "pkg"},
    ("PUT", "/shadow"): {"groupings": [{"name": "pkg"}]},
}
OVERRIDE = {"action": "pin", "worker": 3, "seconds": 60.0}

ANSWERS: dict[str, type[Model]] = {
    "keyspace": KeySpaceReport,
    "key": KeyReport,
    "thresholds": Thresholds,
    "history": History,
    "workers": WorkersReport,
    "grouping": GroupingReport,
    "plan": PlanInForce,
    "plans": PlanHistory,
    "shadow": ShadowReport,
    "overrides": OverridesReport,
    "override": OverridesReport,
}
"""What the plane can be asked for."""

VERSIONED = sorted({"/overrides", *(path for _, path in WRITES)})


class FakePlane:
    """Answers with the documented examples, writes down what it is asked, and fails as told."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.happening: list[ServerEvent] = []
        self.over = asyncio.Event()
        self.over.set()
        self.ready = Readiness.model_validate(EXAMPLES[Readiness])
        self.go = asyncio.Event()
        self.go.set()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb, _, what = name.rpartition("_")
        if what not in ANSWERS or verb not in ("", "set", "try", "end", "try_ending"):
            raise AttributeError(name)
        model = ANSWERS[what]
        if verb.startswith("try"):
            model = ShadowDryRun if what == "shadow" else DryRun

        async def answer(*args: Any, **named: Any) -> Model:
            self.asked.append((name, *args, named) if named else (name, *args))
            await self.go.wait()
            if self.error:
                raise self.error
            return model.model_validate(EXAMPLES[model])

        return answer

    async def events(self, last_id: int | None) -> AsyncIterator[ServerEvent]:
        self.asked.append(("events", last_id))
        for event in self.happening:
            yield event
        await self.over.wait()

    def readiness(self) -> Readiness:
        return self.ready


@pytest.fixture
def plane() -> FakePlane:
    return FakePlane()


def api_settings(**given: Any) -> ApiSettings:
    return ApiSettings(bootstrap_servers="none:1", **{"api_rate": 0, **given})


def app_of(plane: FakePlane, **given: Any) -> FastAPI:
    return router_app(cast(Plane, plane), api_settings(**given))


@asynccontextmanager
async def asking(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, client=("192.0.2.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
        yield client


@pytest.fixture
async def client(plane: FakePlane) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(app_of(plane)) as client:
        yield client


def check_problem(answer: httpx.Response, status: int, said: str = "") -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert {"type", "title", "status", "detail"} <= problem.keys()
    assert problem["status"] == status
    assert said in problem["detail"]


# reading


@pytest.mark.parametrize("path", REPORTS)
async def test_a_read_answers_with_the_report(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == EXAMPLES[REPORTS[path]]
    assert answer.headers.get("etag") == ('"7"' if path in VERSIONED else None)


async def test_the_query_reaches_the_plane(client: httpx.AsyncClient, plane: FakePlane) -> None:
    await client.get("/keyspace?space=hot&limit=5&offset=10&sort=width&prefix=%C3%BC%25&replica=r1")
    await client.get("/keyspace?prefix=base64url:_w")
    await client.get("/keyspace")
    assert plane.asked == [
        ("keyspace", KeyQuery("hot", 5, 10, "width", "ü%".encode(), "r1")),
        ("keyspace", KeyQuery(prefix=b"\xff")),
        ("keyspace", KeyQuery()),
    ]


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1",
        "limit=1001",
        "limit=x",
        "offset=-1",
        "sort=weight",
        "top=3",
        "prefix=base64url:%C3%BC",
        "prefix=hash:1",
    ],
)
async def test_a_query_that_means_nothing_is_refused(client: httpx.AsyncClient, plane: FakePlane, query: str) -> None:
    check_problem(await client.get(f"/keyspace?{query}"), 422)
    assert plane.asked == []


@pytest.mark.parametrize("path", ["/thresholds/history", "/plan/history"])
async def test_histories_are_as_long_as_asked(client: httpx.AsyncClient, plane: FakePlane, path: str) -> None:
    await client.get(f"{path}?limit=7")
    assert plane.asked[0][1:] == (7,)
    for wrong in ("0", "1001", "many"):
        check_problem(await client.get(f"{path}?limit={wrong}"), 422)


def test_any_key_can_be_asked_for(plane: FakePlane) -> None:
    app = app_of(plane)

    async def ask(key: bytes) -> httpx.Response:
        async with asking(app) as client:
            return await client.get(f"/keyspace/{id_of(key)}?replica=r2")

    @settings(max_examples=50, deadline=None)
    @given(st.binary(max_size=30))
    @example(b"")
    @example(b"a/../b//?#%00")
    @example(b"/keyspace/")
    @example(b"\n\x00")
    @example(b"a\n/\n")
    def reaches_the_plane(key: bytes) -> None:
        assert asyncio.run(ask(key)).status_code == 200
        assert plane.asked[-1] == ("key", key, "r2")

    reaches_the_plane()


async def test_bytes_that_are_no_text_may_be_percent_encoded(client: httpx.AsyncClient, plane: FakePlane) -> None:
    await client.get("/keyspace/%FF%00")
    assert plane.asked == [("key", b"\xff\x00", None)]


@pytest.mark.parametrize("path", ["/%6beyspace/DE", "/keyspace%2FDE"])
async def test_a_path_that_is_encoded_before_the_key_is_not_found(client: httpx.AsyncClient, path: str) -> None:
    check_problem(await client.get(path), 404, "as it is")


@pytest.mark.parametrize("wrong", ["base64url:%2B", "base64url:a", "hash:12"])
async def test_an_id_that_is_no_key_is_refused(client: httpx.AsyncClient, wrong: str) -> None:
    check_problem(await client.get(f"/keyspace/{wrong}"), 422, "key: ")


async def test_control_characters_come_out_escaped(client: httpx.AsyncClient, plane: FakePlane) -> None:
    plane.error = Refused("no such thing: \x1b[31m\n\u202e\x00")
    answer = await client.get("/keyspace/%1B%00%0A")
    assert min(answer.content) >= 0x20
    assert answer.json()["detail"] == str(plane.error)


async def test_half_a_character_does_no_harm(client: httpx.AsyncClient, plane: FakePlane) -> None:
    plane.error = Refused("unknown setting \ud800")
    answer = await client.patch("/thresholds", content=b'{"\\ud800": 1}', headers={"Content-Type": "application/json"})
    check_problem(answer, 422, "unknown setting \\ud800")


async def test_readiness_is_the_status(client: httpx.AsyncClient, plane: FakePlane) -> None:
    assert (await client.get("/readyz")).status_code == 200
    plane.ready = plane.ready.model_copy(update={"status": "starting"})
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "starting")


async def test_where_the_store_is_stays_hidden_where_reads_are_closed(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("viewer read secret")
    plane = FakePlane()
    away = plane.ready.store.model_copy(update={"state": "degraded", "detail": "Redis at 10.0.0.9:6379 is away"})
    plane.ready = plane.ready.model_copy(update={"store": away})
    for reads, shown in (("open", True), ("closed", False)):
        given = ApiSettings(bootstrap_servers="unused:9092", api_token_file=tmp_path / "tokens", api_reads=reads)
        transport = httpx.ASGITransport(router_app(cast(Plane, plane), given))
        async with httpx.AsyncClient(transport=transport, base_url="http://router") as asking:
            answer = await asking.get("/readyz")
        assert answer.json()["store"]["state"] == "degraded"
        assert ("10.0.0.9" in answer.text) is shown


# writing


@pytest.mark.parametrize(("method", "path"), WRITES)
async def test_a_write_reaches_the_plane(client: httpx.AsyncClient, plane: FakePlane, method: str, path: str) -> None:
    body = WRITES[method, path]
    answer = await client.request(method, path, json=body, headers={"If-Match": '"6"'})
    assert answer.status_code == 200
    assert answer.headers["etag"] == '"7"'
    (name, given, named), *_ = plane.asked
    assert name == f"set_{path[1:]}"
    assert (given if isinstance(given, dict) else given.model_dump(exclude_unset=True)) == body
    partial = {"partial": method == "PATCH"} if path == "/thresholds" else {}
    assert named == {"expected": 6, "by": "api (192.0.2.7)", **partial}


@pytest.mark.parametrize(("method", "path"), WRITES)
async def test_a_dry_run_changes_nothing(client: httpx.AsyncClient, plane: FakePlane, method: str, path: str) -> None:
    answer = await client.request(method, f"{path}?dry_run=true", json=WRITES[method, path])
    assert answer.json() == EXAMPLES[ShadowDryRun if path == "/shadow" else DryRun]
    assert "etag" not in answer.headers
    assert [asked[0] for asked in plane.asked] == [f"try_{path[1:]}"]


async def test_a_key_is_overridden_and_left_to_the_grouping_again(client: httpx.AsyncClient, plane: FakePlane) -> None:
    headers = {"If-Match": '"6"'}
    told = {"expected": 6, "by": "api (192.0.2.7)"}
    answer = await client.put("/overrides/%FF%2Fa", json=OVERRIDE, headers=headers)
    assert (answer.status_code, answer.headers["etag"]) == (200, '"7"')
    assert (await client.put("/overrides/DE?dry_run=1", json=OVERRIDE)).json() == EXAMPLES[DryRun]
    assert (await client.delete("/overrides/DE", headers=headers)).status_code == 200
    assert (await client.delete("/overrides/DE?dry_run=1")).json() == EXAMPLES[DryRun]
    change = OverrideChange.model_validate(OVERRIDE)
    assert plane.asked == [
        ("set_override", b"\xff/a", change, told),
        ("try_override", b"DE", change),
        ("end_override", b"DE", told),
        ("try_ending_override", b"DE"),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"action": "move", "seconds": 1},
        {"action": "pin", "worker": -1, "seconds": 1},
        {"action": "pin", "worker": "3", "seconds": 1},
        {"action": "split", "width": 1, "seconds": 1},
        {"action": "whole", "seconds": 0},
        {"action": "whole", "seconds": 1e9},
        {"action": "whole", "until": "2026-01-31T12:00:00"},
        {"action": "whole", "untill": "2026-01-31T12:00:00Z"},
    ],
)
async def test_an_override_of_another_shape_is_refused(client: httpx.AsyncClient, plane: FakePlane, wrong: Any) -> None:
    check_problem(await client.put("/overrides/DE", json=wrong), 422, "body")
    assert plane.asked == []


@pytest.mark.parametrize(("given", "expected"), [(None, None), ("*", None), ('"12"', 12), (' "12" ', 12), ('"0"', 0)])
async def test_if_match_is_the_expected_version(
    client: httpx.AsyncClient, plane: FakePlane, given: str | None, expected: int | None
) -> None:
    await client.put("/workers", json={"workers": 2}, headers={"If-Match": given} if given else {})
    assert plane.asked[0][2]["expected"] == expected


@pytest.mark.parametrize(
    ("given", "status"), [("7", 400), ('"7', 400), ('"7", "8"', 400), ('W/"7"', 412), ('"x"', 412), ('""', 412)]
)
async def test_an_if_match_that_is_no_version_is_refused(
    client: httpx.AsyncClient, plane: FakePlane, given: str, status: int
) -> None:
    answer = await client.put("/workers", json={"workers": 2}, headers={"If-Match": given})
    check_problem(answer, status, "If-Match")
    assert plane.asked == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/workers", {}),
        ("/workers", {"workers": 0}),
        ("/workers", {"workers": 10_001}),
        ("/workers", {"workers": "6"}),
        ("/workers", {"workers": True}),
        ("/workers", {"workers": 2.5}),
        ("/workers", {"workers": 2, "capacities": {"0": 0}}),
        ("/workers", {"workers": 2, "capacities": {"-1": 1}}),
        ("/workers", {"workers": 2, "speed": 1}),
        ("/thresholds", []),
        ("/thresholds", "x"),
        ("/grouping", {}),
        ("/grouping", {"name": "pkg", "sharing": "sometimes"}),
        ("/grouping", {"name": "pkg", "observe_only": 1}),
        ("/shadow", {"groupings": [{"name": "pkg"}] * 9}),
        ("/shadow", {"groupings": [], "sample": 0}),
        ("/shadow", {"groupings": [], "sample": 1.5}),
    ],
)
async def test_a_body_of_another_shape_is_refused(
    client: httpx.AsyncClient, plane: FakePlane, path: str, body: Any
) -> None:
    check_problem(await client.put(path, json=body), 422, "body")
    assert plane.asked == []


@pytest.mark.parametrize("body", [b"{", b'{"workers":}', b"\xff", b'{"workers": "\\ud800"}', b"[" * 100_000])
async def test_what_is_no_json_is_refused(client: httpx.AsyncClient, body: bytes) -> None:
    answer = await client.put("/workers", content=body, headers={"Content-Type": "application/json"})
    check_problem(answer, 422 if b"ud800" in body else 400)


async def test_infinite_capacities_are_refused(client: httpx.AsyncClient) -> None:
    for number in ("NaN", "Infinity", "1e999"):
        body = f'{{"workers": 2, "capacities": {{"0": {number}}}}}'
        answer = await client.put("/workers", content=body, headers={"Content-Type": "application/json"})
        check_problem(answer, 422)


async def test_a_body_must_say_that_it_is_json(client: httpx.AsyncClient, plane: FakePlane) -> None:
    answer = await client.put("/workers", content=b'{"workers": 2}', headers={"Content-Type": "text/plain"})
    check_problem(answer, 415, "Content-Type")
    assert plane.asked == []


@pytest.mark.parametrize(("method", "path"), WRITES)
async def test_an_order_with_an_unknown_query_is_not_carried_out(
    client: httpx.AsyncClient, plane: FakePlane, method: str, path: str
) -> None:
    for query in ("dry-run=true", "dryrun=1", "dry_run=true&dry_run=false", "force"):
        check_problem(await client.request(method, f"{path}?{query}", json=WRITES[method, path]), 422, "query: ")
    assert plane.asked == []


@pytest.mark.parametrize(
    "path", [*REPORTS, "/events", "/readyz", "/healthz", "/metrics", "/", "/docs", "/openapi.json", "/assets/main.js"]
)
async def test_a_read_with_an_unknown_query_is_refused(client: httpx.AsyncClient, plane: FakePlane, path: str) -> None:
    check_problem(await client.get(f"{path}?topp=3"), 422, "topp")
    assert plane.asked == []


# refusals


@pytest.mark.parametrize(
    ("error", "status"),
    [(Refused("no"), 422), (Stale("no"), 412), (Degraded("no"), 503), (Unknown("no"), 404)],
)
async def test_every_refusal_of_the_plane_is_a_problem(
    client: httpx.AsyncClient, plane: FakePlane, error: Exception, status: int
) -> None:
    plane.error = error
    for path in REPORTS:
        check_problem(await client.get(path), status, "no")
    for (method, path), body in WRITES.items():
        answer = await client.request(method, path, json=body)
        check_problem(answer, status, "no")
        assert ("retry-after" in answer.headers) == (status == 503)


async def test_a_defect_is_a_problem_that_tells_nothing(plane: FakePlane) -> None:
    plane.error = RuntimeError("secret")
    transport = httpx.ASGITransport(app_of(plane), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
        answer = await client.get("/plan")
    check_problem(answer, 500)
    assert "secret" not in answer.text


async def test_unknown_paths_and_methods_are_problems(client: httpx.AsyncClient) -> None:
    check_problem(await client.get("/nothing"), 404)
    check_problem(await client.get("/assets/nothing.js"), 404)
    check_problem(await client.get("/assets/..%2fapi/app.py"), 404)
    check_problem(await client.delete("/workers"), 405)
    for path in REPORTS:
        allowed = ["GET", *(method for method, written in WRITES if written == path)]
        assert (await client.request("TRACE", path)).headers["allow"] == ", ".join(sorted(allowed))


async def test_a_body_over_the_limit_is_refused(plane: FakePlane) -> None:
    async with asking(app_of(plane, api_body_bytes=20)) as client:
        check_problem(await client.put("/thresholds", json={"a": "b" * 20}), 413)
    assert plane.asked == []


async def test_a_client_that_asks_too_often_is_told_when_to_come_back(
    plane: FakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limits.aio.storage.memory.time.time", lambda: 1000.0)
    async with asking(app_of(plane, api_rate=3)) as client:
        answers = [await client.get("/plan") for _ in range(10)]
        health = [await client.get("/healthz") for _ in range(10)]
    check_problem(answers[-1], 429)
    assert answers[-1].headers["retry-after"] == "1"
    assert {answer.status_code for answer in health} == {200}


# tokens


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text("alice write first\nviewer read seen\n")
    return file


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(("method", "path"), WRITES)
async def test_a_write_needs_a_token_where_one_is_set(plane: FakePlane, tokens: Path, method: str, path: str) -> None:
    body = WRITES[method, path]
    async with asking(app_of(plane, api_token_file=tokens)) as client:
        for headers in ({}, bearing("second"), {"Authorization": "Basic Zmlyc3Q6"}):
            answer = await client.request(method, path, json=body, headers=headers)
            check_problem(answer, 401)
            assert answer.headers["www-authenticate"].startswith("Bearer")
        answer = await client.request(method, path, json=body, headers=bearing("seen"))
        check_problem(answer, 403)
        assert "the token of viewer may only read" in answer.json()["detail"]
        assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
        assert plane.asked == []
        assert (await client.request(method, path, json=body, headers=bearing("first"))).status_code == 200
        assert plane.asked[-1][2]["by"] == "api (alice, 192.0.2.7)"
        assert (await client.get(path)).status_code == 200


async def test_tokens_rotate_by_a_change_of_the_file(plane: FakePlane, tokens: Path) -> None:
    write = tokens.write_text
    async with asking(app_of(plane, api_token_file=tokens)) as client:

        async def status(token: str) -> int:
            return (await client.put("/workers", json={"workers": 2}, headers=bearing(token))).status_code

        assert (await status("first"), await status("second")) == (200, 401)
        write("alice write first\nalice write second\n")
        assert (await status("first"), await status("second")) == (200, 200)
        write("alice write second\n")
        assert (await status("first"), await status("second")) == (401, 200)
        write("")
        assert await status("second") == 401


async def test_closed_reads_need_a_token_but_health_and_page_do_not(plane: FakePlane, tokens: Path) -> None:
    async with asking(app_of(plane, api_token_file=tokens, api_reads="closed")) as client:
        for path in [*REPORTS, "/events"]:
            check_problem(await client.get(path), 401)
            for token in ("first", "seen"):
                assert (await client.get(path, headers=bearing(token))).status_code == 200
        for path in ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/"):
            assert (await client.get(path)).status_code == 200


# one rendering for many


async def test_many_who_ask_at_once_get_one_rendering(client: httpx.AsyncClient, plane: FakePlane) -> None:
    plane.go.clear()
    asked = [asyncio.create_task(client.get("/keyspace?limit=3")) for _ in range(5)]
    other = asyncio.create_task(client.get("/keyspace?limit=4"))
    await until(lambda: len(plane.asked) == 2)
    plane.go.set()
    assert len({answer.content for answer in await asyncio.gather(*asked)}) == 1
    await other
    assert len(plane.asked) == 2


async def test_a_write_makes_the_next_reader_see_it(client: httpx.AsyncClient, plane: FakePlane) -> None:
    await client.get("/keyspace")
    await client.put("/workers", json={"workers": 2})
    await client.get("/keyspace")
    assert [asked[0] for asked in plane.asked] == ["keyspace", "set_workers", "keyspace"]


async def test_a_failure_is_not_kept(client: httpx.AsyncClient, plane: FakePlane) -> None:
    plane.error = Degraded("no")
    check_problem(await client.get("/keyspace"), 503)
    plane.error = None
    assert (await client.get("/keyspace")).status_code == 200


# events


PLAN = PlanReport.model_validate(EXAMPLES[PlanReport])
CONTROL = HistoryEntry(
    at=datetime(2026, 1, 31, tzinfo=UTC), by="api", version=1, what="workers", before={"a": "\n\r\x00"}, after={}
)


async def test_events_are_sent_as_they_come(client: httpx.AsyncClient, plane: FakePlane) -> None:
    plane.happening = [ServerEvent("plan", PLAN, 17), ServerEvent("control", CONTROL)]
    answer = await client.get("/events", headers={"Last-Event-ID": "16"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert plane.asked == [("events", 16)]
    start, plan, control, rest = answer.text.split("\n\n")
    assert (start, rest) == ("retry: 2000", "")
    event, data, number = plan.split("\n")
    assert (event, number) == ("event: plan", "id: 17")
    assert json.loads(data.removeprefix("data: ")) == EXAMPLES[PlanReport]
    event, data = control.split("\n")
    assert event == "event: control"
    assert json.loads(data.removeprefix("data: "))["before"] == {"a": "\n\r\x00"}


@pytest.mark.parametrize("foreign", ["", "x", "-1", "1.5", "²", "9" * 40])
async def test_an_event_id_of_somebody_else_is_as_good_as_none(
    client: httpx.AsyncClient, plane: FakePlane, foreign: str
) -> None:
    await client.get("/events", headers=[(b"last-event-id", foreign.encode())])
    assert plane.asked == [("events", None)]


async def test_too_many_listeners_are_turned_away_until_one_goes(plane: FakePlane) -> None:
    plane.over.clear()
    app = create_app("test", lambda: True, events_routes(cast(Plane, plane), most=1))
    async with serving(app, "127.0.0.1", 0) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        async with client.stream("GET", "/events") as first:
            assert await anext(first.aiter_lines()) == "retry: 2000"
            check_problem(await client.get("/events"), 503, "listen")

        async def is_free() -> bool:
            async with client.stream("GET", "/events") as second:
                return second.status_code == 200

        await until(is_free)
        plane.over.set()


async def test_listeners_who_leave_are_no_error(plane: FakePlane, caplog: pytest.LogCaptureFixture) -> None:
    async def endless(_: int | None) -> AsyncIterator[ServerEvent]:
        plane.asked.append(("came",))
        try:
            while True:
                yield ServerEvent("control", CONTROL)
                await asyncio.sleep(0)
        finally:
            plane.asked.append(("left",))

    plane.events = endless  # type: ignore[assignment,method-assign]
    problems = HTTP_PROBLEMS.labels("500")._value.get()
    app = create_app("test", lambda: True, events_routes(cast(Plane, plane)))
    async with serving(app, "127.0.0.1", 0) as port:

        async def listen(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.read(1 + 300 * (number % 7))
            writer.transport.abort()

        await asyncio.gather(*(listen(number) for number in range(40)))
        await until(lambda: plane.asked.count(("left",)) == plane.asked.count(("came",)) > 0)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert HTTP_PROBLEMS.labels("500")._value.get() == problems


async def test_silence_has_a_heartbeat(plane: FakePlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.01)
    plane.over.clear()
    app = create_app("test", lambda: True, events_routes(cast(Plane, plane)))
    async with serving(app, "127.0.0.1", 0) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        async with client.stream("GET", "/events") as stream:
            lines = stream.aiter_lines()
            assert [await anext(lines) for _ in range(4)] == ["retry: 2000", "", ": ping", ""]
        plane.over.set()


# the page, and headers


@pytest.mark.parametrize("path", ["/", "/assets/index.html", "/docs", "/plan", "/nothing", "/openapi.json", "/healthz"])
async def test_every_answer_has_the_security_headers(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert HEADERS.keys() <= {name.title() for name in answer.headers} | {"X-Frame-Options"}
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert "http:" not in policy + answer.headers["content-type"]


async def test_the_page_may_load_nothing_from_elsewhere_and_run_nothing_inline(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "unsafe" not in answer.headers["content-security-policy"]


async def test_a_file_that_has_not_changed_is_not_sent_again(client: httpx.AsyncClient) -> None:
    first = await client.get("/assets/index.html")
    again = await client.get("/assets/index.html", headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
