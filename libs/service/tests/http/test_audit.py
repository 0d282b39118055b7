"""Who has changed what: the audit's lines, by the names of the tokens' holders."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from keygrouping_service.http.app import create_app
from keygrouping_service.http.audit import Audit
from keygrouping_service.http.auth import Auth
from keygrouping_service.settings import ApiSettings
from starlette.types import Receive, Scope, Send


def app_of(file: Path | None) -> FastAPI:
    auth = Auth(ApiSettings(bootstrap_servers="unused:9092", api_token_file=file))
    routes = APIRouter()

    @routes.get("/workers")
    async def read() -> int:
        return 1

    @routes.put("/workers", dependencies=auth.writing)
    async def write(dry_run: bool = False) -> int:
        del dry_run
        return 2

    @routes.post("/broken", dependencies=auth.writing)
    async def broken() -> int:
        raise RuntimeError("a defect")

    @routes.post("/events", dependencies=auth.writing)
    async def events() -> int:
        return 3

    return create_app("test", lambda: True, routes, frequent={"/events"})


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text("alice write first\nviewer read seen\n")
    return file


@pytest.fixture
def quiet() -> Iterator[None]:
    """A log that is to hold errors alone."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    yield
    root.setLevel(before)


def client_of(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=("10.0.0.1", 1), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    records = [record for record in caplog.records if record.name == "keygrouping_service.http.audit"]
    return [(record.levelname, record.getMessage()) for record in records]


async def test_every_change_is_told_with_the_name_of_the_tokens_holder(
    tokens: Path, caplog: pytest.LogCaptureFixture, quiet: None
) -> None:
    del quiet
    async with client_of(app_of(tokens)) as client:
        await client.get("/workers")
        await client.put("/workers?dry_run=true", headers=bearer("first"))
        await client.put("/workers", headers=bearer("seen"))
        await client.put("/workers", headers=bearer("third"))
        await client.put("/workers")
        await client.post("/broken", headers=bearer("first"))
    assert lines(caplog) == [
        ("INFO", "PUT /workers?dry_run=true by alice from 10.0.0.1: 200"),
        ("WARNING", "PUT /workers by viewer from 10.0.0.1: 403"),
        ("WARNING", "PUT /workers by an unknown token from 10.0.0.1: 401"),
        ("WARNING", "PUT /workers by nobody from 10.0.0.1: 401"),
        ("INFO", "POST /broken by alice from 10.0.0.1: 500"),
    ], "whatever the level of the log"
    assert not any(token in line for _, line in lines(caplog) for token in ("first", "seen", "third"))


async def test_without_tokens_anybody_has_done_it(caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(app_of(None)) as client:
        await client.put("/workers")
    assert lines(caplog) == [("INFO", "PUT /workers by anybody from 10.0.0.1: 200")]


async def test_a_target_is_shown_without_what_moves_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(app_of(None)) as client:
        await client.put("/%1b[2J%0aX?" + "q" * 500)
    ((_, line),) = lines(caplog)
    assert line.startswith("PUT /%1b[2J%0aX?qqq") and len(line) < 300


async def test_events_are_told_by_caller_once_and_then_by_the_minute(
    tokens: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    inner = app_of(tokens)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await inner(scope, receive, send)

    # The app's own audit goes by the wall clock: this one stands around an app that has said all it will say.
    audited = Audit(app, frequent={"/events"}, clock=lambda: now[0])
    transport = httpx.ASGITransport(audited, client=("10.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for _ in range(4):
            await client.post("/events", headers=bearer("first"))
        await client.post("/events", headers=bearer("seen"))
        now[0] = 61.0
        await client.post("/events", headers=bearer("first"))
    said = [line for _, line in lines(caplog) if "since the last line" in line]
    by_clock = [line for line in said if " by alice: requests since the last line: 4," in line]
    assert len(by_clock) == 1, "three that were not told, and the one that was due"
    assert sum(" by alice: requests since the last line: 1," in line for line in said) == 2, "of both audits the first"
    assert sum(" by viewer: requests since the last line: 1, not taken: 1;" in line for line in said) == 2
