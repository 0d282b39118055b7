"""The page at `/` and its files, and the headers that keep a browser from doing more with an answer than it should."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from keygrouping_service.http.queries import known_query
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FOLDER = Path(__file__).parent.parent / "page"

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the page: nothing from elsewhere, nothing inline."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
}
"""Headers of every answer that does not bring its own. A browser asks each time whether a file has changed."""


_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class SecurityHeaders:
    """Adds `HEADERS` to the answers of an app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message["headers"]
                names = {name.lower() for name, _ in given}
                message["headers"] = [*given, *(header for header in _RAW_HEADERS if header[0] not in names)]
            await send(message)

        await self._app(scope, receive, send_with_headers)


class _Files(StaticFiles):
    """Files that take no query, as no path does that has no use for one."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        await known_query(Request(scope))
        return await super().get_response(path, scope)


def add_page(app: FastAPI, folder: Path = FOLDER) -> None:
    """Serves `index.html` of the folder at `/`, and all its files below `/assets/`."""

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(folder / "index.html", headers={"Content-Security-Policy": PAGE_POLICY})

    app.mount("/assets", _Files(directory=folder), name="assets")
