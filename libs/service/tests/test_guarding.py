"""Who may call, how often, with how much: tokens that rotate, limits on bodies and rate."""

import logging
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from keygrouping_service.app import create_app
from keygrouping_service.auth import Auth, TokenFile
from keygrouping_service.limits import limit_requests
from keygrouping_service.settings import ApiSettings
from pydantic import ValidationError

tokens = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)


def settings_of(**given: Any) -> ApiSettings:
    return ApiSettings(bootstrap_servers="unused:9092", **given)


def app_of(settings: ApiSettings) -> FastAPI:
    auth = Auth(settings)
    routes = APIRouter()

    @routes.get("/state", dependencies=auth.reading)
    async def read() -> str:
        return "state"

    @routes.put("/state", dependencies=auth.writing)
    async def write(request: Request) -> int:
        return len(await request.body())

    @routes.post("/parsed", dependencies=auth.writing)
    async def parsed(body: dict[str, str]) -> int:
        return len(body)

    app = create_app("test", lambda: True, routes)
    limit_requests(app, body_bytes=settings.api_body_bytes, rate=settings.api_rate)
    return app


def client_of(settings: ApiSettings, address: str = "10.0.0.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app_of(settings), client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://test")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text("first\n\n  second \n")
    return file


async def test_a_write_needs_one_of_the_tokens_and_a_read_none(file: Path) -> None:
    async with client_of(settings_of(api_token_file=file)) as client:
        assert (await client.get("/state")).status_code == 200
        for token in ("first", "second"):
            assert (await client.put("/state", headers=bearer(token))).status_code == 200
        without = await client.put("/state")
        assert without.status_code == 401
        assert without.headers["content-type"] == "application/problem+json"
        assert without.headers["www-authenticate"] == 'Bearer realm="keygrouping"'
        for wrong in ("third", "", "first second", "FIRST"):
            answer = await client.put("/state", headers=bearer(wrong))
            assert answer.status_code == 401, wrong
        wrong_token = await client.put("/state", headers=bearer("third"))
        assert wrong_token.headers["www-authenticate"] == 'Bearer realm="keygrouping", error="invalid_token"'
        assert (await client.put("/state", headers={"Authorization": "Basic first"})).status_code == 401


async def test_reads_can_be_closed_but_health_and_metrics_stay_open(file: Path) -> None:
    async with client_of(settings_of(api_token_file=file, api_reads="closed")) as client:
        assert (await client.get("/state")).status_code == 401
        assert (await client.get("/state", headers=bearer("first"))).status_code == 200
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await client.get(path)).status_code == 200


async def test_without_a_token_file_all_is_open_and_the_document_asks_for_nothing(file: Path) -> None:
    async with client_of(settings_of()) as client:
        assert (await client.put("/state")).status_code == 200
        assert "securitySchemes" not in (await client.get("/openapi.json")).json()["components"]
    async with client_of(settings_of(api_token_file=file)) as client:
        document = (await client.get("/openapi.json")).json()
        assert document["paths"]["/state"]["put"]["security"] == [{"HTTPBearer": []}]
        assert "security" not in document["paths"]["/state"]["get"]


def test_tokens_rotate_when_the_file_changes(file: Path) -> None:
    held = TokenFile(file)
    assert held.accepts("first") and not held.accepts("third")
    file.write_text("third\nfirst")
    assert held.accepts("third") and held.accepts("first")
    beside = file.with_name("new")
    beside.write_text("fourt\nfirst")
    os.utime(beside, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    beside.replace(file)
    assert held.accepts("fourt") and not held.accepts("third"), "same size and time, yet another file"


def test_a_file_that_is_gone_or_empty_accepts_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    held = TokenFile(file)
    assert held.accepts("first")
    file.unlink()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert not held.accepts("first")
    assert [record.getMessage().split()[0] for record in caplog.records] == ["KEYGROUPING_API_TOKEN_FILE"], "once"
    file.write_text("\n")
    assert not held.accepts("") and not held.accepts("first")
    file.write_text("first")
    assert held.accepts("first")
    file.unlink()
    assert not held.accepts("first")
    assert len(caplog.records) == 2, "and again when it is gone again"


@hypothesis_settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(tokens, min_size=1, max_size=4), tokens)
def test_only_whole_lines_are_tokens(tmp_path: Path, known: list[str], asked: str) -> None:
    file = tmp_path / "tokens"
    file.write_text("\n".join(known))
    assert TokenFile(file).accepts(asked) == (asked in known)


@pytest.mark.parametrize(
    ("given_settings", "message"),
    [
        ({"api_reads": "closed"}, "needs KEYGROUPING_API_TOKEN_FILE"),
        ({"api_token_file": Path("/nowhere")}, "KEYGROUPING_API_TOKEN_FILE: "),
        ({"api_token_file": Path(os.devnull)}, "holds no token"),
    ],
)
def test_settings_that_would_lock_all_out_are_faults(given_settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        settings_of(**given_settings)


async def pieces(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield b"x" * size


async def test_a_body_may_have_so_many_bytes_and_no_more() -> None:
    async with client_of(settings_of(api_body_bytes=100)) as client:
        assert (await client.put("/state", content=b"x" * 100)).json() == 100
        assert (await client.put("/state", content=pieces(50, 50))).json() == 100
        json = {"content-type": "application/json"}
        for refused in (
            await client.put("/state", content=b"x" * 101),
            await client.put("/state", content=pieces(60, 41)),
            await client.post("/parsed", content=pieces(60, 41), headers=json),
        ):
            assert refused.status_code == 413
            assert refused.json()["detail"] == "the body has more than 100 bytes: send less at once"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [1000.0]
    monkeypatch.setattr("limits.aio.storage.memory.time.time", lambda: now[0])
    yield now


async def test_a_client_may_ask_so_often_and_no_more(clock: list[float]) -> None:
    app = app_of(settings_of(api_rate=5))
    one, two = (
        httpx.AsyncClient(transport=httpx.ASGITransport(app, client=(address, 1)), base_url="http://test")
        for address in ("10.0.0.1", "10.0.0.2")
    )
    async with one, two:
        assert [(await one.get("/state")).status_code for _ in range(7)] == [200] * 5 + [429] * 2
        refused = await one.get("/nowhere")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.headers["content-type"] == "application/problem+json"
        assert (await two.get("/state")).status_code == 200
        assert (await one.get("/healthz")).status_code == 200
        clock[0] += 2
        assert (await one.get("/state")).status_code == 200


async def test_a_rate_of_0_is_no_limit() -> None:
    async with client_of(settings_of(api_rate=0)) as client:
        assert {(await client.get("/state")).status_code for _ in range(200)} == {200}
