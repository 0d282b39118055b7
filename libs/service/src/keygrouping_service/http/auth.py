"""Who may call an HTTP interface: bearer tokens from a file that may change at any time."""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from keygrouping_service.http.audit import set_caller
from keygrouping_service.settings import TokenSettings
from keygrouping_service.tokens import Token, digest, parse

log = logging.getLogger(__name__)

_REALM = 'Bearer realm="keygrouping"'
_SCHEME = HTTPBearer(auto_error=False, description="one of the tokens in KEYGROUPING_API_TOKEN_FILE")
_Given = Annotated[HTTPAuthorizationCredentials | None, Depends(_SCHEME)]


class TokenFile:
    """The tokens of a file, read again when the file changes: so they rotate without a restart.

    To rotate, add a line with the new token, hand it out, then take the old line away. A file that can't be read
    accepts no token at all, and a line that can't be read none of its own.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] | None = None
        self._tokens: list[Token] = []
        self._fault: str | None = None

    def find(self, given: str) -> Token | None:
        """Whose token it is; None if it is nobody's. Takes the same time for any token."""
        self._refresh()
        asked = digest(given)
        found = [token for token in self._tokens if hmac.compare_digest(asked, token.digest)]
        return found[0] if found else None

    def _refresh(self) -> None:
        try:
            stat = os.stat(self._path)
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)
            if seen == self._seen:
                return
            text = self._path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            if str(error) != self._fault:
                log.error("KEYGROUPING_API_TOKEN_FILE can't be read, so no token is accepted: %s", error)
            self._seen, self._tokens, self._fault = None, [], str(error)
            return
        self._seen, self._fault = seen, None
        self._tokens, faults = parse(text)
        for fault in faults:
            log.error("KEYGROUPING_API_TOKEN_FILE, so its token is not accepted: %s", fault)


class Auth:
    """Dependencies for routes: `reading` and `writing` answer 401 to a request without a valid token, and `writing`
    403 to a token that may only read.

    Both are empty where no token is needed, so that the OpenAPI document asks for none.
    """

    def __init__(self, settings: TokenSettings) -> None:
        reading: list[Any] = []
        writing: list[Any] = []
        if settings.api_token_file is not None:
            tokens = TokenFile(settings.api_token_file)

            async def check_read(request: Request, given: _Given) -> None:
                _holder(tokens, request, given)

            async def check_write(request: Request, given: _Given) -> None:
                _check_role(_holder(tokens, request, given))

            reading, writing = [Depends(check_read)], [Depends(check_write)]
        self.writing: Sequence[Any] = writing
        self.reading: Sequence[Any] = reading if settings.api_reads == "closed" else []


def _holder(tokens: TokenFile, request: Request, given: HTTPAuthorizationCredentials | None) -> Token:
    """Whose token the request has, which the audit is told."""
    if given is None:
        set_caller(request, "nobody")
        raise HTTPException(401, "send a token: Authorization: Bearer ...", {"WWW-Authenticate": _REALM})
    token = tokens.find(given.credentials)
    if token is None:
        set_caller(request, "an unknown token")
        challenge = f'{_REALM}, error="invalid_token"'
        raise HTTPException(401, "the token is not valid (any more)", {"WWW-Authenticate": challenge})
    set_caller(request, token.name)
    return token


def _check_role(token: Token) -> None:
    if not token.writes:
        challenge = f'{_REALM}, error="insufficient_scope", scope="write"'
        detail = f"the token of {token.name} may only read: a change needs one whose role is write"
        raise HTTPException(403, detail, {"WWW-Authenticate": challenge})
