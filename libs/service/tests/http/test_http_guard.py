"""What all our HTTP servers refuse, tried on a real one: hosts, other sites' pages, half-sent requests."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from keygrouping_service.http import guarding
from keygrouping_service.http.app import create_app, serving
from keygrouping_service.settings import ServiceSettings

BODY_SECONDS = 0.6
HEADER_SECONDS = 0.5
JSON = {"Content-Type": "application/json"}


def routes() -> APIRouter:
    router = APIRouter()

    @router.put("/state")
    async def put(body: dict[str, int]) -> int:
        return len(body)

    @router.get("/stream")
    async def stream() -> StreamingResponse:
        async def ticks() -> AsyncIterator[bytes]:
            for _ in range(6):
                await asyncio.sleep(HEADER_SECONDS / 2)
                yield b"tick\n"

        return StreamingResponse(ticks())

    return router


@contextlib.asynccontextmanager
async def server(**given: Any) -> AsyncIterator[int]:
    settings = ServiceSettings(bootstrap_servers="unused:9092", http_hosts="own.example, *.below.example", **given)
    app = create_app("test", lambda: True, routes())
    async with serving(app, "127.0.0.1", 0, **settings.http_bounds) as port:
        yield port


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """That of a server."""
    async with server() as port:
        yield port


@pytest.fixture
async def strict(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """The port of a server that gives its clients fractions of a second."""
    monkeypatch.setattr(guarding, "HEADER_SECONDS", HEADER_SECONDS)
    async with server(http_body_timeout=BODY_SECONDS) as port:
        yield port


async def put(port: int, headers: dict[str, str]) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        return await client.put("/state", content=b"{}", headers=headers)


async def get(port: int, headers: dict[str, str]) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        return await client.get("/healthz", headers=headers)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:8080", 421),
        ("127.0.0.1.evil.example", 421),
        ("router.evil.svc.example", 421),
        ("below.example", 421),
        ("own.example.evil.example", 421),
        ("own.example", 200),
        ("OWN.example:8080", 200),
        ("deep.below.example", 200),
        ("127.0.0.1:1", 200),
        ("10.2.3.4:8080", 200),
        ("[::1]:8080", 200),
        ("[fd00::1]", 200),
        ("localhost:8080", 200),
        ("release-router", 200),
        ("release-router:8080", 200),
        ("release-router.some-namespace.svc:8080", 200),
        ("release-router.some-namespace.svc.cluster.local", 200),
    ],
)
async def test_a_host_that_this_server_is_not_is_refused(port: int, host: str, status: int) -> None:
    answer = await get(port, {"Host": host})
    assert answer.status_code == status
    if status == 421:
        assert answer.headers["content-type"] == "application/problem+json"
        assert "KEYGROUPING_HTTP_HOSTS" in answer.json()["detail"]


async def test_any_host_is_taken_where_the_setting_says_so() -> None:
    async with serving(create_app("test", lambda: True), "127.0.0.1", 0, hosts=["*"]) as port:
        assert (await get(port, {"Host": "evil.example"})).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({}, 200),
    ],
)
async def test_pages_of_other_sites_change_nothing(port: int, headers: dict[str, str], status: int) -> None:
    answer = await put(port, headers | JSON)
    assert answer.status_code == status, answer.text
    if status == 403:
        assert "another site" in answer.json()["detail"]
    read = await get(port, headers)
    assert read.status_code == (403 if "Origin" in headers else 200), "links to us may stand anywhere"


async def test_our_own_page_may_change_what_it_shows(port: int) -> None:
    own = {"Origin": f"http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"}
    assert (await put(port, own | JSON)).status_code == 200


@pytest.mark.parametrize("media", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_what_a_browser_sends_unasked_is_no_media_type_of_ours(port: int, media: str | None) -> None:
    answer = await put(port, {} if media is None else {"Content-Type": media})
    assert answer.status_code == 415
    detail = answer.json()["detail"]
    assert detail.startswith("set the header Content-Type to application/json: ")
    assert detail.endswith(f"it says {media}" if media else "it is missing")


async def test_where_lines_of_json_are_taken_that_is_told() -> None:
    async with serving(
        create_app("test", None, routes()), "127.0.0.1", 0, media=("application/json", "application/x-ndjson")
    ) as port:
        detail = (await put(port, {"Content-Type": "text/plain"})).json()["detail"]
    assert detail.startswith("set the header Content-Type to application/json or application/x-ndjson: ")


class Raw:
    """A connection that is written to byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.began = time.monotonic()

    async def write(self, text: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self._writer.write(text)
            await self._writer.drain()

    async def read(self) -> bytes:
        """All until the server ends the connection."""
        with contextlib.suppress(ConnectionResetError):
            return await asyncio.wait_for(self._reader.read(), 20)
        return b""

    async def trickle(self, text: bytes, pause: float) -> None:
        """A byte at a time, until all are sent or the server has had enough."""
        for byte in text:
            if self._reader.at_eof() or self._writer.is_closing():
                return
            await self.write(bytes([byte]))
            await asyncio.sleep(pause)


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


HEAD = b"PUT /state HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def test_half_of_a_head_is_not_waited_for(strict: int) -> None:
    async with connected(strict) as raw:
        await raw.write(HEAD)
        assert (await raw.read()).startswith(b"HTTP/1.1 408 ")


async def test_a_connection_that_says_nothing_is_ended(strict: int) -> None:
    async with connected(strict) as raw:
        assert await raw.read() == b""


async def test_half_of_a_second_head_is_not_waited_for(strict: int) -> None:
    async with connected(strict) as raw:
        await raw.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(0.1)
        await raw.write(HEAD)
        answer = await raw.read()
        assert answer.startswith(b"HTTP/1.1 200 ") and b"HTTP/1.1 408 " in answer


async def test_a_head_that_trickles_is_ended_when_its_time_is_over(strict: int) -> None:
    async with connected(strict) as raw:
        answer, _ = await asyncio.gather(raw.read(), raw.trickle(HEAD * 10, 0.05))
        assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")


async def test_a_head_without_end_is_refused(port: int) -> None:
    async with connected(port) as raw:
        await raw.write(HEAD + b"X: " + b"x" * (guarding.HEADER_BYTES + 1))
        answer = await raw.read()
        assert answer == b"" or answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


@pytest.mark.parametrize("framing", [b"Content-Length: 100\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n64\r\n"])
@pytest.mark.parametrize("trickles", [False, True])
async def test_half_of_a_body_is_not_waited_for(strict: int, framing: bytes, trickles: bool) -> None:
    async with connected(strict) as raw:
        await raw.write(HEAD + framing)
        sending = raw.trickle(b'{"a": 1' + b" " * 90, 0.05) if trickles else raw.write(b'{"a": ')
        answer, _ = await asyncio.gather(raw.read(), sending)
        if answer or not trickles:  # What is still sent meanwhile may be answered by a reset.
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"the body has not come within 0.6 s" in answer


async def test_an_answer_may_take_longer_than_any_request(strict: int) -> None:
    async with connected(strict) as raw:
        await raw.write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await raw.read()).count(b"tick") == 6


async def test_others_are_answered_meanwhile(port: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for number in range(50):
            raw = await stack.enter_async_context(connected(port))
            await raw.write(HEAD + (b"Content-Length: 9\r\n\r\n{" if number % 2 else b""))
        assert (await get(port, {})).status_code == 200


def test_hosts_are_names() -> None:
    given: dict[str, Any] = {"bootstrap_servers": "unused:9092"}
    assert ServiceSettings(**given).http_bounds["hosts"] == []
    assert ServiceSettings(**given, http_hosts="a.example, b.example").http_bounds["hosts"] == [
        "a.example",
        "b.example",
    ]
    with pytest.raises(ValueError, match="http_hosts"):
        ServiceSettings(**given, http_hosts="http://a.example/")


def test_every_server_of_ours_is_one_of_these() -> None:
    root = Path(__file__).parents[4]
    found = {
        path.name
        for path in root.glob("*/*/src/**/*.py")
        if re.search(r"uvicorn\.(run|Config)|HTTPServer[()]|start_server\(", path.read_text())
    }
    # The proxy speaks Kafka's protocol, in tests alone. An app's server only tells, and looks at hosts itself.
    assert found == {"app.py", "proxy.py", "serving.py"}
