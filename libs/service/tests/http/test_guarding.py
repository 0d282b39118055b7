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
from keygrouping_service.http.app import create_app
from keygrouping_service.http.auth import Auth, TokenFile
from keygrouping_service.http.limits import limit_requests
from keygrouping_service.settings import ApiSettings
from keygrouping_service.tokens import ROLES
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
    file.write_text("alice write first\n\n  alice   write second \nviewer read seen\n")
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
        for wrong in ("third", "", "first second", "FIRST", "alice write first", "alice"):
            answer = await client.put("/state", headers=bearer(wrong))
            assert answer.status_code == 401, wrong
        wrong_token = await client.put("/state", headers=bearer("third"))
        assert wrong_token.headers["www-authenticate"] == 'Bearer realm="keygrouping", error="invalid_token"'
        assert (await client.put("/state", headers={"Authorization": "Basic first"})).status_code == 401


async def test_reads_can_be_closed_but_health_and_metrics_stay_open(file: Path) -> None:
    async with client_of(settings_of(api_token_file=file, api_reads="closed")) as client:
        assert (await client.get("/state")).status_code == 401
        for token in ("first", "seen"):
            assert (await client.get("/state", headers=bearer(token))).status_code == 200
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


async def test_a_token_that_may_only_read_changes_nothing(file: Path) -> None:
    async with client_of(settings_of(api_token_file=file)) as client:
        refused = await client.put("/state", headers=bearer("seen"))
    assert refused.status_code == 403
    assert "the token of viewer may only read" in refused.json()["detail"]
    assert refused.headers["www-authenticate"].endswith('error="insufficient_scope", scope="write"')


def accepts(held: TokenFile, token: str) -> bool:
    return held.find(token) is not None


def test_tokens_rotate_when_the_file_changes(file: Path) -> None:
    held = TokenFile(file)
    assert accepts(held, "first") and not accepts(held, "third")
    file.write_text("a write third\na write first")
    assert accepts(held, "third") and accepts(held, "first")
    beside = file.with_name("new")
    beside.write_text("a write fourt\na write first")
    os.utime(beside, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    beside.replace(file)
    assert accepts(held, "fourt") and not accepts(held, "third"), "same size and time, yet another file"


def test_a_file_that_is_gone_or_empty_accepts_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    held = TokenFile(file)
    assert accepts(held, "first")
    file.unlink()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert not accepts(held, "first")
    assert [record.getMessage().split()[0] for record in caplog.records] == ["KEYGROUPING_API_TOKEN_FILE"], "once"
    file.write_text("\n")
    assert not accepts(held, "") and not accepts(held, "first")
    file.write_text("alice write first")
    assert accepts(held, "first")
    file.unlink()
    assert not accepts(held, "first")
    assert len(caplog.records) == 2, "and again when it is gone again"


def test_a_bad_line_costs_its_own_token_alone_and_is_told_without_it(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text("bare-token\nalice write first\nbob admin second\n")
    held = TokenFile(file)
    for _ in range(3):
        assert accepts(held, "first") and not accepts(held, "bare-token") and not accepts(held, "second")
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(": ")[2].partition(":")[0] for line in said] == ["line 1", "line 3"], "once each"
    assert not any("bare-token" in line or "second" in line for line in said)


@hypothesis_settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(tokens, min_size=1, max_size=4, unique=True), st.sampled_from(ROLES), tokens)
def test_only_whole_words_are_tokens(tmp_path: Path, known: list[str], role: str, asked: str) -> None:
    file = tmp_path / "tokens"
    file.write_text("\n".join(f"n{number} {role} {token}" for number, token in enumerate(known)))
    found = TokenFile(file).find(asked)
    assert (found is not None) == (asked in known)
    if found is not None:
        assert (found.name, found.role) == (f"n{known.index(asked)}", role)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("3f9c", "line 2: 1 words instead of three: write one a line as NAME ROLE TOKEN"),
        ("alice admin 3f9c", "line 2: the role is neither read nor write"),
        ("al\u202eice write 3f9c", "line 2: the name has other characters"),
        ("bob read first", "line 2: its token stands in a line before"),
    ],
)
def test_a_start_tells_every_line_that_is_no_token_and_no_token(tmp_path: Path, line: str, fault: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"alice write first\n{line}\nx\n")
    with pytest.raises(ValidationError) as refused:
        settings_of(api_token_file=file)
    assert fault in str(refused.value) and "line 3: 1 words" in str(refused.value)
    assert "3f9c" not in str(refused.value).replace("alice write 3f9c...", "")


@pytest.mark.parametrize(
    ("given_settings", "message"),
    [
        ({"api_reads": "closed"}, "needs KEYGROUPING_API_TOKEN_FILE"),
        ({"api_token_file": Path("/nowhere")}, "KEYGROUPING_API_TOKEN_FILE: "),
        ({"api_token_file": Path(os.devnull)}, "holds no token: write one a line as NAME ROLE TOKEN"),
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
