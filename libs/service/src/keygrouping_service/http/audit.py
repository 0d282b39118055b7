"""Who has changed what over HTTP: a line of the log for each change, with the name of the token's holder."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)
# An audit is no matter of how much else is logged.
log.setLevel(logging.INFO)

ANYBODY = "anybody"
"""Who calls where no tokens are asked for."""

SUMMARY_SECONDS = 60.0
"""Between two lines of the audit on what one caller does all the time."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_MOST_SHOWN = 200


def set_caller(request: Request, name: str) -> None:
    """Tells the audit who sends this request."""
    request.state.caller = name


def caller_of(request: Request) -> str | None:
    """The name by which the request's token is known; None where no tokens are asked for."""
    name: str | None = getattr(request.state, "caller", None)
    return None if name == ANYBODY else name


@dataclass
class _Unsaid:
    """What one caller has done since the last line on it."""

    since: float
    requests: int = 0
    refused: int = 0


class Audit:
    """Middleware: says of every change who asked for it, from where, and how it was answered.

    Changes of the paths in `frequent` come by the thousands: of them each caller's first is told, then once a minute
    how many there were since.
    """

    def __init__(
        self, app: ASGIApp, frequent: Collection[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._frequent = frozenset(frequent)
        self._clock = clock
        self._unsaid: dict[tuple[str, str], _Unsaid] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            return await self._app(scope, receive, send)
        state = scope.setdefault("state", {})
        status = 500

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, told)
        finally:
            self._say(scope, str(state.get("caller", ANYBODY)), status)

    def _say(self, scope: Scope, caller: str, status: int) -> None:
        address = scope["client"][0] if scope.get("client") else "an unknown address"
        level = logging.WARNING if status in (401, 403) else logging.INFO
        if scope["path"] not in self._frequent:
            log.log(level, "%s %s by %s from %s: %d", scope["method"], _shown(scope), caller, address, status)
            return
        if (unsaid := self._counted(scope["path"], caller, refused=status >= 400)) is not None:
            log.log(
                level,
                "%s %s by %s: requests since the last line: %d, not taken: %d; the last one from %s: %d",
                *(scope["method"], _shown(scope), caller, unsaid.requests, unsaid.refused, address, status),
            )

    def _counted(self, path: str, caller: str, *, refused: bool) -> _Unsaid | None:
        """Counts a request; gives what is to be told now, if anything."""
        now = self._clock()
        unsaid = self._unsaid.get((path, caller))
        first = unsaid is None
        unsaid = unsaid or _Unsaid(now)
        unsaid.requests += 1
        unsaid.refused += refused
        due = first or now - unsaid.since >= SUMMARY_SECONDS
        self._unsaid[path, caller] = _Unsaid(now) if due else unsaid
        return unsaid if due else None


def _shown(scope: Scope) -> str:
    """The request's target as it came, which has no control characters; of a long one the beginning."""
    target: bytes = scope.get("raw_path") or str(scope["path"]).encode("unicode_escape")
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    text = target.decode("ascii", "backslashreplace")
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
